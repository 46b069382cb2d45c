//! The flow of an order: a state machine, and nothing that waits or asks anybody.
//!
//! ```text
//! placed ──▶ reserving ──reserved──▶ charging ──charged──▶ approved
//!                │                       │
//!                └─out of stock, late    └─declined, late
//!                          └──────▶ cancelling ──released, refunded──▶ cancelled
//! ```

use std::time::Duration;

use countersign::envelope::{Contract as _, ContractError, Envelope};
use countersign::saga::{Decision, Move, Saga};
use serde::{Deserialize, Serialize};

use crate::messages::{
    Approved, Cancelled, Charge, Charged, Declined, Late, OutOfStock, Placed, Refund, Refunded, Release, Released,
    Reserve, Reserved,
};

/// An order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Order {
    Reserving {
        placed: Placed,
    },
    Charging {
        placed: Placed,
    },
    /// Waits until all that was begun is undone.
    Cancelling {
        reason: String,
        stock: Undoing,
        payment: Undoing,
    },
    Approved,
    Cancelled {
        reason: String,
    },
}

/// Whether somebody has undone what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Undoing {
    NotAsked,
    Asked,
    Done,
}

pub(crate) enum Event {
    Placed(Placed),
    Reserved(Reserved),
    OutOfStock(OutOfStock),
    Released(Released),
    Charged(Charged),
    Declined(Declined),
    Refunded(Refunded),
    Late(Late),
}

/// How long stock and payment have to answer.
pub(crate) fn patience() -> Duration {
    let millis = std::env::var("ORDERS_PATIENCE_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(60_000))
}

impl Saga for Order {
    const NAME: &'static str = "order";
    type Event = Event;

    fn read(event: &Envelope) -> Result<Event, ContractError> {
        Ok(match event.event_type.as_str() {
            Placed::TYPE => Event::Placed(event.read()?.data),
            Reserved::TYPE => Event::Reserved(event.read()?.data),
            OutOfStock::TYPE => Event::OutOfStock(event.read()?.data),
            Released::TYPE => Event::Released(event.read()?.data),
            Charged::TYPE => Event::Charged(event.read()?.data),
            Declined::TYPE => Event::Declined(event.read()?.data),
            Refunded::TYPE => Event::Refunded(event.read()?.data),
            Late::TYPE => Event::Late(event.read()?.data),
            _ => return Err(event.unknown_type()),
        })
    }

    fn instance(event: &Event) -> &str {
        match event {
            Event::Placed(Placed { order, .. })
            | Event::Reserved(Reserved { order })
            | Event::OutOfStock(OutOfStock { order })
            | Event::Released(Released { order })
            | Event::Charged(Charged { order })
            | Event::Declined(Declined { order })
            | Event::Refunded(Refunded { order })
            | Event::Late(Late { order, .. }) => order,
        }
    }

    fn step(&self) -> &'static str {
        match self {
            Self::Reserving { .. } => "reserving",
            Self::Charging { .. } => "charging",
            Self::Cancelling { .. } => "cancelling",
            Self::Approved => "approved",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    fn decide(state: Option<&Self>, event: &Event) -> Decision<Self> {
        let order = Self::instance(event).to_owned();
        let Some(state) = state else {
            return match event {
                Event::Placed(placed) => reserve(placed.clone()),
                // It has ended, and has been purged since.
                Event::Late(_) => Decision::ignore("there is no such order any more"),
                // Nobody is asked for anything before the order is placed, so that nothing can be too early: this is wrong.
                _ => Decision::refuse("there is no such order"),
            };
        };
        match (state, event) {
            (Self::Reserving { placed }, Event::Reserved(_)) => charge(placed.clone()),
            (Self::Reserving { .. }, Event::OutOfStock(_)) => cancel(Undoing::NotAsked, "out of stock"),
            (Self::Reserving { .. }, Event::Late(late)) if late.step == state.step() => {
                cancel(Undoing::NotAsked, "stock did not answer in time")
            }
            (Self::Charging { .. }, Event::Charged(_)) => {
                Move::to(Self::Approved).settle().publish(&Approved { order }).end().into()
            }
            (Self::Charging { .. }, Event::Declined(_)) => cancel(Undoing::Asked, "payment declined"),
            (Self::Charging { .. }, Event::Late(late)) if late.step == state.step() => {
                cancel(Undoing::Asked, "payment did not answer in time")
            }
            (Self::Cancelling { reason, payment, .. }, Event::Released(_)) => {
                undone(order, reason, Undoing::Done, *payment)
            }
            (Self::Cancelling { reason, stock, .. }, Event::Refunded(_)) => {
                undone(order, reason, *stock, Undoing::Done)
            }
            (Self::Cancelling { .. }, _) => Decision::ignore("the order is being cancelled"),
            (Self::Reserving { .. }, Event::Charged(_) | Event::Declined(_)) => {
                Decision::refuse("payment was not asked yet")
            }
            (Self::Reserving { .. } | Self::Charging { .. }, Event::Released(_) | Event::Refunded(_)) => {
                Decision::refuse("nothing was to be undone")
            }
            (_, Event::Late(_)) => Decision::ignore("the answer came in time"),
            (_, _) => Decision::ignore("that has happened before"),
        }
    }
}

fn reserve(placed: Placed) -> Decision<Order> {
    let Placed { order, item, quantity, .. } = placed.clone();
    let late = Late { order: order.clone(), step: "reserving".to_owned() };
    Move::to(Order::Reserving { placed })
        .send("stock", &Reserve { order: order.clone(), item, quantity })
        .undo_with("stock", &Release { order })
        .later(patience(), "orders", &late)
        .into()
}

fn charge(placed: Placed) -> Decision<Order> {
    let Placed { order, customer, cents, .. } = placed.clone();
    let late = Late { order: order.clone(), step: "charging".to_owned() };
    Move::to(Order::Charging { placed })
        .send("payment", &Charge { order: order.clone(), customer, cents })
        .undo_with("payment", &Refund { order })
        .later(patience(), "orders", &late)
        .into()
}

/// Whoever was asked for something undoes it, or says that there was nothing to undo.
fn cancel(payment: Undoing, reason: &str) -> Decision<Order> {
    Move::to(Order::Cancelling { reason: reason.to_owned(), stock: Undoing::Asked, payment }).undo().into()
}

fn undone(order: String, reason: &str, stock: Undoing, payment: Undoing) -> Decision<Order> {
    let reason = reason.to_owned();
    if stock == Undoing::Asked || payment == Undoing::Asked {
        return Move::to(Order::Cancelling { reason, stock, payment }).into();
    }
    let news = Cancelled { order, reason: reason.clone() };
    Move::to(Order::Cancelled { reason }).publish(&news).end().into()
}
