//! What one would write without this crate: a handler that inserts a row, does its work, and updates the row.
//!
//! `POST /handwritten` does that, in two durable commits; it verifies nothing, which is in its favour. `POST /bare`
//! only reads the body: no receiver can be faster. Prints `listening on http://…` when ready.
//!
//! ```text
//! handwritten [DATABASE]        a file that is created if absent; default: handwritten.db
//! ```

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "handwritten.db".to_owned());
    let pool = open(&path).await?;
    let router = Router::new().route("/bare", post(bare)).route("/handwritten", post(handwritten)).with_state(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn bare(body: Bytes) -> String {
    body.len().to_string()
}

async fn handwritten(
    State(pool): State<SqlitePool>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, String), StatusCode> {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).ok_or(StatusCode::BAD_REQUEST)?;
    let inserted = sqlx::query("INSERT INTO receipts (id, state) VALUES (?, 'processing') ON CONFLICT DO NOTHING")
        .bind(id)
        .execute(&pool)
        .await
        .map_err(unavailable)?;
    if inserted.rows_affected() == 0 {
        return Ok((StatusCode::OK, "seen before".to_owned()));
    }
    let answer = body.len().to_string();
    sqlx::query("UPDATE receipts SET state = 'succeeded', status = 200, body = ? WHERE id = ?")
        .bind(&answer)
        .bind(id)
        .execute(&pool)
        .await
        .map_err(unavailable)?;
    Ok((StatusCode::OK, answer))
}

fn unavailable(error: sqlx::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::SERVICE_UNAVAILABLE
}

/// As durable as ours: every commit is on the disk before it is answered.
async fn open(path: &str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS receipts \
         (id TEXT PRIMARY KEY, state TEXT NOT NULL, status INTEGER, body TEXT) WITHOUT ROWID",
    )
    .execute(&pool)
    .await?;
    Ok(pool)
}
