//! The form of a payload, its versions, and what to do with one that is older or newer.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{EventId, Name};

/// What sender and receiver have agreed on about events of one type.
///
/// A change that old readers cannot read is a new version. Teach the readers first: they lift older payloads
/// ([`upcast`](Self::upcast)), so that one of either version is read by the new ones; then let the senders write it. Old
/// readers that still run meanwhile do with it what [`NEWER`](Self::NEWER) says.
pub trait Contract: Serialize + DeserializeOwned {
    /// The type of these events: `order.paid`.
    const TYPE: &'static str;

    /// The version that is written, and that is read without being lifted. From 1.
    const VERSION: u32 = 1;

    /// What happens to an event of a newer version.
    const NEWER: Newer = Newer::Transient;

    /// Lifts a payload of `version` to the next one. `None`, the default, where nobody knows how: a dead letter.
    #[must_use]
    fn upcast(version: u32, data: Value) -> Option<Value> {
        let _ = (version, data);
        None
    }
}

/// What happens to an event of a version that is newer than the one that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Newer {
    /// It is a dead letter: this reader will never know more.
    DeadLetter,
    /// It is read as if it were of the version that is known. For contracts that only ever add.
    Pass,
    /// It is tried again later, by a reader that knows it: during a rolling change there are some already. The default.
    Transient,
}

/// Sender and receiver do not agree on an event.
///
/// It becomes an [`Outcome`](crate::receive::Outcome): a dead letter with this text as its reason, or, for a newer version
/// whose contract says so, one that is tried again. The text names types, versions and places, and never holds the payload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContractError {
    /// It is newer than what is known here.
    #[error("version {found} of the payload is newer than {known}, the newest that is known here")]
    Newer {
        /// Its version.
        found: u32,
        /// The newest that is known.
        known: u32,
        /// What its contract says about that.
        policy: Newer,
    },
    /// It is older, and nobody knows how to lift it.
    #[error("version {0} of the payload is not known any more")]
    Older(u32),
    /// The envelope has one id and the delivery another.
    #[error("the envelope is that of another event: {0}")]
    OtherId(EventId),
    /// Nobody here handles this type.
    #[error("events of type {0} are not handled here")]
    UnknownType(Name),
    /// It is no JSON, or of another shape.
    #[error("{what} cannot be read: noticed at line {line} column {column}")]
    Unreadable {
        /// What was being read.
        what: &'static str,
        /// The line, from 1, where it was noticed.
        line: usize,
        /// The column in it, in bytes.
        column: usize,
    },
}

impl ContractError {
    /// Whether somebody else, who knows more, may be able to read it.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Newer { policy: Newer::Transient, .. })
    }

    /// The text of the parser is left out: it may quote the payload.
    pub(super) fn unreadable(what: &'static str, error: &serde_json::Error) -> Self {
        Self::Unreadable { what, line: error.line(), column: error.column() }
    }
}

/// Reads a payload of this version.
pub(super) fn read<T: Contract>(version: u32, data: &RawValue) -> Result<T, ContractError> {
    let unreadable = |error| ContractError::unreadable("the payload", &error);
    if version > T::VERSION && T::NEWER != Newer::Pass {
        return Err(ContractError::Newer { found: version, known: T::VERSION, policy: T::NEWER });
    }
    if version >= T::VERSION {
        return serde_json::from_str(data.get()).map_err(unreadable);
    }
    let mut lifted: Value = serde_json::from_str(data.get()).map_err(unreadable)?;
    for version in version..T::VERSION {
        lifted = T::upcast(version, lifted).ok_or(ContractError::Older(version))?;
    }
    T::deserialize(lifted).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::Envelope;
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paid {
        cents: u64,
    }

    impl Contract for Paid {
        const TYPE: &'static str = "order.paid";
        const VERSION: u32 = 3;

        fn upcast(version: u32, data: Value) -> Option<Value> {
            match version {
                1 => Some(serde_json::json!({ "euros": data.as_u64()? })),
                2 => Some(serde_json::json!({ "cents": data["euros"].as_u64()? * 100 })),
                _ => None,
            }
        }
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Open(Paid);

    impl Contract for Open {
        const TYPE: &'static str = "order.paid";
        const NEWER: Newer = Newer::Pass;
    }

    fn envelope(version: u32, data: &str) -> Envelope {
        let text = format!(
            r#"{{"id":"msg_1","type":"order.paid","schema_version":{version},"occurred_at":"2026-01-31T12:00:00Z","data":{data}}}"#
        );
        Envelope::from_json(text.as_bytes()).expect("an envelope")
    }

    #[test]
    fn an_older_payload_is_lifted_step_by_step() {
        for (version, data) in [(1, "3"), (2, r#"{"euros":3}"#), (3, r#"{"cents":300}"#)] {
            let read = envelope(version, data).read::<Paid>().expect("it is read");
            assert_eq!((read.data, read.schema_version), (Paid { cents: 300 }, 3), "{version}");
        }
        assert_eq!(envelope(0, "3").read::<Paid>().expect_err("too old"), ContractError::Older(0));
        assert_eq!(envelope(1, "[]").read::<Paid>().expect_err("no number"), ContractError::Older(1));
    }

    #[test]
    fn a_newer_payload_is_what_its_contract_says() {
        let newer = envelope(4, r#"{"cents":300,"tip":1}"#);
        let error = newer.read::<Paid>().expect_err("newer");
        assert!(error.is_transient(), "{error}");
        assert_eq!(newer.read::<Open>().expect("it only adds").data.0, Paid { cents: 300 });
    }

    #[test]
    fn what_cannot_be_read_is_told_without_what_it_holds() {
        let error = envelope(3, r#"{"cents":"4111 1111"}"#).read::<Paid>().expect_err("no number");
        assert!(matches!(error, ContractError::Unreadable { what: "the payload", .. }));
        assert!(!error.to_string().contains("4111"));
        assert!(matches!(Envelope::from_json(b"{}"), Err(ContractError::Unreadable { what: "the envelope", .. })));
        let other = Envelope { event_type: Name::new("order.lost").expect("a name"), ..envelope(3, "{}") };
        assert_eq!(other.read::<Paid>().expect_err("another type"), other.unknown_type());
    }
}
