//! What is wrong with settings: all of it, each with where it was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::Printable;

/// Settings, and where they were written.
#[derive(Debug)]
pub(crate) struct Written<T> {
    pub(crate) settings: T,
    pub(crate) place: Place,
}

/// Where settings were written: by flags, or in a table of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// What the table is called, without the name of its kind: that of a source or an endpoint.
    pub(crate) name: Option<String>,
    /// The line of the table's head, where there is a file.
    pub(crate) line: Option<usize>,
    /// The lines of its keys, those left out that were refused.
    pub(crate) keys: BTreeMap<String, usize>,
    /// Whether some were: what is wrong for want of them was said there.
    pub(crate) is_partial: bool,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    file: Option<PathBuf>,
    found: Vec<Problem>,
}

/// One thing that cannot work, in words that also say what to write instead.
#[derive(Debug)]
struct Problem {
    line: Option<usize>,
    error: CliError,
}

impl<T> Written<T> {
    /// Given on the command line.
    pub(crate) fn by_flags(settings: T) -> Self {
        Self { settings, place: Place::default() }
    }
}

impl Problems {
    /// In a file; `None`: on the command line.
    pub(crate) fn of(file: Option<&Path>) -> Self {
        Self { file: file.map(Path::to_owned), found: Vec::new() }
    }

    /// What was wanted, or notes why there is none.
    pub(crate) fn take<T>(&mut self, place: &Place, result: Result<T, CliError>) -> Option<T> {
        result.map_err(|error| self.note(place, error)).ok()
    }

    /// The same for what can be wrong in several ways.
    pub(crate) fn take_all<T>(&mut self, place: &Place, result: Result<T, Vec<CliError>>) -> Option<T> {
        result.map_err(|errors| errors.into_iter().for_each(|error| self.note(place, error))).ok()
    }

    /// Notes what was said about a flag: in a file it is about the key of the same name.
    pub(crate) fn note(&mut self, place: &Place, error: CliError) {
        if place.line.is_none() {
            return self.found.push(Problem { line: None, error });
        }
        let text = error.to_string();
        let flags = text.split("--").skip(1);
        let keys =
            flags.filter_map(|rest| rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next());
        let of_key = keys.into_iter().find_map(|key| place.keys.get(key)).copied();
        if of_key.is_none() && place.is_partial {
            return;
        }
        let line = of_key.or(place.line);
        let told = match &place.name {
            Some(name) => format!("`{name}`: {}", of_keys(&text)),
            None => of_keys(&text),
        };
        let error = match error {
            CliError::Unreachable(_) => CliError::Unreachable(told),
            CliError::Usage(_) | CliError::No(_) => CliError::Usage(told),
        };
        self.found.push(Problem { line, error });
    }

    /// Notes what is wrong at a line.
    pub(crate) fn note_at(&mut self, line: usize, text: impl Into<String>) {
        self.found.push(Problem { line: Some(line), error: CliError::usage(text) });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds what was found elsewhere.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.found.append(&mut other.found);
    }

    /// Each as an object, in the order of the file.
    pub(crate) fn as_json(&mut self) -> Value {
        self.in_order();
        let one = |problem: &Problem| json!({ "line": problem.line, "problem": problem.error.to_string() });
        self.found.iter().map(one).collect()
    }

    /// Each on a line, in the order of the file.
    pub(crate) fn as_text(&mut self) -> String {
        self.in_order();
        self.found.iter().map(|problem| format!("{}\n", Printable(&problem.told()))).collect()
    }

    /// Fails where something was found: with all of it, in one line.
    pub(crate) fn end(mut self) -> Result<(), CliError> {
        self.in_order();
        let Some(first) = self.found.first() else { return Ok(()) };
        let told = match &self.file {
            None => first.error.to_string(),
            Some(file) => {
                let all: Vec<_> = self.found.iter().map(Problem::told).collect();
                let (count, s) = (all.len(), if all.len() == 1 { "" } else { "s" });
                format!("{}: {count} problem{s}: {}", file.display(), all.join("; "))
            }
        };
        // What was written wrongly is mended first, whatever could not be reached.
        Err(match self.found.iter().all(|problem| matches!(problem.error, CliError::Unreachable(_))) {
            true => CliError::Unreachable(told),
            false if self.file.is_none() && matches!(first.error, CliError::Unreachable(_)) => {
                CliError::Unreachable(told)
            }
            false => CliError::Usage(told),
        })
    }

    fn in_order(&mut self) {
        self.found.sort_by_key(|problem| problem.line);
    }
}

impl Problem {
    fn told(&self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.error),
            None => self.error.to_string(),
        }
    }
}

/// What was said of flags, said of keys: `--upstream` is `upstream`.
fn of_keys(text: &str) -> String {
    let mut words = text.split(' ').map(|word| word.strip_prefix("--").unwrap_or(word));
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |told, word| told + " " + word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_flag_is_said_of_the_key_at_its_line() {
        let place = Place {
            name: Some("stripe".into()),
            line: Some(3),
            keys: [("upstream".to_owned(), 5)].into(),
            is_partial: false,
        };
        let mut problems = Problems::of(Some(Path::new("a.toml")));
        problems.note(&place, CliError::usage("--upstream: it has no host--at all"));
        problems.note(&place, CliError::unreachable("no secret is given"));
        let error = problems.end().expect_err("two problems");
        assert!(matches!(error, CliError::Usage(_)));
        assert_eq!(
            error.to_string(),
            "a.toml: 2 problems: line 3: `stripe`: no secret is given; line 5: `stripe`: upstream: it has no host--at all"
        );
    }
}
