//! That bytes stay what they were, and that names are told apart by every byte.

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use http::{HeaderMap, Method, StatusCode};

use super::{Subject, acquire, answer, complete, event_id, fail, failure, key, receipt, request, reserved};
use crate::event::MAX_NAME_BYTES;
use crate::store::{Failure, KeptRequest, ReceiptKey, Repeat, Reserve, Reserved, ResultBody, Settled, StoredResult};
use crate::{DedupKey, Digest, Name};

/// Bodies that stores have been seen to change: not UTF-8, NUL, byte order mark, escapes, line ends, nothing at all.
pub(in crate::store) const BODIES: [&[u8]; 12] = [
    r#"{"a":1,  "b":"é"}"#.as_bytes(),
    b"{\"a\":\"\xff\"}",
    b"",
    b"{\"a\":1}\n",
    b"{\"a\":1,\r\n\"b\":2}",
    b"\xef\xbb\xbf{\"a\":1}",
    "{\"a\":\"😀\"}".as_bytes(),
    br#"{"a":"\ud83d\ude00"}"#,
    br#"{"a":"\u0000y","n":12345678901234567890,"f":1.0}"#,
    b"payload=%7B%22a%22%3A1%7D&x=a+b%20c",
    b"\0\0\xff\xfe\0",
    b"'; DROP TABLE x; --",
];

/// C068: a repeat gets the bytes of the first answer: headers in their order, with all their values, and the body.
pub async fn results_come_back_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    for (number, body) in BODIES.into_iter().enumerate() {
        let id = format!("evt_{number}");
        let result = StoredResult {
            status: StatusCode::from_u16(299).expect("a status"),
            headers: odd_headers(),
            body: ResultBody::Kept(body.into()),
        };
        let lease = acquire(&*store, request(&id)).await;
        assert_eq!(complete(&*store, lease, result.clone()).await, Settled::Done);

        let Reserved::Succeeded(Repeat { result: Some(repeated), .. }) = reserved(&*store, request(&id)).await else {
            panic!("it was completed");
        };
        assert_eq!(repeated, result);
        let order: Vec<_> = repeated.headers.iter().collect();
        assert_eq!(order, odd_headers().iter().collect::<Vec<_>>());
        assert_eq!(receipt(&*store, &id).await.result, Some(result));
    }
}

/// C068: what an operator runs again are the bytes that the sender sent.
pub async fn kept_requests_come_back_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    for (number, body) in BODIES.into_iter().enumerate() {
        let id = format!("evt_{number}");
        let kept = KeptRequest {
            method: Method::from_bytes(b"X-HOOK").expect("a method"),
            target: "/hooks/%C3%A9?a=%00&b=é".into(),
            headers: odd_headers(),
            body: body.into(),
            proof: "{}".into(),
        };
        let lease = acquire(&*store, request(&id)).await;
        let down = Failure { request: Some(kept.clone()), ..failure("down") };
        assert_eq!(fail(&*store, lease, down).await, Settled::Done);
        assert_eq!(receipt(&*store, &id).await.request, Some(kept));
    }
}

pub(in crate::store) fn odd_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append(LINK, HeaderValue::from_static("</b>; rel=next"));
    headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.append(LINK, HeaderValue::from_static("</a>; rel=prev"));
    headers.append(HeaderName::from_static("x-latin"), HeaderValue::from_bytes(b"caf\xe9\xff").expect("a value"));
    headers.append(HeaderName::from_static("x-empty"), HeaderValue::from_static(""));
    headers.append(HeaderName::from_static("x-tab"), HeaderValue::from_static("a\tb"));
    headers.append(LINK, HeaderValue::from_static("</b>; rel=next"));
    headers
}

/// "No body" was an answer; "the body was not kept" is a note about one.
pub async fn an_empty_body_and_an_omitted_one_are_told_apart(subject: &dyn Subject) {
    let store = subject.store();
    let empty = answer(StatusCode::NO_CONTENT, b"");
    let omitted = StoredResult { body: ResultBody::Omitted, ..answer(StatusCode::OK, b"") };
    for (id, result) in [("evt_1", empty), ("evt_2", omitted)] {
        let lease = acquire(&*store, request(id)).await;
        assert_eq!(complete(&*store, lease, result.clone()).await, Settled::Done);
        let repeat = Repeat { result: Some(result), same_body: true };
        assert_eq!(reserved(&*store, request(id)).await, Reserved::Succeeded(repeat));
    }
}

/// C066, C067: no case, accent, width or space makes two ids one.
pub async fn ids_compare_as_bytes(subject: &dyn Subject) {
    let store = subject.store();
    let ids = [
        "msg_aB",
        "msg_Ab",
        "msg_ab",
        "é",
        "e",
        "e\u{301}",
        "ß",
        "ss",
        "SS",
        "evt_1",
        "evt_1 ",
        " evt_1",
        "evt_1\u{a0}",
        "1",
        "01",
        "1.0",
        "a%",
        "a_",
        "ａ",
        "a",
        "😀",
        "'",
        "\"",
        "\\",
    ];
    for id in ids {
        assert_eq!(acquire(&*store, request(id)).await.attempt, 1, "{id:?}");
    }
    for id in ids {
        assert_eq!(receipt(&*store, id).await.event_id, Some(event_id(id)));
    }
    let scoped = |consumer: &str| ReceiptKey { consumer: Name::new(consumer).expect("a name"), ..key("evt_1") };
    for consumer in ["Orders", "orders "] {
        let lease = acquire(&*store, Reserve { key: scoped(consumer), ..request("evt_1") }).await;
        assert_eq!(lease.attempt, 1, "{consumer:?}");
    }
}

/// C067: long ids that share a prefix are two ids.
pub async fn the_longest_names_are_kept_whole(subject: &dyn Subject) {
    let store = subject.store();
    let long = |last: &str| format!("{}{last}", "é".repeat((MAX_NAME_BYTES - 1) / 2));
    for id in [long("a"), long("b")] {
        let digest = DedupKey::from_digest(&Digest::of(id.as_bytes()));
        let name = Name::new(&id).expect("a name");
        let scoped = ReceiptKey { consumer: name.clone(), source: name, key: digest };
        let asked = Reserve { key: scoped.clone(), ..request(&id) };
        assert_eq!(acquire(&*store, asked).await.key, scoped);
        assert_eq!(acquire(&*store, request(&id)).await.key, key(&id));
        assert_eq!(receipt(&*store, &id).await.event_id, Some(event_id(&id)));
    }
}

/// A text for people is bounded, and stays text.
pub async fn an_error_is_cut_at_the_end_of_a_character(subject: &dyn Subject) {
    let store = subject.store();
    let fits = "x".repeat(Failure::MAX_ERROR_BYTES - 1);
    let lease = acquire(&*store, request("evt_1")).await;
    let long = Failure { dead: Some(format!("{fits}é")), ..failure(&format!("{fits}é and more")) };
    assert_eq!(fail(&*store, lease, long).await, Settled::Done);
    let receipt = receipt(&*store, "evt_1").await;
    assert_eq!(receipt.error.as_deref(), Some(&*fits));
    assert_eq!(receipt.reason.as_deref(), Some(&*fits));
    assert_eq!(receipt.failures[0].error, fits);
}
