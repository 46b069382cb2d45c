//! `--config`: the settings of a command come from a file in place of its flags.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::config_table::flags;

/// The settings of a command.
#[derive(Debug)]
pub(crate) enum OrFile<T> {
    /// By flags.
    Flags(Box<T>),
    /// In this file.
    File(PathBuf),
}

impl<T> OrFile<T> {
    pub(crate) const fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }
}

/// Written by hand, since what a flag requires is not required where there is a file.
impl<T: Args> FromArgMatches for OrFile<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some(path) = matches.get_one::<PathBuf>(CONFIG) else {
            return T::from_arg_matches(matches).map(|flags| Self::Flags(Box::new(flags)));
        };
        let beside = flags::<T>();
        let is_given = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        match beside.get_arguments().find(is_given).and_then(Arg::get_long) {
            Some(flag) => Err(clap::Error::raw(
                ErrorKind::ArgumentConflict,
                format!("--{flag} cannot be given beside --config: write it as `{flag}` in the file"),
            )),
            None => Ok(Self::File(path.clone())),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Args for OrFile<T> {
    fn augment_args(command: Command) -> Command {
        let required: Vec<_> =
            flags::<T>().get_arguments().filter(|arg| arg.is_required_set()).map(|arg| arg.get_id().clone()).collect();
        let command = required.into_iter().fold(T::augment_args(command), |command, id| {
            command.mut_arg(id, |arg| arg.required(false).required_unless_present(CONFIG))
        });
        let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "File with all settings, those of several sources and endpoints too, in place of these flags; \
             `countersign config check FILE` says what is wrong with it",
        );
        command.arg(config)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

const CONFIG: &str = "config";
