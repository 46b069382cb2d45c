//! `countersign inbox`: what was received, and what became of it.

use clap::{Args, Subcommand};
use countersign::store::{InboxStore, ListFilter, Receipt, ReceiptKey, ReceiptState};
use countersign::{DedupKey, Name};
use serde_json::json;

use crate::error::CliError;
use crate::export;
use crate::output::OutputArgs;
use crate::receipt;
use crate::reconcile::{self, ReconcileArgs};
use crate::store::{StoreArgs, close};

/// Look at received events, give them another run, or end them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign inbox list --state dead_letter
  countersign inbox retry evt_1OqkV2")]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    command: InboxCommand,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    List(ListArgs),
    /// Show one event: its result, its errors, and every run that failed
    #[command(after_help = "\
Example:
  countersign inbox show evt_1OqkV2 --json")]
    Show(EventArgs),
    /// Give an event another chance: a dead letter, one that failed, or one in quarantine
    ///
    /// Where its request is kept, a receiver in deferred mode runs it at once. Else its next delivery does.
    #[command(after_help = "\
Example:
  countersign inbox retry evt_1OqkV2")]
    Retry(EventArgs),
    /// End a dead letter as done, without another run: you have looked, and it had its effect
    ///
    /// Its repeats get 200. What is held by `receive --profile strict` is ended like this, or given another run by `retry`.
    #[command(after_help = "\
Example:
  countersign inbox conclude evt_1OqkV2")]
    Conclude(EventArgs),
    /// Forget an event, whatever its state: its next delivery is a first one
    #[command(after_help = "\
Example:
  countersign inbox forget evt_1OqkV2 --consumer billing")]
    Forget(EventArgs),
    Export(ExportArgs),
    Reconcile(ReconcileArgs),
}

/// Print all events, a JSON document on each line, in the order in which they first came
///
/// Each line is what `show --json` prints. An event that changes meanwhile is there as it was or as it is, and once. Memory
/// is bounded, whatever the size of the store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign inbox export > inbox.jsonl
  countersign inbox export --state dead_letter | jq -r .event_id")]
struct ExportArgs {
    /// Only those in this state: received, processing, succeeded, failed or dead_letter
    #[arg(long, value_parser = state)]
    state: Option<ReceiptState>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// List events, those that changed last first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign inbox list --state failed --limit 10 --json
  countersign inbox list --correlation-id order-7")]
struct ListArgs {
    /// Only those in this state: received, processing, succeeded, failed or dead_letter
    #[arg(long, value_parser = state)]
    state: Option<ReceiptState>,
    /// Only those whose sender said that they belong to this: an order, a flow
    #[arg(long, value_name = "ID", value_parser = name)]
    correlation_id: Option<Name>,
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Debug)]
struct EventArgs {
    /// The event's key, or the sender's id for it
    key: String,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Whose events.
#[derive(Args, Debug)]
pub(crate) struct ScopeArgs {
    /// Only those of this consumer
    #[arg(long, value_name = "NAME", value_parser = name)]
    consumer: Option<Name>,
    /// Only those from this source
    #[arg(long, value_name = "NAME", value_parser = name)]
    source: Option<Name>,
}

pub(crate) async fn run(args: &InboxArgs) -> Result<(), CliError> {
    match &args.command {
        InboxCommand::List(args) => list(args).await,
        InboxCommand::Show(args) => show(args).await,
        InboxCommand::Retry(args) => retry(args).await,
        InboxCommand::Conclude(args) => conclude(args).await,
        InboxCommand::Forget(args) => forget(args).await,
        InboxCommand::Export(args) => export(args).await,
        InboxCommand::Reconcile(args) => reconcile::run(args).await,
    }
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let ListArgs { state, correlation_id, limit, scope, store, output } = args;
    let store = store.open_existing().await?;
    let filter = ListFilter { state: *state, correlation_id: correlation_id.clone(), limit: *limit, ..scope.filter() };
    let receipts = store.list(filter).await?;
    close(store).await;
    output.print(|| receipts.iter().map(receipt::summary).collect(), || receipt::table_of(&receipts))
}

async fn show(args: &EventArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let key = args.find(&*store).await?.key;
    let receipt = store.find(key).await?.ok_or_else(|| args.not_found())?;
    close(store).await;
    args.output.print(|| receipt::details(&receipt), || receipt::page_of(&receipt))
}

async fn retry(args: &EventArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let found = args.find(&*store).await?;
    let state = store.retry(found.key.clone()).await?.ok_or_else(|| args.not_found())?;
    let now = store.find(found.key.clone()).await?;
    close(store).await;
    // One that waits needs no help, so asking twice is no mistake.
    let Some(Receipt { due, .. }) = now.filter(|_| matches!(state, ReceiptState::Failed | ReceiptState::Received))
    else {
        return Err(CliError::no(format!(
            "the event is {state}, and only one that failed, a dead letter or one in quarantine can be retried; \
             `countersign inbox forget` makes its next delivery a first one"
        )));
    };
    let json = || receipt::named(&found.key, json!({ "state": state.as_str(), "due": due }));
    let text = || match due {
        Some(_) => format!("is now `{state}` and due: a receiver in deferred mode runs it, or its next delivery"),
        None => format!("is now `{state}`: its request is not kept, so its next delivery runs it"),
    };
    args.output.print(json, text)
}

async fn conclude(args: &EventArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let found = args.find(&*store).await?;
    let state = store.conclude(found.key.clone()).await?.ok_or_else(|| args.not_found())?;
    close(store).await;
    // One that is done needs no help, so asking twice is no mistake.
    if state != ReceiptState::Succeeded {
        return Err(CliError::no(format!(
            "the event is {state}, and may still run: only a dead letter can be concluded; \
             `countersign inbox show` says what is known of it"
        )));
    }
    let json = || receipt::named(&found.key, json!({ "state": state.as_str() }));
    args.output.print(json, || format!("is now `{state}`: it is not run, and its repeats are told that it is done"))
}

async fn forget(args: &EventArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let found = args.find(&*store).await?;
    let forgotten = store.forget(found.key.clone()).await?;
    close(store).await;
    if !forgotten {
        return Err(args.not_found());
    }
    if found.state == ReceiptState::Processing {
        tracing::warn!("the event was being processed: another delivery can now run beside that run");
    }
    if found.is_held() {
        tracing::warn!("it was held since it may have had its effect: another delivery can now bring that about again");
    }
    let json = || receipt::named(&found.key, json!({ "forgotten": true, "state_before": found.state.as_str() }));
    args.output.print(json, || FORGOTTEN.to_owned())
}

async fn export(args: &ExportArgs) -> Result<(), CliError> {
    let ExportArgs { state, scope, store } = args;
    let store = store.open_existing().await?;
    let exported = export::all(
        async |from, limit| store.keys(from, limit).await,
        |key: &ReceiptKey| scope.covers(key),
        async |key| {
            let found = store.find(key).await?;
            let asked = found.filter(|receipt| state.is_none_or(|state| receipt.state == state));
            Ok(asked.as_ref().map(receipt::details))
        },
    );
    let exported = exported.await;
    close(store).await;
    exported
}

const FORGOTTEN: &str =
    "forgotten: its next delivery is a first one (a receiver with `--cache-bytes` notices within a minute)";

impl EventArgs {
    /// The one event that is meant.
    ///
    /// A key is unique within its consumer and source. An event id is not: where it is not signed, anybody who holds
    /// one captured request can send it again under an id of choice. So an event with that key comes before events
    /// with that id.
    async fn find(&self, store: &dyn InboxStore) -> Result<Receipt, CliError> {
        let key =
            DedupKey::parse(&self.key).map_err(|error| CliError::usage(format!("the key is not valid: {error}")))?;
        if let ScopeArgs { consumer: Some(consumer), source: Some(source) } = &self.scope {
            let exact = ReceiptKey { consumer: consumer.clone(), source: source.clone(), key: key.clone() };
            if let Some(receipt) = store.find(exact).await? {
                return Ok(receipt);
            }
        }
        let filter = ListFilter { key: Some(key.clone()), limit: MOST_MATCHES, ..self.scope.filter() };
        let mut matches = store.list(filter).await?;
        if matches.iter().any(|receipt| receipt.key.key == key) {
            matches.retain(|receipt| receipt.key.key == key);
        }
        match matches.pop() {
            Some(receipt) if matches.is_empty() => Ok(receipt),
            Some(receipt) => {
                matches.push(receipt);
                Err(CliError::usage(ambiguous(&matches)))
            }
            None => Err(self.not_found()),
        }
    }

    fn not_found(&self) -> CliError {
        CliError::no(format!(
            "no event has the key or id `{}`; `countersign inbox list` shows which there are",
            self.key
        ))
    }
}

impl ScopeArgs {
    pub(crate) fn covers(&self, key: &ReceiptKey) -> bool {
        self.consumer.as_ref().is_none_or(|consumer| key.consumer == *consumer)
            && self.source.as_ref().is_none_or(|source| key.source == *source)
    }

    fn filter(&self) -> ListFilter {
        ListFilter { consumer: self.consumer.clone(), source: self.source.clone(), ..ListFilter::default() }
    }
}

/// How many events of one key or id are looked at.
const MOST_MATCHES: u32 = 100;

fn ambiguous(matches: &[Receipt]) -> String {
    let shown: Vec<_> = matches.iter().take(4).map(|receipt| receipt::flags_of(&receipt.key)).collect();
    let more = if matches.len() > shown.len() { ", …" } else { "" };
    format!(
        "{} events have this key or id; say which with --consumer and --source, or name its key: {}{more}",
        matches.len(),
        shown.join(", "),
    )
}

fn state(text: &str) -> Result<ReceiptState, String> {
    ReceiptState::from_name(text).ok_or_else(|| {
        let names = ReceiptState::ALL.map(ReceiptState::as_str);
        format!("it is one of {}", names.join(", "))
    })
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}
