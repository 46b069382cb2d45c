//! Both ends of the webhook contract: prove who sent an event, run it once, answer every repeat with the same result.
//!
//! This page is a map. The [README](https://crates.io/crates/countersign) says what the package is for, shows both quick
//! starts, and states the guarantee and its limits.
//!
//! # The walk of a request
//!
//! | step | where | what happens |
//! |---|---|---|
//! | body | [`receive::VerifyLayer`] | read once, within limits, while the signature is computed |
//! | verify | [`signature::Verifier`] | refuse what is forged, stale or malformed; what is left is [`signature::Verified`] |
//! | key | [`receive::KeyFrom`] | which event this is a delivery of: [`DedupKey`] |
//! | reserve | [`store::InboxStore::reserve`] | exactly one of all deliveries gets the right to run it: [`store::Lease`] |
//! | handler | yours | with [`receive::Delivery`] and [`receive::Reservation`] at hand |
//! | complete, fail | [`store::InboxStore::complete`] | the result is durable before the sender sees it |
//!
//! In deferred mode the request ends after its key: [`store::InboxStore::accept`] makes it durable, and a
//! [`receive::Processor`] goes the rest of the way: [`store::InboxStore::claim`], handler, complete or fail.
//!
//! # Modules
//!
//! - [`receive`]: the Tower layers, and what a sender gets.
//! - [`signature`]: how providers sign, as data; verifying and signing.
//! - [`secret`]: keys, which are refused when they are empty or badly written, warned of when they are short, and never shown.
//! - [`store`]: where events are remembered. The contract, a store in memory, SQLite, PostgreSQL, and MySQL or MariaDB.
//! - [`event`], [`clock`]: the values that all of these speak in.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `sqlite` | `store::SqliteStore`, with SQLite bundled | yes |
//! | `postgres` | `store::PostgresStore` | |
//! | `mysql` | `store::MySqlStore`, for MySQL and MariaDB | |
//! | `axum` | extractors `receive::Delivery`, `receive::Event`, `receive::Reservation` | |
//! | `cli` | the program `countersign` | |
//! | `test-util` | `store::conformance` for stores of your own, and `clock::ManualClock` | |
//! | `full` | all of these | |
//!
//! Features only add: none changes what the rest does.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod clock;
pub mod event;
pub mod receive;
pub mod secret;
pub mod signature;
pub mod store;
mod work;

pub use clock::{Clock, SystemClock, Timestamp};
pub use event::{DedupKey, Digest, EventId, Name};
pub use secret::{Secret, SecretFormat};
pub use signature::{ConfigError, Keyring, ReplayWindow, Scheme, Signer, Verified, Verifier, VerifyError};

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "axum", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
