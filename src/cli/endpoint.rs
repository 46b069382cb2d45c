//! `countersign endpoint`: who the sender delivers to.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use countersign::admin::json::{endpoint as as_json, shown_url};
use countersign::send::{Dispatcher, Failure, Overrides, Policy, Target, Verdict, endpoint_headers};
use countersign::store::{Endpoint, EndpointEntry, EndpointSettings, Message, OnDead, StoreError, TypePattern};
use countersign::{Name, Scheme};
use serde_json::json;

use crate::enqueue::{name, no_endpoint};
use crate::error::CliError;
use crate::maintenance::parse_span;
use crate::output::{OutputArgs, Printable, table};
use crate::policy::PolicyArgs;
use crate::secrets::SecretArgs;
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
    /// Where to send to
    #[arg(long)]
    url: String,
    #[command(flatten)]
    secrets: SecretArgs,
    /// How its messages are signed; `countersign schemes` lists the ways
    #[arg(long, value_name = "NAME", default_value = "standard")]
    scheme: String,
    /// The types of events that `publish` sends it, with `*` for any run of characters; repeatable
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    types: Vec<TypePattern>,
    /// A header to send beside those of the scheme; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Most attempts at one time, for each dispatcher
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_in_flight: Option<u32>,
    /// Most attempts in a second, for each dispatcher
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// How long an attempt may take: seconds, or a number with s or m
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    timeout: Option<Duration>,
    /// Most attempts for a message
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// How old a message may become, like 2d
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    max_age: Option<Duration>,
    /// What happens to messages behind a dead letter of their ordering key
    #[arg(long, value_enum, default_value_t = OnDeadArg::Block)]
    on_dead: OnDeadArg,
    /// What to make of a status otherwise than usual, like 404=retry or 5xx=permanent; repeatable
    #[arg(long = "verdict", value_name = "STATUS=VERDICT")]
    verdicts: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What happens behind a dead letter.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnDeadArg {
    /// They wait until an operator replays or cancels it
    Block,
    /// They become dead letters too
    Park,
    /// They go on without it
    Skip,
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
    let endpoint = args.endpoint()?;
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

impl AddArgs {
    fn endpoint(&self) -> Result<Endpoint, CliError> {
        let usage = |what: &str, error: &dyn std::fmt::Display| CliError::usage(format!("{what}: {error}"));
        let target: Target =
            self.url.parse().map_err(|error| usage("--url", &error as &countersign::send::TargetError))?;
        if let Err(refusal) = Policy::new().check(&target) {
            tracing::warn!("{refusal}; whatever dispatches must allow it");
        }
        let scheme = Scheme::named(&self.scheme).ok_or_else(|| {
            CliError::usage(format!(
                "--scheme: there is no scheme `{}` for endpoints; `countersign schemes` lists them",
                self.scheme
            ))
        })?;
        let headers = self.headers.iter().map(|line| {
            let pair = line.split_once(':').map(|(name, value)| (name, value.trim()));
            pair.ok_or_else(|| CliError::usage("--header: it has no `:`; write it as 'NAME: VALUE'"))
        });
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let overrides: Overrides = self
            .verdicts
            .join(",")
            .parse()
            .map_err(|error| usage("--verdict", &error as &countersign::send::OverrideError))?;

        let mut endpoint = Endpoint::new(self.name.clone(), target.as_str());
        endpoint.scheme.clone_from(&self.scheme);
        endpoint.secrets = self.secrets.references(&scheme)?;
        endpoint.types.clone_from(&self.types);
        endpoint.headers = endpoint_headers(headers, &scheme).map_err(|error| usage("--header", &error))?;
        endpoint.settings = self.settings(&overrides);
        Ok(endpoint)
    }

    fn settings(&self, overrides: &Overrides) -> EndpointSettings {
        let mut settings = EndpointSettings::default();
        settings.max_in_flight = self.max_in_flight;
        settings.rate_per_second = self.rate;
        settings.timeout_ms = self.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        settings.max_attempts = self.max_attempts;
        settings.max_age_seconds = self.max_age.map(|age| age.as_secs());
        settings.on_dead = match self.on_dead {
            OnDeadArg::Block => OnDead::Block,
            OnDeadArg::Park => OnDead::Park,
            OnDeadArg::Skip => OnDead::Skip,
        };
        let text = overrides.to_string();
        let pairs = text.split(',').filter_map(|one| one.split_once('='));
        settings.verdicts = pairs.map(|(status, verdict)| (status.to_owned(), verdict.to_owned())).collect();
        settings
    }
}

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

fn pattern(text: &str) -> Result<TypePattern, String> {
    TypePattern::new(text).map_err(|error| error.to_string())
}
