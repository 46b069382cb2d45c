//! The service `notification`: tells customers how their orders ended. Here it only writes that down.

use std::error::Error;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use countersign::envelope::{Contract as _, Envelope};
use countersign::receive::{Outcome, Reservation, ResponseBody};
use http::Response;

use crate::database::{not_now, number, transaction};
use crate::messages::{Approved, Cancelled};
use crate::service::Service;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS notice (order_id VARCHAR(255) NOT NULL, text VARCHAR(255) NOT NULL)";

pub(crate) async fn serve() -> Result<(), Box<dyn Error>> {
    let service = Service::open("notification", TABLES, &[]).await?;
    service.serve("notification", post(on_event), Router::new().route("/books", get(books))).await
}

async fn on_event(
    State(service): State<Service>,
    run: Reservation,
    event: Envelope,
) -> Result<Response<ResponseBody>, Outcome> {
    let (order, text) = match event.event_type.as_str() {
        Approved::TYPE => (event.read::<Approved>()?.data.order, "approved".to_owned()),
        Cancelled::TYPE => {
            let Cancelled { order, reason } = event.read()?.data;
            (order, format!("cancelled: {reason}"))
        }
        _ => return Err(event.unknown_type().into()),
    };
    Ok(transaction!(&service.database, |connection| {
        let told = sqlx::query("INSERT INTO notice (order_id, text) VALUES ($1, $2)").bind(&order).bind(&text);
        told.execute(&mut *connection).await.map_err(not_now)?;
        tracing::info!(order, text, "the customer is told");
        run.complete_in(connection, Response::new("")).await?
    }))
}

async fn books(State(service): State<Service>) -> Result<Json<serde_json::Value>, StatusCode> {
    let told = number!(&service.database, "SELECT COUNT(*) FROM notice")?;
    Ok(Json(serde_json::json!({ "told": told })))
}
