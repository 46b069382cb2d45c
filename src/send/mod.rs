//! The sender: an outbox in the application's own database, and a [`Dispatcher`] that delivers what is in it.
//!
//! # The walk of a message
//!
//! | step | where | what happens |
//! |---|---|---|
//! | message | [`Message::json`](crate::store::Message::json) | the bytes and the id that are sent, for good |
//! | enqueue | [`OutboxStore::enqueue`](crate::store::OutboxStore::enqueue), [`publish`](crate::store::OutboxStore::publish) | durable, for one endpoint or for all that want its type |
//! | claim | [`Dispatcher`] | what is due and what its endpoint may get now; under a lease |
//! | sign | [`KeySource`] | with all live secrets, anew for each attempt |
//! | send | [`Transport`], [`HttpTransport`] | to what the [`Policy`] allows; one bounded answer |
//! | classify | [`classify`] | what the answer, or its absence, means |
//! | decide | [`RetryPolicy`] | delivered, again and when, or dead |
//! | settle | [`OutboxStore::settle`](crate::store::OutboxStore::settle) | on record, unless somebody else took over |
//! | tell | [`Notice`](crate::notice::Notice) | what a person should know |
//!
//! `client` reads the endpoint's URL (`target`), and asks the `policy`; for a new connection, `guard` looks the name up
//! (`resolve`), and has the policy judge each `address`; `connector` dials what passed.
//!
//! The [guide] goes through all of it: keys, retries, order, dead letters, and what a receiver must do.
//!
//! # Which targets are called
//!
//! `https` at public addresses, unless the [`Policy`] says otherwise. It is asked for the address that is dialled, at the
//! moment in which it is dialled, so that neither a name that changes its mind nor one of the many ways to write an
//! address leads inside.
//!
//! # What receivers can rely on
//!
//! Each message arrives at least once, until the receiver has answered with a 2xx, or it is given up. All attempts, and
//! all replays, carry the same id and the same bytes; timestamp and signatures are new each time. Messages that share an
//! ordering key arrive in order, one at a time; others in any order.
//!
//! # Encryption
//!
//! The feature `send` brings no crypto provider: which one is the application's choice. Add `rustls` with its feature `ring`
//! or `aws-lc-rs`, and install that for the process, or give [`HttpTransportBuilder::tls`] a configuration.
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use countersign::Name;
//! use countersign::send::{Dispatcher, Guard, HttpTransport, Policy};
//! use countersign::store::{Endpoint, MemoryStore, Message, OutboxStore, TypePattern};
//!
//! let store = MemoryStore::new();
//! let mut shop = Endpoint::new(Name::new("shop")?, "https://shop.example/hooks");
//! shop.secrets = vec!["env:SHOP_SECRET".into()];
//! shop.types = vec![TypePattern::new("order.*")?];
//! store.put_endpoint(shop).await?;
//! store.publish(Message::json("order.paid", &serde_json::json!({ "order": 7 }))?).await?;
//!
//! let _ = rustls::crypto::ring::default_provider().install_default();
//! let transport = HttpTransport::builder(Guard::new(Policy::new())).build()?;
//! Dispatcher::builder(store, transport).build()?.run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```

mod address;
mod attempt;
mod breaker;
mod classify;
mod client;
mod connector;
mod decide;
mod disabled;
mod dispatcher;
mod enveloped;
mod failure;
mod guard;
pub mod guide;
mod headers;
mod key_source;
mod limits;
mod measure;
mod message;
mod operator_endpoint;
mod outgoing;
mod policy;
mod rate;
mod record;
mod redirect;
mod report;
mod resolve;
mod retry;
mod retry_after;
mod secret_place;
mod secret_reads;
mod tally;
mod target;
mod tell;
mod transport;

pub use address::Block;
pub use classify::{Retry, Verdict, classify};
pub use client::{HttpTransport, HttpTransportBuilder};
pub use dispatcher::{Dispatcher, DispatcherBuilder, Trial};
pub use failure::{Failure, Stage};
pub use guard::Guard;
pub use headers::endpoint_headers;
pub use key_source::{EnvAndFiles, KeyError, KeyFuture, KeySource};
pub use message::{MessageError, new_id};
pub use operator_endpoint::OperatorEndpoint;
pub use policy::{Exception, ExceptionError, Policy, Refusal, Rule};
pub use redirect::Redirect;
pub use resolve::{Resolve, ResolveError, ResolveFuture, SystemResolver};
pub use retry::{Due, GiveUp, Next, RetryPolicy};
pub use retry_after::retry_after;
pub use secret_place::{PlaceError, SecretPlace};
pub use tally::{Tallied, Tally};
pub use target::Target;
pub use transport::{Answer, Ending, Outgoing, SendFuture, Transport};

pub use crate::store::endpoint_headers::HeaderError;
pub use crate::store::endpoint_url::TargetError;
pub use crate::store::overrides::{Override, OverrideError, Overrides};
pub use crate::work::Backoff;
