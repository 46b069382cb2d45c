//! `countersign copy`: all that a store holds, carried into another one.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use countersign::store::copy::{self, Copied, CopyError, Progress, Running, Step, Survey, Table};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{OutputArgs, Printable, table};
use crate::store::{Store, close, is_a_file, open_url};

/// Copy all events, messages and endpoints into another store, of any kind
#[derive(Args, Debug)]
#[command(after_help = "\
Moving from one store to another:
  1. Stop all that uses the source: receivers, dispatchers, applications that enqueue. What is being run is never copied: a
     lease that is held makes the copy refuse, and one that was left behind ends by itself within its lease.
  2. Copy, with --dry-run first. The source is only read. Rows keep their numbers, ids, states, times, results, histories and
     orders; of secrets a store holds only where they are found: env:NAME has to be set, and file:PATH to be there, where
     the target is used.
  3. Start everything on the target, and never on the source again: what is owed stands in both, and both would run it.

The target is created, or empty. A copy that was interrupted is run again as it was: rows that are there already are compared, and
nothing is ever overwritten. A row that differs, or that only the target has, ends it with exit status 1 before anything is
written. So does text that the target's database cannot hold. At the end both are compared, row by row.

The times in a store are those of its clock: where the target's server has another one, what is due comes earlier or later by
the difference.

Examples:
  countersign copy --from sqlite:events.db --to postgres://app@db.example/app --dry-run
  countersign copy --from sqlite:events.db --to postgres://app@db.example/app")]
pub(crate) struct CopyArgs {
    /// The store to read, as in --store
    // Values are not shown in the help: they may hold a password.
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_COPY_FROM", hide_env_values = true)]
    from: String,
    /// The store to fill, as in --store; a file is created if absent
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_COPY_TO", hide_env_values = true)]
    to: String,
    /// Only say what would be copied, and what stands in the way
    #[arg(long)]
    dry_run: bool,
    /// Use the target as it is: do not create it, nor bring its schema up to date
    #[arg(long)]
    no_migrate: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &CopyArgs) -> Result<(), CliError> {
    if args.from == args.to || is_one_file(&args.from, &args.to) {
        return Err(CliError::usage("--from and --to name the same store"));
    }
    let to_a_file = is_a_file(&args.to).map_err(|error| error.of("--to"))?;
    let source = open_url(&args.from, false).await.map_err(|error| error.of("--from"))?;
    let done = if args.dry_run { look(args, &source, to_a_file).await } else { carry(args, &source).await };
    close(source).await;
    done
}

/// Whether two URLs lead to one file, by whatever paths.
fn is_one_file(one: &str, other: &str) -> bool {
    let place = |url: &str| fs::canonicalize(url.strip_prefix("sqlite:")?).ok();
    place(one).is_some_and(|one| place(other) == Some(one))
}

async fn carry(args: &CopyArgs, source: &Store) -> Result<(), CliError> {
    let target = open_url(&args.to, !args.no_migrate).await.map_err(|error| error.of("--to"))?;
    let mut line = ProgressLine::new();
    let copied = copy::copy(source.copy_end(), target.copy_end(), |progress| line.show(progress)).await;
    line.clear();
    close(target).await;
    let Copied { added, survey, .. } = copied?;
    let json = || {
        let mut answer = document(&survey);
        answer["added"] = added.into();
        answer["from"] = source.kind().into();
        answer
    };
    let text = || {
        format!(
            "{}{added} rows were added, {} were there; both stores hold the same\n\
             Start everything on the target now, and nothing on the source: what is owed stands in both.\n",
            tables(&survey),
            survey.rows().saturating_sub(added)
        )
    };
    args.output.print(json, text)
}

/// What would be copied. A target that is not there, or has no tables, is as good as an empty one.
async fn look(args: &CopyArgs, source: &Store, to_a_file: bool) -> Result<(), CliError> {
    let (target, not_looked_at) = match open_url(&args.to, false).await {
        Ok(target) => (Some(target), None),
        // A file is made; a server that does not answer would not take anything.
        Err(error @ CliError::Unreachable(_)) if !to_a_file => return Err(error.of("--to")),
        Err(error) => (None, Some(error.to_string())),
    };
    let mut line = ProgressLine::new();
    let survey =
        copy::survey(source.copy_end(), target.as_ref().map(Store::copy_end), |progress| line.show(progress)).await;
    line.clear();
    if let Some(target) = target {
        close(target).await;
    }
    let survey = survey?;
    let json = || {
        let mut answer = document(&survey);
        answer["from"] = source.kind().into();
        answer["target_not_looked_at"] = not_looked_at.clone().into();
        answer
    };
    let text = || {
        let mut text = tables(&survey);
        let Survey { running: Running { events, messages, .. }, .. } = survey;
        let _ = writeln!(text, "{} rows would be added, {} are there", survey.missing(), survey.equal());
        if events > 0 || messages > 0 {
            let _ = writeln!(
                text,
                "in use: {events} events and {messages} messages are being run; stop what uses the source"
            );
        }
        if let Some(why) = &not_looked_at {
            let _ = writeln!(text, "the target was not looked at: {}", Printable(why));
        }
        for obstacle in &survey.obstacles {
            let _ = writeln!(text, "in the way: {}", Printable(obstacle));
        }
        text
    };
    args.output.print(json, text)?;
    let in_the_way = survey.differing() + survey.foreign() + survey.unfit();
    match (in_the_way, survey.running.events + survey.running.messages) {
        (0, 0) => Ok(()),
        (0, running) => {
            Err(CliError::no(format!("the source is in use: {running} leases are held; stop what uses it")))
        }
        (rows, _) => Err(CliError::no(format!("{rows} rows stand in the way; the answer names the first of them"))),
    }
}

fn document(survey: &Survey) -> Value {
    let tables = survey.tables.iter().map(|counts| {
        let mut table = json!({
            "rows": counts.rows, "missing": counts.missing, "equal": counts.equal, "differing": counts.differing,
            "foreign": counts.foreign, "unfit": counts.unfit,
        });
        if !counts.states.is_empty() {
            table["states"] = json!(counts.states);
        }
        (name(counts.table).to_owned(), table)
    });
    let tables: serde_json::Map<_, _> = tables.collect();
    json!({
        "rows": survey.rows(),
        "tables": tables,
        "running": { "events": survey.running.events, "messages": survey.running.messages },
        "obstacles": survey.obstacles,
    })
}

fn tables(survey: &Survey) -> String {
    let states = |counts: &copy::TableSurvey| {
        let states = counts.states.iter().map(|(state, count)| format!("{count} {}", Printable(state)));
        states.collect::<Vec<_>>().join(", ")
    };
    let rows: Vec<_> = survey
        .tables
        .iter()
        .map(|counts| [name(counts.table).to_owned(), counts.rows.to_string(), states(counts)])
        .collect();
    table(["TABLE", "ROWS", "STATES"], &rows)
}

fn name(table: Table) -> &'static str {
    table.as_str().trim_start_matches("countersign_")
}

/// One line on stderr that is written over; on a terminal only.
struct ProgressLine {
    is_terminal: bool,
    shown: Option<Instant>,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, progress: Progress) {
        const EVERY: Duration = Duration::from_millis(200);
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let doing = match progress.step {
            Step::Looking => "looking at",
            Step::Adding => "copying",
            Step::Comparing => "comparing",
            _ => "at",
        };
        // Nobody is left to be told when stderr is closed.
        let _ = write!(io::stderr(), "\r\x1b[K{doing} {}: {} rows", name(progress.table), progress.rows);
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl From<CopyError> for CliError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Source(error) => Self::from(error).of("--from"),
            CopyError::Target(error) => Self::from(error).of("--to"),
            other => Self::no(other.to_string()),
        }
    }
}
