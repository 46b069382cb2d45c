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
//! | | `receive::Reservation::complete_in` | or the handler does it, in the transaction of its own effects |
//!
//! In deferred mode the request ends after its key: [`store::InboxStore::accept`] makes it durable, and a
//! [`receive::Processor`] goes the rest of the way: [`store::InboxStore::claim`], handler, complete or fail.
//!
//! # The walk of a message
//!
//! The other way, in feature `send`: `store::Message::json`, `store::OutboxStore::enqueue` or `publish`, and a
//! `send::Dispatcher`, which claims, signs, sends, classifies and settles, until the message is delivered or dead. The
//! module `send` draws the map.
//!
//! # Modules
//!
//! - [`receive`]: the Tower layers, and what a sender gets.
//! - `send` (feature `send`): the dispatcher, its HTTP client, and which targets may be called.
//! - `saga` (feature `saga`, with a database): flows of several steps, stored beside inbox and outbox.
//! - [`signature`]: how providers sign, as data; verifying and signing.
//! - [`secret`]: keys, which are refused when they are empty or badly written, warned of when they are short, and never shown.
//! - `admin` (feature `admin`): pages and a JSON API for the people who run it.
//! - [`store`]: where events are remembered. The contract, a store in memory, SQLite, PostgreSQL, and MySQL or MariaDB.
//! - `telemetry` (feature `telemetry`): what is measured, and which spans there are.
//! - [`notice`]: what operators are told, in time, by both walks.
//! - [`envelope`]: what an event says about itself, signed with it; versions of its payload.
//! - [`event`], [`clock`]: the values that all of these speak in.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `sqlite` | `store::SqliteStore`, with SQLite bundled | yes |
//! | `postgres` | `store::PostgresStore` | |
//! | `mysql` | `store::MySqlStore`, for MySQL and MariaDB | |
//! | `asymmetric` | schemes with public keys: `standard-ed25519`, `discord`, `sendgrid`, `plaid` | |
//! | `rfc9421` | `Scheme::rfc9421`: HTTP Message Signatures with `Content-Digest` | |
//! | `axum` | extractors `receive::Delivery`, `receive::Event`, `receive::Reservation` | |
//! | `cache` | `store::CachedInbox`: finished results in memory, in front of any store | |
//! | `admin` | `admin::Admin`: pages and a JSON API for operators, as an axum `Router` | |
//! | `cli` | the program `countersign` | |
//! | `saga` | `saga`: state machines for flows of several steps, on the SQL stores; brings `send` |
//! | `send` | the sender: outbox, dispatcher, and an HTTP client that dials only what may be called; bring a crypto provider of `rustls` | |
//! | `telemetry` | metrics by way of the facade `metrics`, and the module that lists them | |
//! | `test-util` | `store::conformance` and `faults`, `store::outbox_conformance` and `outbox_faults` for stores of your own, and `clock::ManualClock` | |
//! | `full` | all of these | |
//!
//! Features only add: none changes what the rest does.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "admin")]
#[cfg_attr(docsrs, doc(cfg(feature = "admin")))]
pub mod admin;
mod cause;
pub mod clock;
pub mod envelope;
pub mod event;
pub mod guide;
pub mod notice;
pub mod receive;
#[cfg(all(feature = "saga", any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
#[cfg_attr(docsrs, doc(cfg(all(feature = "saga", any(feature = "sqlite", feature = "postgres", feature = "mysql")))))]
pub mod saga;
pub mod secret;
#[cfg(feature = "send")]
#[cfg_attr(docsrs, doc(cfg(feature = "send")))]
pub mod send;
pub mod signature;
pub mod store;
#[cfg(feature = "telemetry")]
#[cfg_attr(docsrs, doc(cfg(feature = "telemetry")))]
pub mod telemetry;
#[cfg(not(feature = "telemetry"))]
mod telemetry;
mod work;

pub use cause::Cause;
pub use clock::{Clock, SystemClock, Timestamp};
pub use event::{DedupKey, Digest, EventId, Name};
pub use secret::{Secret, SecretFormat};
pub use signature::{ConfigError, Keyring, ReplayWindow, Scheme, Signer, Verified, Verifier, VerifyError};

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "axum", feature = "send", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
