//! Leased work: what claims it, keeps hold of it and gives it back, whatever the work is.
//!
//! [`run_until`] is the loop, [`Renewal`] keeps one lease from running out, [`Backoff`] says when to try again.

mod backoff;
mod claims;
mod renewal;

pub use backoff::Backoff;
pub(crate) use claims::{Pace, Work, run_until};
pub(crate) use renewal::Renewal;
