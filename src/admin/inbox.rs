//! Pages about what was received.

use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{Redirect, Response};
use serde::Deserialize;

use super::fault::{Fault, Sorry};
use super::guard::{Posted, Visitor};
use super::page::{self, Frame};
use super::query::{self, InboxQuery, ReceiptQuery};
use super::{Admin, inbox};
use crate::store::{FailedRun, InboxStore, Page, Receipt, ReceiptKey, ReceiptState, ResultBody};
use crate::{Clock, SystemClock, Timestamp};

pub(super) async fn list(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    query: Result<Query<InboxQuery>, QueryRejection>,
) -> Result<Response, Sorry> {
    let Query(query) = query?;
    let page = admin.inbox()?.page(query.filter()?, query.after()?).await?;
    Ok(page::html(&List { frame: Frame::new("Inbox", &visitor), query, page, states: ReceiptState::ALL }))
}

#[derive(Debug, Template)]
#[template(path = "inbox.html")]
struct List {
    frame: Frame,
    query: InboxQuery,
    page: Page<Receipt>,
    states: [ReceiptState; 5],
}

pub(super) async fn show(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    query: Result<Query<ReceiptQuery>, QueryRejection>,
) -> Result<Response, Sorry> {
    let Query(query) = query?;
    let receipt = admin.inbox()?.find(query.key()?).await?.ok_or(Fault::NotFound("event"))?;
    let frame = Frame::new(format!("Event {}", receipt.key.key), &visitor);
    Ok(page::html(&Show { frame, receipt }))
}

#[derive(Debug, Template)]
#[template(path = "receipt.html")]
struct Show {
    frame: Frame,
    receipt: Receipt,
}

impl Show {
    fn can_be_retried(&self) -> bool {
        is_retriable(&self.receipt)
    }

    fn can_be_concluded(&self) -> bool {
        self.receipt.state == ReceiptState::DeadLetter
    }

    /// What happens to it without anybody's help.
    fn outlook(&self) -> &'static str {
        let Receipt { state, due, quarantined, lease_until, .. } = &self.receipt;
        match state {
            ReceiptState::Succeeded => "Repeats get its result.",
            ReceiptState::DeadLetter if self.receipt.is_held() => {
                "It may have had its effect, or not: look, then conclude it or retry it. Nobody runs it until then."
            }
            ReceiptState::DeadLetter => "Nobody runs it unless it is retried.",
            ReceiptState::Received if *quarantined => "It waits for a person.",
            _ if is_over(*lease_until) => {
                "Whoever ran it is gone. Its sender's next delivery runs it, or a processor if it is owed."
            }
            ReceiptState::Processing => "It is being run.",
            _ if due.is_some() => {
                "A receiver in deferred mode runs it when it is due, or its sender's next delivery does."
            }
            _ => "Its sender's next delivery runs it.",
        }
    }

    fn forgetting(&self) -> &'static str {
        let Receipt { state, request, .. } = &self.receipt;
        match state {
            _ if self.receipt.is_held() => "It may have had its effect: its next delivery brings that about again.",
            ReceiptState::Succeeded => "Should it be delivered again, it is run again. This cannot be undone.",
            ReceiptState::Processing => {
                "It may be running now; its next delivery will run beside it. This cannot be undone."
            }
            _ if request.is_some() => {
                "This deletes the only copy: unless its sender delivers it again, nobody will ever run it."
            }
            _ => "Its next delivery will be a first one, and run again. This cannot be undone.",
        }
    }
}

/// Whether a lease has ended without a word.
pub(super) fn is_over(lease: Option<Timestamp>) -> bool {
    lease.is_some_and(|until| until < SystemClock.now())
}

pub(super) async fn act(State(admin): State<Admin>, Posted(form): Posted<Action>) -> Result<Redirect, Sorry> {
    let Action { action, consumer, source, key } = form;
    let key = ReceiptQuery { consumer, source, key }.key()?;
    match action {
        Verb::Retry => {
            retry(admin.inbox()?, key.clone()).await?;
            Ok(Redirect::to(&format!("receipt?{}", link_to(&key))))
        }
        Verb::Conclude => {
            conclude(admin.inbox()?, key.clone()).await?;
            Ok(Redirect::to(&format!("receipt?{}", link_to(&key))))
        }
        Verb::Forget => {
            // The page has said what it means.
            forget(admin.inbox()?, key, true).await?;
            Ok(Redirect::to("inbox"))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Action {
    action: Verb,
    consumer: String,
    source: String,
    key: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Conclude,
    Forget,
    Retry,
}

/// Gives an event another chance, where it wants one. Says how it stands then.
pub(super) async fn retry(inbox: &dyn InboxStore, key: ReceiptKey) -> Result<Receipt, Fault> {
    let before = inbox.find(key.clone()).await?.ok_or(Fault::NotFound("event"))?;
    if before.state == ReceiptState::Failed && before.request.is_none() {
        let why = "its request is not kept, so that only its sender's next delivery can run it".to_owned();
        return Err(Fault::Conflict("the event", why));
    }
    inbox.retry(key.clone()).await?.ok_or(Fault::NotFound("event"))?;
    let receipt = inbox.find(key.clone()).await?.ok_or(Fault::NotFound("event"))?;
    // One that was retried by somebody else a moment ago is no failure.
    if !is_retriable(&before) && !is_retriable(&receipt) {
        return Err(Fault::Conflict(
            "the event",
            format!(
                "it is {}, and only one that failed, a dead letter or one in quarantine can be retried",
                receipt.state
            ),
        ));
    }
    tracing::info!(consumer = %key.consumer, source = %key.source, key = %key.key, "an operator retried an event");
    Ok(receipt)
}

/// Ends a dead letter as done, without a run. Says how it stands then.
pub(super) async fn conclude(inbox: &dyn InboxStore, key: ReceiptKey) -> Result<Receipt, Fault> {
    let state = inbox.conclude(key.clone()).await?.ok_or(Fault::NotFound("event"))?;
    // One that was concluded by somebody else a moment ago is no failure.
    if state != ReceiptState::Succeeded {
        let why = format!("it is {state}, and may still run: only a dead letter can be concluded");
        return Err(Fault::Conflict("the event", why));
    }
    tracing::info!(consumer = %key.consumer, source = %key.source, key = %key.key, "an operator concluded an event");
    inbox.find(key).await?.ok_or(Fault::NotFound("event"))
}

/// Makes an event's next delivery a first one. What is owed or may be running is left alone, unless that is meant.
pub(super) async fn forget(inbox: &dyn InboxStore, key: ReceiptKey, force: bool) -> Result<(), Fault> {
    let found = inbox.find(key.clone()).await?.ok_or(Fault::NotFound("event"))?;
    let is_running = found.state == ReceiptState::Processing && !is_over(found.lease_until);
    let is_owed = found.request.is_some() && found.state != ReceiptState::Succeeded;
    if !force && (is_running || is_owed) {
        let why = if is_running { "it may be running" } else { "its only copy is here" };
        return Err(Fault::Conflict("the event", format!("{why}; say `force` to forget it all the same")));
    }
    if !inbox.forget(key.clone()).await? {
        return Err(Fault::NotFound("event"));
    }
    tracing::info!(consumer = %key.consumer, source = %key.source, key = %key.key, "an operator forgot an event");
    Ok(())
}

fn is_retriable(receipt: &Receipt) -> bool {
    let can_run = receipt.state == ReceiptState::DeadLetter || receipt.quarantined;
    can_run || (receipt.state == ReceiptState::Failed && receipt.request.is_some())
}

/// The query of a link to one event.
pub(super) fn link_to(key: &ReceiptKey) -> String {
    let mut link = url::form_urlencoded::Serializer::new(String::new());
    link.append_pair("consumer", key.consumer.as_str()).append_pair("source", key.source.as_str());
    link.append_pair("key", key.key.as_str()).finish()
}
