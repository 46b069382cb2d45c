//! Schemes of options: what is accepted works in both directions, and one signature fits one message only.

use std::time::Duration;

use countersign::signature::{Head, Message, SignError, Signer};
use countersign::{ConfigError, Keyring, ReplayWindow, Scheme, Timestamp, Verifier};
use http::{HeaderMap, HeaderValue, Method};

use super::input::{Input, URL, other_secret};

/// Reads lines `option=value` up to an empty one, an id, and a body.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut options = Vec::new();
    while let Some((option, value)) = input.text().and_then(|line| line.split_once('=')) {
        options.push((option, value));
    }
    let id = input.text().unwrap_or_default();
    // Short ones: every way to read a signed text is tried.
    let body = input.rest();
    let body = &body[..body.len().min(40)];

    let scheme = match Scheme::hmac(options.iter().copied()) {
        Ok(scheme) => scheme,
        Err(error) => return assert!(matches!(error, ConfigError::SchemeOption { .. }), "{error}"),
    };
    let now = Timestamp::from_micros(1_700_000_000_123_456);
    let keyring = Keyring::new(other_secret(b"options"));
    let signer = Signer::new(scheme.clone(), keyring.clone()).expect("a signer");
    let message = Message::new(now, body).with_id(id).with_target(&Method::POST, URL);
    let headers = match signer.sign(&message) {
        Ok(headers) => headers,
        Err(SignError::InvalidId(_) | SignError::SeparatorInId(_) | SignError::IdNotForHeader) => return,
        Err(other) => panic!("{other}"),
    };

    let window = ReplayWindow::symmetric(Duration::MAX);
    let verifier = Verifier::new(scheme, keyring).expect("a verifier").with_window(window);
    let verify =
        |headers: &HeaderMap, body: &[u8]| verifier.verify_at(Head::new(&Method::POST, URL, headers), body, now);
    let verified = verify(&headers, body).expect("what was signed is accepted");
    assert_eq!(verified.timestamp().is_some(), verifier.scheme().signs_timestamp());
    assert!(verify(&headers, &[body, b"x"].concat()).is_err());

    let option = |name| options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value);
    let template = option("signed").unwrap_or("{body}");
    let id_header = option("id").filter(|id| !id.starts_with("body:")).map(str::to_ascii_lowercase);
    let time_header = option("timestamp").map(|name| name.split(':').next().unwrap_or(name).to_ascii_lowercase());
    let time = time_header.as_ref().map(|name| headers[name].as_bytes()).unwrap_or_default();
    let sent = Reading { id: id.as_bytes(), time, body };
    let parts = parts(template);
    let text = render(&parts, &sent);
    for other in readings(&parts, &text, sent).into_iter().filter(|other| *other != sent) {
        let mut headers = headers.clone();
        for (name, value) in [(&id_header, other.id), (&time_header, other.time)] {
            if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                headers.insert(http::HeaderName::try_from(name).expect("a header's name"), value);
            }
        }
        let verdict = verify(&headers, other.body);
        assert!(verdict.is_err(), "{template}: one signature for {sent:?} and {other:?}");
    }
}

/// What somebody may say that a signed text means.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading<'a> {
    id: &'a [u8],
    time: &'a [u8],
    body: &'a [u8],
}

enum Part<'a> {
    Fixed(&'a str),
    Id,
    Time,
    Body,
}

/// The parts of a template that was accepted.
fn parts(template: &str) -> Vec<Part<'_>> {
    template
        .split_inclusive('}')
        .flat_map(|piece| match piece.strip_suffix('}').and_then(|piece| piece.split_once('{')) {
            Some((literal, name)) => [Part::Fixed(literal), placeholder(name)],
            None => [Part::Fixed(piece), Part::Fixed("")],
        })
        .collect()
}

fn placeholder(name: &str) -> Part<'static> {
    match name {
        "id" => Part::Id,
        "timestamp" => Part::Time,
        "body" => Part::Body,
        "url" => Part::Fixed(URL),
        _ => Part::Fixed("POST"),
    }
}

fn render(parts: &[Part<'_>], sent: &Reading<'_>) -> Vec<u8> {
    let values = parts.iter().map(|part| match part {
        Part::Fixed(text) => text.as_bytes(),
        Part::Id => sent.id,
        Part::Time => sent.time,
        Part::Body => sent.body,
    });
    values.collect::<Vec<_>>().concat()
}

/// Every way to read a signed text. What the template lacks stays as it was sent.
fn readings<'a>(parts: &[Part<'_>], text: &'a [u8], sent: Reading<'a>) -> Vec<Reading<'a>> {
    let mut readings = vec![(sent, text)];
    for part in parts {
        readings = readings.into_iter().flat_map(|(reading, rest)| read(part, reading, rest)).collect();
    }
    readings.into_iter().filter(|(_, rest)| rest.is_empty()).map(|(reading, _)| reading).collect()
}

/// Every beginning of the rest that this part may be, with what is left behind it.
fn read<'a>(part: &Part<'_>, reading: Reading<'a>, rest: &'a [u8]) -> Vec<(Reading<'a>, &'a [u8])> {
    let splits = (0..=rest.len()).map(|at| rest.split_at(at));
    match part {
        Part::Fixed(text) => rest.strip_prefix(text.as_bytes()).map(|rest| (reading, rest)).into_iter().collect(),
        Part::Id => splits.map(|(id, rest)| (Reading { id, ..reading }, rest)).collect(),
        Part::Time => splits
            .take_while(|(time, _)| time.iter().all(u8::is_ascii_digit))
            .map(|(time, rest)| (Reading { time, ..reading }, rest))
            .collect(),
        Part::Body => splits.map(|(body, rest)| (Reading { body, ..reading }, rest)).collect(),
    }
}
