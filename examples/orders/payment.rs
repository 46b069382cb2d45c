//! The service `payment`: takes money from a customer for an order, and gives it back.

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
use crate::messages::{Charge, Charged, Declined, Refund, Refunded};
use crate::service::{Service, answer};

/// `broke` has nothing.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (customer VARCHAR(255) PRIMARY KEY, cents BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS movement (
        order_id VARCHAR(255) NOT NULL, kind VARCHAR(16) NOT NULL, customer VARCHAR(255) NOT NULL, cents BIGINT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS movement_order ON movement (order_id);
    INSERT INTO account (customer, cents) VALUES ('alice', 100000000), ('broke', 0) ON CONFLICT DO NOTHING";

pub(crate) async fn serve() -> Result<(), Box<dyn Error>> {
    let service = Service::open("payment", TABLES, &[("orders", &[])]).await?;
    service.serve("payment", post(on_event), Router::new().route("/books", get(books))).await
}

async fn on_event(
    State(service): State<Service>,
    run: Reservation,
    event: Envelope,
) -> Result<Response<ResponseBody>, Outcome> {
    let response = match event.event_type.as_str() {
        Charge::TYPE => charge(&service, &run, event.read()?.data).await?,
        Refund::TYPE => refund(&service, &run, event.read()?.data).await?,
        _ => return Err(event.unknown_type().into()),
    };
    service.wake();
    Ok(response)
}

async fn charge(service: &Service, run: &Reservation, asked: Charge) -> Result<Response<ResponseBody>, Outcome> {
    let Charge { order, customer, cents } = asked;
    Ok(transaction!(&service.database, |connection| {
        let taken = "UPDATE account SET cents = cents - $1 WHERE customer = $2 AND cents >= $3";
        let taken = sqlx::query(taken).bind(cents).bind(&customer).bind(cents);
        let is_charged = taken.execute(&mut *connection).await.map_err(not_now)?.rows_affected() == 1;
        let (kind, reply) = if is_charged {
            ("charged", answer(&order, Charged { order: order.clone() })?)
        } else {
            ("declined", answer(&order, Declined { order: order.clone() })?)
        };
        let moved = "INSERT INTO movement (order_id, kind, customer, cents) VALUES ($1, $2, $3, $4)";
        let moved = sqlx::query(moved).bind(&order).bind(kind).bind(&customer).bind(cents);
        moved.execute(&mut *connection).await.map_err(not_now)?;
        tracing::info!(order, kind, "payment");
        connection.enqueue(&[reply]).await.map_err(|error| Outcome::transient(error.to_string()))?;
        run.complete_in(connection, Response::new("")).await?
    }))
}

async fn refund(service: &Service, run: &Reservation, asked: Refund) -> Result<Response<ResponseBody>, Outcome> {
    let Refund { order } = asked;
    Ok(transaction!(&service.database, |connection| {
        let found = "SELECT customer, cents FROM movement WHERE order_id = $1 AND kind = 'charged'";
        let found = sqlx::query_as::<_, (String, i64)>(found).bind(&order).fetch_optional(&mut *connection);
        // Nothing was taken: that is as good as given back.
        let (customer, cents) = found.await.map_err(not_now)?.unwrap_or_else(|| ("nobody".to_owned(), 0));
        let given =
            sqlx::query("UPDATE account SET cents = cents + $1 WHERE customer = $2").bind(cents).bind(&customer);
        given.execute(&mut *connection).await.map_err(not_now)?;
        let moved = "INSERT INTO movement (order_id, kind, customer, cents) VALUES ($1, 'refunded', $2, $3)";
        let moved = sqlx::query(moved).bind(&order).bind(&customer).bind(cents);
        moved.execute(&mut *connection).await.map_err(not_now)?;
        tracing::info!(order, cents, "payment is refunded");
        let reply = answer(&order, Refunded { order: order.clone() })?;
        connection.enqueue(&[reply]).await.map_err(|error| Outcome::transient(error.to_string()))?;
        run.complete_in(connection, Response::new("")).await?
    }))
}

async fn books(State(service): State<Service>) -> Result<Json<serde_json::Value>, StatusCode> {
    let balance = number!(&service.database, "SELECT CAST(SUM(cents) AS BIGINT) FROM account")?;
    let taken = number!(
        &service.database,
        "SELECT CAST(COALESCE(SUM(CASE kind WHEN 'charged' THEN cents WHEN 'refunded' THEN -cents ELSE 0 END), 0)
            AS BIGINT) FROM movement"
    )?;
    Ok(Json(serde_json::json!({ "balance": balance, "taken": taken })))
}
