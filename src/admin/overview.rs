//! What wants a person's attention, and how it has been going.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;

use super::activity::{self, Plot};
use super::fault::{Fault, Sorry};
use super::guard::Visitor;
use super::page::{self, Frame};
use super::query;
use super::{Admin, endpoints, inbox};
use crate::store::{
    EndpointEntry, InboxStore, ListFilter, MessageFilter, MessageState, OutboxEntry, OutboxStore, Receipt, ReceiptState,
};
use crate::{Name, Timestamp};

/// Of each kind so many are shown; the lists have the others.
const SHOWN: u32 = 5;

/// In seconds: what has been due for longer waits for something else than its turn.
const LATE: u64 = 60;

/// So many of those that wait are looked at for one in quarantine.
const LOOKED_AT: u32 = 1_000;

pub(super) async fn show(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Sorry> {
    let inbox = match admin.inbox() {
        Ok(inbox) => Some(received(inbox).await?),
        Err(_) => None,
    };
    let outbox = match admin.outbox() {
        Ok(outbox) => Some(sent(outbox).await?),
        Err(_) => None,
    };
    let frame = Frame::new("Overview", &visitor);
    Ok(page::html(&Overview { plots: activity::plots(frame.now), since: activity::since(), frame, inbox, outbox }))
}

#[derive(Debug, Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    inbox: Option<Vec<Receipt>>,
    outbox: Option<Sent>,
    plots: Vec<Plot>,
    since: Timestamp,
}

#[derive(Debug)]
struct Sent {
    stuck: Vec<OutboxEntry>,
    troubled: Vec<EndpointEntry>,
    next: String,
    /// For how long something has been due, by endpoint, disabled ones too.
    overdue: Vec<(Name, u64)>,
}

/// Events that nobody will run unless somebody does something, or that failed last.
async fn received(store: &dyn InboxStore) -> Result<Vec<Receipt>, Fault> {
    let mut stuck = Vec::new();
    for state in [ReceiptState::DeadLetter, ReceiptState::Failed] {
        stuck.extend(store.list(ListFilter { state: Some(state), limit: SHOWN, ..ListFilter::default() }).await?);
    }
    // Among those that wait for their turn, of which there may be many: as far as a list is read in no time.
    let received = ListFilter { state: Some(ReceiptState::Received), limit: LOOKED_AT, ..ListFilter::default() };
    let held = store.list(received).await?.into_iter().filter(|one| one.quarantined);
    let shown = usize::try_from(SHOWN).unwrap_or(usize::MAX);
    stuck.extend(held.take(shown));
    let running = ListFilter { state: Some(ReceiptState::Processing), limit: LOOKED_AT, ..ListFilter::default() };
    stuck.extend(store.list(running).await?.into_iter().filter(|one| inbox::is_over(one.lease_until)).take(shown));
    Ok(stuck)
}

async fn sent(outbox: &dyn OutboxStore) -> Result<Sent, Fault> {
    let mut stuck = Vec::new();
    for state in [MessageState::DeadLetter, MessageState::Failed] {
        let filter = MessageFilter { state: Some(state), limit: SHOWN, ..MessageFilter::default() };
        stuck.extend(outbox.list_messages(filter).await?);
    }
    let endpoints = outbox.endpoints().await?;
    let is_troubled = |entry: &EndpointEntry| {
        entry.disabled.is_some() || entry.failing_since.is_some() || endpoints::pause(entry).is_some()
    };
    let overdue = outbox.oldest_due_messages().await?.into_iter();
    Ok(Sent {
        overdue: overdue.map(|(name, age)| (name, age.as_secs())).filter(|(_, age)| *age >= LATE).collect(),
        stuck,
        troubled: endpoints.into_iter().filter(is_troubled).collect(),
        next: next(outbox.next_due().await?),
    })
}

fn next(due: Option<Duration>) -> String {
    match due {
        None => "Nothing waits for an endpoint that is enabled.".to_owned(),
        Some(Duration::ZERO) => "Something is due now.".to_owned(),
        Some(wait) => format!("The next attempt is due in {} s.", wait.as_secs().max(1)),
    }
}
