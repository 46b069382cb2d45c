//! Pages about what is on its way.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{Redirect, Response};
use serde::Deserialize;

use super::Admin;
use super::fault::{Fault, Sorry};
use super::guard::{Posted, Visitor};
use super::page::{self, Frame};
use super::query::{MessageQuery, OutboxQuery};
use crate::Timestamp;
use crate::store::{MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxStore, Page};

pub(super) async fn list(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    query: Result<Query<OutboxQuery>, QueryRejection>,
) -> Result<Response, Sorry> {
    let Query(query) = query?;
    let page = admin.outbox()?.page_messages(query.filter()?, query.after()?).await?;
    Ok(page::html(&List { frame: Frame::new("Outbox", &visitor), query, page, states: MessageState::ALL }))
}

#[derive(Debug, Template)]
#[template(path = "outbox.html")]
struct List {
    frame: Frame,
    query: OutboxQuery,
    page: Page<OutboxEntry>,
    states: [MessageState; 6],
}

impl List {
    /// All of one endpoint and one state: then the page has shown what kind of messages it is about.
    fn can_change_all(&self) -> bool {
        let is_narrow = !self.query.endpoint.is_empty() && self.query.id.is_empty() && !self.page.rows.is_empty();
        is_narrow && matches!(self.query.state.as_str(), "pending" | "failed" | "dead_letter")
    }

    fn can_replay_all(&self) -> bool {
        self.query.state != MessageState::Pending.as_str()
    }
}

/// Replays or takes back all that the filter of the list fits, in one step of at most [`STEP`] messages.
pub(super) async fn act_on_many(
    State(admin): State<Admin>,
    Posted(form): Posted<ActionOnMany>,
) -> Result<Redirect, Sorry> {
    if form.state.is_empty() || form.endpoint.is_empty() {
        return Err(Fault::Bad("say of which endpoint and in which state".to_owned()).into());
    }
    let before = Timestamp::from_micros(form.shown);
    let query = OutboxQuery {
        state: form.state,
        endpoint: form.endpoint,
        event_type: form.event_type,
        correlation_id: form.correlation_id,
        ..OutboxQuery::default()
    };
    // What has changed since the page was made was not on it.
    let filter = MessageFilter { limit: STEP, updated_before: Some(before), ..query.filter()? };
    let changed = act_on(admin.outbox()?, form.action, filter).await?;
    Ok(Redirect::to(&format!("outbox?{}&changed={}", query.link(), changed.len())))
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionOnMany {
    action: Verb,
    state: String,
    endpoint: String,
    #[serde(rename = "type")]
    event_type: String,
    correlation_id: String,
    /// When the page was made, in microseconds since the Unix epoch.
    shown: i64,
}

pub(super) async fn show(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    query: Result<Query<MessageQuery>, QueryRejection>,
) -> Result<Response, Sorry> {
    let Query(query) = query?;
    let entry = admin.outbox()?.find_message(query.key()?).await?.ok_or(Fault::NotFound("message"))?;
    Ok(page::html(&Show { frame: Frame::new(format!("Message {}", entry.message.id), &visitor), entry }))
}

#[derive(Debug, Template)]
#[template(path = "message.html")]
struct Show {
    frame: Frame,
    entry: OutboxEntry,
}

impl Show {
    fn can_be_replayed(&self) -> bool {
        matches!(self.entry.state, MessageState::DeadLetter | MessageState::Failed)
    }

    fn can_be_sent_again(&self) -> bool {
        self.entry.state == MessageState::Succeeded
    }

    fn can_be_cancelled(&self) -> bool {
        self.can_be_replayed() || self.entry.state == MessageState::Pending
    }
}

pub(super) async fn act(State(admin): State<Admin>, Posted(form): Posted<Action>) -> Result<Redirect, Sorry> {
    let query = MessageQuery { endpoint: form.endpoint, id: form.id };
    act_on_one(admin.outbox()?, form.action, query.key()?).await?;
    let mut link = url::form_urlencoded::Serializer::new(String::new());
    link.append_pair("endpoint", &query.endpoint).append_pair("id", &query.id);
    Ok(Redirect::to(&format!("message?{}", link.finish())))
}

#[derive(Debug, Deserialize)]
pub(super) struct Action {
    action: Verb,
    endpoint: String,
    id: String,
}

/// What an operator does about messages.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Cancel,
    Replay,
    /// A message that was delivered.
    Resend,
}

/// At most this many in one step: the rest is left for the next click.
pub(super) const STEP: u32 = 1_000;

/// Does it to one message. Where it is done already, nothing is left to do.
pub(super) async fn act_on_one(outbox: &dyn OutboxStore, verb: Verb, key: MessageKey) -> Result<OutboxEntry, Fault> {
    let (endpoint, id) = (Some(key.endpoint.clone()), Some(key.id.clone()));
    let filter = MessageFilter { endpoint, id, limit: 1, ..MessageFilter::default() };
    let changed = act_on(outbox, verb, filter).await?;
    let entry = outbox.find_message(key).await?.ok_or(Fault::NotFound("message"))?;
    let is_done = match verb {
        Verb::Cancel => entry.state == MessageState::Cancelled,
        Verb::Replay | Verb::Resend => {
            matches!(entry.state, MessageState::Pending | MessageState::Delivering) && entry.replays > 0
        }
    };
    if changed.is_empty() && !is_done {
        let has_endpoint = outbox.endpoint(entry.endpoint.clone()).await?.is_some();
        let why = if has_endpoint { "" } else { ", and its endpoint has been removed" };
        return Err(Fault::Conflict("the message", format!("it is {}{why}", entry.state)));
    }
    Ok(entry)
}

/// Does it to all that fit.
pub(super) async fn act_on(
    outbox: &dyn OutboxStore,
    verb: Verb,
    mut filter: MessageFilter,
) -> Result<Vec<MessageKey>, Fault> {
    if verb == Verb::Resend {
        filter.state = Some(MessageState::Succeeded);
    }
    let (endpoint, id, state) = (filter.endpoint.clone(), filter.id.clone(), filter.state);
    let changed = match verb {
        Verb::Cancel => outbox.cancel(filter).await?,
        Verb::Replay | Verb::Resend => outbox.replay(filter, Duration::ZERO).await?,
    };
    tracing::info!(?verb, ?endpoint, ?id, ?state, messages = changed.len(), "an operator changed messages");
    Ok(changed)
}
