//! Flows of several steps that may fail in the middle: a state machine, stored beside inbox and outbox.
//!
//! The shape of the flow is the application's: a type that is its state, and a pure function from state and event to a
//! [`Decision`] ([`Saga`]). The durability is ours: the move, the receipt of the event that caused it and the messages that it
//! sends are one commit ([`handle`]). What follows, a reader can rely on:
//!
//! - an event moves an instance once, however often it is delivered;
//! - what a move sends is sent if, and only if, the move is committed;
//! - two events that come at once move an instance one after the other: its version is compared and set;
//! - every event that was answered is in the [history](crate::store::SagaStep), with its time, its answer, and what it sent;
//! - what comes late, twice or too early has a declared answer: ignore, defer, or a dead letter with its reason.
//!
//! The [guide] says when to use this and when not.
//!
//! ```
//! use countersign::envelope::{Contract, ContractError, Envelope};
//! use countersign::saga::{Decision, Move, Saga};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Placed { order: String }
//! impl Contract for Placed { const TYPE: &'static str = "order.placed"; }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Charge { order: String }
//! impl Contract for Charge { const TYPE: &'static str = "payment.charge"; }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Charged { order: String }
//! impl Contract for Charged { const TYPE: &'static str = "payment.charged"; }
//!
//! /// The flow, and its state.
//! #[derive(Debug, Serialize, Deserialize)]
//! enum Order { Charging, Approved }
//!
//! enum Event { Placed(Placed), Charged(Charged) }
//!
//! impl Saga for Order {
//!     const NAME: &'static str = "order";
//!     type Event = Event;
//!
//!     fn read(event: &Envelope) -> Result<Event, ContractError> {
//!         match event.event_type.as_str() {
//!             Placed::TYPE => Ok(Event::Placed(event.read()?.data)),
//!             Charged::TYPE => Ok(Event::Charged(event.read()?.data)),
//!             _ => Err(event.unknown_type()),
//!         }
//!     }
//!
//!     fn instance(event: &Event) -> &str {
//!         match event {
//!             Event::Placed(Placed { order }) | Event::Charged(Charged { order }) => order,
//!         }
//!     }
//!
//!     fn step(&self) -> &'static str {
//!         match self {
//!             Self::Charging => "charging",
//!             Self::Approved => "approved",
//!         }
//!     }
//!
//!     fn decide(state: Option<&Self>, event: &Event) -> Decision<Self> {
//!         match (state, event) {
//!             (None, Event::Placed(Placed { order })) => {
//!                 Move::to(Self::Charging).send("payment", &Charge { order: order.clone() }).into()
//!             }
//!             (Some(Self::Charging), Event::Charged(_)) => Move::to(Self::Approved).end().into(),
//!             (None, Event::Charged(_)) => Decision::defer("the order is not known yet"),
//!             (Some(_), _) => Decision::ignore("that has happened before"),
//!         }
//!     }
//! }
//!
//! // How it is moved, in an axum handler:
//! # #[cfg(all(feature = "axum", feature = "sqlite"))]
//! # {
//! use axum::extract::State;
//! use axum::response::IntoResponse;
//! use countersign::receive::{Outcome, Reservation};
//! use countersign::saga;
//!
//! async fn moved(
//!     State(pool): State<sqlx::SqlitePool>,
//!     run: Reservation,
//!     event: Envelope,
//! ) -> Result<impl IntoResponse, Outcome> {
//!     let not_now = |error: sqlx::Error| Outcome::transient(error.to_string());
//!     let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.map_err(not_now)?;
//!     let response = saga::handle::<Order, _>(&mut *transaction, &run, &event).await?;
//!     transaction.commit().await.map_err(not_now)?;
//!     Ok(response)
//! }
//! # }
//! ```

mod advance;
mod definition;
mod error;
pub mod guide;
mod progress;

pub use self::advance::{Instance, advance, find, handle};
pub use self::definition::{Decision, Move, Saga};
pub use self::error::SagaError;
