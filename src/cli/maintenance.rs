//! `countersign migrate` and `countersign purge`: the schema, and what has reached its age.

use std::time::Duration;

use clap::Args;
use countersign::signature::ReplayWindow;
use countersign::store::{OutboxRetention, Purged, Retention};
use serde_json::json;

use crate::error::CliError;
use crate::output::OutputArgs;
use crate::store::{Store, StoreArgs, close};

/// Bring the store's schema up to date
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  countersign migrate --store sqlite:/var/lib/app/events.db")]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Remove finished events and messages that have reached their age
#[derive(Args, Debug)]
#[command(after_help = "\
Only events that succeeded or failed age. One that is being processed, or is a dead letter, stays. Messages age that
were delivered or cancelled; dead letters do with --keep-dead, and flows that have ended with --keep-sagas.

Example:
  countersign purge --keep-results 7d --keep-keys 30d")]
pub(crate) struct PurgeArgs {
    /// How long to keep the bodies of results: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "SPAN", default_value = "7d", value_parser = parse_span)]
    keep_results: Duration,
    /// How long to remember that an event was handled; after that, a repeat of it runs again
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = parse_span)]
    keep_keys: Duration,
    /// How long to keep messages that were delivered or cancelled; after that, their ids can be enqueued again
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = parse_span)]
    keep_messages: Duration,
    /// How long to keep messages that were given up [default: until an operator decides]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    keep_dead: Option<Duration>,
    /// How long to keep sagas that have ended, with their history; longer than late events may come [default: for good]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    keep_sagas: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn migrate(args: &MigrateArgs) -> Result<(), CliError> {
    let store = args.store.open().await?;
    let version = store.schema_version().await?;
    let applied = store.applied_migrations().to_vec();
    close(store).await;
    let text = || match &*applied {
        [] => format!("schema version {version}: up to date"),
        applied => {
            let numbers: Vec<_> = applied.iter().map(ToString::to_string).collect();
            format!("schema version {version}: applied {}", numbers.join(", "))
        }
    };
    args.output.print(|| json!({ "schema_version": version, "applied": applied }), text)
}

pub(crate) async fn purge(args: &PurgeArgs) -> Result<(), CliError> {
    let retention = retention(args.keep_results, args.keep_keys)?;
    let store = args.store.open_existing().await?;
    let mut total = Purged::default();
    loop {
        let Purged { results, keys } = store.purge(retention, PASS).await?;
        if results == 0 && keys == 0 {
            break;
        }
        total.results += results;
        total.keys += keys;
    }
    let mut of_messages = OutboxRetention::default();
    of_messages.done = args.keep_messages;
    of_messages.dead = args.keep_dead;
    let outbox = store.outbox();
    let mut messages = 0;
    loop {
        match outbox.purge_messages(of_messages, PASS).await? {
            0 => break,
            removed => messages += removed,
        }
    }
    let sagas = match args.keep_sagas {
        Some(age) => purge_sagas(&store, age).await?,
        None => 0,
    };
    close(store).await;
    let Purged { results, keys } = total;
    args.output.print(
        || json!({ "results": results, "keys": keys, "messages": messages, "sagas": sagas }),
        || format!("removed: the bodies of {results} results, {keys} keys, {messages} messages, {sagas} sagas"),
    )
}

async fn purge_sagas(store: &Store, age: Duration) -> Result<u64, CliError> {
    let before = store.now().await?.saturating_sub(age);
    let mut purged = 0;
    loop {
        match store.sagas().purge_sagas(before, PASS).await? {
            0 => return Ok(purged),
            removed => purged += removed,
        }
    }
}

/// How much one pass removes: little enough that deliveries do not wait for it.
const PASS: u32 = 1_000;

pub(crate) fn retention(results: Duration, keys: Duration) -> Result<Retention, CliError> {
    let shortest = ReplayWindow::default().span();
    if keys <= shortest {
        return Err(CliError::usage(format!(
            "--keep-keys: {} s is too short: a captured request can be accepted for {} s, and would run again; keep \
             keys longer",
            keys.as_secs(),
            shortest.as_secs(),
        )));
    }
    if results > keys {
        return Err(CliError::usage(
            "--keep-results (7d unless given) is longer than --keep-keys: a result goes with its key; make it no longer",
        ));
    }
    Ok(Retention { results, keys })
}

pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 60 * 60),
        Some((at, 'd')) => (&text[..at], 24 * 60 * 60),
        _ => (text, 1_u64),
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = digits.then(|| number.parse::<u64>().ok()?.checked_mul(unit)).flatten();
    let seconds = seconds.filter(|seconds| *seconds <= LONGEST);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        "it is a number of seconds, or a number with s, m, h or d behind it, like `30d`; 100 years at most".to_owned()
    })
}

const LONGEST: u64 = 100 * 366 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_seconds_or_have_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7_200), ("30d", 2_592_000), ("0", 0)] {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "-1", "+1", "1.5h", "1 d", "1w", "1é", "99999999999999999999", "99999999999999999d"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_outlive_their_results_and_the_replay_window() {
        let seconds = Duration::from_secs;
        assert!(retention(seconds(0), seconds(600)).is_err());
        assert!(retention(seconds(0), seconds(601)).is_ok());
        assert!(retention(seconds(0), seconds(599)).is_err());
        assert!(retention(seconds(602), seconds(601)).is_err());
    }
}
