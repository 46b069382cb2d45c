//! `countersign enqueue` and `countersign publish`: messages from the shell.

use std::time::Duration;

use clap::Args;
use countersign::Name;
use countersign::send::new_id;
use countersign::store::{Enqueue, Enqueued, Message, MessageKey, OutboxStore};

use crate::body::BodyArgs;
use crate::error::CliError;
use crate::maintenance::parse_span;
use crate::message;
use crate::output::OutputArgs;
use crate::store::{StoreArgs, close};

/// Put one message into the outbox, for one endpoint
#[derive(Args, Debug)]
#[command(after_help = "\
A message that is there already, by its id, is left as it is.

Example:
  countersign enqueue --endpoint shop --type order.paid --id msg_order-7-paid --body order.json")]
pub(crate) struct EnqueueArgs {
    /// Where it goes
    #[arg(long, value_name = "NAME", value_parser = name)]
    endpoint: Name,
    /// When it may be sent, from now: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "0", hide_default_value = true)]
    delay: Duration,
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Put a message into the outbox, for each endpoint whose types match
#[derive(Args, Debug)]
#[command(after_help = "\
Endpoints that are disabled get it when they are enabled.

Example:
  countersign publish --type order.paid --body order.json --json")]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The message.
#[derive(Args, Debug)]
struct MessageArgs {
    /// What kind of event it is
    #[arg(long = "type", value_name = "TYPE", value_parser = name)]
    event_type: Name,
    /// Its id, the same for every attempt [default: a new one]
    #[arg(long)]
    id: Option<String>,
    /// Messages to one endpoint that share this go one at a time, in order
    #[arg(long, value_name = "KEY", value_parser = name)]
    ordering_key: Option<Name>,
    /// The media type of the body
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// What it belongs to
    #[arg(long, value_name = "ID", value_parser = name)]
    correlation_id: Option<Name>,
    /// The id of the event that caused it
    #[arg(long, value_name = "ID", value_parser = name)]
    causation_id: Option<Name>,
    /// The W3C trace context that it belongs to
    #[arg(long, value_name = "CONTEXT")]
    traceparent: Option<String>,
    #[command(flatten)]
    body: BodyArgs,
}

pub(crate) async fn enqueue(args: &EnqueueArgs) -> Result<(), CliError> {
    let mut one = Enqueue::new(args.endpoint.clone(), args.message.message()?);
    one.delay = args.delay;
    let store = args.store.open().await?;
    let outbox = store.outbox();
    if outbox.endpoint(args.endpoint.clone()).await?.is_none() {
        return Err(no_endpoint(&args.endpoint));
    }
    let payload = one.message.payload.clone();
    let enqueued = outbox.enqueue(vec![one]).await?;
    let other = other_body(&*outbox, &enqueued, &payload).await?;
    close(store).await;
    args.output.print(|| message::enqueued(&enqueued), || message::enqueued_lines(&enqueued))?;
    other.map_or(Ok(()), Err)
}

pub(crate) async fn publish(args: &PublishArgs) -> Result<(), CliError> {
    let one = args.message.message()?;
    let store = args.store.open().await?;
    let payload = one.payload.clone();
    let outbox = store.outbox();
    let enqueued = outbox.publish(one).await?;
    let other = other_body(&*outbox, &enqueued, &payload).await?;
    close(store).await;
    if enqueued.is_empty() {
        tracing::warn!("no endpoint wants events of the type {}", args.message.event_type);
    }
    args.output.print(|| message::enqueued(&enqueued), || message::enqueued_lines(&enqueued))?;
    other.map_or(Ok(()), Err)
}

/// What to say where an id was there with another body: an event of that id is not the one that was meant.
async fn other_body(
    outbox: &dyn OutboxStore,
    enqueued: &[Enqueued],
    payload: &[u8],
) -> Result<Option<CliError>, CliError> {
    for Enqueued { id, endpoint, .. } in enqueued.iter().filter(|enqueued| !enqueued.created) {
        let key = MessageKey { endpoint: endpoint.clone(), id: id.clone() };
        if outbox.find_message(key).await?.is_some_and(|there| there.message.payload != payload) {
            return Ok(Some(CliError::no(format!(
                "`{id}` to `{endpoint}` was there with another body, which was left as it is: give this event an id of its \
                 own"
            ))));
        }
    }
    Ok(None)
}

pub(crate) fn no_endpoint(name: &Name) -> CliError {
    CliError::no(format!("there is no endpoint `{name}`; `countersign endpoint list` shows which there are"))
}

pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

impl MessageArgs {
    fn message(&self) -> Result<Message, CliError> {
        let usage = |error: &dyn std::fmt::Display| CliError::usage(error.to_string());
        let id = match &self.id {
            Some(id) => countersign::EventId::new(id).map_err(|error| usage(&format!("--id: {error}")))?,
            None => new_id().map_err(|error| CliError::unreachable(error.to_string()))?,
        };
        let mut message = Message::new(id, self.event_type.clone(), self.body.read()?);
        message.content_type.clone_from(&self.content_type);
        message.ordering_key.clone_from(&self.ordering_key);
        message.correlation_id.clone_from(&self.correlation_id);
        message.causation_id.clone_from(&self.causation_id);
        message.traceparent.clone_from(&self.traceparent);
        Enqueue::check(&message)?;
        Ok(message)
    }
}
