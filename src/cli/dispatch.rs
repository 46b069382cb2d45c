//! `countersign dispatch`: delivers what is in the outbox.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::send::{Backoff, Dispatcher, RetryPolicy, Tallied};
use countersign::store::{
    MessageFilter, MessageKey, MessageState, OutboxRetention, OutboxStore, StoreError, purge_messages_forever,
};
use countersign::{Name, Timestamp};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::AdminArgs;
use crate::enqueue::name;
use crate::error::CliError;
use crate::health::Half;
use crate::maintenance::parse_span;
use crate::output::OutputArgs;
use crate::policy::PolicyArgs;
use crate::receive::announce;
use crate::serve::StopSignal;
use crate::store::{StoreArgs, close};

/// Deliver the messages of the outbox, until stopped
///
/// Only https at public addresses is called, unless a flag allows more. Any number of these share the messages of one
/// store.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign dispatch --concurrency 128
  countersign dispatch --drain --allow-http --allow 127.0.0.1:3000")]
pub(crate) struct DispatchArgs {
    /// How many attempts are made at one time
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// How many of them at one endpoint [default: a quarter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    endpoint_concurrency: Option<u32>,
    /// End when nothing is pending, messages that wait for their next attempt among it; exit status 1 if anything was given
    /// up meanwhile. What is for a disabled endpoint is not waited for
    #[arg(long)]
    drain: bool,
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
    /// Endpoint that gets `message.dead` and `endpoint.disabled` as messages
    #[arg(long, value_name = "NAME", value_parser = name)]
    notices_to: Option<Name>,
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
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &DispatchArgs) -> Result<(), CliError> {
    // First of all: a signal that comes while the store opens is an orderly end too.
    let stop = StopSignal::listen()?;
    let admin = args.admin.place()?;
    let transport = args.policy.transport()?;
    let store = args.store.open().await?;
    let outbox = store.outbox();
    if let Some(name) = &args.notices_to {
        known(&*outbox, name).await?;
    }
    let dispatcher = args.dispatcher(Arc::clone(&outbox), transport)?;
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
    let drained = args.drain.then(|| drained(Arc::clone(&outbox)));
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
    ended.cancel();
    purger.abort();
    if let Some(admin) = admin {
        // It has nothing of its own that could be lost.
        let _ = admin.await;
    }
    let died = given_up_last(&*outbox).await?.filter(|now| last.as_ref().is_none_or(|last| now.0 > last.0));
    let waiting = if args.drain { waiting(&*outbox).await? } else { 0 };
    close(store).await;

    let Tallied { delivered, retried, dead, unsettled, .. } = tally.now();
    args.output.print(
        || json!({ "delivered": delivered, "retried": retried, "dead": dead, "unsettled": unsettled, "waiting": waiting }),
        || format!("delivered {delivered}, to be tried again {retried}, given up {dead}"),
    )?;
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
    if !args.drain {
        return Ok(());
    }
    Err(CliError::no(format!("messages were given up{last}; `countersign outbox list --state dead_letter` shows them")))
}

impl DispatchArgs {
    fn dispatcher(
        &self,
        outbox: Arc<dyn OutboxStore>,
        transport: countersign::send::HttpTransport,
    ) -> Result<Dispatcher, CliError> {
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
        if let Some(endpoint) = &self.notices_to {
            builder = builder.notices_to(endpoint.clone());
        }
        if self.no_answers {
            builder = builder.answer_limit(0);
        }
        Ok(builder.build()?)
    }
}

/// Resolves when nothing is pending any more.
async fn drained(outbox: Arc<dyn OutboxStore>) {
    loop {
        match outbox.next_due().await {
            Ok(None) => return,
            Ok(Some(_)) => {}
            Err(error) => warn!(%error, "whether anything is pending could not be seen"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Refuses the name of an endpoint that is not there: what is meant for it would be lost.
async fn known(outbox: &dyn OutboxStore, name: &Name) -> Result<(), CliError> {
    match outbox.endpoint(name.clone()).await? {
        Some(_) => Ok(()),
        None => Err(CliError::usage(format!(
            "--notices-to: there is no endpoint `{name}`; add it with `countersign endpoint add`"
        ))),
    }
}

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
