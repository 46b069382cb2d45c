//! What the steps of both walks cost in process, without a network and without a database.
//!
//! Prints a line of JSON for each: nanoseconds for one, in the best of many short batches.
//!
//! ```text
//! core [PART OF A NAME]
//! ```

#[path = "../../tests/it/keys.rs"]
#[allow(dead_code, reason = "the tests need a second secret too")]
mod keys;

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use countersign::send::{Answer, Overrides, Retry, RetryPolicy, Verdict, classify, retry_after};
use countersign::signature::{Head, Keyring, Message, Scheme, Signer, Verifier};
use countersign::store::{
    InboxStore, Lease, MemoryStore, OtherBody, ReceiptKey, Reserve, Reserved, ResultBody, Settled, StoredResult,
    Unclear,
};
use countersign::{Clock as _, DedupKey, Digest, EventId, Name, SystemClock};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;

fn main() {
    // Cargo adds flags of its own.
    let asked = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let mut measure = |name: &str, step: &mut dyn FnMut()| {
        if name.contains(&asked) {
            println!("{}", json!({ "bench": "core", "what": name, "nanos": best(step).round() }));
        }
    };
    signing(&mut measure);
    receiving(&mut measure);
    sending(&mut measure);
}

type Measure<'a> = dyn FnMut(&str, &mut dyn FnMut()) + 'a;

fn signing(measure: &mut Measure<'_>) {
    let now = SystemClock.now();
    let body = br#"{"type":"order.paid","amount":1299}"#.repeat(30);
    for name in ["standard", "github", "stripe", "slack", "standard-ed25519"] {
        let scheme = Scheme::named(name).expect("a scheme of the table");
        let keyring = Keyring::new(keys::secret(&scheme));
        let signer = Signer::new(scheme.clone(), keyring.clone()).expect("a live secret");
        let message = Message::new(now, &body).with_id("msg_1");
        measure(&format!("sign, {name}, 1 KiB"), &mut || {
            black_box(signer.sign(black_box(&message)).expect("headers"));
        });
        let verifier = Verifier::new(scheme, keyring).expect("a live secret");
        let mut headers = signer.sign(&message).expect("headers");
        let first = headers.keys().next().expect("a header").clone();
        headers.insert(first, HeaderValue::from_static("v1=,,;"));
        measure(&format!("refuse, {name}"), &mut || {
            black_box(verifier.verify(Head::new(&Method::POST, "/", &headers), black_box(&body)).is_err());
        });
    }
}

fn receiving(measure: &mut Measure<'_>) {
    let store = MemoryStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let number = Cell::new(0_u64);
    let reserve = |key: u64| -> Reserved {
        let key = ReceiptKey {
            consumer: Name::new("bench").expect("a name"),
            source: Name::new("shop").expect("a name"),
            key: DedupKey::from_id(&EventId::new(&format!("msg_{key}")).expect("an id")),
        };
        let reserve = Reserve {
            key,
            event_id: None,
            correlation_id: None,
            body: Digest::of(b"{}"),
            lease: Duration::from_secs(30),
            max_attempts: 20,
            other_body: OtherBody::Accept,
            unclear: Unclear::RunAgain,
        };
        runtime.block_on(store.reserve(reserve)).expect("the store answers")
    };
    let complete = |lease: Lease| {
        let headers = HeaderMap::new();
        let result =
            StoredResult { status: StatusCode::OK, headers, body: ResultBody::Kept(Bytes::from_static(b"done")) };
        runtime.block_on(store.complete(lease, result)).expect("the store answers")
    };
    measure("reserve and complete, memory", &mut || {
        number.set(number.get() + 1);
        match reserve(number.get()) {
            Reserved::Acquired(lease) => drop(black_box(complete(lease))),
            other => panic!("a new event: {other:?}"),
        }
    });
    number.set(number.get().max(1));
    if let Reserved::Acquired(lease) = reserve(1) {
        assert_eq!(complete(lease), Settled::Done);
    }
    measure("reserve, a repeat, memory", &mut || {
        black_box(reserve(1));
    });
}

fn sending(measure: &mut Measure<'_>) {
    let now = SystemClock.now();
    let overrides = Overrides::default();
    let headers: HeaderMap =
        [(header::RETRY_AFTER, HeaderValue::from_static("Wed, 21 Oct 2037 07:28:00 GMT"))].into_iter().collect();
    let fine = Ok(Answer::new(StatusCode::OK));
    let mut busy = Answer::new(StatusCode::SERVICE_UNAVAILABLE);
    busy.headers = headers.clone();
    let busy = Ok(busy);
    measure("classify, 200", &mut || {
        black_box(classify(black_box(&fine), &overrides, now));
    });
    measure("classify, 503 with a date to come back at", &mut || {
        black_box(classify(black_box(&busy), &overrides, now));
    });
    measure("read Retry-After, a date", &mut || {
        black_box(retry_after(black_box(&headers), now));
    });
    let policy = RetryPolicy::default();
    let again = || Verdict::Retry(Retry::default());
    measure("decide on the next attempt", &mut || {
        black_box(policy.next(black_box(again()), 7, Duration::from_secs(600), 12_345));
    });
}

/// Nanoseconds for one step, in its best batch.
fn best(step: &mut dyn FnMut()) -> f64 {
    const BATCH: u32 = 100;
    let mut best = Duration::MAX;
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        let began = Instant::now();
        (0..BATCH).for_each(|_| step());
        best = best.min(began.elapsed());
    }
    best.as_secs_f64() * 1e9 / f64::from(BATCH)
}
