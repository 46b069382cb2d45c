//! How an attempt can end without an answer.

use thiserror::Error;

use super::TargetError;
use super::policy::Refusal;

/// Why there is no answer. Its text is for operators; [`for_tenants`](Self::for_tenants) is for those who chose the URL.
///
/// What happened stays data until [`classify`](super::classify) has read it: no decision depends on a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The connection ended before the answer's head was there.
    #[error("the connection was closed before an answer came ({0})")]
    Closed(String),
    /// No connection could be made.
    #[error("no connection to {address}: {reason}")]
    Connect {
        /// What was dialled last.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The host's name could not be looked up. Nothing was sent.
    #[error("the name {host} could not be looked up: {reason}")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// Something else, from a transport of the application's own.
    #[error("{reason}")]
    Other {
        /// Whether the same message may be delivered later.
        is_transient: bool,
        /// What it was.
        reason: String,
    },
    /// What came back is not HTTP, or has a head that is too large.
    #[error("the answer is no usable HTTP ({0})")]
    Protocol(String),
    /// The policy does not allow it. Nothing was sent.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request cannot be written.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// The URL is none.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// It took too long.
    #[error("it took too long {}", .0.doing())]
    Timeout(Stage),
    /// No encrypted connection could be made; most often the certificate is not valid for the host.
    #[error("no encrypted connection to {host}: {reason}")]
    Tls {
        /// The host of the URL.
        host: String,
        /// What was wrong.
        reason: String,
    },
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Looking up the name.
    Resolve,
    /// Connecting, or waiting for a connection.
    Connect,
    /// Agreeing on encryption.
    Tls,
    /// Sending the request, and waiting for the answer's head.
    Head,
}

impl Failure {
    /// A word for it that stays the same: for logs, metrics, and the log of attempts.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::Connect { .. } => "connect",
            Self::Dns { .. } => "dns",
            Self::Other { .. } => "other",
            Self::Protocol(_) => "protocol",
            Self::Refused(_) => "policy",
            Self::Request(_) => "request",
            Self::Target(_) => "url",
            Self::Timeout(_) => "timeout",
            Self::Tls { .. } => "tls",
        }
    }

    /// What may be shown to whoever chose the URL. It names no address and repeats no message of the system, so that
    /// nobody can look around in our network by adding endpoints.
    #[must_use]
    pub const fn for_tenants(&self) -> &'static str {
        match self {
            Self::Closed(_) => "the connection was closed before an answer came",
            Self::Connect { .. } => "no connection could be made",
            Self::Dns { .. } => "the host's name could not be looked up",
            Self::Other { .. } => "the message could not be delivered",
            Self::Protocol(_) => "the answer is no usable HTTP",
            Self::Refused(refusal) => refusal.for_tenants(),
            Self::Request(_) => "the request cannot be sent",
            Self::Target(_) => "the URL cannot be used",
            Self::Timeout(Stage::Resolve) => "the host's name could not be looked up",
            Self::Timeout(Stage::Connect | Stage::Tls) => "no connection could be made in time",
            Self::Timeout(Stage::Head) => "there was no answer in time",
            Self::Tls { .. } => "no encrypted connection could be made; is the certificate valid for the host?",
        }
    }
}

impl Stage {
    const fn doing(self) -> &'static str {
        match self {
            Self::Resolve => "to look up the host's name",
            Self::Connect => "to connect",
            Self::Tls => "to agree on encryption",
            Self::Head => "to get an answer",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::send::Policy;

    #[test]
    fn c127_what_tenants_are_told_holds_nothing_from_inside() {
        let target = "https://hooks.example/T0KEN".parse().expect("a target");
        let address: IpAddr = "10.1.2.3".parse().expect("an address");
        let refusal = Policy::new().check_address(&target, address).expect_err("private");
        let inside = "10.1.2.3";
        for failure in [
            Failure::Closed(inside.into()),
            Failure::Connect { address: inside.into(), reason: inside.into() },
            Failure::Dns { host: inside.into(), reason: inside.into() },
            Failure::Other { is_transient: true, reason: inside.into() },
            Failure::Protocol(inside.into()),
            Failure::Refused(refusal),
            Failure::Request(inside.into()),
            Failure::Tls { host: inside.into(), reason: inside.into() },
        ] {
            assert!(failure.to_string().contains(inside), "operators get it all: {failure}");
            assert!(!failure.for_tenants().contains(char::is_numeric), "{}", failure.for_tenants());
        }
    }
}
