//! How a command ends when it does not end well: one line on stderr, and an exit status that scripts can rely on.

use std::process::ExitCode;

use countersign::ConfigError;
use countersign::store::StoreError;
use thiserror::Error;

/// Why a command did not end in 0. The text says what happened and how to mend it; it never holds a secret.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The command did its work, and the answer is no.
    #[error("{0}")]
    No(String),
    /// The command was called or configured in a way that cannot work.
    #[error("{0}")]
    Usage(String),
    /// A store, a file or the network could not be reached.
    #[error("{0}")]
    Unreachable(String),
}

impl CliError {
    pub(crate) fn no(text: impl Into<String>) -> Self {
        Self::No(text.into())
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn unreachable(text: impl Into<String>) -> Self {
        Self::Unreachable(text.into())
    }

    /// The same about the value of this flag.
    pub(crate) fn of(self, flag: &str) -> Self {
        let about = |text: String| format!("{flag}: {text}");
        match self {
            Self::No(text) => Self::No(about(text)),
            Self::Usage(text) => Self::Usage(about(text)),
            Self::Unreachable(text) => Self::Unreachable(about(text)),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::No(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::Unreachable(_) => ExitCode::from(3),
        }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// A schema that does not fit is put right by a setting or a command, so it counts as configuration; what no store would
/// take is wrong usage.
impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Config(_) | StoreError::Rejected(_) | StoreError::Schema(_) => Self::Usage(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}
