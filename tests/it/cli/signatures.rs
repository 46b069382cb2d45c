//! `sign`, `verify` and `schemes`.

use std::collections::HashMap;
use std::process::Command;

use serde_json::Value;

use super::{NOW, SECRET, countersign, reason, signed, verify};

/// Bodies that a careless program would change: line breaks, a byte order mark, bytes that are not text, none at all.
const BODIES: [&[u8]; 6] =
    [b"{\"a\":1}", b"line\r\nbreaks\n\n", b"\xef\xbb\xbf{}", b"a\0b\xff\xfe", b"", b" {\"id\": \"evt_1\"} "];

const HMAC: [&str; 12] = [
    "--scheme",
    "hmac",
    "--option",
    "header=x-acme-signature",
    "--option",
    "prefix=v=",
    "--option",
    "signed={id}:{timestamp}:{body}",
    "--option",
    "timestamp=x-acme-time:ms",
    "--option",
    "id=x-acme-id",
];

#[test]
fn every_scheme_verifies_what_it_signs_byte_for_byte() {
    for scheme in tried() {
        for body in BODIES {
            let headers = signed(&flags(&scheme), body);
            let verdict = verify(&flags(&scheme), body).headers(&headers).run().exits(0).json();
            assert_eq!((&verdict["valid"], &verdict["secret"]), (&true.into(), &0.into()), "{scheme}");
            // What `hmac` signs, its options say.
            let timed = scheme["from_options"] == true || scheme["timestamp_signed"] == true;
            assert_eq!(verdict["timestamp"].is_i64(), timed, "{scheme}");

            let other = [body, b" "].concat();
            let refused = verify(&flags(&scheme), &other).headers(&headers).run().exits(1);
            assert_eq!(reason(&refused), "mismatch", "{scheme}");
        }
    }
}

#[test]
fn what_is_signed_agrees_with_an_implementation_in_python() {
    let script = r#"
import base64, hashlib, hmac, json, sys
secret, now, body = sys.argv[1], sys.argv[2].encode(), bytes.fromhex(sys.argv[3])
key, text = base64.b64decode(secret[len('whsec_'):]), secret.encode()
mac = lambda key, signed, hash='sha256': hmac.new(key, signed, hash)
b64 = lambda mac: base64.b64encode(mac.digest()).decode()
framed = lambda part: len(part).to_bytes(8, 'big') + part
envelope = b'countersign.envelope.v1\0' + b''.join(map(framed, [now, b'evt_1', b'a.b', b'text/plain', body]))
standard = 'v1,' + b64(mac(key, b'evt_1.' + now + b'.' + body))
print(json.dumps({
    'standard': ['webhook-signature', standard],
    'svix': ['svix-signature', standard],
    'envelope': ['webhook-signature', 'v1e,' + b64(mac(key, envelope))],
    'github': ['x-hub-signature-256', 'sha256=' + mac(text, body).hexdigest()],
    'github-sha1': ['x-hub-signature', 'sha1=' + mac(text, body, 'sha1').hexdigest()],
    'stripe': ['stripe-signature', 't=' + now.decode() + ',v1=' + mac(text, now + b'.' + body).hexdigest()],
    'slack': ['x-slack-signature', 'v0=' + mac(text, b'v0:' + now + b':' + body).hexdigest()],
    'shopify': ['x-shopify-hmac-sha256', b64(mac(text, body))],
    'hmac': ['x-acme-signature', 'v=' + mac(text, b'evt_1:' + now + b'000:' + body).hexdigest()],
}))"#;
    for body in BODIES {
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        let output = Command::new("python3").args(["-c", script, SECRET, &NOW.to_string(), &hex]).output();
        let expected: HashMap<String, [String; 2]> =
            serde_json::from_slice(&output.expect("python3").stdout).expect("JSON from Python");
        for (scheme, [name, value]) in &expected {
            let mut flags = if scheme == "hmac" { HMAC.to_vec() } else { vec!["--scheme", scheme] };
            flags.extend(["--id", "evt_1", "--type", "a.b", "--content-type", "text/plain", "--json"]);
            let now = NOW.to_string();
            let program = countersign(["sign", "--secret-env", "SECRET", "--body", "-", "--timestamp", &now]);
            let answer = program.args(&flags).stdin(body).run().exits(0).json();
            assert_eq!(answer["headers"][name], value.as_str(), "{scheme}");
        }
        assert_eq!(expected.len(), 9);
    }
}

#[test]
fn what_verify_prints_says_who_what_and_when() {
    let headers = signed(&["--scheme", "standard", "--id", "msg_1"], b"{}");
    let verdict = verify(&["--scheme", "standard"], b"{}").headers(&headers).run().exits(0).json();
    let expected = serde_json::json!({
        "valid": true, "event_id": "msg_1", "id_origin": "signed_header", "timestamp": NOW, "secret": 0,
    });
    assert_eq!(verdict, expected);

    let rotated = ["verify", "--scheme", "standard", "--secret-env", "OTHER_SECRET", "--secret-env", "SECRET"];
    let at = NOW.to_string();
    let text =
        countersign(rotated).args(["--at", &at, "--body", "-"]).stdin(b"{}").headers(&headers).run().exits(0).text();
    assert!(
        text.starts_with("valid\n") && text.contains("msg_1 (signed_header)") && text.contains("number 2"),
        "{text}"
    );
    assert!(text.contains("2023-11-14T22:13:20Z"), "{text}");

    let stripe = signed(&["--scheme", "stripe"], br#"{"id":"evt_9"}"#);
    let verdict = verify(&["--scheme", "stripe"], br#"{"id":"evt_9"}"#).headers(&stripe).run().exits(0).json();
    assert_eq!((&verdict["event_id"], &verdict["id_origin"]), (&"evt_9".into(), &"signed_body".into()));
    let github = signed(&["--scheme", "github", "--id", "d-1"], b"{}");
    let verdict = verify(&["--scheme", "github"], b"{}").headers(&github).run().exits(0).json();
    assert_eq!((&verdict["event_id"], &verdict["id_origin"]), (&"d-1".into(), &"unsigned".into()));
    assert!(verdict["timestamp"].is_null());
    let verdict =
        verify(&["--scheme", "shopify"], b"{}").headers(only(&signed(&["--scheme", "shopify"], b"{}"), "hmac"));
    let verdict = verdict.run().exits(0).json();
    assert_eq!((&verdict["event_id"], &verdict["id_origin"]), (&Value::Null, &"none".into()));
}

#[test]
fn without_an_id_or_a_time_sign_makes_a_new_id_and_takes_the_present() {
    let sign = || countersign(["sign", "--scheme", "standard", "--secret-env", "SECRET", "--body", "-"]).run().exits(0);
    let (first, second) = (sign().lines(), sign().lines());
    assert!(first[0].starts_with("webhook-id: msg_") && first[0].len() >= "webhook-id: msg_".len() + 22, "{first:?}");
    assert_ne!(first[0], second[0]);
    let verify = countersign(["verify", "--scheme", "standard", "--secret-env", "SECRET", "--body", "-"]);
    assert!(verify.headers(&first).run().exits(0).text().starts_with("valid"));
}

#[test]
fn c024_a_header_that_is_missing_empty_or_there_twice_is_refused() {
    for scheme in tried() {
        let flags = flags(&scheme);
        let headers = signed(&flags, b"{}");
        for (at, line) in headers.iter().enumerate() {
            let (name, _) = line.split_once(':').expect("a header");
            // An id that is not signed is a label: a request may come without it.
            if scheme["id_signed"] == false && (name.ends_with("-delivery") || name.ends_with("webhook-id")) {
                continue;
            }
            let others =
                || headers.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, line)| line.clone());
            let with = |lines: &[String]| verify(&flags, b"{}").headers(others()).headers(lines).run().exits(1);
            let empty = format!("{name}:");
            // A content type is signed where it is there, and may be absent: then the signature is another one.
            if name == "content-type" {
                assert_eq!(reason(&with(&[])), "mismatch");
                continue;
            }
            assert_eq!(reason(&with(&[])), "missing_header", "{scheme} {name}");
            assert!(
                ["malformed", "missing_header"].contains(&&*reason(&with(std::slice::from_ref(&empty)))),
                "{scheme} {name}"
            );
            for twice in [[empty.clone(), line.clone()], [line.clone(), empty.clone()]] {
                assert_eq!(reason(&with(&twice)), "duplicate_header", "{scheme} {name}");
            }
        }
    }
}

#[test]
fn c026_a_signature_has_the_standard_alphabet_and_its_padding() {
    let headers = signed(&["--scheme", "standard"], b"{}");
    let (others, signature) = (&headers[..2], &headers[2]);
    for spoilt in
        [signature.trim_end_matches('=').to_owned(), signature.replace('=', "=="), signature.replace("=", "-")]
    {
        let refused = verify(&["--scheme", "standard"], b"{}").headers(others).headers([spoilt]).run().exits(1);
        assert_eq!(reason(&refused), "malformed");
    }
}

#[test]
fn c031_a_timestamp_that_is_no_number_is_refused() {
    let headers = signed(&["--scheme", "standard"], b"{}");
    for text in
        ["-1", "+1700000000", "1700000000.0", "1.7e9", "0x6553F100", "99999999999999999999", "", "NaN", "١٧٠٠٠٠٠٠٠٠"]
    {
        let lines = [&headers[0], &headers[2], &format!("webhook-timestamp: {text}")];
        let refused = verify(&["--scheme", "standard"], b"{}").headers(lines).run().exits(1);
        assert_eq!(reason(&refused), "malformed", "{text}");
    }
    // The largest number that fits is one, and its signature is another.
    let lines = [&headers[0], &headers[2], &format!("webhook-timestamp: {}", i64::MAX)];
    let refused = verify(&["--scheme", "standard"], b"{}").headers(lines).run().exits(1);
    assert_eq!(reason(&refused), "mismatch");

    for text in ["t", "t=", "=", ",,,", "t=1,t=2", "v1=", "t=1700000000", ""] {
        let refused =
            verify(&["--scheme", "stripe"], b"{}").headers([format!("stripe-signature: {text}")]).run().exits(1);
        assert!(["malformed", "missing_header"].contains(&&*reason(&refused)), "{text}");
    }
}

#[test]
fn c032_two_headers_of_one_name_are_refused_in_either_order() {
    let headers = signed(&["--scheme", "standard", "--id", "msg_1"], b"{}");
    for other in ["webhook-id: msg_2", "webhook-timestamp: 1700000001", "Webhook-Signature: v1,AAAA"] {
        for lines in [[&[other.to_owned()], &headers[..]].concat(), [&headers[..], &[other.to_owned()]].concat()] {
            let refused = verify(&["--scheme", "standard"], b"{}").headers(lines).run().exits(1);
            assert_eq!(reason(&refused), "duplicate_header", "{other}");
        }
    }
}

#[test]
fn c046_the_window_has_two_edges_and_they_are_inside() {
    let headers = signed(&["--scheme", "stripe"], b"{}");
    let at = |moment: i64, more: &[&str]| {
        let flags = ["verify", "--scheme", "stripe", "--secret-env", "SECRET", "--body", "-", "--json", "--at"];
        countersign(flags).args([moment.to_string()]).args(more).headers(&headers).stdin(b"{}").run()
    };
    at(NOW - 300, &[]).exits(0);
    at(NOW + 300, &[]).exits(0);
    assert_eq!(reason(&at(NOW - 301, &[]).exits(1)), "too_new");
    assert_eq!(reason(&at(NOW + 301, &[]).exits(1)), "too_old");
    assert_eq!(reason(&at(NOW - 315_360_000, &[]).exits(1)), "too_new");
    at(NOW + 301, &["--tolerance", "301"]).exits(0);
    assert_eq!(reason(&at(NOW + 1, &["--tolerance", "0"]).exits(1)), "too_old");
    assert_eq!(reason(&at(0, &[]).exits(1)), "too_new");
}

#[test]
fn c047_milliseconds_are_not_taken_for_seconds_nor_the_other_way_round() {
    let millis = "1700000000000";
    let sign = ["sign", "--scheme", "standard", "--secret-env", "SECRET", "--body", "-", "--timestamp", millis];
    let headers = countersign(sign).stdin(b"{}").run().exits(0).lines();
    let refused = verify(&["--scheme", "standard"], b"{}").headers(&headers).run().exits(1);
    assert_eq!(reason(&refused), "too_new");

    let headers = signed(&HMAC, b"{}");
    assert!(headers.contains(&format!("x-acme-time: {millis}")), "{headers:?}");
    for (moment, code) in [(NOW + 299, 0), (NOW + 301, 1), (NOW - 299, 0), (NOW - 301, 1)] {
        let flags = ["verify", "--secret-env", "SECRET", "--body", "-", "--at"];
        countersign(flags).args([moment.to_string()]).args(HMAC).headers(&headers).stdin(b"{}").run().exits(code);
    }
}

#[test]
fn c067_an_id_is_taken_whole_or_refused() {
    let sign = |id: &str| {
        let flags = ["sign", "--scheme", "standard", "--secret-env", "SECRET", "--body", "-", "--id", id];
        countersign(flags).args(["--timestamp", &NOW.to_string()]).run()
    };
    let longest = "x".repeat(255);
    let headers = sign(&longest).exits(0).lines();
    let verdict = verify(&["--scheme", "standard"], b"").headers(&headers).run().exits(0).json();
    assert_eq!(verdict["event_id"], longest.as_str());
    for id in [format!("{longest}x"), "x".repeat(4_000), "evt_1 ".into(), "a\nb".into(), "a.b".into(), String::new()] {
        sign(&id).exits(2).says("id");
    }
    // A longer id of which only the beginning would be looked at must not pass for the shorter one.
    let lines = [format!("webhook-id: {longest}x"), headers[1].clone(), headers[2].clone()];
    verify(&["--scheme", "standard"], b"").headers(lines).run().exits(1);
}

#[test]
fn the_list_of_schemes_says_what_is_signed() {
    let list = schemes();
    let of = |name: &str| list.iter().find(|scheme| scheme["name"] == name).expect("a scheme").clone();
    assert_eq!((&of("standard")["timestamp_signed"], &of("standard")["id_signed"]), (&true.into(), &true.into()));
    assert_eq!((&of("github")["timestamp_signed"], &of("github")["id_signed"]), (&false.into(), &false.into()));
    assert_eq!(of("shopify")["encoding"], "base64");
    assert_eq!(of("github-sha1")["algorithm"], "hmac-sha1");
    assert_eq!(of("stripe")["headers"], serde_json::json!(["stripe-signature"]));
    let text = countersign(["schemes"]).run().exits(0).text();
    assert!(list.iter().all(|scheme| text.contains(scheme["name"].as_str().expect("a name"))), "{text}");
}

#[test]
fn a_scheme_has_a_page_of_its_own() {
    let page = countersign(["schemes", "stripe"]).run().exits(0).text();
    assert!(page.starts_with("# Stripe: `stripe`\n") && page.contains("--scheme stripe"), "{page}");
    let row = countersign(["schemes", "hubspot-v3", "--json"]).run().exits(0).json();
    assert_eq!(
        (&row["name"], &row["url_signed"], &row["window_seconds"]),
        (&"hubspot-v3".into(), &true.into(), &300.into())
    );
    countersign(["schemes", "strpe"]).run().exits(1).says("did you mean `stripe`?");
}

#[test]
fn verify_says_what_headers_look_like_that_are_not_the_named_scheme_s() {
    let headers = signed(&["--scheme", "stripe"], b"{}");
    let refused =
        verify(&["--scheme", "github"], b"{}").headers(&headers).run().exits(1).says("look like --scheme stripe");
    assert_eq!((reason(&refused), &refused.json()["looks_like"][0]), ("missing_header".to_owned(), &"stripe".into()));
    let own = verify(&["--scheme", "stripe"], b"{ }").headers(&headers).run().exits(1).json();
    assert!(own["looks_like"].is_null());
    let none = verify(&["--scheme", "github"], b"{}").headers(["x-other: 1"]).run().exits(1).json();
    assert!(none["looks_like"].is_null());
}

#[test]
fn c044_a_mismatch_shows_the_url_that_was_used_and_nothing_of_its_query() {
    let flags = ["--scheme", "square", "--url", "https://h.example.com/in/?token=hunter2"];
    let headers = signed(&flags, b"{}");
    verify(&flags, b"{}").headers(&headers).run().exits(0);
    let other = ["--scheme", "square", "--url", "https://h.example.com/in?token=hunter2"];
    let refused =
        verify(&other, b"{}").headers(&headers).run().exits(1).says("https://h.example.com/in, to the letter");
    assert!(!refused.stderr.contains("hunter2") && !refused.text().contains("hunter2"));
}

fn schemes() -> Vec<Value> {
    let list = countersign(["schemes", "--json"]).run().exits(0).json();
    let list = list.as_array().expect("an array").clone();
    assert!(list.len() >= 60);
    list
}

/// One scheme of each shape, all of which sign any body with [`SECRET`]. The others are tried without the program.
fn tried() -> Vec<Value> {
    let names = ["standard", "envelope", "github", "github-sha1", "stripe", "slack", "shopify", "svix", "hmac"];
    schemes().into_iter().filter(|scheme| names.contains(&scheme["name"].as_str().expect("a name"))).collect()
}

fn flags(scheme: &Value) -> Vec<&str> {
    match scheme["name"].as_str().expect("a name") {
        "hmac" => HMAC.to_vec(),
        name => vec!["--scheme", name],
    }
}

/// The lines whose name holds this.
fn only(headers: &[String], part: &str) -> Vec<String> {
    headers.iter().filter(|line| line.split(':').next().is_some_and(|name| name.contains(part))).cloned().collect()
}
