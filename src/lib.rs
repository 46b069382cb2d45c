//! Both ends of the webhook contract.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod event;
pub mod store;

pub use clock::{Clock, SystemClock, Timestamp};
pub use event::{DedupKey, Digest, EventId, Name};
