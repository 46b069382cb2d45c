//! What the services say to each other: commands and events, each a contract of its own.

use countersign::envelope::Contract;
use serde::{Deserialize, Serialize};

/// An order, as a customer places it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Placed {
    pub(crate) order: String,
    pub(crate) customer: String,
    pub(crate) item: String,
    pub(crate) quantity: i64,
    pub(crate) cents: i64,
}

impl Contract for Placed {
    const TYPE: &'static str = "order.placed";
}

/// To stock: set this aside.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Reserve {
    pub(crate) order: String,
    pub(crate) item: String,
    pub(crate) quantity: i64,
}

impl Contract for Reserve {
    const TYPE: &'static str = "stock.reserve";
}

/// To payment: take this from the customer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Charge {
    pub(crate) order: String,
    pub(crate) customer: String,
    pub(crate) cents: i64,
}

impl Contract for Charge {
    const TYPE: &'static str = "payment.charge";
}

/// To the flow itself, later: whoever was asked at this step has had the time to answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Late {
    pub(crate) order: String,
    pub(crate) step: String,
}

impl Contract for Late {
    const TYPE: &'static str = "order.late";
}

/// The order will not be, for this reason.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Cancelled {
    pub(crate) order: String,
    pub(crate) reason: String,
}

impl Contract for Cancelled {
    const TYPE: &'static str = "order.cancelled";
}

/// Messages that name an order and nothing else.
macro_rules! about_an_order {
    ($($(#[$doc:meta])* $name:ident: $event_type:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        pub(crate) struct $name {
            pub(crate) order: String,
        }

        impl Contract for $name {
            const TYPE: &'static str = $event_type;
        }
    )*};
}

about_an_order! {
    /// To stock: give back what was set aside, if anything was.
    Release: "stock.release";
    /// To payment: give back what was taken, if anything was.
    Refund: "payment.refund";
    /// From stock: it is set aside.
    Reserved: "stock.reserved";
    /// From stock: there is not enough.
    OutOfStock: "stock.refused";
    /// From stock: nothing is set aside any more.
    Released: "stock.released";
    /// From payment: it is taken.
    Charged: "payment.charged";
    /// From payment: the customer has not enough.
    Declined: "payment.declined";
    /// From payment: nothing is taken any more.
    Refunded: "payment.refunded";
    /// To whoever wants to know: the order is on its way.
    Approved: "order.approved";
}
