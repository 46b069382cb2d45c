//! The handler of `/bare`, behind our layers: `POST /memory` with the store in memory, `POST /sqlite` with the file, and
//! `POST /postgres` with the database of `LOAD_POSTGRES`, `POST /mysql` with that of `LOAD_MYSQL`, where these are set.
//!
//! `LOAD_CACHE` puts a cache of so many bytes in front of each store.
//!
//! Prints `listening on http://…` when ready.
//!
//! ```text
//! receiver [DATABASE]           a file that is created if absent; default: receiver.db
//! ```

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use countersign::receive::{DedupLayer, ReceiveLayer, VerifyLayer};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::{CachedInbox, InboxStore, MemoryStore, MySqlStore, PostgresStore, SqliteStore};

/// The one that `load` signs with.
const SECRET: &str = "whsec_YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgbm8gbW8=";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "receiver.db".to_owned());
    let mut router = Router::new()
        .route("/memory", post(bare).layer(receive(MemoryStore::new())?))
        .route("/sqlite", post(bare).layer(receive(SqliteStore::open(path).await?)?));
    if let Ok(url) = std::env::var("LOAD_POSTGRES") {
        let writers = std::env::var("LOAD_WRITERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        let store = PostgresStore::options(&url).with_writers(writers).open().await?;
        router = router.route("/postgres", post(bare).layer(receive(store)?));
    }
    if let Ok(url) = std::env::var("LOAD_MYSQL") {
        router = router.route("/mysql", post(bare).layer(receive(MySqlStore::connect(&url).await?)?));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn bare(body: Bytes) -> String {
    body.len().to_string()
}

fn receive(store: impl InboxStore) -> Result<ReceiveLayer, Box<dyn std::error::Error>> {
    let scheme = Scheme::standard();
    let keyring = Keyring::new(scheme.parse_secret(SECRET)?);
    let verify = VerifyLayer::new("load", Verifier::new(scheme, keyring)?)?;
    let dedup = match std::env::var("LOAD_CACHE") {
        Ok(bytes) => DedupLayer::new(CachedInbox::new(store, bytes.parse()?)),
        Err(_) => DedupLayer::new(store),
    };
    Ok(ReceiveLayer::new(verify, dedup)?)
}
