//! A sender within an application: the order and the message about it are one commit, and a dispatcher in the same process
//! delivers.
//!
//! ```text
//! SHOP_SECRET=whsec_… SHOP_URL=https://shop.example/hooks cargo run --example enqueue --features axum,send
//! curl --json '{"order":"o1","cents":1250}' http://127.0.0.1:PORT/orders
//! ```
//!
//! Where the request fails, neither is there; where it succeeds, the message is delivered, signed, until the shop has
//! answered with a 2xx. More processes like this one, on the same file, share the work.
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `OUTBOX` names the file. To try it on one machine,
//! `ALLOW=127.0.0.1` lets it call plain http there.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use countersign::Name;
use countersign::notice::Notices;
use countersign::send::{Dispatcher, Guard, HttpTransport, Policy};
use countersign::store::{Endpoint, Message, OutboxConnection as _, OutboxStore as _, SqliteStore, TypePattern};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Deserialize, Serialize)]
struct Order {
    order: String,
    cents: i64,
}

#[derive(Clone)]
struct App {
    orders: SqlitePool,
    store: SqliteStore,
}

/// The order, and the message to everyone who wants to hear of it: one commit.
async fn place(State(app): State<App>, Json(order): Json<Order>) -> Result<(StatusCode, String), StatusCode> {
    let message = Message::json("order.placed", &order).and_then(|message| message.with_ordering_key(&order.order));
    let message = message.map_err(|_| StatusCode::UNPROCESSABLE_ENTITY)?;

    // In a file a transaction asks for the right to write at once: one that comes to it later may be refused.
    let mut transaction = app.orders.begin_with("BEGIN IMMEDIATE").await.map_err(not_now)?;
    sqlx::query("INSERT INTO orders (name, cents) VALUES (?1, ?2)")
        .bind(&order.order)
        .bind(order.cents)
        .execute(&mut *transaction)
        .await
        .map_err(|_| StatusCode::CONFLICT)?;
    transaction.publish(&message).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    transaction.commit().await.map_err(not_now)?;

    // The store does not know of our commit. Its dispatchers poll, and look at once when they are told to.
    if let Some(wake) = app.store.wake() {
        wake.notify_one();
    }
    Ok((StatusCode::CREATED, message.id.to_string()))
}

async fn run() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("SHOP_URL").map_err(|_| "set SHOP_URL to where messages go")?;
    std::env::var("SHOP_SECRET").map_err(|_| "set SHOP_SECRET to the secret that messages are signed with")?;
    let file = std::env::var_os("OUTBOX").unwrap_or_else(|| "outbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    // The store first: it sets up the file, and keeps writers and readers out of each other's way.
    let store = SqliteStore::open(&file).await?;
    let options = SqliteConnectOptions::new().filename(&file);
    let orders = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS orders (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        .execute(&orders)
        .await?;

    // Usually an operator adds these, with `countersign endpoint add`.
    let mut shop = Endpoint::new(Name::new("shop")?, url);
    shop.secrets = vec!["env:SHOP_SECRET".into()];
    shop.types = vec![TypePattern::new("order.*")?];
    store.put_endpoint(shop).await?;

    let mut policy = Policy::new();
    if let Ok(exception) = std::env::var("ALLOW") {
        policy = policy.allow_http().with_exception(exception.parse()?);
    }
    // Which library encrypts is the application's choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let transport = HttpTransport::builder(Guard::new(policy)).build()?;
    let (notices, telling) = Notices::builder().hook(|notice| eprintln!("{notice:?}")).build();
    tokio::spawn(telling.run(std::future::pending()));
    let dispatcher = Dispatcher::builder(store.clone(), transport)
        .concurrency(32)
        .grace(Duration::from_secs(10))
        .notices(&notices)
        .build()?;

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let dispatching = tokio::spawn(dispatcher.run(stop.clone().cancelled_owned()));
    let app = App { orders: orders.clone(), store: store.clone() };
    axum::serve(listener, Router::new().route("/orders", post(place)).with_state(app))
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;

    // Nothing new comes in. What is being sent has its grace; what does not end is given back to the store.
    stop.cancel();
    dispatching.await?;
    orders.close().await;
    store.close().await?;
    println!("stopped, 0 handlers left");
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err`")]
fn not_now(error: sqlx::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::SERVICE_UNAVAILABLE
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
