//! `countersign saga`: where flows stand, and where they are stuck.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use countersign::Name;
use countersign::store::{MessageFilter, OutboxEntry, OutboxStore, SagaEntry, SagaKey, SagaStep, SentMessage};
use serde_json::{Value, json};

use crate::enqueue::name;
use crate::error::CliError;
use crate::maintenance::parse_span;
use crate::output::{OutputArgs, Printable, table};
use crate::store::{StoreArgs, close};

/// Look at flows of several steps: which of them stand still, and what one has gone through
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign saga list --unmoved-for 1h
  countersign saga show order order-17")]
pub(crate) struct SagaArgs {
    #[command(subcommand)]
    command: SagaCommand,
}

#[derive(Debug, Subcommand)]
enum SagaCommand {
    List(ListArgs),
    Show(ShowArgs),
}

/// List instances that have no end, the one that has not moved for longest first
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign saga list --saga order --unmoved-for 1h --json")]
struct ListArgs {
    /// Only those of this saga
    #[arg(long, value_name = "NAME", value_parser = name)]
    saga: Option<Name>,
    /// Only those that have not moved for so long: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "0")]
    unmoved_for: Duration,
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show one instance: each event that it has answered, when, how, and what became of what it sent
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign saga show order order-17 --json")]
struct ShowArgs {
    /// The saga's name
    #[arg(value_parser = name)]
    saga: Name,
    /// Which instance of it
    #[arg(value_parser = name)]
    instance: Name,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &SagaArgs) -> Result<(), CliError> {
    match &args.command {
        SagaCommand::List(args) => list(args).await,
        SagaCommand::Show(args) => show(args).await,
    }
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let since = store.now().await?.saturating_sub(args.unmoved_for);
    let open = store.sagas().open_sagas(args.saga.clone(), since, args.limit).await?;
    close(store).await;
    args.output.print(|| json!(open), || table_of(&open))
}

async fn show(args: &ShowArgs) -> Result<(), CliError> {
    let key = SagaKey { saga: args.saga.clone(), instance: args.instance.clone() };
    let store = args.store.open_existing().await?;
    let Some(entry) = store.sagas().find_saga(key.clone()).await? else {
        return Err(CliError::no(format!(
            "there is no instance `{}` of the saga `{}`; `countersign saga list` shows those that have no end",
            key.instance, key.saga
        )));
    };
    let outbox = store.outbox();
    let mut history = Vec::new();
    for step in store.sagas().saga_steps(key).await? {
        let mut sent = Vec::new();
        for message in &step.sent {
            sent.push((message.clone(), deliveries(&*outbox, message).await?));
        }
        history.push(Answered { step, sent });
    }
    close(store).await;
    args.output.print(
        || {
            let mut shown = json!(entry);
            shown["history"] = history.iter().map(Answered::json).collect();
            shown
        },
        || page_of(&entry, &history),
    )
}

/// An event that was answered, and what was sent with what became of it.
struct Answered {
    step: SagaStep,
    sent: Vec<(SentMessage, Vec<OutboxEntry>)>,
}

impl Answered {
    fn json(&self) -> Value {
        let mut shown = json!(self.step);
        let sent = self.sent.iter().map(|(message, deliveries)| {
            let mut shown = json!(message);
            let each = deliveries.iter().map(|entry| {
                json!({ "endpoint": entry.endpoint, "state": entry.state.as_str(), "attempts": entry.attempts })
            });
            shown["deliveries"] = each.collect();
            shown
        });
        shown["sent"] = sent.collect();
        shown
    }
}

/// None where the message has been purged, or nobody wanted its type.
async fn deliveries(outbox: &dyn OutboxStore, message: &SentMessage) -> Result<Vec<OutboxEntry>, CliError> {
    let mut filter = MessageFilter::default();
    filter.id = Some(message.id.clone());
    Ok(outbox.list_messages(filter).await?)
}

fn table_of(open: &[SagaEntry]) -> String {
    let rows = open.iter().map(|entry| {
        [
            printable(entry.key.saga.as_str()),
            printable(entry.key.instance.as_str()),
            step(entry.step.as_ref()),
            entry.version.to_string(),
            entry.created.to_string(),
            entry.moved.to_string(),
        ]
    });
    table(["SAGA", "INSTANCE", "STEP", "ANSWERED", "CREATED", "MOVED"], &rows.collect::<Vec<_>>())
}

fn page_of(entry: &SagaEntry, history: &[Answered]) -> String {
    let mut page = String::new();
    let mut fact = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{name:<10}{}", Printable(value));
    };
    fact("saga", entry.key.saga.as_str());
    fact("instance", entry.key.instance.as_str());
    fact("step", &step(entry.step.as_ref()));
    fact("created", &entry.created.to_string());
    fact("moved", &entry.moved.to_string());
    fact("ended", &entry.ended.map_or_else(|| "-".to_owned(), |ended| ended.to_string()));
    for Answered { step: SagaStep { number, at, event_id, event_type, answer, from, to, reason, .. }, sent } in history
    {
        let moved = match (from, to) {
            (from, to) if from == to => String::new(),
            (from, to) => format!("  {} -> {}", step(from.as_ref()), step(to.as_ref())),
        };
        let reason = reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
        fact(&format!("{number}"), &format!("{at}  {event_type}  {event_id}  {answer}{moved}{reason}"));
        for (message, deliveries) in sent {
            let kind = if message.undoes { "undoes" } else { "sent" };
            let SentMessage { id, event_type, .. } = message;
            if deliveries.is_empty() {
                fact("", &format!("{kind}  {event_type}  {id}  not in the outbox"));
            }
            for entry in deliveries {
                let OutboxEntry { endpoint, state, attempts, .. } = entry;
                fact("", &format!("{kind}  {event_type}  {id}  to {endpoint}: {state}, {attempts} attempts"));
            }
        }
    }
    page
}

fn step(step: Option<&Name>) -> String {
    step.map_or_else(|| "-".to_owned(), |step| printable(step.as_str()))
}

fn printable(text: &str) -> String {
    Printable(text).to_string()
}
