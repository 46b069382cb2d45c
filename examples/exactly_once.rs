//! Money that moves once: what the handler writes and that the event is done are one commit.
//!
//! ```text
//! WEBHOOK_SECRET=whsec_… cargo run --example exactly_once --features axum
//! curl http://127.0.0.1:PORT/accounts/alice
//! ```
//!
//! `/payouts` books into the database in which the inbox is, in one transaction with the end of the event: exactly once,
//! whatever dies when. `/transfers` does something elsewhere, here in another database, which no transaction of ours
//! reaches: it may run twice. What makes the second run harmless is the event's idempotency key in a column that is
//! `UNIQUE` there.
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file; the other database stands
//! beside it.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use countersign::receive::{DedupLayer, Event, Outcome, ReceiveLayer, Reservation, VerifyLayer};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::SqliteStore;
use serde::Deserialize;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// What the sender sends.
#[derive(Deserialize)]
struct Payment {
    account: String,
    cents: i64,
}

/// The application's own connections: to the file that the inbox is in, and to somebody else's.
#[derive(Clone)]
struct Databases {
    books: SqlitePool,
    bank: SqlitePool,
}

/// Ledger, balance and receipt: one commit.
async fn book(
    State(databases): State<Databases>,
    run: Reservation,
    event: Event<Payment>,
) -> Result<impl IntoResponse, Outcome> {
    // A database that is busy or gone: the sender comes again.
    let not_now = |error: sqlx::Error| Outcome::transient(error.to_string());
    let Payment { account, cents } = event.payload.map_err(|error| Outcome::permanent(error.to_string()))?;

    // In a file a transaction asks for the right to write at once: one that comes to it later may be refused.
    let mut transaction = databases.books.begin_with("BEGIN IMMEDIATE").await.map_err(not_now)?;
    sqlx::query("INSERT INTO ledger (event, account, cents) VALUES (?1, ?2, ?3)")
        .bind(run.key().as_str())
        .bind(&account)
        .bind(cents)
        .execute(&mut *transaction)
        .await
        .map_err(not_now)?;
    sqlx::query(
        "INSERT INTO account (name, cents) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET cents = cents + ?2",
    )
    .bind(&account)
    .bind(cents)
    .execute(&mut *transaction)
    .await
    .map_err(not_now)?;
    // Last of all. Where the lease was lost this fails, the transaction is dropped, and nothing was booked here.
    let response = run.complete_in(&mut *transaction, Response::new(format!("{cents} cents for {account}"))).await?;
    transaction.commit().await.map_err(not_now)?;

    println!("{cents} cents are booked for {account} (event {})", run.key());
    Ok(response)
}

/// Done elsewhere, at least once; the second time nothing is left to do.
async fn transfer(
    State(databases): State<Databases>,
    run: Reservation,
    event: Event<Payment>,
) -> Result<StatusCode, Outcome> {
    // A database that is busy or gone: the sender comes again.
    let not_now = |error: sqlx::Error| Outcome::transient(error.to_string());
    let Payment { account, cents } = event.payload.map_err(|error| Outcome::permanent(error.to_string()))?;
    let made = sqlx::query(
        "INSERT INTO transfer (idempotency_key, account, cents) VALUES (?1, ?2, ?3)
         ON CONFLICT (idempotency_key) DO NOTHING",
    )
    .bind(run.idempotency_key())
    .bind(&account)
    .bind(cents)
    .execute(&databases.bank)
    .await
    .map_err(not_now)?;
    match made.rows_affected() {
        0 => println!("{cents} cents had been sent to {account} by an earlier run"),
        _ => println!("{cents} cents are sent to {account}"),
    }
    // What a crash at this point does: the money is on its way, and the event is not done.
    if account == "unlucky" && run.attempt() == 1 {
        return Err(Outcome::transient("lost power"));
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn balance(State(databases): State<Databases>, Path(account): Path<String>) -> Result<Json<i64>, StatusCode> {
    let cents = sqlx::query_scalar("SELECT cents FROM account WHERE name = ?1").bind(account);
    let found: Option<i64> =
        cents.fetch_optional(&databases.books).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    found.map(Json).ok_or(StatusCode::NOT_FOUND)
}

/// A pool of connections to a file of the application's own tables.
async fn open(file: PathBuf, tables: &'static str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
    sqlx::raw_sql(tables).execute(&pool).await?;
    Ok(pool)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::standard();
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to the secret of the endpoint")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let inbox: PathBuf = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into()).into();
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    // The store first: it sets up the file, and keeps writers and readers out of each other's way.
    let store = SqliteStore::open(&inbox).await?;
    let books = open(
        inbox.clone(),
        "CREATE TABLE IF NOT EXISTS ledger (event TEXT NOT NULL, account TEXT NOT NULL, cents INTEGER NOT NULL);
         CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);",
    );
    let bank = open(
        inbox.with_extension("bank.db"),
        "CREATE TABLE IF NOT EXISTS transfer
             (idempotency_key TEXT NOT NULL UNIQUE, account TEXT NOT NULL, cents INTEGER NOT NULL)",
    );
    let databases = Databases { books: books.await?, bank: bank.await? };

    let verifier = Verifier::new(scheme, Keyring::new(secret))?;
    let receive = |source| -> Result<ReceiveLayer, Box<dyn Error>> {
        let verify = VerifyLayer::new(source, verifier.clone())?;
        Ok(ReceiveLayer::new(verify, DedupLayer::new(store.clone()))?)
    };
    let (payouts, transfers) = (receive("payouts")?, receive("transfers")?);
    let app = Router::new()
        .route("/payouts", post(book).layer(payouts.clone()))
        .route("/transfers", post(transfer).layer(transfers.clone()))
        .route("/accounts/{name}", get(balance))
        .with_state(databases.clone());

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;

    let mut left = 0;
    for receiver in [payouts, transfers] {
        left += receiver.tasks().drain(Duration::from_secs(15)).await;
    }
    // The store last: it leaves one file behind where nobody else has it open.
    databases.books.close().await;
    databases.bank.close().await;
    store.close().await?;
    println!("stopped, {left} handlers left");
    Ok(())
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
