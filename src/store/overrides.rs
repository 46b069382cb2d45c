//! What the statuses of one endpoint mean, where that is not what they usually do.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;
use thiserror::Error;

/// What one endpoint's statuses mean, where that differs: an endpoint behind a gateway that answers 404 while it
/// restarts, say. A status on its own goes before its class; of two for the same, the first one holds.
///
/// As text, statuses or classes and what they mean:
///
/// ```
/// use countersign::send::Overrides;
///
/// let overrides: Overrides = "404=retry, 5xx=permanent, 501=gone".parse()?;
/// assert_eq!(overrides.to_string(), "404=retry,5xx=permanent,501=gone");
/// # Ok::<(), countersign::send::OverrideError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides(Vec<(Statuses, Override)>);

/// What a status is to mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Override {
    /// The receiver has it.
    Delivered,
    /// The endpoint is gone.
    Gone,
    /// The receiver will not take it.
    Permanent,
    /// It may be delivered later.
    Retry,
}

/// A text that says no overrides.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no override; write a status or a class and delivered, gone, permanent or retry, like 404=retry or 5xx=permanent"
)]
pub struct OverrideError(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statuses {
    One(StatusCode),
    /// By its first digit.
    Class(u16),
}

impl Overrides {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads pairs of a status or class and its meaning, as they are kept with an endpoint.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] names the first pair that says nothing.
    pub fn from_pairs<A: AsRef<str>, B: AsRef<str>>(
        pairs: impl IntoIterator<Item = (A, B)>,
    ) -> Result<Self, OverrideError> {
        let pairs = pairs.into_iter().map(|(statuses, meaning)| one(statuses.as_ref(), meaning.as_ref()));
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// What is said of this status.
    pub(crate) fn find(&self, status: StatusCode) -> Option<Override> {
        let find = |wanted| self.0.iter().find(|(statuses, _)| *statuses == wanted).map(|(_, meaning)| *meaning);
        find(Statuses::One(status)).or_else(|| find(Statuses::Class(status.as_u16() / 100)))
    }
}

impl FromStr for Overrides {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let (statuses, meaning) = part.split_once('=').ok_or_else(|| OverrideError(part.to_owned()))?;
            one(statuses.trim(), meaning.trim())
        };
        parts.map(pair).collect::<Result<_, _>>().map(Self)
    }
}

fn one(statuses: &str, meaning: &str) -> Result<(Statuses, Override), OverrideError> {
    let refused = || OverrideError(format!("{statuses}={meaning}"));
    let statuses = match statuses.as_bytes() {
        [digit @ b'1'..=b'9', b'x', b'x'] => Statuses::Class(u16::from(digit - b'0')),
        status => Statuses::One(StatusCode::from_bytes(status).map_err(|_invalid| refused())?),
    };
    let meaning = match meaning {
        "delivered" => Override::Delivered,
        "gone" => Override::Gone,
        "permanent" => Override::Permanent,
        "retry" => Override::Retry,
        _ => return Err(refused()),
    };
    Ok((statuses, meaning))
}

impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (statuses, meaning)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match statuses {
                Statuses::One(status) => f.write_str(status.as_str())?,
                Statuses::Class(digit) => write!(f, "{digit}xx")?,
            }
            f.write_str(match meaning {
                Override::Delivered => "=delivered",
                Override::Gone => "=gone",
                Override::Permanent => "=permanent",
                Override::Retry => "=retry",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_read_back_from_their_text() {
        for text in ["", "404=retry", "2xx=permanent,410=delivered,5xx=gone"] {
            let overrides = text.parse::<Overrides>().expect(text);
            assert_eq!(overrides.to_string(), text);
            let pairs = text.split(',').filter_map(|part| part.split_once('='));
            assert_eq!(Overrides::from_pairs(pairs), Ok(overrides));
        }
        for text in
            ["404", "404=", "=retry", "40=retry", "0xx=retry", "4xX=retry", "404=Retry", "099=retry", "1000=retry"]
        {
            assert!(text.parse::<Overrides>().is_err(), "{text}");
        }
    }
}
