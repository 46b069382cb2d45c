//! Where receipts live: the [`InboxStore`] contract and the stores that keep it.

mod error;
mod inbox;

pub use error::StoreError;
pub use inbox::{
    FailedRun, Failure, InboxStore, KeptRequest, Lease, ListFilter, OtherBody, Purged, Receipt, ReceiptKey,
    ReceiptState, Repeat, Reserve, Reserved, ResultBody, Retention, Settled, StoreFuture, StoredResult, Token,
};
