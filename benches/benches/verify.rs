//! What it costs to verify one request under the scheme `standard`, beside the least it can cost and beside the
//! reference library. The order of the sizes is that of typical events: a ping, a small one, a usual one, a large one.

use std::time::SystemTime;

use countersign::signature::{Head, Keyring, Scheme, Verifier};
use divan::{Bencher, black_box};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method};
use sha2::Sha256;
use standardwebhooks::Webhook;

fn main() {
    divan::main();
}

const SIZES: &[usize] = &[0, 256, 1024, 16_384];

/// The limit: the key's state is there, the text parts and the signature need no parsing, and nothing else is checked.
#[divan::bench(args = SIZES)]
fn raw(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    let head = format!("{ID}.{}.", now());
    let keyed = Hmac::<Sha256>::new_from_slice(KEY).expect("a key of any length");
    let signature = keyed.clone().chain_update(&head).chain_update(&body).finalize().into_bytes();

    bencher.bench_local(|| {
        let mut mac = black_box(&keyed).clone();
        mac.update(black_box(head.as_bytes()));
        mac.update(black_box(&body));
        mac.verify_slice(black_box(&signature)).expect("the right signature");
    });
}

#[divan::bench(args = SIZES)]
fn countersign(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    let headers = headers(&body);
    let scheme = Scheme::standard();
    let secret = scheme.parse_secret(SECRET).expect("a secret");
    let verifier = Verifier::new(scheme, Keyring::new(secret)).expect("a live secret");

    bencher.bench_local(|| {
        let head = Head::new(&Method::POST, "/webhooks", black_box(&headers));
        verifier.verify(head, black_box(&body)).expect("the right signature")
    });
}

#[divan::bench(args = SIZES)]
fn standardwebhooks(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    let headers = headers(&body);
    let webhook = Webhook::new(SECRET).expect("a secret");

    bencher.bench_local(|| {
        webhook.verify(black_box(&body), black_box(&headers)).expect("the right signature");
    });
}

const ID: &str = "msg_2kWzGmCeXpFkXnWm8vQ4rT1yB7a";
const KEY: &[u8; 32] = b"a key of thirty-two bytes, no mo";
const SECRET: &str = "whsec_YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgbm8gbW8=";

/// Printable, since the reference library takes no other bodies.
fn body(size: usize) -> Vec<u8> {
    b"{\"type\":\"order.paid\"}".iter().copied().cycle().take(size).collect()
}

fn headers(body: &[u8]) -> HeaderMap {
    let now = now();
    let signature = Webhook::new(SECRET).and_then(|webhook| webhook.sign(ID, now, body)).expect("a signature");
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static(ID));
    headers.insert("webhook-timestamp", HeaderValue::from(now));
    headers.insert("webhook-signature", HeaderValue::try_from(signature).expect("a header value"));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static("benchmark/1"));
    headers
}

/// Both libraries look at the clock: the run must end within their five minutes.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock before the end of time")
}
