//! The tests that use the crate as its users do, in one binary.

mod signature;
mod signature_properties;
mod vectors;
