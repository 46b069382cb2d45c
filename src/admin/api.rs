//! The same for programs: JSON, described by `openapi.json`.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderValue, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::fault::{Fault, Problem};
use super::query::{EndpointQuery, InboxQuery, MessageQuery, OutboxQuery, ReceiptQuery};
use super::{activity, endpoints, inbox, json as written, outbox};
use crate::store::MessageFilter;
use crate::{Clock, SystemClock};

pub(super) fn router() -> Router<Admin> {
    Router::new()
        .route("/openapi.json", get(description))
        .route("/activity", get(show_activity))
        .route("/inbox", get(list_inbox))
        .route("/inbox/event", get(show_receipt))
        .route("/inbox/retry", post(retry))
        .route("/inbox/conclude", post(conclude))
        .route("/inbox/forget", post(forget))
        .route("/outbox", get(list_outbox))
        .route("/outbox/message", get(show_message))
        .route("/outbox/replay", post(replay))
        .route("/outbox/cancel", post(cancel))
        .route("/endpoints", get(list_endpoints))
        .route("/endpoints/endpoint", get(show_endpoint))
        .route("/endpoints/disable", post(disable))
        .route("/endpoints/enable", post(enable))
        .fallback(nothing)
}

type Answer = Result<Json<Value>, Problem>;
type Asked<T> = Result<Query<T>, QueryRejection>;
type Told<T> = Result<Json<T>, JsonRejection>;

async fn description() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], include_str!("openapi.json"))
        .into_response()
}

async fn nothing() -> Problem {
    Problem(Fault::NotFound("path; `openapi.json` lists them"))
}

async fn show_activity() -> Json<Value> {
    Json(activity::json(SystemClock.now()))
}

async fn list_inbox(State(admin): State<Admin>, query: Asked<InboxQuery>) -> Answer {
    let Query(query) = query?;
    let page = admin.inbox()?.page(query.filter()?, query.after()?).await?;
    let events: Value = page.rows.iter().map(written::receipt).collect();
    Ok(Json(json!({ "events": events, "next": page.next.map(|next| next.to_string()) })))
}

async fn show_receipt(State(admin): State<Admin>, query: Asked<ReceiptQuery>) -> Answer {
    let Query(query) = query?;
    let receipt = admin.inbox()?.find(query.key()?).await?.ok_or(Fault::NotFound("event"))?;
    Ok(Json(written::receipt_details(&receipt)))
}

async fn retry(State(admin): State<Admin>, key: Told<ReceiptQuery>) -> Answer {
    let Json(key) = key?;
    let receipt = inbox::retry(admin.inbox()?, key.key()?).await?;
    Ok(Json(written::receipt_details(&receipt)))
}

async fn conclude(State(admin): State<Admin>, key: Told<ReceiptQuery>) -> Answer {
    let Json(key) = key?;
    let receipt = inbox::conclude(admin.inbox()?, key.key()?).await?;
    Ok(Json(written::receipt_details(&receipt)))
}

async fn forget(State(admin): State<Admin>, what: Told<Forget>) -> Answer {
    let Json(Forget { consumer, source, key, force }) = what?;
    let key = ReceiptQuery { consumer, source, key }.key()?;
    inbox::forget(admin.inbox()?, key.clone(), force).await?;
    Ok(Json(written::named(&key, json!({ "forgotten": true }))))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    consumer: String,
    source: String,
    key: String,
    #[serde(default)]
    force: bool,
}

async fn list_outbox(State(admin): State<Admin>, query: Asked<OutboxQuery>) -> Answer {
    let Query(query) = query?;
    let page = admin.outbox()?.page_messages(query.filter()?, query.after()?).await?;
    let messages: Value = page.rows.iter().map(written::message).collect();
    Ok(Json(json!({ "messages": messages, "next": page.next.map(|next| next.to_string()) })))
}

async fn show_message(State(admin): State<Admin>, query: Asked<MessageQuery>) -> Answer {
    let Query(query) = query?;
    let entry = admin.outbox()?.find_message(query.key()?).await?.ok_or(Fault::NotFound("message"))?;
    Ok(Json(written::message_details(&entry)))
}

async fn replay(State(admin): State<Admin>, what: Told<Which>) -> Answer {
    act(&admin, outbox::Verb::Replay, what?.0).await
}

async fn cancel(State(admin): State<Admin>, what: Told<Which>) -> Answer {
    act(&admin, outbox::Verb::Cancel, what?.0).await
}

/// One message, or all that fit where that is said: a call that left out a name by mistake changes nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Which {
    all: bool,
    endpoint: String,
    id: String,
    state: String,
    #[serde(rename = "type")]
    event_type: String,
    correlation_id: String,
}

async fn act(admin: &Admin, verb: outbox::Verb, which: Which) -> Answer {
    let store = admin.outbox()?;
    let Which { all, endpoint, id, state, event_type, correlation_id } = which;
    let changed = match (all, id.is_empty()) {
        (true, true) => {
            let query = OutboxQuery { state, endpoint, event_type, correlation_id, ..OutboxQuery::default() };
            let filter = MessageFilter { limit: outbox::STEP, ..query.filter()? };
            outbox::act_on(store, verb, filter).await?
        }
        (false, false) if state.is_empty() && event_type.is_empty() && correlation_id.is_empty() => {
            let key = MessageQuery { endpoint, id }.key()?;
            outbox::act_on_one(store, verb, key.clone()).await?;
            vec![key]
        }
        _ => {
            let how = "name one message by `endpoint` and `id`, or say `all`, with `state`, `endpoint`, `type` and `correlation_id` \
                       as a filter";
            return Err(Fault::Bad(how.to_owned()).into());
        }
    };
    let messages: Value = changed.iter().map(|key| json!({ "id": key.id, "endpoint": key.endpoint })).collect();
    Ok(Json(json!({ "messages": messages })))
}

async fn list_endpoints(State(admin): State<Admin>) -> Answer {
    let endpoints: Value = admin.outbox()?.endpoints().await?.iter().map(written::endpoint).collect();
    Ok(Json(json!({ "endpoints": endpoints })))
}

async fn show_endpoint(State(admin): State<Admin>, query: Asked<EndpointQuery>) -> Answer {
    let Query(query) = query?;
    let entry = admin.outbox()?.endpoint(query.name()?).await?.ok_or(Fault::NotFound("endpoint"))?;
    Ok(Json(written::endpoint(&entry)))
}

async fn disable(State(admin): State<Admin>, what: Told<Disable>) -> Answer {
    let Json(Disable { name, reason }) = what?;
    let name = EndpointQuery { name }.name()?;
    Ok(Json(written::endpoint(&endpoints::set(admin.outbox()?, name, Some(reason)).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Disable {
    name: String,
    #[serde(default)]
    reason: String,
}

async fn enable(State(admin): State<Admin>, what: Told<EndpointQuery>) -> Answer {
    let Json(query) = what?;
    Ok(Json(written::endpoint(&endpoints::set(admin.outbox()?, query.name()?, None).await?)))
}
