//! `--secret-env` and `--secret-file`: where secrets come from.
//!
//! A secret is never an argument itself: arguments can be seen by every user of the machine, and stay in the shell's
//! history. Nothing in here prints one, even where somebody pastes it in the wrong place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use countersign::secret::SecretError;
use countersign::send::{PlaceError, SecretPlace};
use countersign::signature::{Keyring, Scheme};
use countersign::{Secret, SecretFormat};
use zeroize::Zeroizing;

use crate::error::CliError;

/// Where the secrets are, the current one first: in the order of the command line, across both flags.
#[derive(Debug)]
pub(crate) struct SecretArgs(Vec<GivenPlace>);

/// Where the token is that some providers send along with their challenge.
#[derive(Args, Debug)]
pub(crate) struct VerifyTokenArgs {
    /// Environment variable that holds the verify token, for providers that ask for one (Meta)
    #[arg(long, value_name = "NAME", conflicts_with = "verify_token_file")]
    verify_token_env: Option<String>,
    /// File that holds it
    #[arg(long, value_name = "PATH")]
    verify_token_file: Option<PathBuf>,
}

/// Where one secret is, and which flag said so.
#[derive(Clone, Debug)]
struct GivenPlace {
    flag: &'static str,
    number: usize,
    place: SecretPlace,
}

impl VerifyTokenArgs {
    /// Reads the token, if one is given.
    pub(crate) fn token(&self) -> Result<Option<Secret>, CliError> {
        let (env, file) = (self.verify_token_env.as_ref(), self.verify_token_file.as_ref());
        token_at(["verify-token-env", "verify-token-file"], env, file, |text| SecretFormat::Text.parse(text))
    }
}

/// Reads what one of two flags says, where either is given.
pub(crate) fn token_at<T>(
    flags: [&'static str; 2],
    env: Option<&String>,
    file: Option<&PathBuf>,
    parse: impl FnOnce(&str) -> Result<T, SecretError>,
) -> Result<Option<T>, CliError> {
    let env = env.map(|variable| GivenPlace::new(flags[0], 1, SecretPlace::Env(variable.clone())));
    let file = || file.map(|path| GivenPlace::new(flags[1], 1, SecretPlace::File(path.clone())));
    env.or_else(file).map(|place| place.read(parse)).transpose()
}

impl SecretArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These, with one more file in front of them.
    pub(crate) fn with_file(&self, path: &Path) -> Self {
        let file = GivenPlace::new("hook-secret-file", 1, SecretPlace::File(path.to_owned()));
        Self(std::iter::once(file).chain(self.0.iter().cloned()).collect())
    }

    /// Reads the secrets in the form in which this scheme writes them.
    pub(crate) fn keyring(&self, scheme: &Scheme) -> Result<Keyring, CliError> {
        if self.0.is_empty() {
            return Err(CliError::usage(
                "no secret is given; name a variable with --secret-env NAME or a file with --secret-file PATH",
            ));
        }
        let secrets = self.0.iter().map(|place| place.secret(scheme)).collect::<Result<Vec<_>, CliError>>()?;
        Ok(Keyring::from_secrets(secrets)?)
    }
}

impl SecretArgs {
    /// What a store may keep of them: `env:NAME` and `file:PATH`, the path from the root. One that can be read here is
    /// checked; it need not be, since another process will use it.
    pub(crate) fn references(&self, scheme: &Scheme) -> Result<Vec<String>, CliError> {
        if self.0.is_empty() {
            return Err(CliError::usage(
                "no secret is given; name a variable with --secret-env NAME or a file with --secret-file PATH",
            ));
        }
        let references = self.0.iter().map(|place| {
            match place.text() {
                Ok(_) => drop(place.secret(scheme)?),
                // It would be stored as a name, and shown.
                Err(error) if !place.is_plain() => return Err(place.unread(error)),
                Err(error) => tracing::warn!("{}; whatever dispatches must find it there", place.unread(error)),
            }
            place.reference()
        });
        references.collect()
    }
}

impl GivenPlace {
    const fn new(flag: &'static str, number: usize, place: SecretPlace) -> Self {
        Self { flag, number, place }
    }

    /// Whether it can be shown. Somebody may have given the secret where its place was asked for.
    fn is_plain(&self) -> bool {
        match &self.place {
            SecretPlace::Env(name) => is_plainly_a_name(name),
            SecretPlace::File(path) => is_plainly_a_path(path),
            _ => false,
        }
    }

    fn reference(&self) -> Result<String, CliError> {
        let place = match &self.place {
            SecretPlace::File(path) => {
                SecretPlace::File(std::path::absolute(path).unwrap_or_else(|_unknown| path.clone()))
            }
            other => other.clone(),
        };
        if let SecretPlace::File(path) = &place
            && path.to_str().is_none()
        {
            return Err(CliError::usage(format!("{self}: its path is not UTF-8")));
        }
        Ok(place.to_string())
    }

    /// Reads the secret in the form in which this scheme writes it, and warns where it is a weak one.
    fn secret(&self, scheme: &Scheme) -> Result<Secret, CliError> {
        self.read(|text| {
            let secret = scheme.parse_secret(text)?;
            for warning in scheme.secret_format().warnings(text) {
                tracing::warn!(from = %self, "{warning}");
            }
            Ok(secret)
        })
    }

    fn read<T>(&self, parse: impl FnOnce(&str) -> Result<T, SecretError>) -> Result<T, CliError> {
        let text = self.text().map_err(|error| self.unread(error))?;
        parse(&text).map_err(|error| CliError::usage(format!("{self}: {error}")))
    }

    /// What is there, if it can be read in time: a file may lie on a network that went away.
    fn text(&self) -> Result<Zeroizing<String>, PlaceError> {
        let (place, (told, heard)) = (self.place.clone(), mpsc::sync_channel(1));
        // Nobody waits for its end, and the process ends without it.
        let reader = thread::Builder::new().spawn(move || {
            let _ = told.send(place.read(|text| Zeroizing::new(text.to_owned())));
        });
        reader.map_err(PlaceError::Unreadable)?;
        heard.recv_timeout(PATIENCE).unwrap_or(Err(PlaceError::TooSlow(PATIENCE)))
    }

    fn unread(&self, error: PlaceError) -> CliError {
        match error {
            PlaceError::NotSet => {
                CliError::usage(format!("{self}: {error}; the flag takes the name of a variable, not the secret"))
            }
            // Whether its path can be shown is asked of the same file system.
            PlaceError::TooSlow(_) => CliError::unreachable(format!("--{} number {}: {error}", self.flag, self.number)),
            PlaceError::NotAFile | PlaceError::Unreadable(_) => {
                CliError::unreachable(format!("{self}: {error}; check its path and mode"))
            }
            other => CliError::usage(format!("{self}: {other}")),
        }
    }
}

/// Names the place, for messages.
impl fmt::Display for GivenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, number, place } = self;
        match place {
            SecretPlace::Env(name) if self.is_plain() => write!(f, "--{flag} {name}"),
            SecretPlace::File(path) if self.is_plain() => write!(f, "--{flag} {}", path.display()),
            _ => write!(f, "--{flag} number {number}"),
        }
    }
}

/// Written by hand, since a derived one knows the order within each flag only.
impl FromArgMatches for SecretArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = matches.get_many::<String>(ENV).into_iter().flatten().zip(1..);
        let names = names.map(|(name, number)| GivenPlace::new(ENV, number, SecretPlace::Env(name.clone())));
        let paths = matches.get_many::<PathBuf>(FILE).into_iter().flatten().zip(1..);
        let paths = paths.map(|(path, number)| GivenPlace::new(FILE, number, SecretPlace::File(path.clone())));
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

/// How long a secret may take to be read.
const PATIENCE: Duration = Duration::from_secs(3);

const ENV: &str = "secret-env";
const FILE: &str = "secret-file";

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
}
