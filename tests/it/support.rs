//! A receiver on a real socket, and a sender that signs without the code under test.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use countersign::receive::{DedupLayer, DedupLayerBuilder, ReceiveLayer, VerifyLayer, VerifyLayerBuilder};
use countersign::signature::{Keyring, Scheme, Verifier};
use countersign::store::{InboxStore, MemoryStore, Receipt, ReceiptKey, SqliteStore};
use countersign::{DedupKey, Name};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sha2::Sha256;
use tokio::net::TcpListener;

/// 24 bytes, as `standard` wants them.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYXofbw3k";
pub(crate) const TEXT_SECRET: &str = "a text secret of more than 16 bytes";

/// The bodies of the cases, `V1` to `V10`.
pub(crate) const BODIES: [&[u8]; 10] = [
    b"{\"a\":1,  \"b\":\"\xc3\xa9\"}",
    b"{\"a\":\"\xff\"}",
    b"",
    b"{\"a\":1}\n",
    b"{\"a\":1,\r\n\"b\":2}",
    b"\xef\xbb\xbf{\"a\":1}",
    b"{\"a\":\"\xf0\x9f\x98\x80\"}",
    b"{\"a\":\"\\ud83d\\ude00\"}",
    b"{\"a\":\"x\\u0000y\",\"n\":12345678901234567890,\"f\":1.0}",
    b"payload=%7B%22a%22%3A1%7D&x=a+b%20c",
];

pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            (name, HeaderValue::from_bytes(value.as_bytes()).expect("a header value"))
        })
        .collect()
}

/// Signs as Standard Webhooks says, at `timestamp`.
pub(crate) fn standard_at(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> HeaderMap {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).expect("base64");
    let tag = hmac_sha256(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
    headers(&[
        ("webhook-id", id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", &format!("v1,{}", STANDARD.encode(tag))),
    ])
}

/// Signs as Standard Webhooks says, now.
pub(crate) fn standard(id: &str, body: &[u8]) -> HeaderMap {
    standard_at(SECRET, id, &unix_now().to_string(), body)
}

/// Signs as GitHub does.
pub(crate) fn github(delivery: Option<&str>, body: &[u8]) -> HeaderMap {
    let tag = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[body]));
    let mut signed = headers(&[("x-hub-signature-256", &format!("sha256={tag}"))]);
    if let Some(delivery) = delivery {
        signed.insert("x-github-delivery", delivery.parse().expect("a header value"));
    }
    signed
}

/// Signs as Stripe does, now.
pub(crate) fn stripe(body: &[u8]) -> HeaderMap {
    let now = unix_now().to_string();
    let tag = hex(&hmac_sha256(TEXT_SECRET.as_bytes(), &[now.as_bytes(), b".", body]));
    headers(&[("stripe-signature", &format!("t={now},v1={tag}"))])
}

pub(crate) fn verifier(scheme: Scheme, secret: &str) -> Verifier {
    let secret = scheme.parse_secret(secret).expect("a secret");
    Verifier::new(scheme, Keyring::new(secret)).expect("a verifier")
}

pub(crate) fn verify(scheme: Scheme) -> VerifyLayerBuilder {
    let secret = if scheme.name() == "standard" { SECRET } else { TEXT_SECRET };
    VerifyLayer::builder("test", verifier(scheme, secret))
}

/// A receiver around `app`, on a socket of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<dyn InboxStore>,
    pub(crate) layer: ReceiveLayer,
    pub(crate) http1: Client<HttpConnector, Full<Bytes>>,
    pub(crate) http2: Client<HttpConnector, Full<Bytes>>,
}

impl Server {
    /// The scheme `standard`, default settings, and a store in memory.
    pub(crate) async fn standard(app: Router) -> Self {
        let store: Arc<dyn InboxStore> = Arc::new(MemoryStore::new());
        Self::with(app, verify(Scheme::standard()), DedupLayer::builder(Arc::clone(&store)), store).await
    }

    pub(crate) async fn with(
        app: Router,
        verify: VerifyLayerBuilder,
        dedup: DedupLayerBuilder,
        store: Arc<dyn InboxStore>,
    ) -> Self {
        let layer =
            ReceiveLayer::new(verify.build().expect("a layer"), dedup.build().expect("a layer")).expect("a receiver");
        let address = serve(app.layer(layer.clone())).await;
        Self { address, store, layer, http1: client(false), http2: client(true) }
    }

    pub(crate) async fn post(&self, headers: HeaderMap, body: impl Into<Bytes>) -> Answer {
        self.post_to("/", headers, body).await
    }

    pub(crate) async fn post_to(&self, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Answer {
        send(&self.http1, request(&format!("http://{}{target}", self.address), headers, body)).await
    }

    pub(crate) async fn receipt(&self, key: &str) -> Option<Receipt> {
        receipt(&*self.store, "default", "test", key).await
    }
}

/// Serves a router, HTTP/1.1 and HTTP/2, until the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(crate) fn client(http2: bool) -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(http2).build_http()
}

pub(crate) fn request(url: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.into()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().expect("a URL");
    *request.headers_mut() = headers;
    request
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The name at the end of the problem's type.
    pub(crate) fn problem(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("a problem document");
        let name = problem["type"].as_str().expect("a type");
        name.strip_prefix("urn:countersign:problem:").expect("one of ours").to_owned()
    }
}

pub(crate) async fn send(client: &Client<HttpConnector, Full<Bytes>>, request: Request<Full<Bytes>>) -> Answer {
    let response = client.request(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.collect().await.expect("a body").to_bytes() }
}

/// The status of a whole answer; none where the receiver died over it.
pub(crate) async fn try_send(
    client: &Client<HttpConnector, Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Option<StatusCode> {
    let response = client.request(request).await.ok()?;
    let status = response.status();
    response.into_body().collect().await.ok()?;
    Some(status)
}

pub(crate) async fn receipt(store: &dyn InboxStore, consumer: &str, source: &str, key: &str) -> Option<Receipt> {
    let name = |text| Name::new(text).expect("a name");
    let key = ReceiptKey { consumer: name(consumer), source: name(source), key: DedupKey::parse(key).expect("a key") };
    store.find(key).await.expect("the store answers")
}

/// A SQLite store in a folder that goes with it.
pub(crate) async fn sqlite() -> (Arc<dyn InboxStore>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(folder.path().join("inbox.db")).await.expect("a store");
    (Arc::new(store), folder)
}

/// Counts, by name, from anywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<HashMap<String, usize>>>);

impl Counts {
    /// Counts one more, and returns how many there are now.
    pub(crate) fn count(&self, name: &str) -> usize {
        let mut all = self.0.lock().expect("no test panics in here");
        let count = all.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn of(&self, name: &str) -> usize {
        self.0.lock().expect("no test panics in here").get(name).copied().unwrap_or(0)
    }
}

/// Counts calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<AtomicUsize>);

impl Calls {
    pub(crate) fn count(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until something holds that must come to hold; fails the test after ten seconds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}

/// What a service that cannot fail returns.
pub(crate) type Infallibly<T> = Result<T, Infallible>;

/// Runs a test over a store in memory, and again over one in a file.
pub(crate) async fn on_each_store(test: impl AsyncFn(Arc<dyn InboxStore>)) {
    test(Arc::new(MemoryStore::new())).await;
    let (store, _folder) = sqlite().await;
    test(store).await;
}

/// Holds handlers back until a test lets them go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(tokio_util::sync::CancellationToken);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.cancel();
    }

    pub(crate) async fn pass(&self) {
        self.0.cancelled().await;
    }
}

impl Answer {
    /// The seconds of `Retry-After`; none where it is absent or out of its bounds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let seconds = self.headers.get("retry-after")?.to_str().ok()?.parse().ok()?;
        (1..=30).contains(&seconds).then_some(seconds)
    }
}

/// The same throws every time (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// 0 to `sides` - 1.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.roll(last as u64 + 1)).expect("small");
            items.swap(last, other);
        }
    }
}
