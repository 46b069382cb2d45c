//! The receiver: Tower layers that let each signed event through once.
//!
//! # The walk of a request
//!
//! `body` reads it within bounds and feeds the signature check → `verify` refuses what is forged or stale → `key` names
//! the event → `dedup` reserves it → `run` calls the handler and settles the receipt → `answer` keeps the response and gives
//! it to repeats. What is refused on the way becomes HTTP in `rejection`.
//!
//! # Two modes
//!
//! *Inline*, the default: the handler runs within the request, and its answer is the answer. *Deferred*
//! ([`DedupLayerBuilder::deferred`]): `dedup` accepts the event and answers 202 after one commit; behind the requests a
//! [`Processor`] claims what is due, and goes on with the same `run` and `answer`. Senders give up after one to thirty
//! seconds and retry as they like; a processor has the time it needs, and retries, backs off and gives up by your settings.
//!
//! # Examples
//!
//! With defaults, around an axum handler:
//!
//! ```
//! # #[cfg(all(feature = "axum", feature = "sqlite"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, http::StatusCode, routing::post};
//! use countersign::receive::{DedupLayer, Event, ReceiveLayer, VerifyLayer};
//! use countersign::signature::{Keyring, Scheme, Verifier};
//! use countersign::store::SqliteStore;
//!
//! async fn paid(event: Event<serde_json::Value>) -> StatusCode {
//!     StatusCode::NO_CONTENT
//! }
//!
//! let stripe = Scheme::stripe();
//! let secret = stripe.parse_secret(&std::env::var("STRIPE_WEBHOOK_SECRET")?)?;
//! let verify = VerifyLayer::new("stripe", Verifier::new(stripe, Keyring::new(secret))?)?;
//! let dedup = DedupLayer::new(SqliteStore::open("inbox.db").await?);
//!
//! let app: Router = Router::new().route("/stripe", post(paid)).layer(ReceiveLayer::new(verify, dedup)?);
//! # Ok(())
//! # }
//! ```
//!
//! With settings of your own, and a layer between the two, around any Tower service:
//!
//! ```
//! # fn example(verifier: countersign::signature::Verifier) -> Result<(), countersign::ConfigError> {
//! use std::time::Duration;
//! use countersign::receive::{DedupLayer, KeyFrom, VerifiedBody, VerifyLayer};
//! use countersign::store::MemoryStore;
//! use http::{Request, Response};
//!
//! async fn handle(request: Request<VerifiedBody>) -> Result<Response<String>, std::io::Error> {
//!     Ok(Response::new(format!("{} bytes", request.body().delivery().body().len())))
//! }
//!
//! let verify = VerifyLayer::builder("partner", verifier)
//!     .body_limit(25 * 1024 * 1024)
//!     .body_timeout(Duration::from_secs(60))
//!     .build()?;
//! let dedup = DedupLayer::builder(MemoryStore::new())
//!     .consumer("billing")
//!     .key(KeyFrom::BodyField("event.id".into()))
//!     .lease(Duration::from_secs(10))
//!     .build()?;
//! let service = tower::ServiceBuilder::new().layer(verify).layer(dedup).service_fn(handle);
//! # Ok(())
//! # }
//! ```
//!
//! # What the sender sees
//!
//! | situation | answer | stored |
//! |---|---|---|
//! | signature absent, malformed or wrong; timestamp outside the window | 401, the same for all causes | nothing |
//! | with [`Stale::Quarantine`]: signature right, timestamp outside the window | 202, no body | `received`, in quarantine |
//! | a handshake of the scheme | what the provider wants to hear; 403 where it asks for more | nothing |
//! | body over the limit, too slow, cut off | 413, 408, 400 | nothing |
//! | signature right, id unusable as a key | 400 | nothing |
//! | first delivery, handler answers 2xx | the handler's response | `succeeded`, with its result |
//! | repeat of a succeeded event | the stored response, `idempotent-replayed: true` | nothing new |
//! | repeat while the first one runs | its result if it comes within 250 ms, else 409 with `Retry-After` | nothing new |
//! | same signed id, other body | by scheme: 409, or the stored response | counted |
//! | handler answers anything else, panics, or is too slow | that status, or 500 | `failed`; the next delivery runs it again |
//! | [`Outcome::Permanent`] | the handler's response, to repeats too | `dead_letter`, with the reason |
//! | `complete_in` called and committed, whatever the handler answers then | the response given to it | `succeeded` |
//! | `complete_in` called, not committed, handler answers 2xx | 500 | `failed`; the next delivery runs it again |
//! | with [`Profile::Strict`]: nobody can tell what came of a run | 503, to repeats too | `dead_letter`, until an operator concludes or retries it |
//! | attempts used up | the last answer, to repeats too | `dead_letter` |
//! | deferred: accepted, or a repeat of one that has no end yet | 202, no body | `received`, with its request |
//! | deferred: repeat of one that has an end | the stored response, `idempotent-replayed: true` | nothing new |
//! | the sender hangs up | nothing | as above: the handler goes on |
//! | the store does not answer | 503 with `Retry-After`; the handler is not run | nothing |
//!
//! Refusals are `application/problem+json` (RFC 9457) of types `urn:countersign:problem:…`.
//!
//! # The guarantee
//!
//! A handler is run at least once for each event that is answered with a 2xx, and after it has succeeded it is not run
//! again for as long as the key is kept. Its effects can happen twice where a run did its work and then died before its
//! result was stored, or did its work and then answered with an error: what is not a 2xx asks for another run, whatever
//! the handler has committed by then.
//!
//! Effects that the handler writes in a transaction of its own, in the database in which the store is, happen exactly once
//! where it ends that transaction with `Reservation::complete_in` (features `sqlite`, `postgres`, `mysql`): the event and
//! its effects are one commit, and a run that has lost its lease cannot make it. For everything else there is
//! [`Reservation::idempotency_key`], by which whoever is called can tell the second time from the first.
//!
//! *Effects in the caller's transaction happen once; everything else happens at least once.*

mod answer;
mod arrivals;
mod body;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod complete_in;
mod dedup;
mod delivery;
#[cfg(feature = "axum")]
mod extract;
mod handshake;
mod keep_request;
mod key;
mod layer;
mod measure;
mod order;
mod outcome;
mod processor;
mod profile;
mod public_url;
mod registration;
mod rejection;
mod reservation;
mod response;
mod run;
mod settings;
mod tasks;
mod trace;
mod verify;
mod watch;

pub use answer::REPLAYED;
pub use arrivals::Arrivals;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))))]
pub use complete_in::CompleteError;
pub use dedup::{Dedup, DedupFuture, DedupLayer};
pub use delivery::{Delivery, PayloadError, VerifiedBody};
#[cfg(feature = "axum")]
pub use extract::{Event, MissingLayer, NoEnvelope};
pub use keep_request::KeepRequest;
pub use key::KeyFrom;
pub use layer::ReceiveLayer;
pub use order::OrderBy;
pub use outcome::Outcome;
pub use processor::{Processor, ProcessorBuilder};
pub use profile::Profile;
pub use registration::HookRegistration;
pub use rejection::{KeyError, Rejection, RejectionKind};
pub use reservation::Reservation;
pub use response::ResponseBody;
pub use settings::{DedupLayerBuilder, OtherBodyAnswer};
pub use tasks::HandlerTasks;
pub use verify::{Stale, Verify, VerifyFuture, VerifyLayer, VerifyLayerBuilder};
pub use watch::watch_forever;

pub use crate::work::Backoff;
