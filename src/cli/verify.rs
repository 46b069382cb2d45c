//! `countersign verify`: whether a request was signed by who it says.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use clap::Args;
use countersign::signature::{Head, ReplayWindow, Scheme, Verified, Verifier, VerifyError};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::json;

use crate::body::BodyArgs;
use crate::error::CliError;
use crate::output::{OutputArgs, Printable};
use crate::scheme::SigningArgs;
use crate::sign::unix;

/// Check a request's signature: exit status 0 if it is valid, 1 if it is not
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign verify --scheme github --secret-file github.secret \\
      -H 'X-Hub-Signature-256: sha256=7571…3e17' --body payload.json
  countersign sign --scheme stripe --secret-env SECRET --body b.json > headers
  countersign verify --scheme stripe --secret-env SECRET -H @headers --body b.json")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    signing: SigningArgs,
    /// Header of the request, or @FILE with a header on each line; repeatable, also with the same name
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE | @FILE")]
    headers: Vec<OsString>,
    /// Method of the request, for schemes that sign it
    #[arg(long, default_value = "POST")]
    method: Method,
    /// URL as the sender knows it, for schemes that sign it
    #[arg(long, default_value = "", hide_default_value = true)]
    url: String,
    /// Check as if it were this moment, in Unix seconds [default: now]
    #[arg(long, value_name = "UNIX")]
    at: Option<i64>,
    /// How far the timestamp may lie from that moment, to both sides [default: the scheme's own limit]
    #[arg(long, value_name = "SECONDS")]
    tolerance: Option<u64>,
    #[command(flatten)]
    body: BodyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<(), CliError> {
    let (scheme, keyring) = args.signing.parts()?;
    if scheme.signs_url() && args.url.is_empty() {
        return Err(CliError::usage(format!("the scheme `{}` signs the URL; give it with --url", scheme.name())));
    }
    let mut verifier = Verifier::new(scheme, keyring)?;
    if let Some(seconds) = args.tolerance {
        if verifier.window().is_none() {
            tracing::warn!("the scheme `{}` signs no timestamp: --tolerance has no effect", verifier.scheme().name());
        }
        verifier = verifier.with_window(ReplayWindow::symmetric(Duration::from_secs(seconds)));
    }
    let headers = header_map(&args.headers)?;
    let at = args.at.map(|seconds| unix("--at", seconds)).transpose()?;
    let body = args.body.read()?;

    let head = Head::new(&args.method, &args.url, &headers);
    let verdict = match at {
        Some(now) => verifier.verify_at(head, &body, now),
        None => verifier.verify(head, &body),
    };
    match verdict {
        Ok(verified) => accept(args.output, &verified),
        Err(error) => refuse(args, verifier.scheme(), &headers, &error),
    }
}

fn accept(output: OutputArgs, verified: &Verified) -> Result<(), CliError> {
    let id = verified.event_id().map(|id| id.as_str());
    let json = || {
        json!({
            "valid": true,
            "event_id": id,
            "id_origin": verified.id_origin().as_str(),
            "timestamp": verified.timestamp().map(|moment| moment.as_unix_seconds()),
            "secret": verified.secret(),
        })
    };
    let text = || {
        let id = match id {
            Some(id) => format!("{} ({})", Printable(id), verified.id_origin()),
            None => "none".to_owned(),
        };
        let timestamp = match verified.timestamp() {
            Some(moment) => format!("{moment} ({})", moment.as_unix_seconds()),
            None => "none is signed".to_owned(),
        };
        let secret = match verified.secret() {
            0 => "the first one given".to_owned(),
            index => format!("number {} of those given", index + 1),
        };
        format!("valid\nevent id   {id}\ntimestamp  {timestamp}\nsecret     {secret}\n")
    };
    output.print(json, text)
}

fn refuse(args: &VerifyArgs, scheme: &Scheme, headers: &HeaderMap, error: &VerifyError) -> Result<(), CliError> {
    let reason = error.reason();
    let similar = looks_like(scheme, headers);
    let json = || {
        let mut answer = json!({ "valid": false, "reason": reason, "detail": error.to_string() });
        if !similar.is_empty() {
            answer["looks_like"] = json!(similar);
        }
        answer
    };
    args.output.print(json, || format!("not valid: {reason}: {error}"))?;
    let advice = match (similar.as_slice(), error) {
        ([], VerifyError::Mismatch { .. }) if scheme.signs_url() => {
            // A query may hold secrets.
            let url = args.url.split(['?', '#']).next().unwrap_or_default();
            format!("check the secret, and that the URL given to the sender is {}, to the letter", Printable(url))
        }
        ([], _) => advice(error).to_owned(),
        ([one], _) => format!("these headers look like --scheme {one}"),
        ([one, others @ ..], _) => format!("these headers look like --scheme {one} (or {})", others.join(", ")),
    };
    Err(CliError::no(format!("not valid ({reason}): {advice}")))
}

/// The schemes that these headers look like, where the one that was named has none of its own among them.
fn looks_like(scheme: &Scheme, headers: &HeaderMap) -> Vec<&'static str> {
    if scheme.is_in_body() || scheme.has_signature_in(headers) {
        return Vec::new();
    }
    Scheme::detect(headers).iter().map(Scheme::name).collect()
}

/// What to look at first.
fn advice(error: &VerifyError) -> &'static str {
    match error {
        VerifyError::MissingHeader(_) => "pass every header of the request with -H, and check --scheme",
        VerifyError::DuplicateHeader(_) => "a header that may stand once stands twice; a sender sends it once",
        VerifyError::Mismatch { .. } => "check the secret, and that the body is byte for byte what was received",
        VerifyError::TooOld { .. } | VerifyError::TooNew { .. } => "check with --at, or allow more with --tolerance",
        _ => "check --scheme, and that the headers are exactly what was received",
    }
}

/// The headers as HTTP would read these lines: spaces around a value are no part of it, and lines of the same name stay
/// lines of their own.
fn header_map(lines: &[OsString]) -> Result<HeaderMap, CliError> {
    let mut headers = HeaderMap::new();
    for (given, number) in lines.iter().zip(1..) {
        let given = given.as_encoded_bytes();
        let Some(path) = given.strip_prefix(b"@") else {
            if trim_end(given).contains(&b'\n') {
                return Err(CliError::usage(format!(
                    "-H number {number}: it has several lines; give each its own -H, or write them to a file: -H @FILE"
                )));
            }
            add(&mut headers, given, &format!("-H number {number}"))?;
            continue;
        };
        let text = std::fs::read(OsStr::from_bytes(path)).map_err(|error| {
            CliError::unreachable(format!(
                "-H number {number}: the file cannot be read: {error}; check its path and mode"
            ))
        })?;
        for (line, at) in text.split(|byte| *byte == b'\n').zip(1..) {
            // A head that was saved ends its lines with CR LF, and is followed by an empty one.
            if !trim_end(line).is_empty() {
                add(&mut headers, trim_end(line), &format!("-H number {number}, line {at}"))?;
            }
        }
    }
    Ok(headers)
}

/// Adds one line.
fn add(headers: &mut HeaderMap, line: &[u8], place: &str) -> Result<(), CliError> {
    let refused = |why: &str| CliError::usage(format!("{place}: {why}; write it as 'name: value'"));
    let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| refused("it has no colon"))?;
    let (name, value) = line.split_at(colon);
    let name = HeaderName::from_bytes(name).map_err(|_| refused("what precedes the colon is no header's name"))?;
    let value = trim(value.get(1..).unwrap_or_default());
    let value = HeaderValue::from_bytes(value).map_err(|_| refused("its value holds a control character"))?;
    headers.try_append(name, value).map_err(|_| refused("there are too many headers"))?;
    Ok(())
}

/// Without the line break at its end.
fn trim_end(line: &[u8]) -> &[u8] {
    line.trim_ascii_end()
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c032_lines_of_the_same_name_stay_lines_of_their_own() {
        let headers = header_map(&["webhook-id: a".into(), "Webhook-Id:b".into()]).expect("headers");
        assert_eq!(headers.get_all("webhook-id").iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn spaces_around_a_value_are_no_part_of_it() {
        let headers = header_map(&["a: \t b c \t".into(), "d:".into(), "e: f:g".into()]).expect("headers");
        assert_eq!(
            (&headers["a"], &headers["d"], &headers["e"]),
            (&HeaderValue::from_static("b c"), &HeaderValue::from_static(""), &HeaderValue::from_static("f:g"))
        );
    }

    #[test]
    fn a_line_that_is_no_header_is_refused_without_being_shown() {
        for line in ["hunter2", ": hunter2", "a hunter2: x", "a : hunter2", "a: hunter2\nb: c", "a: hunter2\0"] {
            let error = header_map(&[line.into()]).expect_err("to be refused");
            assert!(matches!(&error, CliError::Usage(text) if !text.contains("hunter2")), "{line:?}: {error}");
        }
    }
}
