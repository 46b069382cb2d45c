//! Who the sender delivers to: an [`Endpoint`], what it asks for, and how it has been doing.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::delivery::Health;
use crate::{Name, Timestamp};

/// A subscriber: where messages go, how they are signed, and which ones it wants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Endpoint {
    /// Its name, unique in a store.
    pub name: Name,
    /// Where to send to.
    pub url: String,
    /// The name of the scheme that its messages are signed by. `standard` by default.
    pub scheme: String,
    /// Where its secrets are found, the current one first: `env:NAME`, `file:PATH`, or what the application's own source
    /// of keys understands. Never the secrets themselves.
    pub secrets: Vec<String>,
    /// The types of events that `publish` sends here. None: only what is enqueued for it by name.
    pub types: Vec<TypePattern>,
    /// Headers to send beside those of the scheme.
    pub headers: HeaderMap,
    /// Limits, and what to make of answers.
    pub settings: EndpointSettings,
}

impl Endpoint {
    /// An endpoint with default settings that wants nothing by type.
    #[must_use]
    pub fn new(name: Name, url: impl Into<String>) -> Self {
        Self {
            name,
            url: url.into(),
            scheme: "standard".to_owned(),
            secrets: Vec::new(),
            types: Vec::new(),
            headers: HeaderMap::new(),
            settings: EndpointSettings::default(),
        }
    }

    /// Whether `publish` sends events of this type here.
    #[must_use]
    pub fn wants(&self, event_type: &Name) -> bool {
        self.types.iter().any(|pattern| pattern.matches(event_type.as_str()))
    }
}

/// What an endpoint may ask for otherwise than the dispatcher's defaults. `None` leaves it to those.
///
/// Stores keep it as JSON. What a later version has added there is passed over, so that dispatchers of two versions can
/// share a store while one is rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EndpointSettings {
    /// How many attempts one dispatcher makes at one time.
    pub max_in_flight: Option<u32>,
    /// How many attempts one dispatcher begins in a second.
    pub rate_per_second: Option<u32>,
    /// How long one attempt may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// How many attempts a message gets before it is a dead letter.
    pub max_attempts: Option<u32>,
    /// How old a message may become before it is a dead letter, in seconds.
    pub max_age_seconds: Option<u64>,
    /// What happens to the messages behind one that will not be delivered.
    pub on_dead: OnDead,
    /// What to make of answers otherwise than usual: a status (`404`) or a class (`4xx`), and `delivered`, `retry`,
    /// `permanent` or `gone`.
    pub verdicts: Vec<(String, String)>,
}

/// What happens to the messages of one ordering key that stand behind one that is a dead letter or failed.
///
/// While it is still being tried, those behind it wait in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDead {
    /// They wait until an operator has replayed or cancelled it.
    #[default]
    Block,
    /// They become dead letters too, so that all of them can be replayed together, in order: those that are pending at
    /// once, those that come later when a claim meets them.
    Park,
    /// They go on without it.
    Skip,
}

/// A pattern for event types: the type itself, with `*` for any run of characters, dots too.
///
/// ```
/// # use countersign::store::TypePattern;
/// let orders = TypePattern::new("order.*").unwrap();
/// assert!(orders.matches("order.paid") && orders.matches("order.item.added"));
/// assert!(!orders.matches("order") && !orders.matches("reorder.paid"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypePattern(Name);

impl TypePattern {
    /// Checks a pattern: 1 to 255 bytes without control characters.
    ///
    /// # Errors
    ///
    /// [`NameError`](crate::event::NameError) says what is wrong with it.
    pub fn new(pattern: &str) -> Result<Self, crate::event::NameError> {
        Name::new(pattern).map(Self)
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether a type fits the pattern.
    #[must_use]
    pub fn matches(&self, event_type: &str) -> bool {
        let mut parts = self.as_str().split('*');
        let Some(mut rest) = parts.next().and_then(|first| event_type.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            // The first place is as good as any: what follows may begin anywhere behind it.
            let Some((_, behind)) = rest.split_once(part) else { return false };
            rest = behind;
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An endpoint with what the store knows of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EndpointEntry {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// `Some`: it gets nothing until it is enabled, for this reason. Its messages wait.
    pub disabled: Option<String>,
    /// Since when, whatever was changed meanwhile. Each time that it is disabled anew has one of its own.
    pub disabled_since: Option<Timestamp>,
    /// No attempt is begun before this: it asked for time.
    pub paused_until: Option<Timestamp>,
    /// Since when every attempt that showed anything has shown that it does not work: [`EndpointHealth`]. `None` where the
    /// last one showed that it does.
    pub failing_since: Option<Timestamp>,
    /// How many attempts that were.
    pub failures: u64,
    /// When it was added.
    pub created: Timestamp,
    /// When it was last changed: by an operator, or when it was disabled.
    pub updated: Timestamp,
}

impl EndpointEntry {
    /// As a store of one's own shows it: added now, and doing well.
    #[must_use]
    pub const fn new(endpoint: Endpoint, now: Timestamp) -> Self {
        Self {
            endpoint,
            disabled: None,
            disabled_since: None,
            paused_until: None,
            failing_since: None,
            failures: 0,
            created: now,
            updated: now,
        }
    }

    pub(super) fn health(&self) -> Health {
        let Self { disabled, disabled_since, paused_until, failing_since, failures, .. } = self.clone();
        Health { disabled, disabled_since, paused_until, failing_since, failures }
    }
}

/// What an attempt showed about its endpoint, beside the fate of its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointNews {
    /// The URL that was asked. Where the endpoint has another one by now, this says nothing about it. `None`: it is about
    /// the endpoint whatever its URL.
    pub url: Option<String>,
    /// Whether it works. A message that was delivered shows that it does, whatever is said here.
    pub health: EndpointHealth,
    /// Begin no attempt for so long. A longer pause that is there already stays.
    pub pause: Option<Duration>,
    /// Disable it, for this reason. One that is disabled already keeps its own.
    pub disable: Option<String>,
    /// Disable it where it does not work, has not worked for so long, and has failed [`EndpointNews::LEAST_FAILURES`] times
    /// at least.
    pub disable_after: Option<Duration>,
}

impl EndpointNews {
    /// So many failures at least disable an endpoint, however far apart they are: one that is seldom called may fail twice
    /// in a week by chance.
    pub const LEAST_FAILURES: u64 = 3;

    /// Whether this concerns the endpoint as it is now. It may have moved while it was asked.
    #[must_use]
    pub fn is_about(&self, endpoint: &Endpoint) -> bool {
        self.url.as_ref().is_none_or(|url| *url == endpoint.url)
    }
}

/// What an attempt showed about whether its endpoint works, whatever becomes of its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointHealth {
    /// It does not answer, or says that it cannot take anything now.
    Fails,
    /// Nothing: the attempt was not made.
    #[default]
    Unknown,
    /// It answers. A message that it refuses is the message's fault.
    Works,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, fits, differs) in [
            ("*", &["a", "a.b", "*"][..], &[][..]),
            ("order.paid", &["order.paid"], &["order.paid.", "xorder.paid", "Order.paid"]),
            ("*.paid", &["order.paid", ".paid"], &["paid", "order.paid.x"]),
            ("a*b*c", &["abc", "a.b.c", "abcbc"], &["ab", "ac", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("a**b", &["ab", "axb"], &["a"]),
        ] {
            let pattern = TypePattern::new(pattern).expect("a pattern");
            assert!(fits.iter().all(|fit| pattern.matches(fit)), "{pattern}");
            assert!(!differs.iter().any(|other| pattern.matches(other)), "{pattern}");
        }
        assert!(TypePattern::new("").is_err());
    }

    #[test]
    fn settings_are_read_as_they_were_written_and_those_of_a_later_version_passed_over() {
        let settings = EndpointSettings {
            rate_per_second: Some(5),
            on_dead: OnDead::Park,
            verdicts: vec![("404".into(), "retry".into())],
            ..EndpointSettings::default()
        };
        let text = serde_json::to_string(&settings).expect("JSON");
        assert_eq!(serde_json::from_str::<EndpointSettings>(&text).expect("settings"), settings);
        assert_eq!(serde_json::from_str::<EndpointSettings>("{}").expect("settings"), EndpointSettings::default());
        let later = r#"{"added_later":5,"rate_per_second":7}"#;
        let settings = EndpointSettings { rate_per_second: Some(7), ..EndpointSettings::default() };
        assert_eq!(serde_json::from_str::<EndpointSettings>(later).expect("settings"), settings);
    }
}
