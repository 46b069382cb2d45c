//! The sender's situations: what is enqueued reaches the receiver of the other rows, through failures.

use std::time::Duration;

use countersign::send::{
    Backoff, Dispatcher, Guard, HttpTransport, KeyError, KeyFuture, KeySource, Policy, RetryPolicy,
};
use countersign::signature::{Keyring, Scheme};
use countersign::store::{
    Endpoint, Enqueue, Message, MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxStore, ReceiptState,
};
use countersign::{EventId, Name};

use super::Row;
use super::stage::{SECRET, SOURCE, Stage};
use crate::error::CliError;

/// A dispatcher of the stage's outbox, which may call this machine.
pub(crate) fn dispatcher(outbox: std::sync::Arc<dyn OutboxStore>) -> Result<Dispatcher, CliError> {
    let loopback = "127.0.0.1/32".parse().map_err(|error| own(&error as &countersign::send::ExceptionError))?;
    let guard = Guard::new(Policy::new().allow_http().with_exception(loopback));
    // Nothing is encrypted on the way to ourselves.
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| own(&error))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let quick = Backoff::new(Duration::from_millis(50), Duration::from_millis(200));
    Ok(Dispatcher::builder(outbox, HttpTransport::builder(guard).tls(tls).build()?)
        .keys(DemoKeys)
        .attempt_timeout(Duration::from_secs(3))
        .lease(Duration::from_secs(10))
        .poll(Duration::from_millis(100))
        .retry(RetryPolicy::new().with_backoff(quick).with_max_attempts(2))
        .build()?)
}

pub(crate) async fn delivered(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("message enqueued, twice under one id", "message sent-once, to the receiver");
    endpoint(stage, "receiver", format!("http://{}/", stage.receiver)).await?;
    let twice =
        [enqueue(stage, "receiver", "sent-once", "ok").await?, enqueue(stage, "receiver", "sent-once", "ok").await?];
    row.expect(twice == [true, false], "the second one changes nothing");
    let entry = ended(stage, "receiver", "sent-once").await?;
    row.expect(entry.state == MessageState::Succeeded && entry.attempts == 1, "succeeded at once");
    row.expect(received(stage, "sent-once").await?, "received, and run once");
    row.answered = answers(&entry);
    row.stored = describe(&entry);
    Ok(row)
}

pub(crate) async fn retried(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("receiver answers 500, then 200", "message sent-again, to the receiver");
    enqueue(stage, "receiver", "sent-again", "first 500").await?;
    let entry = ended(stage, "receiver", "sent-again").await?;
    row.expect(entry.state == MessageState::Succeeded && entry.attempts == 2, "succeeded with its second attempt");
    row.answered = answers(&entry);
    row.stored = describe(&entry);
    Ok(row)
}

pub(crate) async fn refused(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("receiver refuses for good", "message sent-in-vain, to the receiver");
    enqueue(stage, "receiver", "sent-in-vain", "permanent").await?;
    let entry = ended(stage, "receiver", "sent-in-vain").await?;
    row.expect(entry.state == MessageState::DeadLetter && entry.attempts == 1, "dead letter after one attempt");
    row.expect(entry.reason.as_ref().is_some_and(|reason| reason.contains("422")), "with the reason");
    row.answered = answers(&entry);
    row.stored = describe(&entry);
    Ok(row)
}

pub(crate) async fn replayed(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new(
        "receiver down until the attempts are used up; then mended, and the dead letter replayed",
        "message sent-late, to a port where nobody listens, then to the receiver",
    );
    endpoint(stage, "mended", format!("http://{}/", closed_port().await?)).await?;
    enqueue(stage, "mended", "sent-late", "ok").await?;
    let dead = ended(stage, "mended", "sent-late").await?;
    row.expect(dead.state == MessageState::DeadLetter && dead.attempts == 2, "dead letter after two attempts");
    endpoint(stage, "mended", format!("http://{}/", stage.receiver)).await?;
    let mut filter = MessageFilter::default();
    filter.endpoint = Some(name("mended")?);
    let replayed = stage.outbox.replay(filter, Duration::ZERO).await?;
    row.expect(replayed.len() == 1, "replayed");
    let entry = ended(stage, "mended", "sent-late").await?;
    row.expect(entry.state == MessageState::Succeeded && entry.replays == 1, "then succeeded");
    row.expect(received(stage, "sent-late").await?, "received, and run once");
    row.answered = answers(&entry);
    row.stored = format!("{}; then {}", describe(&dead), describe(&entry));
    Ok(row)
}

pub(crate) async fn repeated(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("a delivered message is sent again on purpose", "message sent-once, replayed");
    let mut filter = MessageFilter::default();
    filter.id = Some(id("sent-once")?);
    filter.state = Some(MessageState::Succeeded);
    stage.outbox.replay(filter, Duration::ZERO).await?;
    let entry = ended(stage, "receiver", "sent-once").await?;
    let from_store = |entry: &OutboxEntry| {
        entry.attempt_log.last().is_some_and(|last| last.report.headers.contains_key("idempotent-replayed"))
    };
    row.expect(entry.state == MessageState::Succeeded && from_store(&entry), "answered from the receiver's store");
    row.expect(received(stage, "sent-once").await?, "still run once");
    row.answered = format!("{}, idempotent-replayed: true", answers(&entry));
    row.stored = describe(&entry);
    Ok(row)
}

pub(crate) async fn ordered(stage: &Stage) -> Result<Row, CliError> {
    let mut row =
        Row::new("messages that share an ordering key; the first one fails at first", "messages step-1 to step-3");
    for (step, wish) in [("step-1", "first 500"), ("step-2", "ok"), ("step-3", "ok")] {
        let mut message = message(step, wish)?;
        message.ordering_key = Some(name("steps")?);
        stage.outbox.enqueue(vec![Enqueue::new(name("receiver")?, message)]).await?;
    }
    let mut ends = Vec::new();
    for step in ["step-1", "step-2", "step-3"] {
        ends.push(ended(stage, "receiver", step).await?);
    }
    let succeeded = ends.iter().all(|entry| entry.state == MessageState::Succeeded);
    row.expect(succeeded && ends.is_sorted_by_key(|entry| entry.updated), "delivered one after the other, in order");
    row.answered = ends.iter().map(answers).collect::<Vec<_>>().join(" · ");
    row.stored = ends.iter().map(describe).collect::<Vec<_>>().join(" · ");
    Ok(row)
}

pub(crate) async fn denied(stage: &Stage) -> Result<Row, CliError> {
    let mut row = Row::new("URL that leads inside", "message sent-inside, to http://169.254.169.254/");
    endpoint(stage, "inside", "http://169.254.169.254/latest/meta-data/".to_owned()).await?;
    enqueue(stage, "inside", "sent-inside", "ok").await?;
    let entry = ended(stage, "inside", "sent-inside").await?;
    let kind = entry.attempt_log.last().and_then(|last| last.report.kind.clone());
    row.expect(entry.state == MessageState::DeadLetter && kind.as_deref() == Some("policy"), "never called");
    row.answered = entry.last_error.clone().unwrap_or_default();
    row.stored = describe(&entry);
    Ok(row)
}

/// The demo's secret, whatever the reference.
struct DemoKeys;

impl KeySource for DemoKeys {
    fn keyring<'a>(&'a self, _: &'a Endpoint, scheme: &'a Scheme) -> KeyFuture<'a> {
        let keyring = scheme.parse_secret(SECRET).map(Keyring::new);
        Box::pin(async { keyring.map_err(|error| KeyError::Other(error.to_string())) })
    }
}

async fn endpoint(stage: &Stage, named: &str, url: String) -> Result<(), CliError> {
    stage.outbox.put_endpoint(Endpoint::new(name(named)?, url)).await?;
    Ok(())
}

/// Says whether it is new.
async fn enqueue(stage: &Stage, endpoint: &str, id: &str, wish: &str) -> Result<bool, CliError> {
    let enqueued = stage.outbox.enqueue(vec![Enqueue::new(name(endpoint)?, message(id, wish)?)]).await?;
    Ok(enqueued.iter().all(|one| one.created))
}

/// Waits for its end.
async fn ended(stage: &Stage, endpoint: &str, message: &str) -> Result<OutboxEntry, CliError> {
    let key = MessageKey { endpoint: name(endpoint)?, id: id(message)? };
    for _ in 0..600 {
        match stage.outbox.find_message(key.clone()).await? {
            Some(entry) if !matches!(entry.state, MessageState::Pending | MessageState::Delivering) => {
                return Ok(entry);
            }
            _ => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    }
    Err(CliError::unreachable(format!("the demo waited in vain for the message {message}")))
}

/// Whether the receiver has run it, once.
async fn received(stage: &Stage, id: &str) -> Result<bool, CliError> {
    let receipt = stage.receipt(SOURCE, id).await?;
    Ok(receipt.is_some_and(|receipt| receipt.state == ReceiptState::Succeeded) && stage.handler.runs(id) == 1)
}

async fn closed_port() -> Result<std::net::SocketAddr, CliError> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    listener.and_then(|listener| listener.local_addr()).map_err(|error| own(&error))
}

fn message(id_text: &str, wish: &str) -> Result<Message, CliError> {
    Ok(Message::new(id(id_text)?, name("demo.wish")?, wish.to_owned()))
}

fn name(text: &str) -> Result<Name, CliError> {
    Name::new(text).map_err(|error| own(&error))
}

fn id(text: &str) -> Result<EventId, CliError> {
    EventId::new(text).map_err(|error| own(&error))
}

fn own(error: &dyn std::fmt::Display) -> CliError {
    CliError::usage(format!("the demo cannot be set up: {error}"))
}

/// How each attempt ended.
fn answers(entry: &OutboxEntry) -> String {
    let attempts = entry.attempt_log.iter().map(|attempt| match (attempt.report.status, &attempt.report.kind) {
        (Some(status), _) => status.as_u16().to_string(),
        (None, kind) => kind.clone().unwrap_or_default(),
    });
    attempts.collect::<Vec<_>>().join(", ")
}

fn describe(entry: &OutboxEntry) -> String {
    let mut text = format!("{}, {} attempt(s)", entry.state, entry.attempts);
    if entry.replays > 0 {
        text.push_str(&format!(", {} replay(s)", entry.replays));
    }
    if let Some(reason) = &entry.reason {
        text.push_str(&format!(", {reason:?}"));
    }
    text
}
