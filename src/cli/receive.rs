//! `countersign receive`: the receiver in front of an application in any language.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use countersign::Name;
use countersign::receive::watch_forever;
use countersign::store::{CachedInbox, InboxStore, Retention, purge_forever};
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::admin::AdminArgs;
use crate::config::{Config, SharedArgs};
use crate::endpoint_settings::EndpointSettingsArgs;
use crate::error::CliError;
use crate::gateway::Gateway;
use crate::health::Half;
use crate::maintenance::{parse_span, retention};
use crate::or_file::OrFile;
use crate::problems::{Problems, Written};
use crate::serve::{StopSignal, serve};
use crate::source::{Mode, Planned, Source, SourceArgs, seconds};
use crate::store::close;

/// Put the receiver in front of an application
///
/// Verifies each request, runs each event once, and sends it on to the application byte for byte, with the headers
/// countersign-event-id, -id-origin, -key, -idempotency-key and -attempt added. The application's answer is stored and given
/// to every repeat. It can end an event on purpose with the header `countersign-outcome: permanent` (or `transient`,
/// `unclear`, or `done`).
#[derive(Debug, Args)]
#[command(
    override_usage = "countersign receive --listen <HOST:PORT> --scheme <NAME> --upstream <URL> [OPTIONS]\n       \
    countersign receive --config <FILE>"
)]
#[command(after_help = "Examples:\n  countersign receive --listen 127.0.0.1:8080 --scheme stripe \\\n    \
    --secret-env STRIPE_SECRET --upstream http://127.0.0.1:3000\n  \
    countersign receive --config /etc/countersign/countersign.toml")]
pub(crate) struct ReceiveFlags {
    #[command(flatten)]
    receiver: ReceiverArgs,
    /// Your name for the sender and endpoint: two receivers of one scheme on one store need one each [default: the scheme,
    /// and --path]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    settings: SourceArgs,
    #[command(flatten)]
    shared: SharedArgs,
}

/// The arguments of `receive`.
pub(crate) type ReceiveArgs = OrFile<ReceiveFlags>;

/// What listens, whatever the sources are.
#[derive(Debug, Args)]
pub(crate) struct ReceiverArgs {
    /// Address to listen on; port 0 picks one
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// How long results are kept, like 7d or 3600
    #[arg(long, default_value = "7d", value_parser = parse_span, value_name = "SPAN")]
    keep_results: Duration,
    /// How long events are remembered, like 30d
    #[arg(long, default_value = "30d", value_parser = parse_span, value_name = "SPAN")]
    keep_keys: Duration,
    /// Memory for finished results, so that a repeat asks the store nothing; an event that was done and is forgotten
    /// (`inbox forget`) then takes up to a minute to be a new one [default: none]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "BYTES")]
    cache_bytes: u64,
    #[command(flatten)]
    admin: AdminArgs,
    /// How long running requests may take after SIGTERM
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = seconds(0))]
    grace: u64,
}

/// All that `receive` goes by, by flags or from a file.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) file: Option<PathBuf>,
    pub(crate) shared: Written<SharedArgs>,
    pub(crate) receiver: Written<ReceiverArgs>,
    pub(crate) sources: Vec<Written<SourceArgs>>,
    pub(crate) endpoints: Vec<(Name, Written<EndpointSettingsArgs>)>,
}

impl Receiving {
    /// From what the command line says, and the file that it names.
    pub(crate) fn new(args: ReceiveArgs, config: Option<Config>) -> Result<Self, CliError> {
        let flags = match (args, config) {
            (OrFile::Flags(flags), _) => *flags,
            (OrFile::File(_), Some(config)) => return config.receiving(),
            (OrFile::File(path), None) => return Config::read(&path)?.receiving(),
        };
        let mut source = Written::by_flags(flags.settings);
        source.place.name = flags.source;
        Ok(Self {
            file: None,
            shared: Written::by_flags(flags.shared),
            receiver: Written::by_flags(flags.receiver),
            sources: vec![source],
            endpoints: Vec::new(),
        })
    }
}

/// What keeps these sources from being received, secrets that are not there among it.
pub(crate) fn problems(file: &Path, receiver: &Written<ReceiverArgs>, sources: &[Written<SourceArgs>]) -> Problems {
    let mut problems = Problems::of(Some(file));
    problems.take(&receiver.place, receiver.settings.admin.check());
    plan(receiver, sources, &mut problems);
    problems
}

/// Holds everything to what is known before there is a store.
fn plan<'a>(
    receiver: &Written<ReceiverArgs>,
    sources: &'a [Written<SourceArgs>],
    problems: &mut Problems,
) -> (Retention, Vec<Planned<'a>>) {
    let Written { settings, place } = receiver;
    let retention = problems.take(place, retention(settings.keep_results, settings.keep_keys)).unwrap_or_default();
    let plan = |source: &'a Written<SourceArgs>| {
        let planned = source.settings.plan(source.place.name.as_deref(), retention);
        problems.take_all(&source.place, planned)
    };
    (retention, sources.iter().filter_map(plan).collect())
}

pub(crate) async fn run(receiving: Receiving) -> Result<(), CliError> {
    let Receiving { file, shared, receiver, sources, endpoints } = receiving;
    let mut problems = Problems::of(file.as_deref());
    // Before the layers, which begin their counts when they are made.
    let admin = problems.take(&receiver.place, receiver.settings.admin.place()).flatten();
    let (retention, planned) = plan(&receiver, &sources, &mut problems);
    problems.take(&shared.place, shared.settings.operators.check());
    problems.end()?;

    let (shared, receiver) = (shared.settings, receiver.settings);
    let store = shared.store.open().await?;
    let inbox: Arc<dyn InboxStore> = match receiver.cache_bytes {
        0 => store.shared(),
        bytes => Arc::new(CachedInbox::new(store.shared(), bytes)),
    };
    let outbox = store.outbox();
    for (name, endpoint) in endpoints {
        // The others are the dispatcher's to add.
        if shared.operators.operator_endpoint.as_ref() == Some(&name) {
            crate::dispatch::put(&*outbox, &endpoint, name).await?;
        }
    }
    let operators = shared.operators.begin(&outbox).await?;
    let notices = operators.notices();
    let grace = Duration::from_secs(receiver.grace);
    let sources_of = |planned: &Planned<'_>| planned.source(&inbox, notices, grace);
    let served = planned.iter().map(sources_of).collect::<Result<Vec<Source>, _>>()?;

    let listener = listen(receiver.listen).await?;
    let admin = match admin {
        Some(admin) => Some((admin.listen().await?, admin)),
        None => None,
    };
    // Before the line that others wait for: from then on they may send a signal.
    let stop = StopSignal::listen()?;
    announce(&listener)?;

    let stopping = CancellationToken::new();
    let admin_stopping = CancellationToken::new();
    let admin = admin.map(|(listener, admin)| {
        let both = (Arc::clone(&inbox), Arc::clone(&outbox));
        let half = Half::Receiver(Arc::clone(&inbox));
        admin.serve(listener, half, both, admin_stopping.clone().cancelled_owned(), grace)
    });
    let purger = tokio::spawn(purge_forever(Arc::clone(&inbox), retention));
    // A processor watches by itself.
    let mut watched: Vec<_> =
        planned.iter().filter(|planned| planned.mode == Mode::Inline).map(|planned| planned.consumer.clone()).collect();
    watched.sort_unstable();
    watched.dedup();
    let watch =
        |consumer| AbortOnDropHandle::new(tokio::spawn(watch_forever(Arc::clone(&inbox), consumer, notices.clone())));
    let watchers: Vec<_> = watched.into_iter().map(watch).collect();
    let (mut routes, mut tasks, mut processing) = (Vec::new(), Vec::new(), Vec::new());
    for source in served {
        routes.push(source.route);
        tasks.push(source.tasks);
        processing.extend(source.processor.map(|it| tokio::spawn(it.run(stopping.clone().cancelled_owned()))));
    }

    let stopped = async {
        stop.received().await;
        // What runs gets its grace beside the connections, not after them.
        stopping.cancel();
    };
    let grace_left = serve(listener, Gateway::new(routes), stopped, grace).await;

    let running: usize = tasks.iter().map(countersign::receive::HandlerTasks::len).sum();
    info!("stopping: no new connections; waiting for {running} deliveries");
    let left: usize = join_all(tasks.iter().map(|tasks| tasks.drain(grace_left))).await.into_iter().sum();
    if left > 0 {
        warn!("{left} deliveries were still being handled after {grace:?}: their leases run out");
    }
    for processing in processing {
        // It gives back what it could not end; a panic in it has been logged.
        let _ = processing.await;
    }
    drop(watchers);
    operators.end().await;
    purger.abort();
    admin_stopping.cancel();
    if let Some(admin) = admin {
        // It has nothing of its own that could be lost.
        let _ = admin.await;
    }
    close(store).await;
    Ok(())
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address)
        .await
        .map_err(|error| CliError::unreachable(format!("cannot listen on {address}: {error}; choose another --listen")))
}

/// Says on stdout where we listen: other programs wait for this line.
pub(crate) fn announce(listener: &TcpListener) -> Result<(), CliError> {
    use std::io::Write as _;
    let address =
        listener.local_addr().map_err(|error| CliError::unreachable(format!("the socket has no address: {error}")))?;
    let mut out = std::io::stdout();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
    Ok(())
}
