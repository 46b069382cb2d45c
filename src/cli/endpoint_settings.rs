//! What is set for an endpoint: by the flags of `endpoint add`, or in a file.

use std::time::Duration;

use clap::{Args, ValueEnum};
use countersign::send::{OverrideError, Overrides, Policy, Target, TargetError, endpoint_headers};
use countersign::store::{Endpoint, EndpointSettings, OnDead, TypePattern};
use countersign::{Name, Scheme};

use crate::error::CliError;
use crate::maintenance::parse_span;
use crate::secrets::SecretArgs;

/// Where to send to, what, and how.
#[derive(Args, Debug)]
pub(crate) struct EndpointSettingsArgs {
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

impl EndpointSettingsArgs {
    /// The endpoint of this name, or all that is wrong with it.
    pub(crate) fn endpoint(&self, name: Name) -> Result<Endpoint, Vec<CliError>> {
        let target =
            self.url.parse::<Target>().map_err(|error: TargetError| CliError::usage(format!("--url: {error}")));
        if let Some(refusal) = target.as_ref().ok().and_then(|target| Policy::new().check(target).err()) {
            tracing::warn!("{refusal}; whatever dispatches must allow it");
        }
        let scheme = Scheme::named(&self.scheme).ok_or_else(|| {
            CliError::usage(format!(
                "--scheme: there is no scheme `{}` for endpoints; `countersign schemes` lists them",
                self.scheme
            ))
        });
        let overrides = self.verdicts.join(",").parse::<Overrides>();
        let overrides = overrides.map_err(|error: OverrideError| CliError::usage(format!("--verdict: {error}")));
        let (headers, secrets) = match &scheme {
            Ok(scheme) => (self.headers(scheme), self.secrets.references(scheme)),
            Err(_) => (Ok(http::HeaderMap::new()), Ok(Vec::new())),
        };
        match (target, scheme, overrides, headers, secrets) {
            (Ok(target), Ok(_), Ok(overrides), Ok(headers), Ok(secrets)) => {
                let mut endpoint = Endpoint::new(name, target.as_str());
                endpoint.scheme.clone_from(&self.scheme);
                endpoint.secrets = secrets;
                endpoint.types.clone_from(&self.types);
                endpoint.headers = headers;
                endpoint.settings = self.settings(&overrides);
                endpoint.check().map_err(|error| vec![CliError::usage(error.to_string())])?;
                Ok(endpoint)
            }
            (target, scheme, overrides, headers, secrets) => {
                let errors = [target.err(), scheme.err(), overrides.err(), headers.err(), secrets.err()];
                Err(errors.into_iter().flatten().collect())
            }
        }
    }

    fn headers(&self, scheme: &Scheme) -> Result<http::HeaderMap, CliError> {
        let headers = self.headers.iter().map(|line| {
            let pair = line.split_once(':').map(|(name, value)| (name, value.trim()));
            pair.ok_or_else(|| CliError::usage("--header: it has no `:`; write it as 'NAME: VALUE'"))
        });
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        endpoint_headers(headers, scheme).map_err(|error| CliError::usage(format!("--header: {error}")))
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

fn pattern(text: &str) -> Result<TypePattern, String> {
    TypePattern::new(text).map_err(|error| error.to_string())
}
