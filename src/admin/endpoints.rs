//! Pages about where messages go.

use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{Redirect, Response};
use serde::Deserialize;

use super::fault::{Fault, Sorry};
use super::guard::{Posted, Visitor};
use super::page::{self, Frame};
use super::query::{self, EndpointQuery};
use super::{Admin, endpoints};
use crate::store::{EndpointEntry, OutboxStore};
use crate::{Clock, Name, SystemClock, Timestamp};

pub(super) async fn list(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Sorry> {
    let entries = admin.outbox()?.endpoints().await?;
    Ok(page::html(&List { frame: Frame::new("Endpoints", &visitor), entries }))
}

#[derive(Debug, Template)]
#[template(path = "endpoints.html")]
struct List {
    frame: Frame,
    entries: Vec<EndpointEntry>,
}

pub(super) async fn show(
    State(admin): State<Admin>,
    Extension(visitor): Extension<Visitor>,
    query: Result<Query<EndpointQuery>, QueryRejection>,
) -> Result<Response, Sorry> {
    let Query(query) = query?;
    let entry = admin.outbox()?.endpoint(query.name()?).await?.ok_or(Fault::NotFound("endpoint"))?;
    Ok(page::html(&Show { frame: Frame::new(format!("Endpoint {}", entry.endpoint.name), &visitor), entry }))
}

#[derive(Debug, Template)]
#[template(path = "endpoint.html")]
struct Show {
    frame: Frame,
    entry: EndpointEntry,
}

pub(super) async fn act(State(admin): State<Admin>, Posted(form): Posted<Action>) -> Result<Redirect, Sorry> {
    let query = EndpointQuery { name: form.name };
    let reason = match form.action {
        Verb::Enable => None,
        Verb::Disable => Some(form.reason),
    };
    set(admin.outbox()?, query.name()?, reason).await?;
    let name = url::form_urlencoded::byte_serialize(query.name.as_bytes()).collect::<String>();
    Ok(Redirect::to(&format!("endpoint?name={name}")))
}

#[derive(Debug, Deserialize)]
pub(super) struct Action {
    action: Verb,
    name: String,
    #[serde(default)]
    reason: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Disable,
    Enable,
}

/// Until when it gets nothing because it asked for time. What is over is not cleared in the store.
pub(super) fn pause(entry: &EndpointEntry) -> Option<Timestamp> {
    entry.paused_until.filter(|until| SystemClock.now() < *until)
}

/// Disables an endpoint for a reason, or enables it.
pub(super) async fn set(outbox: &dyn OutboxStore, name: Name, reason: Option<String>) -> Result<EndpointEntry, Fault> {
    let reason = reason.map(|reason| match reason.trim() {
        "" => "by an operator".to_owned(),
        reason => reason.to_owned(),
    });
    let is_enabled = reason.is_none();
    if !outbox.disable_endpoint(name.clone(), reason).await? {
        return Err(Fault::NotFound("endpoint"));
    }
    tracing::info!(endpoint = %name, is_enabled, "an operator changed an endpoint");
    outbox.endpoint(name).await?.ok_or(Fault::NotFound("endpoint"))
}
