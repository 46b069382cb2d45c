//! `countersign inbox reconcile`: what was received, against what had an effect.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;
use countersign::DedupKey;
use countersign::store::{Receipt, ReceiptKey, ReceiptState};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::export;
use crate::inbox::ScopeArgs;
use crate::output::{OutputArgs, Printable, table};
use crate::receipt;
use crate::store::{StoreArgs, close};

/// Compare what was received with what the application has booked: exit status 1 if there is any difference
///
/// The file holds the keys that had their effect, one on each line: the header countersign-key, or Reservation::key. Nothing is
/// changed. What comes in meanwhile may show as a difference: run it again.
#[derive(Args, Debug)]
#[command(after_help = "\
Differences: `no_effect` received, and not booked · `not_done` booked, and not recorded as succeeded · `no_receipt` booked, and not
received, or forgotten since · `twice` booked more than once

Example:
  psql -At -c 'SELECT event FROM ledger' | countersign inbox reconcile --effects - --consumer stripe")]
pub(crate) struct ReconcileArgs {
    /// File of the keys that were booked; `-` for standard input
    #[arg(long, value_name = "PATH")]
    effects: PathBuf,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &ReconcileArgs) -> Result<(), CliError> {
    let mut booked = Booked::read(&args.effects)?;
    let store = args.store.open_existing().await?;
    let mut found = Differences::default();
    let walked = export::each(
        async |from, limit| store.keys(from, limit).await,
        |key: &ReceiptKey| args.scope.covers(key),
        async |key| store.find(key).await,
        |receipt: Receipt| {
            found.compare(receipt, &mut booked);
            Ok(true)
        },
    );
    let walked = walked.await;
    close(store).await;
    walked?;
    found.finish(&booked);
    args.output.print(|| found.as_json(&booked), || found.as_text(&booked))?;
    match found.count() {
        0 => Ok(()),
        count => Err(CliError::no(format!("{count} differences between what was received and what was booked"))),
    }
}

/// The keys of the file.
#[derive(Debug, Default)]
struct Booked(HashMap<DedupKey, Effect>);

/// How often a key stands in the file, and whether it was received.
#[derive(Debug, Default)]
struct Effect {
    lines: u32,
    is_received: bool,
}

impl Booked {
    fn read(path: &Path) -> Result<Self, CliError> {
        let unreadable = |error: io::Error| {
            CliError::unreachable(format!("--effects {}: {error}; check its path and mode", path.display()))
        };
        let lines: Box<dyn Iterator<Item = io::Result<String>>> = if path == Path::new("-") {
            Box::new(io::stdin().lock().lines())
        } else {
            Box::new(BufReader::new(std::fs::File::open(path).map_err(unreadable)?).lines())
        };
        let mut booked = Self::default();
        for (line, number) in lines.zip(1_u64..) {
            let line = line.map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => CliError::usage(format!("--effects: line {number}: it is not UTF-8")),
                _ => unreadable(error),
            })?;
            let text = line.trim_end_matches('\r');
            if text.is_empty() {
                continue;
            }
            let key = DedupKey::parse(text).map_err(|error| {
                CliError::usage(format!(
                    "--effects, line {number}: this is no key: {error}; write one key on each line"
                ))
            })?;
            booked.0.entry(key).or_default().lines += 1;
        }
        Ok(booked)
    }
}

/// What does not fit.
#[derive(Debug, Default)]
struct Differences {
    received: u64,
    no_effect: Vec<Receipt>,
    not_done: Vec<Receipt>,
    no_receipt: Vec<DedupKey>,
    twice: Vec<DedupKey>,
}

impl Differences {
    fn compare(&mut self, receipt: Receipt, booked: &mut Booked) {
        self.received += 1;
        let Some(effect) = booked.0.get_mut(&receipt.key.key) else { return self.no_effect.push(bare(receipt)) };
        effect.is_received = true;
        if receipt.state != ReceiptState::Succeeded {
            self.not_done.push(bare(receipt));
        }
    }

    /// What only the file tells.
    fn finish(&mut self, booked: &Booked) {
        let keys = |fits: fn(&Effect) -> bool| {
            let mut keys: Vec<_> =
                booked.0.iter().filter(|(_, effect)| fits(effect)).map(|(key, _)| key.clone()).collect();
            keys.sort();
            keys
        };
        self.no_receipt = keys(|effect| !effect.is_received);
        self.twice = keys(|effect| effect.lines > 1);
    }

    fn count(&self) -> usize {
        self.no_effect.len() + self.not_done.len() + self.no_receipt.len() + self.twice.len()
    }

    fn as_json(&self, booked: &Booked) -> Value {
        let receipts = |receipts: &[Receipt]| receipts.iter().map(receipt::summary).collect::<Value>();
        json!({
            "received": self.received,
            "booked": booked.0.len(),
            "differences": self.count(),
            "no_effect": receipts(&self.no_effect),
            "not_done": receipts(&self.not_done),
            "no_receipt": self.no_receipt,
            "twice": self.twice,
            "no_effect_by_state": by_state(&self.no_effect),
            "not_done_by_state": by_state(&self.not_done),
        })
    }

    fn as_text(&self, booked: &Booked) -> String {
        let of_receipt = |what: &str, receipt: &Receipt| {
            let ReceiptKey { consumer, source, key } = &receipt.key;
            [what.to_owned(), receipt.state.to_string(), printable(key), printable(consumer), printable(source)]
        };
        let of_key = |what: &str, key: &DedupKey| {
            [what.to_owned(), "-".to_owned(), printable(key), "-".to_owned(), "-".to_owned()]
        };
        let mut rows: Vec<_> = self.no_effect.iter().map(|receipt| of_receipt("no_effect", receipt)).collect();
        rows.extend(self.not_done.iter().map(|receipt| of_receipt("not_done", receipt)));
        rows.extend(self.no_receipt.iter().map(|key| of_key("no_receipt", key)));
        rows.extend(self.twice.iter().map(|key| of_key("twice", key)));
        let summary = format!("received {}, booked {}, differences {}\n", self.received, booked.0.len(), self.count());
        if rows.is_empty() {
            return summary;
        }
        table(["DIFFERENCE", "STATE", "KEY", "CONSUMER", "SOURCE"], &rows) + &summary
    }
}

fn by_state(receipts: &[Receipt]) -> BTreeMap<&'static str, u64> {
    let mut states = BTreeMap::new();
    for receipt in receipts {
        *states.entry(receipt.state.as_str()).or_default() += 1;
    }
    states
}

/// Without what takes room: there may be many.
fn bare(receipt: Receipt) -> Receipt {
    Receipt { result: None, request: None, failures: Vec::new(), ..receipt }
}

fn printable(text: &impl ToString) -> String {
    Printable(&text.to_string()).to_string()
}
