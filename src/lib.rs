//! Both ends of the webhook contract.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod event;
pub mod secret;
pub mod signature;
pub mod store;

pub use clock::{Clock, SystemClock, Timestamp};
pub use event::{DedupKey, Digest, EventId, Name};
pub use secret::{Secret, SecretFormat};
pub use signature::{ConfigError, Keyring, ReplayWindow, Scheme, Signer, Verified, Verifier, VerifyError};
