//! One table of the configuration file, read as the flags of the same names.
//!
//! A key is a flag: its name, its default, and what it takes come from the same definition. So there is no second list of
//! settings that could say something else.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command};
use toml::de::{DeTable, DeValue};

use crate::literal_secret;
use crate::nearest::nearest;
use crate::problems::{Place, Problems, Written};
use crate::{hide_secrets, paragraph};

/// A table of a file, its entries in the order in which they stand there.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) place: Place,
    /// As it is written: `[sources.stripe]`.
    title: String,
    entries: Vec<(&'a str, usize, &'a DeValue<'a>)>,
    /// The tables that may stand in it.
    tables: &'static [&'static str],
}

/// The line of a place in a text, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The flags of these settings.
pub(crate) fn flags<T: Args>() -> Command {
    let command = Command::new("settings").no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
    let mut command = T::augment_args(command);
    // Else its arguments have no text by which errors name them.
    command.build();
    command
}

/// Their names.
pub(crate) fn keys(command: &Command) -> Vec<&str> {
    command.get_arguments().filter_map(Arg::get_long).collect()
}

impl<'a> Table<'a> {
    /// The entries of `table`; the `tables` in it are to be read on their own.
    pub(crate) fn new(
        text: &str,
        title: String,
        name: Option<&str>,
        line: usize,
        table: &'a DeTable<'a>,
        tables: &'static [&'static str],
    ) -> Self {
        let mut spans: Vec<_> = table.iter().filter(|(key, _)| !tables.contains(&key.get_ref().as_ref())).collect();
        spans.sort_by_key(|(key, _)| key.span().start);
        let entries: Vec<_> = spans
            .into_iter()
            .map(|(key, value)| (key.get_ref().as_ref(), line_of(text, key.span().start), value.get_ref()))
            .collect();
        let keys = entries.iter().map(|(key, line, _)| ((*key).to_owned(), *line)).collect();
        let place = Place { name: name.map(str::to_owned), line: Some(line), keys, is_partial: false };
        Self { place, title, entries, tables }
    }

    /// Reads it. What is wrong is noted, and the rest is read, so that all can be judged at once. `elsewhere` says in which table a key belongs that
    /// this one has not.
    pub(crate) fn read<T: Args>(
        mut self,
        problems: &mut Problems,
        elsewhere: impl Fn(&str) -> Option<&'static str>,
    ) -> Option<Written<T>> {
        let command = flags::<T>();
        let mut given: Vec<(&str, Vec<OsString>)> = Vec::new();
        for (key, line, value) in &self.entries {
            let known = command.get_arguments().find(|arg| arg.get_long() == Some(*key));
            let words = match known {
                None => Err(self.unknown(&command, key, &elsewhere)),
                Some(arg) => literal_secret::refuse(key, value).and_then(|()| words(arg, key, value)),
            };
            match words {
                Ok(words) => given.push((*key, words)),
                Err(wrong) => problems.note_at(*line, wrong),
            }
        }
        let settings = self.parse::<T>(&command, &mut given, problems);
        self.place.is_partial = given.len() < self.entries.len();
        self.place.keys.retain(|key, _| given.iter().any(|(sound, _)| sound == key));
        Some(Written { settings: settings?, place: self.place })
    }

    /// Has the flags read as those of the command line are, until nothing more is wrong. Those that are go.
    fn parse<T: Args>(
        &self,
        command: &Command,
        given: &mut Vec<(&str, Vec<OsString>)>,
        problems: &mut Problems,
    ) -> Option<T> {
        loop {
            let words = given.iter().flat_map(|(_, words)| words);
            let parsed = command.clone().try_get_matches_from(words).and_then(|matches| T::from_arg_matches(&matches));
            let error = match parsed {
                Ok(settings) => return Some(settings),
                Err(error) => error,
            };
            let named = named(command, &error);
            if error.kind() == ErrorKind::MissingRequiredArgument {
                // Those that were given and refused are no news.
                for key in named.into_iter().filter(|key| !self.place.keys.contains_key(*key)) {
                    let line = self.place.line.unwrap_or(1);
                    problems.note_at(line, format!("{} has no `{key}`; write `{key} = …`", self.title));
                }
                return None;
            }
            let wrong = named.into_iter().next();
            let line = wrong.and_then(|key| self.place.keys.get(key)).copied().or(self.place.line);
            problems.note_at(line.unwrap_or(1), said(command, error));
            let before = given.len();
            given.retain(|(key, _)| Some(*key) != wrong);
            if given.len() == before {
                return None;
            }
        }
    }

    fn unknown(&self, command: &Command, key: &str, elsewhere: impl Fn(&str) -> Option<&'static str>) -> String {
        let known = keys(command);
        if let Some(advice) = literal_secret::advice(key, &known) {
            return advice;
        }
        if let Some(table) = elsewhere(key) {
            return format!("`{key}` stands in {table}, not in {}", self.title);
        }
        // The longer ones are no slips: one may be a secret in the wrong place.
        let shown = if key.len() <= 32 { format!("`{key}`") } else { "of that name".to_owned() };
        let near: Vec<_> =
            nearest(key, known.iter().chain(self.tables).copied()).iter().map(|key| format!("`{key}`")).collect();
        if near.is_empty() {
            format!("{} has no key {shown}; it may have: {}", self.title, known.join(", "))
        } else {
            format!("{} has no key {shown}; did you mean {}?", self.title, near.join(" or "))
        }
    }
}

/// What would stand on the command line.
fn words(arg: &Arg, key: &str, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let one = |text: &str| OsString::from(format!("--{key}={text}"));
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(vec![format!("--{key}").into()]),
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err(format!("`{key}` is `true` or `false`")),
        (ArgAction::Append, DeValue::Array(values)) => values
            .iter()
            .map(|value| scalar(value.get_ref()).map(|text| one(&text)))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("`{key}` is a list of strings or numbers")),
        (ArgAction::Append, _) => {
            scalar(value).map(|text| vec![one(&text)]).ok_or_else(|| format!("`{key}` is a string, or a list of them"))
        }
        (_, DeValue::Array(_)) => Err(format!("`{key}` takes one value, not a list")),
        _ => scalar(value).map(|text| vec![one(&text)]).ok_or_else(|| format!("`{key}` is a string or a whole number")),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// The keys that an error names.
fn named<'c>(command: &'c Command, error: &clap::Error) -> Vec<&'c str> {
    let texts = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let find = |text: &String| command.get_arguments().find(|arg| arg.to_string() == *text)?.get_long();
    texts.iter().filter_map(find).collect()
}

/// What is wrong, said of keys and not of flags.
fn said(command: &Command, mut error: clap::Error) -> String {
    hide_secrets(&mut error);
    let mut text = paragraph(&error.to_string());
    for arg in command.get_arguments() {
        if let Some(key) = arg.get_long() {
            text = text.replace(&format!("'{arg}'"), &format!("`{key}`"));
        }
    }
    text
}
