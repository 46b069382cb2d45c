//! The service `stock`: sets goods aside for an order, and gives them back.

use std::error::Error;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use countersign::envelope::{Contract as _, Envelope};
use countersign::receive::{Outcome, Reservation, ResponseBody};
use countersign::store::OutboxConnection as _;
use http::Response;

use crate::database::{not_now, number, transaction};
use crate::messages::{OutOfStock, Release, Released, Reserve, Reserved};
use crate::service::{Service, answer};

/// Movements are only added: what is there is what was there at first and all that moved.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS stock (item VARCHAR(255) PRIMARY KEY, available BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS movement (
        order_id VARCHAR(255) NOT NULL, kind VARCHAR(16) NOT NULL, item VARCHAR(255) NOT NULL, quantity BIGINT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS movement_order ON movement (order_id);
    INSERT INTO stock (item, available) VALUES ('book', 1000000) ON CONFLICT DO NOTHING";

pub(crate) async fn serve() -> Result<(), Box<dyn Error>> {
    let service = Service::open("stock", TABLES, &[("orders", &[])]).await?;
    service.serve("stock", post(on_event), Router::new().route("/books", get(books))).await
}

async fn on_event(
    State(service): State<Service>,
    run: Reservation,
    event: Envelope,
) -> Result<Response<ResponseBody>, Outcome> {
    let response = match event.event_type.as_str() {
        Reserve::TYPE => reserve(&service, &run, event.read()?.data).await?,
        Release::TYPE => release(&service, &run, event.read()?.data).await?,
        _ => return Err(event.unknown_type().into()),
    };
    service.wake();
    Ok(response)
}

/// Not enough is no failure: it is an answer, and the flow decides what follows.
async fn reserve(service: &Service, run: &Reservation, asked: Reserve) -> Result<Response<ResponseBody>, Outcome> {
    let Reserve { order, item, quantity } = asked;
    Ok(transaction!(&service.database, |connection| {
        let taken = "UPDATE stock SET available = available - $1 WHERE item = $2 AND available >= $3";
        let taken = sqlx::query(taken).bind(quantity).bind(&item).bind(quantity);
        let is_reserved = taken.execute(&mut *connection).await.map_err(not_now)?.rows_affected() == 1;
        let (kind, reply) = if is_reserved {
            ("reserved", answer(&order, Reserved { order: order.clone() })?)
        } else {
            ("refused", answer(&order, OutOfStock { order: order.clone() })?)
        };
        let moved = "INSERT INTO movement (order_id, kind, item, quantity) VALUES ($1, $2, $3, $4)";
        let moved = sqlx::query(moved).bind(&order).bind(kind).bind(&item).bind(quantity);
        moved.execute(&mut *connection).await.map_err(not_now)?;
        tracing::info!(order, kind, "stock");
        connection.enqueue(&[reply]).await.map_err(|error| Outcome::transient(error.to_string()))?;
        run.complete_in(connection, Response::new("")).await?
    }))
}

async fn release(service: &Service, run: &Reservation, asked: Release) -> Result<Response<ResponseBody>, Outcome> {
    let Release { order } = asked;
    Ok(transaction!(&service.database, |connection| {
        let found = "SELECT item, quantity FROM movement WHERE order_id = $1 AND kind = 'reserved'";
        let found = sqlx::query_as::<_, (String, i64)>(found).bind(&order).fetch_optional(&mut *connection);
        // Nothing was set aside: that is as good as given back.
        let (item, quantity) = found.await.map_err(not_now)?.unwrap_or_else(|| ("none".to_owned(), 0));
        let given =
            sqlx::query("UPDATE stock SET available = available + $1 WHERE item = $2").bind(quantity).bind(&item);
        given.execute(&mut *connection).await.map_err(not_now)?;
        let moved = "INSERT INTO movement (order_id, kind, item, quantity) VALUES ($1, 'released', $2, $3)";
        let moved = sqlx::query(moved).bind(&order).bind(&item).bind(quantity);
        moved.execute(&mut *connection).await.map_err(not_now)?;
        tracing::info!(order, quantity, "stock is released");
        let reply = answer(&order, Released { order: order.clone() })?;
        connection.enqueue(&[reply]).await.map_err(|error| Outcome::transient(error.to_string()))?;
        run.complete_in(connection, Response::new("")).await?
    }))
}

async fn books(State(service): State<Service>) -> Result<Json<serde_json::Value>, StatusCode> {
    let available = number!(&service.database, "SELECT available FROM stock WHERE item = 'book'")?;
    let set_aside = number!(
        &service.database,
        "SELECT CAST(COALESCE(SUM(CASE kind WHEN 'reserved' THEN quantity WHEN 'released' THEN -quantity ELSE 0 END), 0)
            AS BIGINT) FROM movement"
    )?;
    Ok(Json(serde_json::json!({ "available": available, "set_aside": set_aside })))
}
