//! `countersign demo`: every row of the receiver's table, played with real requests against a real receiver, and what a
//! sender of ours does to reach it.

mod rows;
mod sending;
mod stage;

use std::io::Write as _;

use clap::Args;

use crate::error::CliError;
use stage::Stage;

/// Play every situation a receiver meets, and show what was sent, answered and stored
///
/// Starts a receiver on loopback with a temporary SQLite file, and sends it real signed requests: first deliveries,
/// repeats, duplicates at the same moment, forgeries, handlers that fail, hang, panic and are killed. Then a dispatcher
/// delivers to it from an outbox, through failures, into a dead letter, replayed to success. Ends with exit status 1 if any
/// answer, receipt or message differs from the tables in the README.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  countersign demo")]
pub(crate) struct DemoArgs {
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// One situation, as it went.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct Row {
    situation: &'static str,
    sent: String,
    answered: String,
    stored: String,
    /// What differs from the table. Empty: nothing.
    differs: Vec<String>,
}

impl Row {
    fn new(situation: &'static str, sent: impl Into<String>) -> Self {
        Self { situation, sent: sent.into(), ..Self::default() }
    }

    fn expect(&mut self, holds: bool, expectation: &str) {
        if !holds {
            self.differs.push(expectation.to_owned());
        }
    }
}

pub(crate) async fn run(args: &DemoArgs) -> Result<(), CliError> {
    hush_the_panic_on_purpose();
    let stage = Stage::set_up().await?;
    let mut rows = Vec::new();
    if !args.json {
        say(&format!("receiver on http://{}, store {}\n\n", stage.receiver, stage.database.display()));
    }
    for play in rows::ALL {
        let row = play(&stage).await?;
        if !args.json {
            print_row(rows.len() + 1, &row);
        }
        rows.push(row);
    }
    stage.tear_down().await;

    let differing = rows.iter().filter(|row| !row.differs.is_empty()).count();
    if args.json {
        say(&format!("{}\n", serde_json::json!({ "rows": rows, "differing": differing })));
    } else {
        say(&format!("{} situations, {differing} differ from the table\n", rows.len()));
    }
    if differing > 0 {
        return Err(CliError::no(format!("{differing} of {} situations differ from the table", rows.len())));
    }
    Ok(())
}

/// One situation is a handler that panics: its message would look like a fault of the demo.
fn hush_the_panic_on_purpose() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&stage::ON_PURPOSE) {
            report(panic);
        }
    }));
}

fn print_row(number: usize, row: &Row) {
    let mut text = format!(
        "{number:>2}. {}\n    sent      {}\n    answered  {}\n    stored    {}\n",
        row.situation, row.sent, row.answered, row.stored
    );
    for difference in &row.differs {
        text.push_str(&format!("    DIFFERS   expected: {difference}\n"));
    }
    text.push('\n');
    say(&text);
}

/// Prints; that nobody reads it is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
