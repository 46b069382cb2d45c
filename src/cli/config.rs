//! The configuration file of `receive` and `dispatch`: one for both, several sources and endpoints in it.
//!
//! ```text
//! (top)             what both go by: store, operators, form of the logs
//! [receive]         what listens
//! [sources.NAME]    each source, on a path of its own
//! [dispatch]        what delivers
//! [endpoints.NAME]  each endpoint
//! ```
//! It is read and judged as a whole, before anything is bound or written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use countersign::Name;
use serde_json::json;
use toml::de::{DeTable, DeValue};

use crate::LogFormat;
use crate::config_table::{Table, flags, keys, line_of};
use crate::dispatch::DispatcherArgs;
use crate::endpoint_settings::EndpointSettingsArgs;
use crate::error::CliError;
use crate::operators::OperatorArgs;
use crate::output::OutputArgs;
use crate::problems::{Problems, Written};
use crate::receive::{self, ReceiverArgs, Receiving};
use crate::source::{Mode, SourceArgs};
use crate::store::StoreArgs;

/// Say what is wrong with a configuration file
///
/// Checks the file of `receive --config` and `dispatch --config` as they do, the secrets that it names among it, and begins
/// nothing. Exit status 2 if something is wrong, 3 if a secret could not be read.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  countersign config check /etc/countersign/countersign.toml")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
}

/// Say what is wrong with a file, each problem with its line
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  countersign config check /etc/countersign/countersign.toml --json")]
struct CheckArgs {
    /// The file
    file: PathBuf,
    /// Do not look for secrets, which may be elsewhere
    #[arg(long)]
    without_secrets: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What both walks go by.
#[derive(Args, Debug)]
pub(crate) struct SharedArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) operators: OperatorArgs,
}

/// What stands at the top of a file.
#[derive(Args, Debug)]
struct TopArgs {
    #[command(flatten)]
    shared: SharedArgs,
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
}

/// A file in which nothing is wrong, as far as that shows in it.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) file: PathBuf,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) shared: Written<SharedArgs>,
    pub(crate) receiver: Option<Written<ReceiverArgs>>,
    pub(crate) sources: Vec<Written<SourceArgs>>,
    pub(crate) dispatcher: Written<DispatcherArgs>,
    pub(crate) endpoints: Vec<(Name, Written<EndpointSettingsArgs>)>,
}

impl Config {
    pub(crate) fn read(file: &Path) -> Result<Self, CliError> {
        let (config, problems) = Self::judge(file)?;
        problems.end()?;
        // Without a problem there is one.
        config.ok_or_else(|| CliError::usage(format!("{}: it cannot be used", file.display())))
    }

    /// Reads it, with all that is wrong.
    fn judge(file: &Path) -> Result<(Option<Self>, Problems), CliError> {
        let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => CliError::usage(format!("--config {}: it is not UTF-8", file.display())),
            _ => CliError::unreachable(format!("--config {}: {error}; check its path and mode", file.display())),
        })?;
        Ok(Self::judge_text(file, &text))
    }

    fn judge_text(file: &Path, text: &str) -> (Option<Self>, Problems) {
        let mut problems = Problems::of(Some(file));
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            // Its excerpt is left out: a secret may stand there.
            problems.note_at(line, format!("it is no TOML: {}", error.message().replace('\n', ", ")));
        }
        if !problems.is_empty() {
            return (None, problems);
        }
        let config = Reader { text, document: document.get_ref(), problems: &mut problems }.config(file);
        (config, problems)
    }

    /// What `receive` goes by.
    pub(crate) fn receiving(self) -> Result<Receiving, CliError> {
        let missing = |what: &str| {
            CliError::usage(format!("{}: there is no {what}: nothing can be received", self.file.display()))
        };
        if self.sources.is_empty() {
            return Err(missing("[sources.NAME]"));
        }
        let receiver = self.receiver.ok_or_else(|| missing("[receive]"))?;
        let Self { file, shared, sources, endpoints, .. } = self;
        Ok(Receiving { file: Some(file), shared, receiver, sources, endpoints })
    }
}

/// Where each table stands, for those who write a key into the wrong one.
fn table_of(key: &str) -> Option<&'static str> {
    let tables = [
        (flags::<TopArgs>(), "the top of the file"),
        (flags::<ReceiverArgs>(), "[receive]"),
        (flags::<SourceArgs>(), "[sources.NAME]"),
        (flags::<DispatcherArgs>(), "[dispatch]"),
        (flags::<EndpointSettingsArgs>(), "[endpoints.NAME]"),
    ];
    tables.iter().find(|(command, _)| keys(command).contains(&key)).map(|(_, table)| *table)
}

/// Reads one file.
struct Reader<'a> {
    text: &'a str,
    document: &'a DeTable<'a>,
    problems: &'a mut Problems,
}

const TABLES: &[&str] = &["receive", "sources", "dispatch", "endpoints"];

impl<'a> Reader<'a> {
    fn config(mut self, file: &Path) -> Option<Config> {
        let top = Table::new(self.text, "the top of the file".to_owned(), None, 1, self.document, TABLES);
        let top = top.read::<TopArgs>(self.problems, table_of);
        let receiver = self.one::<ReceiverArgs>("receive");
        let sources = self.named::<SourceArgs>("sources");
        let dispatcher = match self.document.contains_key("dispatch") {
            true => self.one::<DispatcherArgs>("dispatch"),
            false => self.absent::<DispatcherArgs>(),
        };
        let endpoints = self.named::<EndpointSettingsArgs>("endpoints");
        self.sources(&sources);
        self.endpoints(&endpoints);
        if let Some(top) = &top {
            let store = top.settings.shared.store.check();
            let operators = top.settings.shared.operators.check();
            self.problems.take(&top.place, store);
            self.problems.take(&top.place, operators);
        }
        let Written { settings: TopArgs { shared, log_format }, place } = top?;
        Some(Config {
            file: file.to_owned(),
            log_format,
            shared: Written { settings: shared, place },
            receiver,
            sources: sources.into_iter().map(|(_, source)| source).collect(),
            dispatcher: dispatcher?,
            endpoints,
        })
    }

    /// The table of this name, where there is one.
    fn one<T: Args>(&mut self, name: &'static str) -> Option<Written<T>> {
        let (key, value) = self.document.get_key_value(name)?;
        let line = line_of(self.text, key.span().start);
        let DeValue::Table(table) = value.get_ref() else {
            self.problems.note_at(line, format!("`{name}` is a table: write [{name}], and its keys below"));
            return None;
        };
        Table::new(self.text, format!("[{name}]"), None, line, table, &[]).read(self.problems, table_of)
    }

    /// What a table that is not there says: every default.
    fn absent<T: Args>(&mut self) -> Option<Written<T>> {
        let nothing = DeTable::new();
        Table::new(self.text, String::new(), None, 1, &nothing, &[]).read(self.problems, |_| None)
    }

    /// The tables below this name, each with its own.
    fn named<T: Args>(&mut self, kind: &'static str) -> Vec<(Name, Written<T>)> {
        let Some((key, value)) = self.document.get_key_value(kind) else { return Vec::new() };
        let DeValue::Table(tables) = value.get_ref() else {
            let line = line_of(self.text, key.span().start);
            self.problems
                .note_at(line, format!("`{kind}` holds tables: write [{kind}.NAME], and the keys of each below"));
            return Vec::new();
        };
        let mut tables: Vec<_> = tables.iter().collect();
        tables.sort_by_key(|(key, _)| key.span().start);
        let mut read = Vec::new();
        for (key, value) in tables {
            let line = line_of(self.text, key.span().start);
            let key = key.get_ref().as_ref();
            let DeValue::Table(table) = value.get_ref() else {
                self.problems
                    .note_at(line, format!("[{kind}] holds tables only: write [{kind}.NAME], and its keys below"));
                continue;
            };
            let title = format!("[{kind}.{key}]");
            let table = Table::new(self.text, title, Some(key), line, table, &[]);
            let settings = table.read::<T>(self.problems, table_of);
            match Name::new(key) {
                Ok(name) => read.extend(settings.map(|settings| (name, settings))),
                Err(error) => self.problems.note_at(line, format!("[{kind}.…]: its name cannot be used: {error}")),
            }
        }
        read
    }

    /// What is wrong with each source, and with one beside another.
    fn sources(&mut self, sources: &[(Name, Written<SourceArgs>)]) {
        let mut by_path: HashMap<&str, &Name> = HashMap::new();
        let mut by_consumer: HashMap<&str, (&Name, Mode)> = HashMap::new();
        for (name, Written { settings, place }) in sources {
            for error in settings.check() {
                self.problems.note(place, error);
            }
            if let Some(other) = settings.served_path().and_then(|path| by_path.insert(path, name)) {
                let error = format!("--path is also that of `{other}`: each source has a path of its own");
                self.problems.note(place, CliError::usage(error));
            }
            let (consumer, mode) = (settings.consumer().unwrap_or(name.as_str()), settings.mode());
            if let Some((other, others)) = by_consumer.insert(consumer, (name, mode))
                && (mode == Mode::Deferred || others == Mode::Deferred)
            {
                let error = format!(
                    "--consumer is also that of `{other}`: in deferred mode all events of a consumer go to one application; \
                     give each source its own"
                );
                self.problems.note(place, CliError::usage(error));
            }
        }
    }

    fn endpoints(&mut self, endpoints: &[(Name, Written<EndpointSettingsArgs>)]) {
        for (name, Written { settings, place }) in endpoints {
            self.problems.take_all(place, settings.endpoint(name.clone()));
        }
    }
}

pub(crate) fn run(args: &ConfigArgs) -> Result<(), CliError> {
    let ConfigCommand::Check(args) = &args.command;
    let (config, mut problems) = Config::judge(&args.file)?;
    if let Some(config) = config.filter(|_| !args.without_secrets && problems.is_empty()) {
        let Config { file, receiver, sources, dispatcher, .. } = config;
        if let Some(receiver) = &receiver {
            problems.append(receive::problems(&file, receiver, &sources));
        }
        problems.take(&dispatcher.place, dispatcher.settings.check());
    }
    let is_valid = problems.is_empty();
    let (json, text) = (problems.as_json(), problems.as_text());
    args.output.print(
        || json!({ "valid": is_valid, "problems": json }),
        || if is_valid { "nothing is wrong with it".to_owned() } else { text },
    )?;
    problems.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What stands in files, and what does not belong there.
    const LINES: &[&str] = &[
        "[receive]",
        "[sources.a]",
        "[sources.b]",
        "[sources.\"\"]",
        "[dispatch]",
        "[endpoints.shop]",
        "[[sources]]",
        "receive = 1",
        "listen = \"127.0.0.1:0\"",
        "listen = 8080",
        "scheme = \"standard\"",
        "scheme = \"hmac\"",
        "secret-env = [\"SECRET\", \"OTHER\"]",
        "secret = \"x\"",
        "upstream = \"http://127.0.0.1:9\"",
        "upstream = \"\"",
        "path = \"/a\"",
        "url = \"https://shop.example\"",
        "types = [[1], {}]",
        "mode = \"deferred\"",
        "max-body = -1",
        "max-body = 0x10",
        "drain = true",
        "allow-http = \"yes\"",
        "grace = 1979-05-27",
        "store = \"postgres://a:b@c/d\"",
        "\"--listen\" = \"\\u0000\"",
        "listen.port = 1",
        "\u{e9} = \"\u{1f600}\"",
        "[",
    ];

    proptest! {
        #[test]
        fn no_text_is_too_much_for_it_and_each_problem_has_a_line_of_the_text(
            lines in prop::collection::vec(prop::sample::select(LINES), 0..12)
        ) {
            let text = lines.join("\n");
            let (config, mut problems) = Config::judge_text(Path::new("a.toml"), &text);
            prop_assert!(config.is_some() || !problems.is_empty(), "{text}");
            for problem in problems.as_json().as_array().expect("an array") {
                let line = problem["line"].as_u64().expect("a line");
                prop_assert!((1..=lines.len().max(1) as u64 + 1).contains(&line), "{problem}");
            }
        }
    }
}
