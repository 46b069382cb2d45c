//! Orders: four services that talk only by signed events, and a flow that holds whatever dies when.
//!
//! ```text
//! cargo run --example orders --features axum,postgres,saga
//! ORDERS_POSTGRES=postgres://… cargo run --example orders --features axum,postgres,saga
//! ```
//!
//! Without an argument it starts the four, each a process of its own, places 200 orders (`ORDERS_COUNT`) of which a third
//! must fail at some step, and prints how they ended. With `ORDERS_POSTGRES` the four databases are four schemas of that
//! database. `ORDERS_PATIENCE_MS` is how long stock and payment have to answer. With the name of a service (`orders`, `stock`,
//! `payment`, `notification`) it is that service; `tour.rs` shows what it is told.
//!
//! | file | holds |
//! |---|---|
//! | `flow.rs` | the flow: a pure state machine |
//! | `messages.rs` | the contracts |
//! | `orders.rs`, `stock.rs`, `payment.rs`, `notification.rs` | the services: what each does in its transaction |
//! | `service.rs`, `database.rs` | what they have in common |
//! | `tour.rs` | the tour |

mod database;
mod flow;
mod messages;
mod notification;
mod orders;
mod payment;
mod service;
mod stock;
mod tour;

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let ended = match std::env::args().nth(1).as_deref() {
        Some("orders") => orders::serve().await,
        Some("stock") => stock::serve().await,
        Some("payment") => payment::serve().await,
        Some("notification") => notification::serve().await,
        Some(other) => Err(format!("there is no service {other}").into()),
        None => tour::run().await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
