//! A receiver without a framework: hyper, and the two layers around a function.
//!
//! ```text
//! WEBHOOK_SECRET=whsec_… cargo run --example hyper_receiver
//! ```
//!
//! `LISTEN` says where (`127.0.0.1:0` by default, which picks a port), `INBOX` names the file.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use countersign::receive::{DedupLayer, ReceiveLayer, VerifiedBody, VerifyLayer};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::SqliteStore;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower::ServiceBuilder;

/// Runs once for each event. There is no router here, so it looks at the path itself.
async fn handle(request: Request<VerifiedBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let delivery = request.body().delivery();
    let answer = match request.uri().path() {
        "/webhooks" => {
            let id = delivery.event_id().map_or("no id", |id| id.as_str());
            println!("event {id}: {} bytes", delivery.body().len());
            Response::new(Full::from(format!("handled {id}")))
        }
        _ => {
            let mut answer = Response::new(Full::default());
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
        }
    };
    Ok(answer)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let scheme = Scheme::standard();
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to the secret of the endpoint")?;
    let secret = scheme.parse_secret(&secret).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let inbox = std::env::var_os("INBOX").unwrap_or_else(|| "inbox.db".into());
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());

    let store = SqliteStore::open(inbox).await?;
    let verify = VerifyLayer::new("shop", Verifier::new(scheme, Keyring::new(secret))?)?;
    let receive = ReceiveLayer::new(verify, DedupLayer::new(store.clone()))?;
    let service = TowerToHyperService::new(ServiceBuilder::new().layer(receive.clone()).service_fn(handle));

    let server = auto::Builder::new(TokioExecutor::new());
    let connections = GracefulShutdown::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, most likely: some are given back when connections end.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            _ = terminate.recv() => break,
            _ = &mut interrupt => break,
        };
        let connection = server.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection ended early: {error}");
            }
        });
    }
    drop(listener);
    // A connection that stays open must not keep the server from stopping.
    let _ = tokio::time::timeout(Duration::from_secs(10), connections.shutdown()).await;

    // Handlers whose senders have hung up still run: their results are worth waiting for.
    let left = receive.tasks().drain(Duration::from_secs(30)).await;
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
