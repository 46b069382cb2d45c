//! `countersign outbox`: what is on its way, what was given up, and what an operator does about it.

use std::time::Duration;

use clap::{Args, Subcommand};
use countersign::store::{MessageFilter, MessageKey, MessageState, OutboxEntry, OutboxStore};
use countersign::{EventId, Name, Timestamp};
use serde_json::{Value, json};

use crate::enqueue::name;
use crate::error::CliError;
use crate::export;
use crate::message;
use crate::output::{OutputArgs, Printable};
use crate::store::{StoreArgs, close};

/// Look at messages, send them again, or take them back
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign outbox list --state dead_letter
  countersign outbox replay --all-dead --endpoint shop --rate 20")]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, Subcommand)]
enum OutboxCommand {
    List(ListArgs),
    /// Show one message: its payload, and every attempt to deliver it
    #[command(after_help = "\
Example:
  countersign outbox show msg_order-7-paid --json")]
    Show(MessageArgs),
    Replay(ReplayArgs),
    /// Take a message back that is not delivered: pending, failed or a dead letter
    #[command(after_help = "\
Example:
  countersign outbox cancel msg_order-7-paid --endpoint shop")]
    Cancel(MessageArgs),
    Export(ExportArgs),
}

/// Print all messages, a JSON document on each line, in the order in which they were enqueued
///
/// Each line is what `show --json` prints: the payload, and every attempt. A message that changes meanwhile is there as it was
/// or as it is, and once. Memory is bounded, whatever the size of the store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign outbox export > outbox.jsonl
  countersign outbox export --endpoint shop --state succeeded | wc -l")]
struct ExportArgs {
    /// Only those in this state: pending, delivering, succeeded, failed, dead_letter or cancelled
    #[arg(long, value_parser = state)]
    state: Option<MessageState>,
    /// Only those to this endpoint
    #[arg(long, value_name = "NAME", value_parser = name)]
    endpoint: Option<Name>,
    #[command(flatten)]
    store: StoreArgs,
}

/// List messages, those that changed last first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign outbox list --state pending --endpoint shop --limit 10 --json
  countersign outbox list --correlation-id order-7")]
struct ListArgs {
    /// Only those in this state: pending, delivering, succeeded, failed, dead_letter or cancelled
    #[arg(long, value_parser = state)]
    state: Option<MessageState>,
    /// Only those to this endpoint
    #[arg(long, value_name = "NAME", value_parser = name)]
    endpoint: Option<Name>,
    /// Only those of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = name)]
    event_type: Option<Name>,
    /// Only those that belong to this: an order, a flow
    #[arg(long, value_name = "ID", value_parser = name)]
    correlation_id: Option<Name>,
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Debug)]
struct MessageArgs {
    /// The message's id
    #[arg(value_parser = event_id)]
    id: EventId,
    /// Where it goes, where it goes to several endpoints
    #[arg(long, value_name = "NAME", value_parser = name)]
    endpoint: Option<Name>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Send messages again that were given up: with all attempts before them, under the same id
///
/// What is not given up stays as it is, so that asking twice does it once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign outbox replay msg_order-7-paid
  countersign outbox replay --all-dead --endpoint shop --rate 20")]
struct ReplayArgs {
    /// The message's id; to all its endpoints unless --endpoint names one
    #[arg(value_parser = event_id, required_unless_present = "all_dead", conflicts_with = "all_dead")]
    id: Option<EventId>,
    /// All dead letters and failed messages
    #[arg(long)]
    all_dead: bool,
    /// Only those to this endpoint
    #[arg(long, value_name = "NAME", value_parser = name)]
    endpoint: Option<Name>,
    /// Only those of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = name)]
    event_type: Option<Name>,
    /// Only those that belong to this: an order, a flow
    #[arg(long, value_name = "ID", value_parser = name)]
    correlation_id: Option<Name>,
    /// So many in a second at most; the first ones now
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Also one that was delivered
    #[arg(long, requires = "id")]
    succeeded: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &OutboxArgs) -> Result<(), CliError> {
    match &args.command {
        OutboxCommand::List(args) => list(args).await,
        OutboxCommand::Show(args) => show(args).await,
        OutboxCommand::Replay(args) => replay(args).await,
        OutboxCommand::Cancel(args) => cancel(args).await,
        OutboxCommand::Export(args) => export(args).await,
    }
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let mut filter = MessageFilter::default();
    filter.state = args.state;
    filter.endpoint.clone_from(&args.endpoint);
    filter.event_type.clone_from(&args.event_type);
    filter.correlation_id.clone_from(&args.correlation_id);
    filter.limit = args.limit;
    let store = args.store.open_existing().await?;
    let entries = store.outbox().list_messages(filter).await?;
    close(store).await;
    args.output.print(|| entries.iter().map(message::summary).collect(), || message::table_of(&entries))
}

async fn show(args: &MessageArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let outbox = store.outbox();
    let key = match &args.endpoint {
        Some(endpoint) => MessageKey { endpoint: endpoint.clone(), id: args.id.clone() },
        None => only(&args.id, &of_id(&*outbox, &args.id, None).await?)?,
    };
    let entry = outbox.find_message(key).await?.ok_or_else(|| not_found(&args.id))?;
    close(store).await;
    args.output.print(|| message::details(&entry), || message::page_of(&entry))
}

async fn replay(args: &ReplayArgs) -> Result<(), CliError> {
    let mut filter = MessageFilter::default();
    filter.id.clone_from(&args.id);
    filter.endpoint.clone_from(&args.endpoint);
    filter.event_type.clone_from(&args.event_type);
    filter.correlation_id.clone_from(&args.correlation_id);
    filter.limit = BATCH;
    if args.succeeded {
        filter.state = Some(MessageState::Succeeded);
    }
    let gap = args.rate.map_or(Duration::ZERO, |rate| Duration::from_secs(1) / rate);
    let store = args.store.open_existing().await?;
    let outbox = store.outbox();
    let mut replayed = Vec::new();
    if !args.succeeded {
        // What dies again meanwhile waits for the next replay, or this one would never end.
        filter.updated_before = Some(given_up_before(&*outbox, &filter).await?);
    }
    // Read before they are pending: then nothing says any more why they were given up.
    let parked = match &args.id {
        Some(id) => of_id(&*outbox, id, args.endpoint.as_ref()).await?,
        None => Vec::new(),
    };
    loop {
        let some = outbox.replay(filter.clone(), gap).await?;
        let count = u32::try_from(some.len()).unwrap_or(u32::MAX);
        replayed.extend(some);
        if count < BATCH || args.succeeded {
            break;
        }
        // The due times of the next ones begin anew.
        tokio::time::sleep(gap * count).await;
    }
    let refused = match (&args.id, replayed.is_empty()) {
        (Some(id), true) => Some(why_not(&of_id(&*outbox, id, args.endpoint.as_ref()).await?, id, "replayed")),
        _ => None,
    };
    let held_up = still_parked(&*outbox, &parked, &replayed).await?;
    close(store).await;
    match refused {
        Some(refused) => Err(refused),
        None => {
            print_changed(args.output, "replayed", &replayed)?;
            held_up.map_or(Ok(()), Err)
        }
    }
}

/// Why a message that was parked will be parked again: what it stands behind is still given up.
async fn still_parked(
    outbox: &dyn OutboxStore,
    before: &[OutboxEntry],
    replayed: &[MessageKey],
) -> Result<Option<CliError>, CliError> {
    let dead = |state| matches!(state, MessageState::DeadLetter | MessageState::Failed);
    for entry in before.iter().filter(|entry| replayed.iter().any(|key| key.endpoint == entry.endpoint)) {
        let Some(head) = entry.parked_behind() else { continue };
        let key = MessageKey { endpoint: entry.endpoint.clone(), id: head.clone() };
        if outbox.find_message(key).await?.is_some_and(|head| dead(head.state)) {
            return Ok(Some(CliError::no(format!(
                "`{}` to `{}` is parked again, since `{head}` before it in its order is still given up: replay or cancel \
                 that one first, or replay all with --all-dead",
                entry.message.id, entry.endpoint
            ))));
        }
    }
    Ok(None)
}

async fn cancel(args: &MessageArgs) -> Result<(), CliError> {
    let mut filter = MessageFilter::default();
    filter.id = Some(args.id.clone());
    filter.endpoint.clone_from(&args.endpoint);
    let store = args.store.open_existing().await?;
    let outbox = store.outbox();
    let found = of_id(&*outbox, &args.id, args.endpoint.as_ref()).await?;
    only(&args.id, &found)?;
    let cancelled = outbox.cancel(filter).await?;
    close(store).await;
    if cancelled.is_empty() {
        return Err(why_not(&found, &args.id, "cancelled"));
    }
    print_changed(args.output, "cancelled", &cancelled)
}

async fn export(args: &ExportArgs) -> Result<(), CliError> {
    let ExportArgs { state, endpoint, store } = args;
    let store = store.open_existing().await?;
    let outbox = store.outbox();
    let exported = export::all(
        async |from, limit| outbox.message_keys(from, limit).await,
        |key: &MessageKey| endpoint.as_ref().is_none_or(|endpoint| key.endpoint == *endpoint),
        async |key| {
            let found = outbox.find_message(key).await?;
            let asked = found.filter(|entry| state.is_none_or(|state| entry.state == state));
            Ok(asked.as_ref().map(message::details))
        },
    );
    let exported = exported.await;
    close(store).await;
    exported
}

/// How many are replayed in one step: little enough that others go on meanwhile.
const BATCH: u32 = 500;

/// The moment, by the store's clock, before which all that is given up now was given up.
async fn given_up_before(outbox: &dyn OutboxStore, filter: &MessageFilter) -> Result<Timestamp, CliError> {
    let mut last = Timestamp::default();
    for state in [MessageState::DeadLetter, MessageState::Failed] {
        let mut newest = filter.clone();
        newest.state = Some(state);
        newest.limit = 1;
        last = outbox.list_messages(newest).await?.iter().map(|entry| entry.updated).fold(last, Timestamp::max);
    }
    Ok(last.saturating_add(Duration::from_micros(1)))
}

/// The rows of a message, one for each of its endpoints.
async fn of_id(outbox: &dyn OutboxStore, id: &EventId, endpoint: Option<&Name>) -> Result<Vec<OutboxEntry>, CliError> {
    let mut filter = MessageFilter::default();
    filter.id = Some(id.clone());
    filter.endpoint = endpoint.cloned();
    Ok(outbox.list_messages(filter).await?)
}

/// The one that is meant.
fn only(id: &EventId, found: &[OutboxEntry]) -> Result<MessageKey, CliError> {
    match found {
        [] => Err(not_found(id)),
        [one] => Ok(MessageKey { endpoint: one.endpoint.clone(), id: id.clone() }),
        several => {
            let names: Vec<_> = several.iter().take(4).map(|entry| format!("`{}`", entry.endpoint)).collect();
            let more = if several.len() > names.len() { ", …" } else { "" };
            Err(CliError::usage(format!(
                "the message goes to {} endpoints; say which with --endpoint: {}{more}",
                several.len(),
                names.join(", ")
            )))
        }
    }
}

fn not_found(id: &EventId) -> CliError {
    CliError::no(format!("no message has the id `{id}`; `countersign outbox list` shows which there are"))
}

fn why_not(found: &[OutboxEntry], id: &EventId, verb: &str) -> CliError {
    if found.is_empty() {
        return not_found(id);
    }
    let states: Vec<_> = found.iter().map(|entry| format!("{} ({})", entry.state, entry.endpoint)).collect();
    CliError::no(format!("the message cannot be {verb} as it is: {}", states.join(", ")))
}

fn print_changed(output: OutputArgs, verb: &'static str, changed: &[MessageKey]) -> Result<(), CliError> {
    let json = || {
        let messages: Value = changed.iter().map(|key| json!({ "id": key.id, "endpoint": key.endpoint })).collect();
        json!({ verb: changed.len(), "messages": messages })
    };
    let text = || {
        let lines =
            changed.iter().map(|key| format!("{}  {}\n", Printable(key.id.as_str()), Printable(key.endpoint.as_str())));
        lines.chain([format!("{} {verb}\n", changed.len())]).collect()
    };
    output.print(json, text)
}

fn state(text: &str) -> Result<MessageState, String> {
    MessageState::from_name(text).ok_or_else(|| {
        let names = MessageState::ALL.map(MessageState::as_str);
        format!("it is one of {}", names.join(", "))
    })
}

fn event_id(text: &str) -> Result<EventId, String> {
    EventId::new(text).map_err(|error| error.to_string())
}
