//! A relay: what one sender delivers is verified, run once, and sent on to others, signed anew.
//!
//! ```text
//! WEBHOOK_SECRET=whsec_… SHOP_SECRET=whsec_… SHOP_URL=https://shop.example/hooks \
//!     cargo run --example relay --features axum,send
//! ```
//!
//! Inbox and outbox are one file. The message's id is made of the event's, so that an event whose handler runs again after
//! a crash is sent on once.
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file. To try it on one machine,
//! `ALLOW=127.0.0.1` lets it call plain http there.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{DedupLayer, Delivery, Outcome, ReceiveLayer, Reservation, VerifyLayer};
use countersign::send::{Dispatcher, Guard, HttpTransport, Policy};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::{
    Endpoint, Message, OutboxRetention, OutboxStore as _, Retention, SqliteStore, TypePattern, purge_forever,
    purge_messages_forever,
};
use countersign::{EventId, Name};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Puts the event into the outbox, byte for byte.
async fn pass_on(
    State(store): State<SqliteStore>,
    run: Reservation,
    delivery: Delivery,
) -> Result<StatusCode, Outcome> {
    // The outbox takes no id with a dot, and the key of an event may hold one.
    let id = format!("relay_{}", run.idempotency_key()).replace('.', "_");
    let id = EventId::new(&id).map_err(|error| Outcome::permanent(error.to_string()))?;
    let mut message = Message::new(
        id,
        Name::new("relay.event").map_err(|error| Outcome::permanent(error.to_string()))?,
        delivery.body().clone(),
    );
    message.causation_id = delivery.event_id().and_then(|id| Name::new(id.as_str()).ok());
    // Durable when it returns, and the same again where this handler runs twice.
    let sent = store.publish(message).await.map_err(|error| Outcome::transient(error.to_string()))?;
    println!("event {} goes to {} endpoints", run.key(), sent.len());
    Ok(StatusCode::NO_CONTENT)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::standard();
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to the secret of the sender")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let url = std::env::var("SHOP_URL").map_err(|_| "set SHOP_URL to where events go")?;
    std::env::var("SHOP_SECRET").map_err(|_| "set SHOP_SECRET to the secret that they are signed with")?;
    let file = std::env::var_os("INBOX").unwrap_or_else(|| "relay.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    let store = SqliteStore::open(file).await?;
    let mut shop = Endpoint::new(Name::new("shop")?, url);
    shop.secrets = vec!["env:SHOP_SECRET".into()];
    shop.types = vec![TypePattern::new("relay.*")?];
    store.put_endpoint(shop).await?;

    let verify = VerifyLayer::new("partner", Verifier::new(scheme, Keyring::new(secret))?)?;
    let receive = ReceiveLayer::new(verify, DedupLayer::new(store.clone()))?;
    let app = Router::new().route("/webhooks", post(pass_on).layer(receive.clone())).with_state(store.clone());

    let mut policy = Policy::new();
    if let Ok(exception) = std::env::var("ALLOW") {
        policy = policy.allow_http().with_exception(exception.parse()?);
    }
    // Which library encrypts is the application's choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let transport = HttpTransport::builder(Guard::new(policy)).build()?;
    let dispatcher = Dispatcher::builder(store.clone(), transport).grace(Duration::from_secs(10)).build()?;

    let mut terminate = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let dispatching = tokio::spawn(dispatcher.run(stop.clone().cancelled_owned()));
    // What was handled and what was delivered is forgotten after a month.
    let purging = [
        tokio::spawn(purge_forever(store.clone(), Retention::default())),
        tokio::spawn(purge_messages_forever(store.clone(), OutboxRetention::default())),
    ];
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;

    // First what still writes into the outbox, then what reads it.
    let left = receive.tasks().drain(Duration::from_secs(5)).await;
    stop.cancel();
    dispatching.await?;
    purging.iter().for_each(tokio::task::JoinHandle::abort);
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
