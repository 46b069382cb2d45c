//! `countersign dispatch`: delivers what is in the outbox.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::notice::Notices;
use countersign::send::{Backoff, Dispatcher, DispatcherBuilder, HttpTransport, RetryPolicy, Tallied, Tally};
use countersign::store::{
    MemoryStore, MessageFilter, MessageKey, MessageState, OutboxRetention, OutboxStore, StoreError,
    purge_messages_forever,
};
use countersign::{Name, Timestamp};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::AdminArgs;
use crate::config::{Config, SharedArgs};
use crate::endpoint_settings::EndpointSettingsArgs;
use crate::error::CliError;
use crate::health::Half;
use crate::maintenance::parse_span;
use crate::or_file::OrFile;
use crate::output::OutputArgs;
use crate::policy::PolicyArgs;
use crate::problems::{Problems, Written};
use crate::receive::announce;
use crate::serve::StopSignal;
use crate::store::close;

/// Deliver the messages of the outbox, until stopped
///
/// Only https at public addresses is called, unless a flag allows more. Any number of these share the messages of one
/// store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign dispatch --concurrency 128
  countersign dispatch --drain --allow-http --allow 127.0.0.1:3000
  countersign dispatch --config /etc/countersign/countersign.toml")]
pub(crate) struct DispatchArgs {
    #[command(flatten)]
    pub(crate) settings: OrFile<DispatchFlags>,
    /// End when nothing is pending, messages that wait for their next attempt among it; exit status 1 if anything was given
    /// up meanwhile. What is for a disabled endpoint is not waited for
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What can be set in a file as well.
#[derive(Args, Debug)]
pub(crate) struct DispatchFlags {
    #[command(flatten)]
    dispatcher: DispatcherArgs,
    #[command(flatten)]
    shared: SharedArgs,
}

/// How it is delivered.
#[derive(Args, Debug)]
pub(crate) struct DispatcherArgs {
    /// How many attempts are made at one time
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// How many of them at one endpoint [default: a quarter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    endpoint_concurrency: Option<u32>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// How long an attempt may take
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "20s")]
    timeout: Duration,
    /// How long a message waits after a crash before it is sent again; 5 s more than --timeout at least
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "60s")]
    lease: Duration,
    /// How long a message waits after its first failure; twice as long each time
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "5s")]
    retry_first: Duration,
    /// The longest that it waits, by chance up to twice that
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "6h")]
    retry_longest: Duration,
    /// Most attempts for a message
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    /// How old a message may become
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "5d")]
    max_age: Duration,
    /// After how long an endpoint is disabled that does not work: no answer, a 5xx, or it takes nothing now
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "5d")]
    disable_after: Duration,
    /// After how many failures in a row an endpoint is left alone for a while; 0 for never
    #[arg(long, value_name = "N", default_value_t = 5)]
    breaker: u32,
    /// For how long, at first; up to 5m
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "10s")]
    breaker_pause: Duration,
    /// Keep nothing of what receivers answer but the status and headers
    #[arg(long)]
    no_answers: bool,
    /// How long attempts that run may take after SIGTERM
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "30s")]
    grace: Duration,
    /// How long to keep messages that were delivered or cancelled; after that, their ids can be enqueued again
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "30d")]
    keep_messages: Duration,
    #[command(flatten)]
    admin: AdminArgs,
}

/// All that `dispatch` goes by, by flags or from a file.
struct Dispatching {
    file: Option<PathBuf>,
    shared: SharedArgs,
    dispatcher: Written<DispatcherArgs>,
    endpoints: Vec<(Name, Written<EndpointSettingsArgs>)>,
}

impl Dispatching {
    fn new(settings: OrFile<DispatchFlags>, config: Option<Config>) -> Result<Self, CliError> {
        let config = match (settings, config) {
            (OrFile::Flags(flags), _) => {
                let DispatchFlags { dispatcher, shared } = *flags;
                let dispatcher = Written::by_flags(dispatcher);
                return Ok(Self { file: None, shared, dispatcher, endpoints: Vec::new() });
            }
            (OrFile::File(_), Some(config)) => config,
            (OrFile::File(path), None) => Config::read(&path)?,
        };
        let Config { file, shared, dispatcher, endpoints, .. } = config;
        Ok(Self { file: Some(file), shared: shared.settings, dispatcher, endpoints })
    }
}

pub(crate) async fn run(args: DispatchArgs, config: Option<Config>) -> Result<(), CliError> {
    let DispatchArgs { settings, drain, output } = args;
    let Dispatching { file, shared, dispatcher: Written { settings: args, place }, endpoints } =
        Dispatching::new(settings, config)?;
    // First of all: a signal that comes while the store opens is an orderly end too.
    let stop = StopSignal::listen()?;
    let mut problems = Problems::of(file.as_deref());
    let admin = problems.take(&place, args.admin.place()).flatten();
    let transport = problems.take(&place, args.policy.transport());
    problems.take(&place, shared.operators.check());
    if let Some(transport) = &transport {
        problems.take(&place, args.check_dispatcher(transport.clone()));
    }
    problems.end()?;
    // Without a problem there is one.
    let transport = transport.ok_or_else(|| CliError::usage("nothing can be sent with these settings"))?;
    let store = shared.store.open().await?;
    let outbox = store.outbox();
    if let Some(file) = &file {
        put_all(&*outbox, endpoints, file).await?;
    }
    let operators = shared.operators.begin(&outbox).await?;
    let dispatcher = args.dispatcher(Arc::clone(&outbox), transport).notices(operators.notices()).build()?;
    let tally = dispatcher.tally();
    let ended = CancellationToken::new();
    let admin = match admin {
        Some(admin) => {
            let listener = admin.listen().await?;
            announce(&listener)?;
            let both = (store.shared(), Arc::clone(&outbox));
            let half = Half::Sender(Arc::clone(&outbox));
            Some(admin.serve(listener, half, both, ended.clone().cancelled_owned(), args.grace))
        }
        None => None,
    };
    let mut retention = OutboxRetention::default();
    retention.done = args.keep_messages;
    let purger = tokio::spawn(purge_messages_forever(Arc::clone(&outbox), retention));
    info!(concurrency = args.concurrency, "dispatching");

    let last = given_up_last(&*outbox).await?;
    let drained = drain.then(|| drained(Arc::clone(&outbox), tally.clone(), operators.notices().clone()));
    let mut is_stopped = false;
    dispatcher
        .run(async {
            match drained {
                Some(drained) => tokio::select! {
                    () = drained => {}
                    () = stop.received() => is_stopped = true,
                },
                None => stop.received().await,
            }
        })
        .await;
    operators.end().await;
    ended.cancel();
    purger.abort();
    if let Some(admin) = admin {
        // It has nothing of its own that could be lost.
        let _ = admin.await;
    }
    // What was done is told, also where the store has failed since.
    let died = given_up_last(&*outbox).await;
    let waiting = if drain { waiting(&*outbox).await } else { Ok(0) };
    close(store).await;

    let Tallied { delivered, retried, dead, unsettled, .. } = tally.now();
    output.print(
        || {
            let waiting = waiting.as_ref().ok();
            json!({ "delivered": delivered, "retried": retried, "dead": dead, "unsettled": unsettled, "waiting": waiting })
        },
        || format!("delivered {delivered}, to be tried again {retried}, given up {dead}"),
    )?;
    let waiting = waiting?;
    let died = died?.filter(|now| last.as_ref().is_none_or(|last| now.0 > last.0));
    if is_stopped && waiting > 0 {
        return Err(CliError::no(format!(
            "stopped by a signal before all was delivered: {waiting} messages or more still wait; run it again to go on"
        )));
    }
    if waiting > 0 {
        warn!(
            "{waiting} messages or more still wait: behind a dead letter of their order, or for an endpoint that is \
             disabled or cannot be read (`countersign doctor` names it)"
        );
    }
    let last = match died {
        Some((_, key)) => format!(", the last of them `{}` to `{}`", key.id, key.endpoint),
        // One that no list can show.
        None if dead > 0 => String::new(),
        None => return Ok(()),
    };
    if !drain {
        return Ok(());
    }
    Err(CliError::no(format!("messages were given up{last}; `countersign outbox list --state dead_letter` shows them")))
}

/// Gives the store the endpoints of a file. Those that it has beside them stay.
async fn put_all(
    outbox: &dyn OutboxStore,
    endpoints: Vec<(Name, Written<EndpointSettingsArgs>)>,
    file: &Path,
) -> Result<(), CliError> {
    let names: HashSet<Name> = endpoints.iter().map(|(name, _)| name.clone()).collect();
    for (name, endpoint) in endpoints {
        put(outbox, &endpoint, name).await?;
    }
    for entry in outbox.endpoints().await?.iter().filter(|entry| !names.contains(&entry.endpoint.name)) {
        warn!(
            endpoint = %entry.endpoint.name,
            "it is in the store and not in {}: it stays, and gets its messages; `countersign endpoint remove` removes it",
            file.display()
        );
    }
    Ok(())
}

/// Gives the store one endpoint as a file has it. One that is there keeps its state and its messages.
pub(crate) async fn put(
    outbox: &dyn OutboxStore,
    written: &Written<EndpointSettingsArgs>,
    name: Name,
) -> Result<(), CliError> {
    // It was found to be without a mistake when the file was read.
    let first = |errors: Vec<CliError>| errors.into_iter().next();
    let endpoint = written.settings.endpoint(name.clone());
    let endpoint =
        endpoint.map_err(|errors| first(errors).unwrap_or_else(|| CliError::usage("an endpoint cannot be used")))?;
    let before = match outbox.endpoint(name.clone()).await {
        // Whose row cannot be read is mended so.
        Err(StoreError::Corrupt(_)) => None,
        found => found?,
    };
    if before.as_ref().is_some_and(|before| before.endpoint == endpoint) {
        return Ok(());
    }
    outbox.put_endpoint(endpoint).await?;
    info!(endpoint = %name, "{}", if before.is_some() { "changed as the file says" } else { "added from the file" });
    Ok(())
}

impl DispatcherArgs {
    /// What is wrong with it, as far as that shows without its store.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        self.admin.check()?;
        self.check_dispatcher(self.policy.transport()?)
    }

    fn check_dispatcher(&self, transport: HttpTransport) -> Result<(), CliError> {
        let _unused = self.dispatcher(Arc::new(MemoryStore::new()), transport).build()?;
        Ok(())
    }

    fn dispatcher(&self, outbox: Arc<dyn OutboxStore>, transport: HttpTransport) -> DispatcherBuilder {
        let retry = RetryPolicy::new()
            .with_backoff(Backoff::new(self.retry_first, self.retry_longest.max(self.retry_first)))
            .with_max_attempts(self.max_attempts)
            .with_max_age(self.max_age);
        let longest = Duration::from_secs(5 * 60).max(self.breaker_pause);
        let mut builder = Dispatcher::builder(outbox, transport)
            .concurrency(self.concurrency)
            .attempt_timeout(self.timeout)
            .lease(self.lease)
            .retry(retry)
            .disable_after(Some(self.disable_after))
            .breaker(self.breaker, Backoff::new(self.breaker_pause, longest))
            .grace(self.grace);
        if let Some(attempts) = self.endpoint_concurrency {
            builder = builder.endpoint_concurrency(attempts);
        }
        if self.no_answers {
            builder = builder.answer_limit(0);
        }
        builder
    }
}

/// Resolves when nothing is pending any more, and what operators are told of it is delivered too.
async fn drained(outbox: Arc<dyn OutboxStore>, tally: Tally, notices: Notices) {
    loop {
        match is_drained(&*outbox, &tally, &notices).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => warn!(%error, "whether anything is pending could not be seen"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// In this order: an attempt that ended may yet be told to an operator, and a notice becomes a message of its own.
async fn is_drained(outbox: &dyn OutboxStore, tally: &Tally, notices: &Notices) -> Result<bool, StoreError> {
    let is_quiet = outbox.next_due().await?.is_none() && tally.now().running == 0 && notices.waiting() == 0;
    Ok(is_quiet && outbox.next_due().await?.is_none())
}

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How many messages nobody can deliver now, though they are pending: at most so many are counted.
async fn waiting(outbox: &dyn OutboxStore) -> Result<usize, StoreError> {
    let mut filter = MessageFilter::default();
    filter.state = Some(MessageState::Pending);
    filter.limit = 1_000;
    Ok(outbox.list_messages(filter).await?.len())
}

/// What was given up last, and when, by the store's clock.
async fn given_up_last(outbox: &dyn OutboxStore) -> Result<Option<(Timestamp, MessageKey)>, StoreError> {
    let mut last: Option<(Timestamp, MessageKey)> = None;
    for state in [MessageState::DeadLetter, MessageState::Failed] {
        let mut filter = MessageFilter::default();
        filter.state = Some(state);
        filter.limit = 1;
        for entry in outbox.list_messages(filter).await? {
            if last.as_ref().is_none_or(|(at, _)| entry.updated > *at) {
                last = Some((entry.updated, MessageKey { endpoint: entry.endpoint, id: entry.message.id }));
            }
        }
    }
    Ok(last)
}
