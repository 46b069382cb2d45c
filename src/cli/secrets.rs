//! `--secret-env` and `--secret-file`: where secrets come from.
//!
//! A secret is never an argument itself: arguments can be seen by every user of the machine, and stay in the shell's
//! history. Nothing in here prints one, even where somebody pastes it in the wrong place.

use std::env::{self, VarError};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use countersign::signature::{Keyring, Scheme};
use zeroize::Zeroizing;

use crate::error::CliError;

/// Where the secrets are, the current one first: in the order of the command line, across both flags.
#[derive(Debug)]
pub(crate) struct SecretArgs(Vec<SecretPlace>);

/// Where one secret is.
#[derive(Clone, Debug)]
enum SecretPlace {
    Env { number: usize, name: String },
    File { number: usize, path: PathBuf },
}

impl SecretArgs {
    /// Reads the secrets in the form in which this scheme writes them.
    pub(crate) fn keyring(&self, scheme: &Scheme) -> Result<Keyring, CliError> {
        if self.0.is_empty() {
            return Err(CliError::usage(
                "no secret is given; name a variable with --secret-env NAME or a file with --secret-file PATH",
            ));
        }
        let secrets = self.0.iter().map(|place| {
            let text = place.read()?;
            let secret = scheme.parse_secret(&text);
            let secret = secret.map_err(|error| CliError::usage(format!("{place}: {error}")))?;
            for warning in scheme.secret_format().warnings(&text) {
                tracing::warn!(from = %place, "{warning}");
            }
            Ok(secret)
        });
        let secrets = secrets.collect::<Result<Vec<_>, CliError>>()?;
        Ok(Keyring::from_secrets(secrets)?)
    }
}

impl SecretPlace {
    fn read(&self) -> Result<Zeroizing<String>, CliError> {
        match self {
            Self::Env { name, .. } => match env::var(name) {
                Ok(text) => Ok(Zeroizing::new(text)),
                Err(VarError::NotPresent) => Err(CliError::usage(format!(
                    "{self}: the variable is not set; --secret-env takes the name of a variable, not the secret"
                ))),
                // Not the error's own text: it holds the value.
                Err(VarError::NotUnicode(_)) => Err(CliError::usage(format!("{self}: the variable is not UTF-8"))),
            },
            Self::File { path, .. } => {
                // Room for all of it at the start: a buffer that grows leaves copies behind.
                let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET_FILE_BYTES + 1));
                let file = File::open(path);
                let read = file.and_then(|file| file.take(MAX_SECRET_FILE_BYTES as u64 + 1).read_to_end(&mut bytes));
                read.map_err(|error| {
                    CliError::unreachable(format!("{self}: it cannot be read: {error}; check its path and mode"))
                })?;
                self.text_of(&bytes)
            }
        }
    }

    /// One line break at the end is an editor's doing. Anything else odd is refused, since whether it belongs to the
    /// secret would be a guess.
    fn text_of(&self, bytes: &[u8]) -> Result<Zeroizing<String>, CliError> {
        let refused = |why: &str| Err(CliError::usage(format!("{self}: {why}")));
        if bytes.len() > MAX_SECRET_FILE_BYTES {
            return refused("it is far too long for a secret; is it the right file?");
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return refused("it is not UTF-8; store the secret as text, in one line");
        };
        if text.starts_with('\u{feff}') {
            return refused("it begins with a byte order mark; store it as plain UTF-8");
        }
        let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        Ok(Zeroizing::new(line.unwrap_or(text).to_owned()))
    }
}

/// Names the place, for messages.
impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { name, .. } if is_plainly_a_name(name) => write!(f, "--secret-env {name}"),
            Self::Env { number, .. } => write!(f, "--secret-env number {number}"),
            Self::File { path, .. } if is_plainly_a_path(path) => write!(f, "--secret-file {}", path.display()),
            Self::File { number, .. } => write!(f, "--secret-file number {number}"),
        }
    }
}

/// Written by hand, since a derived one knows the order within each flag only.
impl FromArgMatches for SecretArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = matches.get_many::<String>(ENV).into_iter().flatten().zip(1..);
        let names = names.map(|(name, number)| SecretPlace::Env { number, name: name.clone() });
        let paths = matches.get_many::<PathBuf>(FILE).into_iter().flatten().zip(1..);
        let paths = paths.map(|(path, number)| SecretPlace::File { number, path: path.clone() });
        let mut places: Vec<_> = positions(matches, ENV).zip(names).collect();
        places.extend(positions(matches, FILE).zip(paths));
        places.sort_by_key(|(position, _)| *position);
        Ok(Self(places.into_iter().map(|(_, place)| place).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SecretArgs {
    fn augment_args(command: Command) -> Command {
        let env = Arg::new(ENV).long(ENV).value_name("NAME").value_parser(value_parser!(String)).help(
            "Environment variable that holds a secret, as the provider shows it; repeatable, the current one first",
        );
        let file = Arg::new(FILE).long(FILE).value_name("PATH").value_parser(value_parser!(PathBuf)).help(
            "File that holds a secret, as the provider shows it; repeatable, and a line break at its end is dropped",
        );
        command.arg(env.action(ArgAction::Append)).arg(file.action(ArgAction::Append))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

const ENV: &str = "secret-env";
const FILE: &str = "secret-file";

/// More than any provider's secret, and little enough to read before knowing that it is one.
const MAX_SECRET_FILE_BYTES: usize = 64 * 1024;

fn positions<'a>(matches: &'a ArgMatches, flag: &str) -> impl Iterator<Item = usize> + use<'a> {
    matches.indices_of(flag).into_iter().flatten()
}

/// Whether this can be shown: the name of a variable, and no secret that was given in its place.
fn is_plainly_a_name(name: &str) -> bool {
    let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(upper) && (name.contains('_') || name.len() <= 12)
}

/// The same for the path of a file.
fn is_plainly_a_path(path: &Path) -> bool {
    path.is_file() || path.parent().is_some_and(|parent| parent != Path::new("") && parent.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> SecretArgs {
        let command = SecretArgs::augment_args(Command::new("test").no_binary_name(true));
        SecretArgs::from_arg_matches(&command.try_get_matches_from(arguments).expect("to parse")).expect("to parse")
    }

    #[test]
    fn the_order_on_the_command_line_holds_across_both_flags() {
        let places = parse(&["--secret-file", "/a", "--secret-env=B", "--secret-env", "C", "--secret-file=/d"]).0;
        let names: Vec<_> = places.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["--secret-file /a", "--secret-env B", "--secret-env C", "--secret-file /d"]);
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown_as_the_name_of_a_variable_or_file() {
        for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa/w", "ABCDEF0123456789", "hunter2", "sk_live_1"] {
            let places = parse(&["--secret-env", secret, "--secret-file", secret]).0;
            assert_eq!(places[0].to_string(), "--secret-env number 1");
            assert_eq!(places[1].to_string(), "--secret-file number 1");
        }
        assert_eq!(parse(&["--secret-env", "STRIPE_SECRET"]).0[0].to_string(), "--secret-env STRIPE_SECRET");
    }

    #[test]
    fn one_line_break_at_the_end_of_a_file_is_dropped() {
        let place = SecretPlace::File { number: 1, path: "x".into() };
        let text = |bytes: &[u8]| place.text_of(bytes).map(|text| text.to_string()).ok();
        assert_eq!(text(b"secret\n").as_deref(), Some("secret"));
        assert_eq!(text(b"secret\r\n").as_deref(), Some("secret"));
        assert_eq!(text(b"secret\n\n").as_deref(), Some("secret\n"));
        assert_eq!(text(b"secret\r").as_deref(), Some("secret\r"));
        assert_eq!(text(b"\xef\xbb\xbfsecret"), None);
        assert_eq!(text(b"\xff"), None);
    }
}
