//! What can be wrong: with a request, with a message to sign, with a configuration.

use std::time::Duration;

use http::HeaderName;
use thiserror::Error;

use crate::event::NameError;
use crate::secret::SecretError;

/// Why a request was refused.
///
/// For logs and metrics. The sender of the request sees one constant answer for all of these: a difference would tell
/// a forger how far it got. None of them holds a value that the request carried.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A header that the scheme needs is not there.
    #[error("the header `{0}` is missing")]
    MissingHeader(HeaderName),
    /// A header that may stand once stands twice. Which one counts would be a guess, and a proxy may guess otherwise.
    #[error("the header `{0}` appears more than once")]
    DuplicateHeader(HeaderName),
    /// A header cannot be read.
    #[error("the header `{header}` is malformed: {fault}")]
    Malformed {
        /// Which header.
        header: HeaderName,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The body, which carries the signature or the timestamp, cannot be read.
    #[error("the body is malformed: {0}")]
    MalformedBody(&'static str),
    /// The signature is right, and the id that came with it cannot be kept.
    #[error("the event's id is malformed: {0}")]
    InvalidId(NameError),
    /// No signature matches any live secret. Either the secret is another one, or the body is not the one that was
    /// signed.
    #[error("no signature matches: {tried} secret(s) tried; the secret is a different one or the body was changed")]
    Mismatch {
        /// How many secrets were tried.
        tried: usize,
    },
    /// The signature is right, and the request is older than the window allows.
    #[error("the signature is right, but the request is {} s old", age.as_secs())]
    TooOld {
        /// How old it is.
        age: Duration,
    },
    /// The signature is right, and the request's timestamp lies further ahead than the window allows.
    #[error("the signature is right, but the request is dated {} s ahead; is this machine's clock right?", ahead.as_secs())]
    TooNew {
        /// How far ahead it lies.
        ahead: Duration,
    },
    /// The request asks for something that this scheme does not do.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl VerifyError {
    /// A short, stable name, for metrics and machine-readable output.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::MissingHeader(_) => "missing_header",
            Self::DuplicateHeader(_) => "duplicate_header",
            Self::Malformed { .. } | Self::MalformedBody(_) | Self::InvalidId(_) => "malformed",
            Self::Mismatch { .. } => "mismatch",
            Self::TooOld { .. } => "too_old",
            Self::TooNew { .. } => "too_new",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Whether the signature was right and only the time was not.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::TooOld { .. } | Self::TooNew { .. })
    }
}

/// Why a message cannot be signed. A receiver would refuse each of these.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignError {
    /// The scheme signs an id, and the message has none.
    #[error("the message has no id, and the scheme signs one")]
    MissingId,
    /// The id cannot be kept by a receiver, or not be sent in a header.
    #[error("the message's id is not allowed: {0}")]
    InvalidId(NameError),
    /// The id holds the separator of the signed text, so that one signature would fit two messages.
    #[error("the message's id holds `{0}`, which separates the parts of the signed text")]
    SeparatorInId(char),
    /// The id has a space at one of its ends, or a character outside ASCII: a header cannot carry it.
    #[error("the message's id has a space at its ends or a character outside ASCII; a header cannot carry it")]
    IdNotForHeader,
    /// The timestamp lies before 1970.
    #[error("the message's timestamp lies before 1970")]
    NegativeTimestamp,
    /// The timestamp lies so far ahead that the scheme's dates cannot say it.
    #[error("the message's timestamp is too late to be written as a date")]
    TimestampTooLate,
    /// Every secret has expired.
    #[error("every secret has expired at the message's timestamp")]
    NoLiveSecret,
    /// A value cannot be sent in this header.
    #[error("the value for the header `{0}` holds a control character, a character outside ASCII or outer spaces")]
    InvalidHeader(HeaderName),
    /// The scheme signs a header that a message has no value for.
    #[error("the scheme signs the header `{0}`, which a message cannot carry")]
    UnknownHeader(HeaderName),
    /// The key is the public half of a pair.
    #[error("a public key cannot sign; give the signer the private one")]
    PublicKeyOnly,
    /// The secret, which is sent along, cannot stand in a header.
    #[error("the secret is no text that a header can carry")]
    SecretNotForHeader,
    /// The signature stands inside the body, which is the provider's own to write.
    #[error("the scheme carries its signature inside the body; only the provider writes that")]
    InBody,
    /// The body is not in the form that the scheme signs.
    #[error("the body cannot be signed: {0}")]
    Body(&'static str),
    /// The scheme signs the URL, and the message has none.
    #[error("the message has no URL, and the scheme signs it")]
    MissingUrl,
}

/// What is wrong with a configuration. Found when a part is built, never later.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no secret, or every one has expired. Nothing could ever be verified with it.
    #[error("there is no live secret; give one that has not expired")]
    NoLiveSecret,
    /// More secrets than are tried on a request.
    #[error("{0} secrets are given and {max} are allowed; retire the oldest ones", max = super::MAX_SECRETS)]
    TooManySecrets(usize),
    /// A secret cannot be used with the scheme's algorithm.
    #[error("the secret is no key for {0}; read it with the scheme's own `parse_secret`")]
    KeyOfOtherKind(super::Algorithm),
    /// A secret is not usable.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// An option of the scheme `hmac` is missing or not allowed.
    #[error("option `{option}`: {problem}")]
    SchemeOption {
        /// Which option.
        option: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },
    /// A delivery that waits for another one cannot be answered as if it had succeeded.
    #[error("the status while another delivery is handled must be 400 or above")]
    InFlightStatus,
    /// A name cannot be used.
    #[error("the name of the {what} cannot be used: {reason}")]
    Name {
        /// What it is the name of.
        what: &'static str,
        /// What is wrong with it.
        reason: NameError,
    },
    /// No event could ever be run.
    #[error("at least one attempt must be allowed")]
    NoAttempts,
    /// No event could ever be run, or no message sent.
    #[error("the concurrency is 0; at least one must be allowed at a time")]
    NoConcurrency,
    /// There is nothing to encrypt with: the choice is the application's.
    #[error("no crypto provider is installed; install one of rustls for the process, or give a TLS configuration")]
    NoCryptoProvider,
    /// The operating system trusts no certificate, so no receiver could be trusted.
    #[error("the operating system has no usable root certificates; install them, or give a TLS configuration")]
    NoRootCertificates,
    /// An event that is run later is run from its request.
    #[error("deferred mode needs the request to be kept")]
    NothingKept,
    /// The public URL is none.
    #[error("{0:?} is not an absolute URL; write it as it was given to the sender, like https://hooks.example.com")]
    PublicUrl(String),
    /// The scheme signs the URL, and it is not known how the sender writes it.
    #[error("the scheme signs the URL: set the public URL as it was given to the sender")]
    PublicUrlMissing,
    /// A header that belongs to one exchange or one client cannot be repeated to another.
    #[error("the header `{0}` belongs to one exchange or client and cannot be kept with a result")]
    ResultHeader(String),
    /// A time is too short to work with.
    #[error("the {what} of {value:?} is too short; at least {least:?} are needed")]
    TooShort {
        /// Which time.
        what: &'static str,
        /// What it was set to.
        value: Duration,
        /// The least that works.
        least: Duration,
    },
    /// Keys would be forgotten while the requests that carry them are still accepted, and those could be replayed.
    #[error("the replay window spans {window:?} and keys are kept for {retention:?} only; keep them longer")]
    WindowExceedsRetention {
        /// The window's past and future limit together.
        window: Duration,
        /// How long keys are kept.
        retention: Duration,
    },
    /// What names this sender cannot stand in a header.
    #[error("the user agent holds a control character or one outside ASCII")]
    UserAgent,
}
