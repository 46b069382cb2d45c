//! `countersign endpoint`: who the sender delivers to.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use countersign::Name;
use countersign::admin::json::{endpoint as as_json, shown_url};
use countersign::send::{Dispatcher, Failure, Target, Verdict};
use countersign::store::{Endpoint, EndpointEntry, Message, StoreError, TypePattern};
use serde_json::json;

use crate::endpoint_settings::EndpointSettingsArgs;
use crate::enqueue::{name, no_endpoint};
use crate::error::CliError;
use crate::output::{OutputArgs, Printable, table};
use crate::policy::PolicyArgs;
use crate::store::{StoreArgs, close};

/// Add, look after and try the endpoints that messages are sent to
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign endpoint add shop --url https://shop.example/hooks --secret-env SHOP_SECRET --types 'order.*'
  countersign endpoint test shop")]
pub(crate) struct EndpointArgs {
    #[command(subcommand)]
    command: EndpointCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointCommand {
    Add(Box<AddArgs>),
    List(ListArgs),
    /// Let messages go to an endpoint again: its failures are forgotten, and what waited is due
    #[command(after_help = "\
Example:
  countersign endpoint enable shop")]
    Enable(NameArgs),
    Disable(DisableArgs),
    /// Remove an endpoint; its messages that are not delivered become dead letters
    #[command(after_help = "\
Example:
  countersign endpoint remove shop")]
    Remove(NameArgs),
    Test(TestArgs),
    Check(CheckArgs),
}

/// Add an endpoint, or give one that is there these settings
///
/// The store keeps where the secrets are, never the secrets: whatever dispatches must find them there.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign endpoint add shop --url https://shop.example/hooks --secret-env SHOP_SECRET --types 'order.*'")]
struct AddArgs {
    /// Its name
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    settings: EndpointSettingsArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// List the endpoints, and how they are doing
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign endpoint list --json")]
struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Debug)]
struct NameArgs {
    /// The endpoint
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Let nothing go to an endpoint until it is enabled; its messages wait
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign endpoint disable shop --reason 'maintenance until Monday'")]
struct DisableArgs {
    /// The endpoint
    #[arg(value_parser = name)]
    name: Name,
    /// Why, for those who list it
    #[arg(long, default_value = "by an operator")]
    reason: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Send one signed message now, of the type `countersign.test`, past the outbox: nothing in the store changes
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign endpoint test shop")]
struct TestArgs {
    /// The endpoint
    #[arg(value_parser = name)]
    name: Name,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Say whether a URL may be called, without calling it
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign endpoint check https://hooks.internal/in --allow hooks.internal")]
struct CheckArgs {
    /// The URL
    url: String,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &EndpointArgs) -> Result<(), CliError> {
    match &args.command {
        EndpointCommand::Add(args) => add(args).await,
        EndpointCommand::List(args) => list(args).await,
        EndpointCommand::Enable(args) => change(args, "enabled").await,
        EndpointCommand::Remove(args) => change(args, "removed").await,
        EndpointCommand::Disable(args) => disable(args).await,
        EndpointCommand::Test(args) => test(args).await,
        EndpointCommand::Check(args) => check(args).await,
    }
}

async fn add(args: &AddArgs) -> Result<(), CliError> {
    let endpoint = args.settings.endpoint(args.name.clone());
    let endpoint = endpoint.map_err(|errors| {
        errors.into_iter().next().unwrap_or_else(|| CliError::usage("the endpoint cannot be added"))
    })?;
    let store = args.store.open().await?;
    let outbox = store.outbox();
    let before = match outbox.endpoint(endpoint.name.clone()).await {
        // Whose row cannot be read is mended so.
        Err(StoreError::Corrupt(_)) => None,
        found => found?,
    };
    let entry = outbox.put_endpoint(endpoint).await?;
    close(store).await;
    let types =
        |entry: &EndpointEntry| entry.endpoint.types.iter().map(TypePattern::as_str).collect::<Vec<_>>().join(", ");
    if let Some(before) = before.as_ref().filter(|before| !before.endpoint.types.is_empty()) {
        if entry.endpoint.types.is_empty() {
            tracing::warn!(
                "`publish` sends it nothing any more: its types were {}; what is to stay has to be given again",
                types(before)
            );
        }
    } else if entry.endpoint.types.is_empty() {
        tracing::warn!("without --types only what is enqueued for it by name is sent to it");
    }
    let done = if before.is_some() { "replaced" } else { "added" };
    args.output.print(|| as_json(&entry), || format!("{done}: {}", Printable(args.name.as_str())))
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let entries = store.outbox().endpoints().await?;
    close(store).await;
    args.output.print(|| entries.iter().map(as_json).collect(), || as_table(&entries))
}

async fn change(args: &NameArgs, done: &'static str) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let outbox = store.outbox();
    let was_there = match done {
        "removed" => outbox.remove_endpoint(args.name.clone()).await?,
        _ => outbox.disable_endpoint(args.name.clone(), None).await?,
    };
    close(store).await;
    print_done(args.output, &args.name, done, was_there)
}

async fn disable(args: &DisableArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let was_there = store.outbox().disable_endpoint(args.name.clone(), Some(args.reason.clone())).await?;
    close(store).await;
    print_done(args.output, &args.name, "disabled", was_there)
}

fn print_done(output: OutputArgs, name: &Name, done: &'static str, was_there: bool) -> Result<(), CliError> {
    if !was_there {
        return Err(no_endpoint(name));
    }
    output.print(|| json!({ "name": name, done: true }), || format!("{done}: {}", Printable(name.as_str())))
}

async fn test(args: &TestArgs) -> Result<(), CliError> {
    let store = args.store.open_existing().await?;
    let outbox = store.outbox();
    let found = outbox.endpoint(args.name.clone()).await?.ok_or_else(|| no_endpoint(&args.name))?;
    let dispatcher = Dispatcher::builder(outbox, args.policy.transport()?).build()?;
    let payload = json!({ "type": TEST_TYPE, "endpoint": args.name });
    let message = Message::json(TEST_TYPE, &payload).map_err(|error| CliError::usage(error.to_string()))?;
    let trial = dispatcher.try_out(&found.endpoint, &message).await;
    close(store).await;

    let report = trial.report;
    let delivered = trial.verdict == Verdict::Delivered;
    let status = report.status.map(|status| status.as_u16());
    let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
    let json = || {
        json!({
            "delivered": delivered,
            "id": message.id,
            "status": status,
            "took_ms": took_ms,
            "error": report.error,
            "kind": report.kind,
        })
    };
    let said = status.map_or_else(String::new, |status| format!(" {status}"));
    args.output.print(json, || match delivered {
        true => format!("delivered:{said} in {took_ms} ms"),
        false => format!("not delivered:{said} after {took_ms} ms"),
    })?;
    if delivered {
        return Ok(());
    }
    Err(CliError::no(format!(
        "the message was not delivered: {}",
        report.error.as_deref().unwrap_or("no reason is known")
    )))
}

async fn check(args: &CheckArgs) -> Result<(), CliError> {
    let target: Target =
        args.url.parse().map_err(|error: countersign::send::TargetError| CliError::usage(error.to_string()))?;
    match args.policy.guard().vet(&target).await {
        Ok(addresses) => {
            let address = addresses.first().map(|address| address.ip().to_string());
            let json = || json!({ "allowed": true, "host": target.host(), "address": address, "rule": null, "setting": null, "flag": null });
            args.output.print(json, || format!("allowed: {}", Printable(target.as_str())))
        }
        Err(Failure::Refused(refusal)) => {
            let json = || {
                json!({
                    "allowed": false,
                    "host": refusal.host(),
                    "address": refusal.address().map(|address| address.to_string()),
                    "rule": refusal.rule().to_string(),
                    "setting": refusal.setting(),
                    "flag": refusal.flag(),
                })
            };
            args.output.print(json, || "denied".to_owned())?;
            Err(CliError::no(refusal.to_string()))
        }
        // Neither allowed nor denied.
        Err(failure) => Err(CliError::unreachable(failure.to_string())),
    }
}

const TEST_TYPE: &str = "countersign.test";

fn as_table(entries: &[EndpointEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let Endpoint { name, url, scheme, types, .. } = &entry.endpoint;
        let mut state = match &entry.disabled {
            Some(reason) => format!("disabled: {reason}"),
            None => "enabled".to_owned(),
        };
        if let Some(since) = entry.failing_since {
            // Writing to a string does not fail.
            let _ = write!(state, ", {} failures since {since}", entry.failures);
        }
        let types: Vec<_> = types.iter().map(TypePattern::as_str).collect();
        [
            Printable(name.as_str()).to_string(),
            scheme.clone(),
            Printable(&types.join(" ")).to_string(),
            Printable(&shown_url(url)).to_string(),
            Printable(&state).to_string(),
        ]
    });
    table(["NAME", "SCHEME", "TYPES", "URL", "STATE"], &rows.collect::<Vec<_>>())
}
