//! `countersign`, the program: sign and verify from the shell, receive, deliver, and look after both.
//!
//! One file for each command; each has the arguments it takes and a function that runs it. Commands use the library's
//! public interface only.

mod admin;
mod body;
mod completions;
mod config;
mod config_table;
mod copy;
mod demo;
mod dispatch;
mod doctor;
mod endpoint;
mod endpoint_settings;
mod enqueue;
mod error;
mod export;
mod finding;
mod forward;
mod gateway;
mod health;
mod hook_secret;
mod inbox;
mod literal_secret;
mod maintenance;
mod message;
mod nearest;
mod operator_command;
mod operators;
mod or_file;
mod outbox;
mod output;
mod policy;
mod problems;
mod prometheus;
mod receipt;
mod receive;
mod reconcile;
mod saga;
mod scheme;
mod schemes;
mod secrets;
mod serve;
mod sign;
mod source;
mod store;
mod verify;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::Config;
use crate::error::CliError;
use crate::output::Printable;
use crate::receive::Receiving;

/// Both ends of the webhook contract: sign and deliver, verify and run each event once
#[derive(Debug, Parser)]
#[command(
    name = "countersign",
    version,
    after_help = "\
Exit status: 0 done · 1 the answer is no · 2 wrong usage or configuration · 3 a store, file or network was not reached

Example:
  countersign verify --scheme standard --secret-env WEBHOOK_SECRET -H 'webhook-id: msg_1' \\
      -H 'webhook-timestamp: 1700000000' -H 'webhook-signature: v1,…' --body payload.json"
)]
struct Cli {
    /// Form of the logs on stderr; RUST_LOG says how much is logged [default: text]
    #[arg(long, global = true, value_enum)]
    log_format: Option<LogFormat>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Lines for people
    Text,
    /// A JSON document on each line
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sign(sign::SignArgs),
    Verify(verify::VerifyArgs),
    Schemes(schemes::SchemesArgs),
    Receive(Box<receive::ReceiveArgs>),
    Inbox(inbox::InboxArgs),
    Endpoint(endpoint::EndpointArgs),
    Enqueue(enqueue::EnqueueArgs),
    Publish(enqueue::PublishArgs),
    Dispatch(Box<dispatch::DispatchArgs>),
    Outbox(outbox::OutboxArgs),
    Saga(saga::SagaArgs),
    Migrate(maintenance::MigrateArgs),
    Purge(maintenance::PurgeArgs),
    Copy(copy::CopyArgs),
    Doctor(Box<doctor::DoctorArgs>),
    Demo(demo::DemoArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(error),
    };
    // The demo provokes what it shows: its log says nothing new.
    let level = if matches!(cli.command, Command::Demo(_)) { LevelFilter::OFF } else { LevelFilter::INFO };
    // Before all else: the file says in which form is logged.
    let config = cli.command.config();
    let of_file = config.as_ref().ok().and_then(|config| config.as_ref()?.log_format);
    log_to_stderr(cli.log_format.or(of_file).unwrap_or(LogFormat::Text), level);
    let ended = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::unreachable(format!("the runtime cannot be started: {error}")))
        .and_then(|runtime| {
            let ended = runtime.block_on(run(cli.command, config?));
            // A thread that hangs at a file or a look-up would keep the process for as long.
            runtime.shutdown_timeout(LAST_THREADS);
            ended
        });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = Printable(&error.to_string()).to_string();
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(io::stderr(), "countersign: {line}");
            error.exit_code()
        }
    }
}

/// How long threads may take to end when the command has ended.
const LAST_THREADS: Duration = Duration::from_secs(1);

impl Command {
    /// The file that takes the place of its flags.
    fn config(&self) -> Result<Option<Config>, CliError> {
        let file = match self {
            Self::Receive(args) => args.file(),
            Self::Dispatch(args) => args.settings.file(),
            _ => None,
        };
        file.map(|file| Config::read(file)).transpose()
    }
}

async fn run(command: Command, config: Option<Config>) -> Result<(), CliError> {
    match command {
        Command::Receive(args) => receive::run(Receiving::new(*args, config)?).await,
        Command::Dispatch(args) => dispatch::run(*args, config).await,
        Command::Sign(args) => sign::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Schemes(args) => schemes::run(&args),
        Command::Inbox(args) => inbox::run(&args).await,
        Command::Endpoint(args) => endpoint::run(&args).await,
        Command::Enqueue(args) => enqueue::enqueue(&args).await,
        Command::Publish(args) => enqueue::publish(&args).await,
        Command::Outbox(args) => outbox::run(&args).await,
        Command::Saga(args) => saga::run(&args).await,
        Command::Migrate(args) => maintenance::migrate(&args).await,
        Command::Purge(args) => maintenance::purge(&args).await,
        Command::Copy(args) => copy::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Config(args) => config::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
    }
}

/// Prints the help, the version, or what is wrong with the arguments.
fn explain(mut error: clap::Error) -> ExitCode {
    hide_secrets(&mut error);
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    // A reader that went away has seen what it wanted.
    let _ =
        if is_help { error.print() } else { writeln!(io::stderr(), "countersign: {}", one_line(&error.to_string())) };
    if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn one_line(rendered: &str) -> String {
    format!("{}; see --help", paragraph(rendered))
}

/// What is wrong and what may be meant, without the usage that follows it.
fn paragraph(rendered: &str) -> String {
    let paragraphs = rendered.split("\n\n").filter(|text| !text.starts_with("Usage:") && !text.starts_with("For more"));
    let told: Vec<String> = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    told.join("; ").trim_start_matches("error: ").to_owned()
}

/// Takes out of a message what may be a secret that somebody took for an argument: anything that is no flag and stands
/// where nothing is expected, or is longer than a slip of the pen.
fn hide_secrets(error: &mut clap::Error) {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue] {
        let Some(ContextValue::String(text)) = error.get(kind) else { continue };
        let stray = error.kind() == ErrorKind::UnknownArgument && kind == ContextKind::InvalidArg;
        if !text.starts_with('-') && (stray || text.len() > LONGEST_SLIP) {
            error.insert(kind, ContextValue::String("(not shown)".to_owned()));
        }
    }
}

/// In bytes. Secrets that are shorter can be guessed.
const LONGEST_SLIP: usize = 16;

fn log_to_stderr(format: LogFormat, level: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    // A line that cannot be written is lost. Complaining about it on the same stderr would panic in whatever logged.
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => logs.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => logs.json().with_ansi(false).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_arguments_is_said_in_one_line() {
        for (words, expected) in [
            (&["countersign", "sign", "--body", "-"][..], "--scheme <NAME>"),
            (&["countersign", "sign", "--scheem", "x"][..], "'--scheme'"),
            (&["countersign", "verfy"][..], "'verify'"),
        ] {
            let error = Cli::try_parse_from(words).expect_err("wrong words");
            let line = one_line(&error.to_string());
            assert!(line.contains(expected) && !line.contains('\n') && !line.contains("Usage"), "{line}");
        }
    }

    #[test]
    fn every_command_can_be_built_and_its_help_has_an_example() {
        let command = Cli::command();
        command.clone().debug_assert();
        let mut left = vec![command];
        while let Some(mut command) = left.pop() {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{}", command.get_name());
            // The command `help` is clap's own.
            left.extend(command.get_subcommands().filter(|command| command.get_name() != "help").cloned());
        }
    }
}
