//! Leased work: what claims it, keeps hold of it and gives it back, whatever the work is.
//!
//! [`run_until`] is the loop, [`Renewal`] keeps one lease from running out, [`in_time`] bounds the wait for a
//! store, [`Backoff`] says when to try again, [`watch`] how far the work is behind and whether its store answers.

mod backoff;
mod claims;
mod in_time;
mod lag;
mod moment;
mod renewal;

pub use backoff::Backoff;
#[cfg(feature = "send")]
pub(crate) use backoff::{chance, share};
pub(crate) use claims::{Pace, Work, run_until};
pub(crate) use in_time::{STORE_TIME, in_time};
pub(crate) use lag::{Watched, watch};
#[cfg(feature = "send")]
pub(crate) use moment::after;
pub(crate) use renewal::Renewal;
