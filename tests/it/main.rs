//! The integration tests: one program, so that they are linked once.

mod cli;
mod store_conformance;
mod store_model;
mod store_sqlite;
