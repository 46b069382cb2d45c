//! What all four services have in common: a database, a receiver for signed events at `/events`, and a dispatcher.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::MethodRouter;
use countersign::Name;
use countersign::envelope::{Contract, Envelope};
use countersign::receive::{DedupLayer, Outcome, ReceiveLayer, VerifyLayer};
use countersign::send::{Backoff, Dispatcher, Guard, HttpTransport, MessageError, Policy, RetryPolicy};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::{Endpoint, Enqueue, OutboxStore as _, TypePattern};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Stores};

/// What a handler has at hand.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) database: Database,
    pub(crate) stores: Stores,
}

/// Whom a service sends to, and which types they want that are sent to whoever wants them.
pub(crate) type Peers = &'static [(&'static str, &'static [&'static str])];

impl Service {
    /// Opens the service's database, and puts its peers there: `ORDERS_URL_STOCK` says where stock is, for example.
    pub(crate) async fn open(name: &'static str, tables: &'static str, peers: Peers) -> Result<Self, Box<dyn Error>> {
        let (database, stores) = Database::open(name, tables).await?;
        for (peer, types) in peers {
            let variable = format!("ORDERS_URL_{}", peer.to_uppercase());
            let url = std::env::var(&variable).map_err(|_| format!("set {variable} to where {peer} is"))?;
            let mut endpoint = Endpoint::new(Name::new(peer)?, format!("{url}/events"));
            endpoint.secrets = vec![format!("env:{}", secret_of(peer))];
            endpoint.types = types.iter().map(|pattern| TypePattern::new(pattern)).collect::<Result<_, _>>()?;
            stores.outbox.put_endpoint(endpoint).await?;
        }
        Ok(Self { database, stores })
    }

    /// What was committed is sent at once: dispatchers poll, and look sooner when they are told to.
    pub(crate) fn wake(&self) {
        if let Some(wake) = self.stores.outbox.wake() {
            wake.notify_one();
        }
    }

    /// Serves until it is told to stop: `events` handles what peers send, `others` is what people ask.
    pub(crate) async fn serve(
        self,
        name: &'static str,
        events: MethodRouter<Self>,
        others: Router<Self>,
    ) -> Result<(), Box<dyn Error>> {
        let scheme = Scheme::standard();
        let variable = secret_of(name);
        let secret = std::env::var(&variable).map_err(|_| format!("set {variable} to the secret of {name}"))?;
        let secret = scheme.parse_secret(&secret).map_err(|error| format!("{variable}: {error}"))?;
        let verify = VerifyLayer::new("peers", Verifier::new(scheme, Keyring::new(secret))?)?;
        // A lease is what an event waits for after a crash.
        let dedup = DedupLayer::builder(self.stores.inbox.clone())
            .consumer(name)
            .lease(Duration::from_secs(2))
            .handler_timeout(Duration::from_secs(20))
            .max_attempts(1_000)
            .build()?;
        let receive = ReceiveLayer::new(verify, dedup)?;
        let app = Router::new().route("/events", events.layer(receive.clone())).merge(others).with_state(self.clone());

        let policy = Policy::new().allow_http().with_exception("127.0.0.1".parse()?);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let transport = HttpTransport::builder(Guard::new(policy)).build()?;
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        let dispatcher = Dispatcher::builder(self.stores.outbox.clone(), transport)
            .attempt_timeout(Duration::from_secs(5))
            .lease(Duration::from_secs(15))
            .poll(Duration::from_millis(100))
            .retry(RetryPolicy::new().with_backoff(backoff).with_max_attempts(1_000))
            // On one machine a peer that is away is back in a moment.
            .breaker(50, Backoff::new(Duration::from_millis(100), Duration::from_secs(1)))
            .disable_after(None)
            .grace(Duration::from_secs(5))
            .build()?;

        let mut terminate = signal(SignalKind::terminate())?;
        let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".into());
        let listener = TcpListener::bind(listen).await?;
        println!("listening on http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let dispatching = tokio::spawn(dispatcher.run(stop.clone().cancelled_owned()));
        axum::serve(listener, app)
            .with_graceful_shutdown(async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
            })
            .await?;
        let left = receive.tasks().drain(Duration::from_secs(5)).await;
        stop.cancel();
        dispatching.await?;
        println!("stopped, {left} handlers left");
        Ok(())
    }
}

/// An answer to the service `orders`. It belongs to the order, and names the event that is being handled as its cause,
/// without anybody's help.
pub(crate) fn answer<T: Contract>(order: &str, data: T) -> Result<Enqueue, Outcome> {
    let made = || -> Result<Enqueue, MessageError> {
        let name = |what, text| Name::new(text).map_err(|reason| MessageError::Name { what, reason });
        let envelope = Envelope::new(data)?.with_ordering_key(name("ordering key", order)?);
        Ok(Enqueue::new(name("endpoint", "orders")?, envelope.message()?))
    };
    made().map_err(|error| Outcome::permanent(error.to_string()))
}

fn secret_of(name: &str) -> String {
    format!("ORDERS_SECRET_{}", name.to_uppercase())
}
