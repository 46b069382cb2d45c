//! What it costs to verify one request, as a multiple of the least that it can cost.
//!
//! The least is the scheme's algorithm over the same bytes: the key's state is there, the signed text and the signature
//! need no parsing, and nothing else is checked. Beside it, where they know the scheme: `standardwebhooks`, the reference
//! library of the scheme `standard`; `svix`; `webhook-verify`. All but the last one keep the key from call to call.
//!
//! On a machine that does other work too, most samples are spoiled and the shortest is not: so all take turns with short
//! batches, and the best one of each counts. Prints a line of JSON for each: nanoseconds, and how many times the least.
//!
//! ```text
//! verify [SCHEME]       four schemes at four sizes, or one
//! verify all            every scheme of the table at 1 KiB
//! verify count          the same once, for `count.sh`, which counts instructions
//! ```

#[path = "../../tests/it/keys.rs"]
#[allow(dead_code, reason = "the tests need a second secret too")]
mod keys;

use std::hint::black_box;
use std::time::{Duration, Instant};

use countersign::signature::{Algorithm, Head, Keyring, Message, Scheme, Signer, Verifier};
use countersign::{Clock as _, SystemClock, Timestamp};
use ed25519_dalek::Signer as _;
use hmac::{Hmac, KeyInit as _};
use http::{HeaderMap, HeaderValue, Method};
use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
use serde_json::json;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use standardwebhooks::Webhook;
use webhook_verify::{Provider, VerifyOptions};

fn main() {
    // Cargo adds flags of its own.
    let asked = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let at_one_kilobyte =
        || Scheme::all().filter(|scheme| !scheme.is_in_body()).map(|scheme| Request::new(scheme, 1024));
    match asked.as_deref() {
        Some("all") => at_one_kilobyte().for_each(|request| compare(&request)),
        Some("count") => at_one_kilobyte().for_each(|request| count(&request)),
        asked => {
            for scheme in [Scheme::standard(), Scheme::github(), Scheme::slack(), Scheme::stripe()] {
                if asked.is_none_or(|asked| asked == scheme.name()) {
                    // A ping, a small event, a usual one, a large one.
                    for size in [0, 256, 1024, 16_384] {
                        compare(&Request::new(scheme.clone(), size));
                    }
                }
            }
        }
    }
}

/// A request that was rightly signed.
struct Request {
    scheme: Scheme,
    now: Timestamp,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn new(scheme: Scheme, size: usize) -> Self {
        let now = SystemClock.now();
        let body = body(size, now);
        Self { now, headers: headers(&scheme, now, &body), body, scheme }
    }

    fn raw<'a>(&self) -> Rival<'a> {
        ("raw", raw(self.scheme.algorithm(), signed_text(&self.scheme, self.now, &self.body)))
    }

    fn countersign(&self) -> Rival<'_> {
        let keyring = Keyring::new(keys::secret(&self.scheme));
        let verifier = Verifier::new(self.scheme.clone(), keyring).expect("a live secret");
        let verify = move || {
            let head = Head::new(&Method::POST, URL, black_box(&self.headers));
            let verified = verifier.verify(head, black_box(&self.body)).expect("the right signature");
            drop(black_box(verified));
        };
        ("countersign", Box::new(verify))
    }
}

fn compare(request: &Request) {
    let Request { scheme, headers, body, .. } = request;
    let mut rivals = vec![request.raw(), request.countersign()];
    if scheme.name() == "standard" {
        let secret = keys::texts(scheme)[0];
        let webhook = Webhook::new(secret).expect("a secret");
        let svix = svix::webhooks::Webhook::new(secret).expect("a secret");
        rivals.push((
            "standardwebhooks",
            Box::new(move || webhook.verify(black_box(body), black_box(headers)).expect("right")),
        ));
        rivals.push(("svix", Box::new(move || svix.verify(black_box(body), black_box(headers)).expect("right"))));
    }
    if let Some(provider) = provider(scheme.name()) {
        let secret = webhook_verify::Secret::new(keys::texts(scheme)[0]);
        let verify = move || {
            let options = VerifyOptions::default();
            webhook_verify::verify(provider, black_box(headers), black_box(body), &secret, options).expect("right");
        };
        rivals.push(("webhook-verify", Box::new(verify)));
    }
    let best = best(&mut rivals);
    let least = best[0];
    for ((name, _), nanos) in rivals.iter().zip(best) {
        let times = (nanos / least * 100.0).round() / 100.0;
        println!(
            "{}",
            json!({ "bench": "verify", "scheme": scheme.name(), "bytes": body.len(), "what": name, "nanos": nanos.round(), "times": times })
        );
    }
}

/// Has callgrind write a part of its output for the least, and one for us. A line says which.
fn count(request: &Request) {
    for (name, mut rival) in [request.raw(), request.countersign()] {
        // What is done once only is not counted.
        (0..3).for_each(|_| rival());
        println!("{} {name}", request.scheme.name());
        counted_calls(&mut rival);
    }
}

/// So many calls are counted; `count.sh` divides by it, and knows the function by its name.
#[inline(never)]
fn counted_calls(rival: &mut dyn FnMut()) {
    (0..10).for_each(|_| rival());
    // Else the last of them would be a jump, and callgrind would not see that this function was left.
    black_box(());
}

type Rival<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// What `webhook-verify` calls the scheme.
fn provider(scheme: &str) -> Option<Provider> {
    match scheme {
        "github" => Some(Provider::GitHub),
        "slack" => Some(Provider::Slack),
        "standard" => Some(Provider::StandardWebhooks),
        "stripe" => Some(Provider::Stripe),
        _ => None,
    }
}

/// The algorithm and nothing else, over a text that is in place.
fn raw(algorithm: Algorithm, text: Vec<u8>) -> Box<dyn FnMut()> {
    const KEY: &[u8] = b"a key of thirty-two bytes, no mo";
    match algorithm {
        Algorithm::HmacSha1 => hmac(Hmac::<Sha1>::new_from_slice(KEY).expect("a key of any length"), text),
        Algorithm::HmacSha256 => hmac(Hmac::<Sha256>::new_from_slice(KEY).expect("a key of any length"), text),
        Algorithm::Sha256 => {
            let begun = Sha256::new_with_prefix(KEY);
            Box::new(move || {
                black_box(black_box(&begun).clone().chain_update(black_box(&text)).finalize());
            })
        }
        Algorithm::Token => {
            let token = keys::texts(&Scheme::named("okta").expect("a scheme"))[0];
            Box::new(move || {
                black_box(Sha256::digest(black_box(token)));
            })
        }
        Algorithm::Ed25519 => {
            let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
            let signature = key.sign(&text);
            let key = key.verifying_key();
            Box::new(move || key.verify_strict(black_box(&text), black_box(&signature)).expect("the right signature"))
        }
        Algorithm::EcdsaP256 => {
            let key = p256::ecdsa::SigningKey::from_slice(&[7; 32]).expect("a key");
            let signature: p256::ecdsa::Signature = key.sign_prehash(&Sha256::digest(&text)).expect("a signature");
            let key = *key.verifying_key();
            Box::new(move || {
                let digest = Sha256::digest(black_box(&text));
                key.verify_prehash(&digest, black_box(&signature)).expect("the right signature");
            })
        }
        other => panic!("what is the least for {other}?"),
    }
}

fn hmac<M: hmac::Mac + Clone + 'static>(keyed: M, text: Vec<u8>) -> Box<dyn FnMut()> {
    let signature = keyed.clone().chain_update(&text).finalize().into_bytes();
    Box::new(move || {
        let mac = black_box(&keyed).clone().chain_update(black_box(&text));
        mac.verify_slice(black_box(&signature)).expect("the right signature");
    })
}

/// Nanoseconds for one call of each, in its best batch.
fn best(rivals: &mut [Rival]) -> Vec<f64> {
    const BATCH: u32 = 200;
    let mut best = vec![Duration::MAX; rivals.len()];
    let end = Instant::now() + Duration::from_millis(750);
    while Instant::now() < end {
        for ((_, rival), best) in rivals.iter_mut().zip(&mut best) {
            let began = Instant::now();
            (0..BATCH).for_each(|_| rival());
            *best = (*best).min(began.elapsed());
        }
    }
    best.into_iter().map(|batch| batch.as_secs_f64() * 1e9 / f64::from(BATCH)).collect()
}

const ID: &str = "msg_2kWzGmCeXpFkXnWm8vQ4rT1yB7a";
const URL: &str = "https://hooks.example.com/webhooks/in";

/// As many bytes as the scheme signs.
fn signed_text(scheme: &Scheme, now: Timestamp, body: &[u8]) -> Vec<u8> {
    let template = scheme.signed_text();
    if !template.contains("{body}") {
        return if scheme.name() == "plaid" { vec![b'x'; 200] } else { [URL.as_bytes(), body].concat() };
    }
    let around = template.replace("{body}", "").replace("{id}", ID).replace("{method}", "POST");
    let around = around.replace("{url}", URL).replace("{decoded url}", URL);
    let around = around.replace("{timestamp}", &now.as_unix_seconds().to_string());
    [around.as_bytes(), body].concat()
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
    let signer = Signer::new(scheme.clone(), Keyring::new(keys::secret(scheme))).expect("a live secret");
    let message = Message::new(now, body).with_id(ID).with_target(&Method::POST, URL);
    let message = message.with_content_type("application/json");
    headers.extend(signer.sign(&message).expect("a signature"));
    headers
}

/// JSON of that many bytes, the id first, as providers write it; for the schemes that look for one in there.
fn body(size: usize, now: Timestamp) -> Vec<u8> {
    let millis = now.as_micros() / 1_000;
    let begin = format!(
        r#"{{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","event_id":"Ev0PV52K25","webhookTimestamp":{millis},"items":["#
    );
    let items = br#"{"type":"order.paid","amount":1299,"paid":true},"#;
    let end = b"null]}";
    let Some(room) = size.checked_sub(begin.len() + end.len()) else { return vec![b' '; size] };
    let whole = room - room % items.len();
    let mut body = begin.into_bytes();
    body.extend(items.iter().copied().cycle().take(whole));
    body.extend(vec![b' '; room - whole]);
    body.extend(end);
    body
}
