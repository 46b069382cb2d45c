//! Where a secret is, outside the store: an environment variable or a file, read when it is needed.

use std::env::{self, VarError};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use zeroize::Zeroizing;

/// A place that holds one secret, as text. The store of an endpoint keeps this, and never the secret.
///
/// ```
/// use countersign::send::SecretPlace;
///
/// let place = SecretPlace::parse("file:/run/secrets/shop").expect("a reference");
/// assert_eq!(place, SecretPlace::File("/run/secrets/shop".into()));
/// assert_eq!(place.to_string(), "file:/run/secrets/shop");
/// assert_eq!(SecretPlace::parse("vault:shop"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretPlace {
    /// An environment variable of this process: `env:NAME`.
    Env(String),
    /// A file: `file:PATH`. A line break at its end is dropped.
    File(PathBuf),
}

/// Why there is no secret where it should be. The text holds nothing of what was found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The file begins with a byte order mark.
    #[error("it begins with a byte order mark; store it as plain UTF-8")]
    ByteOrderMark,
    /// The path leads to a directory, a pipe or a device. Reading one may never end.
    #[error("it is not a regular file")]
    NotAFile,
    /// The variable is not set.
    #[error("the variable is not set")]
    NotSet,
    /// The variable or file is not UTF-8.
    #[error("it is not UTF-8; store the secret as text, in one line")]
    NotText,
    /// The file is longer than 64 KiB.
    #[error("it is far too long for a secret; is it the right file?")]
    TooLong,
    /// The file was not read in time. It may lie on a network that went away.
    #[error("it was not read within {0:?}")]
    TooSlow(Duration),
    /// The file is not there, or may not be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
}

impl SecretPlace {
    /// Reads `env:NAME` and `file:PATH`. `None` for anything else, which may be the secret itself: do not show it.
    #[must_use]
    pub fn parse(reference: &str) -> Option<Self> {
        match reference.split_once(':')? {
            ("env", name) => Some(Self::Env(name.to_owned())),
            ("file", path) => Some(Self::File(path.into())),
            _ => None,
        }
    }

    /// Reads the secret's text and hands it over. Its memory is wiped afterwards. A file may lie on a network: this can
    /// block.
    ///
    /// # Errors
    ///
    /// [`PlaceError`] where there is none. Whether a text is a secret of some scheme is for `parse` to say.
    pub fn read<T>(&self, parse: impl FnOnce(&str) -> T) -> Result<T, PlaceError> {
        let text = match self {
            Self::Env(name) => env::var(name).map(Zeroizing::new).map_err(|error| match error {
                VarError::NotPresent => PlaceError::NotSet,
                // Not the error itself: it holds the value.
                VarError::NotUnicode(_) => PlaceError::NotText,
            })?,
            Self::File(path) => file_text(path)?,
        };
        Ok(parse(&text))
    }
}

impl PlaceError {
    /// The same, for somebody else.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::ByteOrderMark => Self::ByteOrderMark,
            Self::NotAFile => Self::NotAFile,
            Self::NotSet => Self::NotSet,
            Self::NotText => Self::NotText,
            Self::TooLong => Self::TooLong,
            Self::TooSlow(span) => Self::TooSlow(*span),
            Self::Unreadable(error) => Self::Unreadable(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            }),
        }
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// More than any provider's secret, and little enough to read before knowing that it is one.
const MOST_BYTES: usize = 64 * 1024;

/// The secret's text in a file.
pub(super) fn file_text(path: &Path) -> Result<Zeroizing<String>, PlaceError> {
    line(&contents(path)?)
}

fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, PlaceError> {
    // Before it is opened: that alone waits for ever at a pipe, and may do something to a device.
    if !fs::metadata(path).map_err(PlaceError::Unreadable)?.is_file() {
        return Err(PlaceError::NotAFile);
    }
    // Room for all of it at the start: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 1));
    let file = File::open(path).map_err(PlaceError::Unreadable)?;
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(PlaceError::Unreadable)?;
    Ok(bytes)
}

/// One line break at the end is an editor's doing. Anything else odd is refused, since whether it belongs to the secret
/// would be a guess.
fn line(bytes: &[u8]) -> Result<Zeroizing<String>, PlaceError> {
    if bytes.len() > MOST_BYTES {
        return Err(PlaceError::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_invalid| PlaceError::NotText)?;
    if text.starts_with('\u{feff}') {
        return Err(PlaceError::ByteOrderMark);
    }
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(Zeroizing::new(line.unwrap_or(text).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_of_a_file_is_dropped() {
        let text = |bytes: &[u8]| line(bytes).map(|text| text.to_string()).ok();
        assert_eq!(text(b"secret\n").as_deref(), Some("secret"));
        assert_eq!(text(b"secret\r\n").as_deref(), Some("secret"));
        assert_eq!(text(b"secret\n\n").as_deref(), Some("secret\n"));
        assert_eq!(text(b"secret\r").as_deref(), Some("secret\r"));
        assert!(matches!(line(b"\xef\xbb\xbfsecret"), Err(PlaceError::ByteOrderMark)));
        assert!(matches!(line(b"\xff"), Err(PlaceError::NotText)));
        assert!(matches!(line(&[b'x'; MOST_BYTES + 1]), Err(PlaceError::TooLong)));
    }

    #[test]
    fn a_file_that_is_not_there_and_a_variable_that_is_not_set_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let absent = SecretPlace::File(folder.path().join("absent"));
        assert!(matches!(absent.read(str::len), Err(PlaceError::Unreadable(_))));
        let not_a_file = SecretPlace::File(folder.path().to_owned());
        assert!(matches!(not_a_file.read(str::len), Err(PlaceError::NotAFile)));
        let unset = SecretPlace::Env("COUNTERSIGN_NO_SUCH_VARIABLE".to_owned());
        assert!(matches!(unset.read(str::len), Err(PlaceError::NotSet)));
    }
}
