//! Tests that look at the package from outside, in one program: each further one would be linked on its own.

mod architecture;
mod cli;
mod demo;
mod examples;
mod fuzz_replay;
mod gateway;
mod receive_answers;
mod receive_bytes;
mod receive_config;
mod receive_hangup;
mod receive_http;
mod receive_http2;
mod receive_keys;
mod receive_ledger;
mod receive_once;
mod receive_store;
mod receive_tower;
mod receive_url;
mod signature;
mod signature_properties;
mod store_conformance;
mod store_model;
mod store_sqlite;
mod support;
mod vectors;
mod wire;
