//! Tests that look at the package from outside, in one program: each further one would be linked on its own.

mod architecture;
mod fuzz_replay;
mod receive_bytes;
mod receive_http;
mod receive_http2;
mod receive_tower;
mod receive_url;
mod store_conformance;
mod store_model;
mod store_sqlite;
mod support;
mod wire;
