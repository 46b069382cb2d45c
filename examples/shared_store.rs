//! Several senders, one store, and other layers around the receivers.
//!
//! ```text
//! GITHUB_SECRET=… STRIPE_SECRET=… cargo run --example shared_store --features axum
//! ```
//!
//! From the outside in: trace → time-out → verify → dedup → handler. What is outside sees refusals and repeats too. A
//! time-out belongs outside: it ends the sender's wait, while the handler goes on, and its result is there for the
//! sender's next try. Inside, it would end the handler.
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, ReceiveLayer, VerifyLayer};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::SqliteStore;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower::ServiceBuilder;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

async fn handle(delivery: Delivery) -> String {
    // A pause that a body can ask for, so that the time-out can be seen at work.
    let pause = delivery.json::<serde_json::Value>().ok().and_then(|body| body["pause_ms"].as_u64()).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(pause)).await;
    println!("an event from {}", delivery.source());
    format!("handled for {}", delivery.source())
}

/// One source: a name, a scheme and a secret of its own. The name keeps its events apart from those of the others.
fn source(name: &str, scheme: Scheme, variable: &str, store: &SqliteStore) -> Result<ReceiveLayer, Box<dyn Error>> {
    let secret = std::env::var(variable).map_err(|_| format!("set {variable} to the secret of the endpoint"))?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("{variable}: {error}"))?;
    let verify = VerifyLayer::new(name, Verifier::new(scheme, Keyring::new(secret))?)?;
    Ok(ReceiveLayer::new(verify, DedupLayer::new(store.clone()))?)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let inbox = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();

    let store = SqliteStore::open(inbox).await?;
    let github = source("github", Scheme::github(), "GITHUB_SECRET", &store)?;
    let stripe = source("stripe", Scheme::stripe(), "STRIPE_SECRET", &store)?;
    let outside = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(2)));
    let app = Router::new()
        .route("/github", post(handle).layer(github.clone()))
        .route("/stripe", post(handle).layer(stripe.clone()))
        .layer(outside);

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
    for receiver in [github, stripe] {
        left += receiver.tasks().drain(Duration::from_secs(15)).await;
    }
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
