//! Proof of who sent an event: one description of each provider's way to sign, used in both directions.
//!
//! A [`Scheme`] is data: which headers, which algorithm, which text is signed. Two functions work on it. `header` reads
//! a request's headers into claims (candidate signatures, a timestamp, an id); `signed` feeds the signed text to a MAC.
//! The [`Verifier`] uses both, the [`Signer`] the second one, so the two ends cannot drift.
//!
//! Nothing in here is asynchronous, reads a file or knows of a database.
//!
//! ```
//! use countersign::signature::{Head, Keyring, Message, Scheme, Signer, Verifier};
//! use countersign::{Clock, SystemClock};
//! use http::Method;
//!
//! let scheme = Scheme::standard();
//! let secret = scheme.parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//!
//! let signer = Signer::new(scheme.clone(), Keyring::new(secret.clone()))?;
//! let message = Message::new(SystemClock.now(), br#"{"amount":12}"#).with_id("msg_1");
//! let headers = signer.sign(&message)?;
//!
//! let verifier = Verifier::new(scheme, Keyring::new(secret))?;
//! let head = Head::new(&Method::POST, "https://example.com/hooks", &headers);
//! let verified = verifier.verify(head, br#"{"amount":12}"#)?;
//! assert_eq!(verified.event_id().map(|id| id.as_str()), Some("msg_1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "asymmetric")]
mod asymmetric;
mod body_id;
mod date;
mod der;
mod encoding;
mod error;
mod form;
mod handshake;
mod header;
mod keyring;
mod mac;
#[cfg(feature = "rfc9421")]
mod message_signature;
pub mod providers;
mod scheme;
mod sign;
mod signed;
mod trial;
mod verified;
mod verify;
mod window;

pub(crate) use body_id::find as body_field;
pub use encoding::Encoding;
pub use error::{ConfigError, SignError, VerifyError};
pub(crate) use handshake::ChallengeToken;
pub use handshake::Handshake;
pub use header::Head;
pub use keyring::{Keyring, MAX_SECRETS};
pub use mac::Algorithm;
pub use scheme::{RepeatedId, Scheme, UnknownScheme};
pub use sign::{Message, Signer};
pub use verified::{IdOrigin, Verified};
pub use verify::{Check, Verifier};
pub use window::ReplayWindow;
