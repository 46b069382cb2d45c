//! What it costs to verify one request, as a multiple of the least that it can cost.
//!
//! The least is one HMAC over the same bytes: the key's state is there, the signed text and the signature need no
//! parsing, and nothing else is checked. `standardwebhooks` is the reference library of the scheme `standard`.
//!
//! On a machine that does other work too, most samples are spoiled and the shortest is not: so the three take turns
//! with short batches, and the best one of each counts.
//!
//! ```text
//! verify [SCHEME]
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use countersign::signature::{Head, Keyring, Message, Scheme, Signer, Verifier};
use countersign::{Clock as _, SystemClock, Timestamp};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method};
use sha2::Sha256;
use standardwebhooks::Webhook;

fn main() {
    // Cargo adds flags of its own.
    let asked = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    println!(
        "{:10}{:>8}{:>10}{:>14}{:>7}{:>19}{:>7}",
        "scheme", "bytes", "raw", "countersign", "", "standardwebhooks", ""
    );
    for scheme in [Scheme::standard(), Scheme::github(), Scheme::slack(), Scheme::stripe()] {
        if asked.as_deref().is_none_or(|asked| asked == scheme.name()) {
            // A ping, a small event, a usual one, a large one.
            [0, 256, 1024, 16_384].into_iter().for_each(|size| compare(&scheme, size));
        }
    }
}

fn compare(scheme: &Scheme, size: usize) {
    let body = body(size);
    let now = SystemClock.now();
    let headers = headers(scheme, now, &body);

    let secret = scheme.parse_secret(SECRET).expect("a secret");
    let verifier = Verifier::new(scheme.clone(), Keyring::new(secret)).expect("a live secret");
    let mut countersign = || {
        let head = Head::new(&Method::POST, "/webhooks", black_box(&headers));
        let verified = verifier.verify(head, black_box(&body)).expect("the right signature");
        drop(black_box(verified));
    };

    let keyed = Hmac::<Sha256>::new_from_slice(b"a key of thirty-two bytes, no mo").expect("a key of any length");
    let text = signed_before_body(scheme, now);
    let signature = keyed.clone().chain_update(&text).chain_update(&body).finalize().into_bytes();
    let mut raw = || {
        let mut mac = black_box(&keyed).clone();
        mac.update(black_box(text.as_bytes()));
        mac.update(black_box(&body));
        mac.verify_slice(black_box(&signature)).expect("the right signature");
    };

    // It knows one scheme only.
    let webhook = (scheme.name() == "standard").then(|| Webhook::new(SECRET).expect("a secret"));
    let mut reference = || {
        if let Some(webhook) = &webhook {
            webhook.verify(black_box(&body), black_box(&headers)).expect("the right signature");
        }
    };

    let [raw, ours, reference] = best([&mut raw, &mut countersign, &mut reference]);
    print!("{:10}{size:>8}{:>7.0} ns{:>11.0} ns{:>6.2}x", scheme.name(), raw, ours, ours / raw);
    match webhook {
        Some(_) => println!("{reference:>16.0} ns{:>6.2}x", reference / raw),
        None => println!(),
    }
}

/// Nanoseconds for one call of each, in its best batch.
fn best(mut rivals: [&mut dyn FnMut(); 3]) -> [f64; 3] {
    const BATCH: u32 = 200;
    let mut best = [Duration::MAX; 3];
    let end = Instant::now() + Duration::from_millis(700);
    while Instant::now() < end {
        for (rival, best) in rivals.iter_mut().zip(&mut best) {
            let began = Instant::now();
            (0..BATCH).for_each(|_| rival());
            *best = (*best).min(began.elapsed());
        }
    }
    best.map(|batch| batch.as_secs_f64() * 1e9 / f64::from(BATCH))
}

const ID: &str = "msg_2kWzGmCeXpFkXnWm8vQ4rT1yB7a";
const SECRET: &str = "whsec_YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgbm8gbW8=";

fn signed_before_body(scheme: &Scheme, now: Timestamp) -> String {
    let seconds = now.as_unix_seconds();
    match scheme.name() {
        "standard" => format!("{ID}.{seconds}."),
        "slack" => format!("v0:{seconds}:"),
        "stripe" => format!("{seconds}."),
        _ => String::new(),
    }
}

/// What a sender and a proxy in front of the receiver put into a request.
fn headers(scheme: &Scheme, now: Timestamp, body: &[u8]) -> HeaderMap {
    let mut headers: HeaderMap = [
        ("host", "hooks.example.com"),
        ("content-type", "application/json"),
        ("user-agent", "Sender/1.0 (+https://example.com/docs/webhooks)"),
        ("accept", "*/*"),
        ("accept-encoding", "gzip"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ]
    .into_iter()
    .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect();
    headers.insert("content-length", HeaderValue::from(body.len()));
    let secret = scheme.parse_secret(SECRET).expect("a secret");
    let signer = Signer::new(scheme.clone(), Keyring::new(secret)).expect("a live secret");
    headers.extend(signer.sign(&Message::new(now, body).with_id(ID)).expect("a signature"));
    headers
}

/// JSON of that many bytes, the id first, as providers write it; for the schemes that look for one in there.
fn body(size: usize) -> Vec<u8> {
    let begin = br#"{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","event_id":"Ev0PV52K25","items":["#;
    let items = br#"{"type":"order.paid","amount":1299,"paid":true},"#;
    let end = b"null]}";
    let Some(room) = size.checked_sub(begin.len() + end.len()) else { return vec![b' '; size] };
    let whole = room - room % items.len();
    let mut body = begin.to_vec();
    body.extend(items.iter().copied().cycle().take(whole));
    body.extend(vec![b' '; room - whole]);
    body.extend(end);
    body
}
