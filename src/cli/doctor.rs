//! `countersign doctor`: says what is wrong before it hurts, and changes nothing.

use std::time::Duration;

use clap::Args;
use countersign::send::{EnvAndFiles, Failure, KeyError, KeySource as _, Target};
use countersign::store::{EndpointEntry, OutboxStore, StoreError};
use countersign::{Clock as _, Scheme, SystemClock, Timestamp};
use futures_util::future::join_all;

use crate::error::CliError;
use crate::finding::{Finding, report};
use crate::maintenance::parse_span;
use crate::output::OutputArgs;
use crate::policy::PolicyArgs;
use crate::scheme::unknown;
use crate::secrets::SecretArgs;
use crate::store::{Store, StoreArgs, Unopened, close};

/// Check the store, its schema and clock, the secrets, and the endpoints
///
/// Run it where the receiver or the dispatcher runs, with the same environment: what is checked is what they would find. It
/// changes nothing, and sends nothing. Whatever failed says how to mend it; exit status 3 if something could not be reached, 2
/// if something is configured wrongly, 1 if something else is wrong.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  countersign doctor --store postgres://app@db.internal/app
  countersign doctor --scheme stripe --secret-env STRIPE_SECRET --json")]
pub(crate) struct DoctorArgs {
    /// The receiver's scheme, to check its secrets
    #[arg(long, value_name = "NAME")]
    scheme: Option<String>,
    #[command(flatten)]
    secrets: SecretArgs,
    /// How far the clocks of this machine and of the store may be apart
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "5s")]
    max_skew: Duration,
    /// For how long something may have been due that nobody has taken
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "5m")]
    max_lag: Duration,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let mut findings = args.receiver()?;
    match args.store.open_as_it_is().await {
        Ok(store) => {
            args.examine(&store, &mut findings).await;
            close(store).await;
        }
        Err(unopened) => {
            findings.push(match unopened {
                Unopened::Schema(error) => Finding::failed("schema", "", error),
                Unopened::Store(error) => Finding::failed("store", "", error),
            });
            for check in ["clock", "endpoint", "backlog"] {
                findings.push(Finding::skipped(check, "the store could not be opened"));
            }
        }
    }
    report(findings, args.output)
}

impl DoctorArgs {
    /// The receiver's secrets, where they are given.
    fn receiver(&self) -> Result<Vec<Finding>, CliError> {
        let Some(name) = &self.scheme else {
            if self.secrets.is_empty() {
                return Ok(Vec::new());
            }
            return Err(CliError::usage("the secrets are checked as a scheme writes them; name it with --scheme"));
        };
        let scheme = Scheme::named(name).ok_or_else(|| CliError::usage(format!("--scheme: {}", unknown(name))))?;
        Ok(vec![match self.secrets.keyring(&scheme) {
            Ok(_) => Finding::good("secrets", scheme.name(), "they are there, and as the scheme writes them"),
            Err(error) => Finding::failed("secrets", scheme.name(), error),
        }])
    }

    async fn examine(&self, store: &Store, findings: &mut Vec<Finding>) {
        findings.push(writable(store).await);
        findings.push(match store.schema_version().await {
            Ok(version) => Finding::good("schema", store.kind(), format!("version {version}")),
            Err(error) => Finding::failed("schema", store.kind(), error),
        });
        findings.push(self.clock(store).await);
        let outbox = store.outbox();
        match outbox.endpoints().await {
            Ok(endpoints) => {
                // So many look-ups at a time.
                for some in endpoints.chunks(16) {
                    let examined = join_all(some.iter().map(|entry| self.endpoint(entry))).await;
                    findings.extend(examined.into_iter().flatten());
                }
            }
            Err(error) => findings.push(Finding::failed("endpoint", "", error)),
        }
        match outbox.unreadable_endpoints().await {
            Ok(endpoints) => findings.extend(endpoints.iter().map(|(name, error)| unreadable(name, error))),
            Err(error) => findings.push(Finding::failed("endpoint", "", error)),
        }
        findings.push(self.backlog(&*outbox).await);
    }

    /// Times are the store's: leases and due times hold whatever the clock of this machine says. But signatures carry a time
    /// of this one, and receivers refuse what is minutes off.
    async fn clock(&self, store: &Store) -> Finding {
        let asked = SystemClock.now();
        let of_store = match store.now().await {
            Ok(now) => now,
            Err(error) => return Finding::failed("clock", store.kind(), error),
        };
        let skew = beyond(of_store, asked, SystemClock.now());
        if skew <= self.max_skew {
            return Finding::good("clock", store.kind(), format!("{} ms apart", skew.as_millis()));
        }
        let text = format!(
            "this machine's clock is {} s off the store's ({of_store}): have both follow a time server, or signatures will be \
             refused as too old or too new",
            skew.as_secs()
        );
        Finding::failed("clock", store.kind(), CliError::no(text))
    }

    /// Its secrets, and whether it may be called.
    async fn endpoint(&self, entry: &EndpointEntry) -> [Finding; 2] {
        let endpoint = &entry.endpoint;
        let name = endpoint.name.as_str();
        let secrets = match Scheme::named(&endpoint.scheme) {
            None => Finding::failed("secrets", name, CliError::usage(unknown(&endpoint.scheme))),
            Some(scheme) => match EnvAndFiles.keyring(endpoint, &scheme).await {
                Ok(_) => Finding::good("secrets", name, "they are there, and as the scheme writes them"),
                Err(error) => Finding::failed("secrets", name, keys(&error)),
            },
        };
        let vetted = match endpoint.url.parse::<Target>() {
            Ok(target) => self.policy.guard().vet(&target).await,
            Err(error) => return [secrets, Finding::failed("endpoint", name, CliError::usage(error.to_string()))],
        };
        let reachable = match (vetted, &entry.disabled) {
            (Ok(_), Some(reason)) => Finding::warned("endpoint", name, format!("it is disabled: {reason}")),
            (Ok(addresses), None) => {
                let first = addresses.first().map_or_else(String::new, |address| format!(" at {}", address.ip()));
                match &entry.failing_since {
                    Some(since) => Finding::warned("endpoint", name, format!("it has been failing since {since}")),
                    None => Finding::good("endpoint", name, format!("it may be called{first}")),
                }
            }
            (Err(Failure::Refused(refusal)), _) => Finding::failed("endpoint", name, CliError::no(refusal.to_string())),
            (Err(failure), _) => Finding::failed("endpoint", name, CliError::unreachable(failure.to_string())),
        };
        [secrets, reachable]
    }

    /// What is due and nobody takes: a dispatcher that does not run, or cannot follow.
    async fn backlog(&self, outbox: &dyn OutboxStore) -> Finding {
        match outbox.oldest_due_messages().await {
            Err(error) => Finding::failed("backlog", "", error),
            Ok(behind) => match behind.iter().max_by_key(|(_, span)| *span) {
                Some((name, span)) if *span > self.max_lag => {
                    let text = format!(
                        "a message has been due for {} s: does a dispatcher run, and can it follow?",
                        span.as_secs()
                    );
                    Finding::warned("backlog", name.as_str(), text)
                }
                _ => Finding::good("backlog", "", "nothing has been due for long"),
            },
        }
    }
}

/// Nothing is sent to it, and lists leave it out.
fn unreadable(name: &str, error: &StoreError) -> Finding {
    let text = format!(
        "its row cannot be read, and its messages wait ({error}): mend the row, or write it anew with `countersign endpoint add`"
    );
    Finding::failed("endpoint", name, CliError::no(text))
}

/// A reservation, a claim and a settlement would be stored.
async fn writable(store: &Store) -> Finding {
    let checked = async {
        store.check().await?;
        store.outbox().check_outbox().await
    };
    match tokio::time::timeout(PATIENCE, checked).await {
        Ok(Ok(())) => Finding::good("store", store.kind(), "it can be written"),
        Ok(Err(error)) => Finding::failed("store", store.kind(), error),
        Err(_elapsed) => {
            let error =
                CliError::unreachable(format!("it takes nothing within {PATIENCE:?}: is its disk full, or locked?"));
            Finding::failed("store", store.kind(), error)
        }
    }
}

/// A store that takes longer fails deliveries.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far a moment is outside the span in which it was asked for.
fn beyond(moment: Timestamp, asked: Timestamp, answered: Timestamp) -> Duration {
    asked.saturating_since(moment).max(moment.saturating_since(answered))
}

/// A file that cannot be read may be there tomorrow; the rest has to be configured.
fn keys(error: &KeyError) -> CliError {
    match error {
        KeyError::Unreadable { place, .. } if place.starts_with("file:") => CliError::unreachable(error.to_string()),
        _ => CliError::usage(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_by_what_the_answer_took_at_least() {
        let at = Timestamp::from_micros;
        assert_eq!(beyond(at(5), at(3), at(9)), Duration::ZERO);
        assert_eq!(beyond(at(1), at(3), at(9)), Duration::from_micros(2));
        assert_eq!(beyond(at(19), at(3), at(9)), Duration::from_micros(10));
    }
}
