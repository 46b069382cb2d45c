//! What both walks tell about themselves, held against what the store says.

pub(crate) mod metrics;
mod program;
mod recorder;
mod spans;
