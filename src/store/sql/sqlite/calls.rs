//! Everything that the writer of a file does: the inbox's calls and the outbox's, in one queue and one transaction.
//!
//! A file has one lock for writing. Two writers would wait for each other's, by sleeping and looking again; one writer
//! takes what both sides ask into a single commit.

#[cfg(feature = "send")]
use super::super::outbox;
use super::super::transactor::Done;
use super::super::writer::Asked;
use super::super::{batch, call};
use super::connection::Connection;
use crate::Timestamp;
use crate::store::StoreError;

#[derive(Debug)]
pub(super) enum Call {
    Inbox(call::Call),
    #[cfg(feature = "send")]
    Outbox(outbox::call::Call),
}

impl From<call::Call> for Call {
    fn from(call: call::Call) -> Self {
        Self::Inbox(call)
    }
}

#[cfg(feature = "send")]
impl From<outbox::call::Call> for Call {
    fn from(call: outbox::call::Call) -> Self {
        Self::Outbox(call)
    }
}

impl Asked<Connection> for Call {
    fn weight(&self) -> usize {
        match self {
            Self::Inbox(call) => Asked::<Connection>::weight(call),
            #[cfg(feature = "send")]
            Self::Outbox(call) => Asked::<Connection>::weight(call),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Inbox(call) => Asked::<Connection>::is_abandoned(call),
            #[cfg(feature = "send")]
            Self::Outbox(call) => Asked::<Connection>::is_abandoned(call),
        }
    }

    fn send(self) -> Vec<Self> {
        match self {
            Self::Inbox(call) => Asked::<Connection>::send(call).into_iter().map(Self::Inbox).collect(),
            #[cfg(feature = "send")]
            Self::Outbox(call) => Asked::<Connection>::send(call).into_iter().map(Self::Outbox).collect(),
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Inbox(call) => Asked::<Connection>::refuse(call, error),
            #[cfg(feature = "send")]
            Self::Outbox(call) => Asked::<Connection>::refuse(call, error),
        }
    }

    async fn carry_out(database: &mut Connection, calls: &mut [Self], now: Timestamp, again: bool) -> Done {
        let mut inbox = Vec::with_capacity(calls.len());
        #[cfg(feature = "send")]
        let mut outbox = Vec::new();
        for call in calls {
            match call {
                Self::Inbox(call) => inbox.push(call),
                #[cfg(feature = "send")]
                Self::Outbox(call) => outbox.push(call),
            }
        }
        if !inbox.is_empty() {
            batch::carry_out(database, inbox.into_iter(), now, again).await?;
        }
        #[cfg(feature = "send")]
        if !outbox.is_empty() {
            outbox::batch::carry_out(database, outbox.into_iter(), now, again).await?;
        }
        Ok(())
    }
}
