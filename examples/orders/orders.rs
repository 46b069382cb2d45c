//! The service `orders`: takes orders, and moves each through its flow.

use std::error::Error;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use countersign::envelope::Envelope;
use countersign::receive::{Outcome, Reservation, ResponseBody};
use countersign::saga::{self, SagaError};
use countersign::{Cause, Name};
use http::Response;
use serde_json::{Value, json};

use crate::database::{Database, transaction, unavailable};
use crate::flow::Order;
use crate::messages::Placed;
use crate::service::{Peers, Service};

/// Itself too: time-outs are messages that come later.
const PEERS: Peers =
    &[("orders", &[]), ("stock", &[]), ("payment", &[]), ("notification", &["order.approved", "order.cancelled"])];

pub(crate) async fn serve() -> Result<(), Box<dyn Error>> {
    let service = Service::open("orders", "SELECT 1", PEERS).await?;
    let others = Router::new().route("/orders", post(place).get(overview)).route("/orders/{id}", get(show));
    service.serve("orders", post(on_event), others).await
}

/// An order that is placed again under its number is the same order.
async fn place(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(placed): Json<Placed>,
) -> Result<(StatusCode, String), Outcome> {
    let order = placed.order.clone();
    let trace = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let begun = async {
        let belongs_to =
            Name::new(&order).map_err(|error| Outcome::permanent(format!("the order's number: {error}")))?;
        let placed = Envelope::new(placed).map_err(SagaError::from)?.with_correlation_id(belongs_to);
        let placed = placed.into_raw().map_err(SagaError::from)?;
        transaction!(&service.database, |connection| {
            saga::advance::<Order, _>(connection, &placed).await?;
        });
        Ok::<_, Outcome>(())
    };
    Cause::new(Some(&order), trace).scope(begun).await?;
    tracing::info!(correlation_id = order, "the order is placed");
    service.wake();
    Ok((StatusCode::ACCEPTED, order))
}

async fn on_event(
    State(service): State<Service>,
    run: Reservation,
    event: Envelope,
) -> Result<Response<ResponseBody>, Outcome> {
    let response =
        transaction!(&service.database, |connection| { saga::handle::<Order, _>(connection, &run, &event).await? });
    tracing::info!(event_type = %event.event_type, "the flow answered");
    service.wake();
    Ok(response)
}

/// Where an order stands, and how it came there.
async fn show(State(service): State<Service>, Path(id): Path<String>) -> Result<Json<Value>, StatusCode> {
    let found = match &service.database {
        Database::Sqlite(pool) => saga::find::<Order, _>(&mut *pool.acquire().await.map_err(unavailable)?, &id).await,
        Database::Postgres(pool) => saga::find::<Order, _>(&mut *pool.acquire().await.map_err(unavailable)?, &id).await,
    };
    let found = found.map_err(|error| {
        tracing::warn!(%error, "an order could not be shown");
        StatusCode::SERVICE_UNAVAILABLE
    })?;
    let order = found.ok_or(StatusCode::NOT_FOUND)?;
    Ok(Json(json!({ "order": order.entry, "state": order.state, "history": order.steps })))
}

/// How many orders stand at which step.
async fn overview(State(service): State<Service>) -> Result<Json<Value>, StatusCode> {
    const STEPS: &str =
        "SELECT CAST(step AS TEXT), COUNT(*) FROM countersign_saga WHERE step IS NOT NULL GROUP BY step";
    let steps: Vec<(String, i64)> = match &service.database {
        Database::Sqlite(pool) => sqlx::query_as(STEPS).fetch_all(pool).await,
        Database::Postgres(pool) => sqlx::query_as(STEPS).fetch_all(pool).await,
    }
    .map_err(unavailable)?;
    Ok(Json(
        steps.into_iter().map(|(step, count)| (step, Value::from(count))).collect::<serde_json::Map<_, _>>().into(),
    ))
}
