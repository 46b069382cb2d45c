//! `countersign sign`: the headers that a sender would add.

use clap::Args;
use countersign::signature::{IdOrigin, Message, Scheme, Signer};
use countersign::{Clock as _, SystemClock, Timestamp};
use http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use crate::body::BodyArgs;
use crate::error::CliError;
use crate::output::OutputArgs;
use crate::scheme::SigningArgs;

/// Sign a body and print the headers that a sender would add, a line each
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign sign --scheme standard --secret-env WEBHOOK_SECRET \\
      --body body.json > headers
  curl -H @headers --data-binary @body.json http://127.0.0.1:8080/")]
pub(crate) struct SignArgs {
    #[command(flatten)]
    signing: SigningArgs,
    /// The event's id [default: a new one, where the scheme has a header for it]
    #[arg(long)]
    id: Option<String>,
    /// When it is signed, in Unix seconds [default: now]
    #[arg(long, value_name = "UNIX")]
    timestamp: Option<i64>,
    /// Method of the request, for schemes that sign it
    #[arg(long, default_value = "POST")]
    method: Method,
    /// URL that is called, for schemes that sign it
    #[arg(long, default_value = "", hide_default_value = true)]
    url: String,
    /// The event's type, for schemes that sign it
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The body's content type, for schemes that sign it
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    #[command(flatten)]
    body: BodyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &SignArgs) -> Result<(), CliError> {
    let (scheme, keyring) = args.signing.parts()?;
    let id = event_id(&scheme, args.id.as_deref())?;
    let timestamp = match args.timestamp {
        Some(seconds) => unix("--timestamp", seconds)?,
        None => SystemClock.now(),
    };
    let signer = Signer::new(scheme, keyring)?;
    let body = args.body.read()?;

    let message = Message {
        id: id.as_deref(),
        timestamp,
        method: &args.method,
        url: &args.url,
        event_type: args.event_type.as_deref(),
        content_type: Some(&args.content_type),
        body: &body,
    };
    let headers = signer.sign(&message).map_err(|error| CliError::usage(error.to_string()))?;
    if args.event_type.is_some() && !headers.contains_key("webhook-type") {
        tracing::warn!("the scheme does not sign a type: --type has no effect");
    }
    args.output.print(|| json!({ "headers": as_object(&headers) }), || as_lines(&headers))
}

/// The moment that was given on the command line.
pub(crate) fn unix(flag: &str, seconds: i64) -> Result<Timestamp, CliError> {
    Timestamp::from_unix_seconds(seconds)
        .ok_or_else(|| CliError::usage(format!("{flag}: the number is too large; it is a count of seconds since 1970")))
}

fn event_id(scheme: &Scheme, given: Option<&str>) -> Result<Option<String>, CliError> {
    match (scheme.id_origin(), given) {
        (IdOrigin::SignedHeader | IdOrigin::Unsigned, Some(id)) => Ok(Some(id.to_owned())),
        (IdOrigin::SignedHeader | IdOrigin::Unsigned, None) => new_id().map(Some),
        (_, Some(_)) => {
            tracing::warn!("the scheme `{}` has no header for an id: --id has no effect", scheme.name());
            Ok(None)
        }
        (_, None) => Ok(None),
    }
}

/// 128 random bits: no two senders will ever draw the same.
fn new_id() -> Result<String, CliError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::unreachable(format!("no random bytes for an id: {error}; give one with --id")))?;
    Ok(format!("msg_{:032x}", u128::from_be_bytes(bytes)))
}

fn as_lines(headers: &HeaderMap) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))).collect()
}

fn as_object(headers: &HeaderMap) -> Map<String, Value> {
    let text = |value: &http::HeaderValue| Value::from(String::from_utf8_lossy(value.as_bytes()));
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
