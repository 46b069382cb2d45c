//! One source of events: what is set for it, and what is made of that.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use http::StatusCode;
use ipnet::{IpNet, Ipv4Net};
use tower_layer::Layer as _;
use tracing::{info, warn};

use countersign::notice::Notices;
use countersign::receive::{
    DedupLayer, HandlerTasks, HookRegistration, OrderBy, Processor, Profile, ReceiveLayer, Stale, VerifyLayer,
};
use countersign::signature::{Handshake, Keyring, ReplayWindow, Scheme, Verifier};
use countersign::store::{InboxStore, MemoryStore, Retention};
use countersign::{ConfigError, Name};

use crate::error::CliError;
use crate::forward::{Forward, Upstream};
use crate::gateway::{Route, served_path};
use crate::hook_secret::HookSecretArgs;
use crate::scheme::SigningArgs;
use crate::secrets::VerifyTokenArgs;
use crate::serve::Peer;

/// Who sends, how it is checked, and who handles it.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    signing: SigningArgs,
    /// The application; a path in it takes the place of --path
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Only this path and what is below it is received; all of it is one endpoint
    #[arg(long, default_value = "/", value_name = "PATH")]
    path: String,
    /// Who handles the events: each consumer of a store handles each event once, and in deferred mode its receivers share
    /// them [default: the source, so that no other application gets them]
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// The URL the sender was given, up to the path, for schemes that sign it
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// The whole URL the sender was given, to the letter, in place of --public-url
    #[arg(long, value_name = "URL", conflicts_with = "public_url")]
    exact_url: Option<String>,
    /// A proxy or network of proxies of your own, whose X-Forwarded-Proto and X-Forwarded-Host are believed, for schemes
    /// that sign the URL and endpoints with several hosts; repeatable [default: nobody is believed]
    #[arg(long, value_name = "IP_OR_CIDR", value_parser = network)]
    trust_forwarded: Vec<IpNet>,
    #[command(flatten)]
    verify_token: VerifyTokenArgs,
    #[command(flatten)]
    hook_secret: HookSecretArgs,
    /// How far a signed timestamp may lie in the past or future
    #[arg(long, value_name = "SECONDS")]
    tolerance: Option<u64>,
    /// What becomes of a rightly signed request outside that
    #[arg(long, value_enum, default_value_t = StaleArg::Refuse)]
    stale: StaleArg,
    /// How long an event waits after a crash before it may run again [default: twice the time its sender waits for an
    /// answer, 10 to 30; in deferred mode 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(1))]
    lease: Option<u64>,
    /// What is done for fear of a second run
    #[arg(long, value_enum, default_value_t = ProfileArg::Standard)]
    profile: ProfileArg,
    /// Largest body accepted
    #[arg(long, default_value_t = 2 * 1024 * 1024, value_name = "BYTES")]
    max_body: usize,
    /// How long a body may take to arrive
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = seconds(1))]
    body_timeout: u64,
    /// How long the application may take to answer
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = seconds(1))]
    upstream_timeout: u64,
    /// How often an event is run before it is a dead letter
    #[arg(long, default_value_t = 20, value_name = "N")]
    max_attempts: u32,
    /// Status of a delivery while another one of the same event is handled [default: 409, or 503 for the schemes whose
    /// senders give up after a 4xx]
    #[arg(long, value_name = "STATUS")]
    in_flight_status: Option<u16>,
    /// How long such a delivery waits for the result first [default: 250, or a tenth of the time its sender waits for an
    /// answer]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(..=60_000))]
    in_flight_wait: Option<u64>,
    /// How events are run
    #[arg(long, value_enum, default_value_t = Mode::Inline)]
    mode: Mode,
    /// In deferred mode: how many events are run at one time
    #[arg(long, default_value_t = 16, value_name = "N")]
    concurrency: u32,
    /// In deferred mode: events with the same value in this field of the body run one by one, like data.object.id
    #[arg(long, value_name = "FIELD")]
    order_by: Option<String>,
}

/// What becomes of stale requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StaleArg {
    /// 401, as if it were forged
    Refuse,
    /// 202, and kept for a person to look at: `inbox list` shows it, `inbox retry` releases it
    Quarantine,
}

/// What is done for fear of a second run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProfileArg {
    /// What failed, or ended without a word, runs again
    Standard,
    /// What ended without a word (a crash, a time-out, no answer, a 5xx but 503) is a dead letter, and answered 503, until
    /// somebody has looked whether it had its effect, and says `inbox conclude` or `inbox retry`: for what costs money twice
    Strict,
    /// As standard, and deliveries with equal bodies are one event: for senders that make up an id for each attempt
    Relaxed,
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Standard => Self::Standard,
            ProfileArg::Strict => Self::Strict,
            ProfileArg::Relaxed => Self::Relaxed,
        }
    }
}

/// How events are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Within the request: the application's answer is the answer
    Inline,
    /// Later: the sender gets a 202 at once, and the event is sent on with retries
    Deferred,
}

/// Settings of a source that can work. Nothing has been begun yet.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    args: &'a SourceArgs,
    pub(crate) path: &'a str,
    /// Whose events these are.
    pub(crate) consumer: Name,
    pub(crate) mode: Mode,
    upstream: Upstream,
    in_flight_status: Option<StatusCode>,
    verify: VerifyLayer,
    retention: Retention,
}

/// A source that can be served.
pub(crate) struct Source {
    pub(crate) route: Route,
    pub(crate) tasks: HandlerTasks,
    /// What runs its events, in deferred mode.
    pub(crate) processor: Option<Processor<Forward>>,
}

/// What of a source can be judged without its secrets.
struct Checked<'a> {
    path: &'a str,
    upstream: Upstream,
    scheme: Scheme,
    in_flight_status: Option<StatusCode>,
}

impl SourceArgs {
    /// What is wrong with it, as far as that shows without its secrets: all of it.
    pub(crate) fn check(&self) -> Vec<CliError> {
        self.checked().err().unwrap_or_default()
    }

    /// Where it is served, if that is a path.
    pub(crate) fn served_path(&self) -> Option<&str> {
        served_path(&self.path).ok()
    }

    /// Whose events these are, where that is said.
    pub(crate) fn consumer(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    fn checked(&self) -> Result<Checked<'_>, Vec<CliError>> {
        let path = served_path(&self.path);
        let upstream = Upstream::parse(&self.upstream, path.as_ref().map_or("/", |path| path))
            .map_err(|error| CliError::usage(format!("--upstream: {error}")));
        let scheme = self.signing.scheme();
        let status = self.in_flight_status.map(StatusCode::from_u16).transpose();
        let status = status.map_err(|_| CliError::usage("--in-flight-status: it is no status; 409 and 503 are usual"));
        let order_by = match (&self.order_by, self.mode) {
            (Some(_), Mode::Inline) => Err(CliError::usage("--order-by works with --mode deferred only")),
            _ => Ok(()),
        };
        match (path, upstream, scheme, status, order_by) {
            (Ok(path), Ok(upstream), Ok(scheme), Ok(in_flight_status), Ok(())) => {
                Ok(Checked { path, upstream, scheme, in_flight_status })
            }
            (path, upstream, scheme, status, order_by) => {
                Err([path.err(), upstream.err(), scheme.err(), status.err(), order_by.err()]
                    .into_iter()
                    .flatten()
                    .collect())
            }
        }
    }

    /// Reads the secrets, and holds the settings to all that is known before there is a store.
    pub(crate) fn plan(&self, name: Option<&str>, retention: Retention) -> Result<Planned<'_>, Vec<CliError>> {
        let Checked { path, upstream, scheme, in_flight_status } = self.checked()?;
        let source = name.map_or_else(
            || match path {
                "/" => scheme.name().to_owned(),
                path => format!("{}:{path}", scheme.name()),
            },
            str::to_owned,
        );
        let consumer = self.consumer.as_ref().unwrap_or(&source);
        let consumer = Name::new(consumer)
            .map_err(|reason| CliError::from(ConfigError::Name { what: "consumer", reason }))
            .map_err(|error| vec![error])?;
        let patience = scheme.patience().filter(|patience| self.mode == Mode::Inline && patience.as_secs() <= 5);
        if let Some(patience) = patience {
            info!(
                "{} waits {} s for an answer: --mode deferred is for work that may take longer",
                scheme.provider(),
                patience.as_secs()
            );
        }
        let verify = match (self.hook_secret.keyring(&self.signing, &scheme), self.verify_token.token()) {
            (Ok((keyring, registration)), Ok(token)) => {
                self.verify(&source, scheme, keyring, registration.as_ref(), token).map_err(|error| vec![error])?
            }
            (keyring, token) => return Err(keyring.err().into_iter().chain(token.err()).collect()),
        };
        let mode = self.mode;
        let planned = Planned { args: self, path, consumer, mode, upstream, in_flight_status, verify, retention };
        // Whatever cannot work shows now, and not when something listens.
        match planned.source(
            &(Arc::new(MemoryStore::new()) as Arc<dyn InboxStore>),
            &Notices::default(),
            Duration::ZERO,
        ) {
            Ok(_) => Ok(planned),
            Err(error) => Err(vec![error.into()]),
        }
    }

    fn verify(
        &self,
        source: &str,
        scheme: Scheme,
        keyring: Keyring,
        registration: Option<&HookRegistration>,
        token: Option<countersign::Secret>,
    ) -> Result<VerifyLayer, CliError> {
        let (provider, wants_token) = (scheme.provider(), scheme.handshakes().contains(&Handshake::HubChallenge));
        let mut verifier = Verifier::new(scheme, keyring)?;
        if let Some(seconds) = self.tolerance {
            verifier = verifier.with_window(ReplayWindow::symmetric(Duration::from_secs(seconds)));
        }
        let mut verify = VerifyLayer::builder(source, verifier)
            .body_limit(self.max_body)
            .body_timeout(Duration::from_secs(self.body_timeout))
            .stale(match self.stale {
                StaleArg::Refuse => Stale::Refuse,
                StaleArg::Quarantine => Stale::Quarantine,
            });
        if let Some(url) = &self.public_url {
            verify = verify.public_url(url);
        }
        if let Some(url) = &self.exact_url {
            verify = verify.exact_url(url);
        }
        if !self.trust_forwarded.is_empty() {
            let trusted = self.trust_forwarded.clone();
            verify = verify.trust_forwarded(move |parts| {
                let peer = parts.extensions.get::<Peer>();
                peer.is_some_and(|Peer(peer)| trusted.iter().any(|network| network.contains(peer)))
            });
        }
        if let Some(registration) = registration {
            verify = verify.hook_registration(registration);
        }
        match token {
            Some(token) => verify = verify.verify_token(token),
            None if wants_token => warn!(
                "{provider} tries an endpoint with the verify token that you gave it, and is refused without: give it here \
                 too, with --verify-token-env or --verify-token-file"
            ),
            None => {}
        }
        Ok(verify.build()?)
    }
}

impl Planned<'_> {
    /// The source over this store.
    pub(crate) fn source(
        &self,
        inbox: &Arc<dyn InboxStore>,
        notices: &Notices,
        grace: Duration,
    ) -> Result<Source, ConfigError> {
        let args = self.args;
        let upstream_timeout = Duration::from_secs(args.upstream_timeout);
        // The gateway's own limit answers 504; this one is behind it.
        let handler_timeout = upstream_timeout + Duration::from_secs(5);
        let mut dedup = DedupLayer::builder(Arc::clone(inbox))
            .profile(args.profile.into())
            .consumer(self.consumer.as_str())
            .notices(notices)
            .handler_timeout(handler_timeout)
            .max_attempts(args.max_attempts)
            .retention(self.retention);
        if let Some(status) = self.in_flight_status {
            dedup = dedup.in_flight_status(status);
        }
        if let Some(wait) = args.in_flight_wait {
            dedup = dedup.wait(Duration::from_millis(wait));
        }
        if let Some(lease) = args.lease {
            dedup = dedup.lease(Duration::from_secs(lease));
        }
        if self.mode == Mode::Deferred {
            dedup = dedup.deferred();
        }
        if let Some(field) = &args.order_by {
            dedup = dedup.order_by(OrderBy::BodyField(field.clone()));
        }
        let layer = ReceiveLayer::new(self.verify.clone(), dedup.build()?)?;
        let forward = Forward::new(self.upstream.clone(), upstream_timeout);

        let mut processor = Processor::builder(Arc::clone(inbox), forward.clone())
            .arrivals(layer.arrivals())
            .profile(args.profile.into())
            .consumer(self.consumer.as_str())
            .concurrency(args.concurrency)
            .notices(notices)
            .handler_timeout(handler_timeout)
            .max_attempts(args.max_attempts)
            .grace(grace);
        if let Some(lease) = args.lease {
            processor = processor.lease(Duration::from_secs(lease));
        }
        let processor = processor.build()?;

        // Where nothing is mapped, the whole path is the application's own, whatever it makes of it.
        let confined = self.path != "/" || self.upstream.has_path();
        let tasks = layer.tasks().clone();
        let route = Route { receive: layer.layer(forward), path: self.path.into(), confined };
        Ok(Source { route, tasks, processor: (self.mode == Mode::Deferred).then_some(processor) })
    }
}

/// Seconds, from so many to a year: sums of such spans are spans.
pub(crate) fn seconds(least: u64) -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(least..=366 * 24 * 60 * 60)
}

/// A network, or one address. One of IPv4 that is written for IPv6 (`::ffff:10.0.0.7`) is one of IPv4, as peers are.
fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().or_else(|_| one());
    let network: IpNet =
        network.map_err(|_| "it is an address or a network, like 10.0.0.7 or 10.0.0.0/8".to_owned())?;
    let mapped = match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(prefix)) if network.addr().is_ipv6() => Ipv4Net::new(address, prefix).ok(),
        _ => None,
    };
    Ok(mapped.map_or(network, IpNet::V4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv4_is_one_in_either_notation() {
        for (text, expected) in [
            ("10.0.0.7", "10.0.0.7/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::ffff:10.0.0.7", "10.0.0.7/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text).map(|network| network.to_string()), Ok(expected.to_owned()), "{text}");
        }
        assert!(network("proxy.internal").is_err());
    }
}
