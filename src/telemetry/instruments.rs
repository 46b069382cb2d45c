//! The one table of instruments.

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instrument {
    /// Its name. It ends in its unit, and that of a counter in `_total`.
    pub name: &'static str,
    /// How it is read.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one sentence.
    pub meaning: &'static str,
}

/// How an instrument is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It only grows, from 0 when the process begins.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Spans of time, in seconds.
    Histogram,
}

impl Kind {
    /// Its name, as Prometheus writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! instruments {
    ($($(#[$cfg:meta])* $id:ident = $kind:ident $name:literal [$($label:literal),*] $meaning:literal;)+) => {
        $(
            $(#[$cfg])*
            pub(crate) const $id: Instrument =
                Instrument { name: $name, kind: Kind::$kind, labels: &[$($label),*], meaning: $meaning };
        )+

        /// Everything that is measured.
        #[cfg(feature = "telemetry")]
        pub const INSTRUMENTS: &[Instrument] = &[$(
            Instrument { name: $name, kind: Kind::$kind, labels: &[$($label),*], meaning: $meaning }
        ),+];
    };
}

instruments! {
    RECEIVED = Counter "countersign_received_total" ["source", "outcome"]
        "Requests that were answered, by what became of them.";
    DUPLICATES = Counter "countersign_duplicates_total" ["source"]
        "Deliveries of an event that was there already, and was not run for them.";
    SIGNATURES_REFUSED = Counter "countersign_signatures_refused_total" ["source", "reason"]
        "Requests that were refused for their signature or their timestamp, by reason.";
    IN_FLIGHT = Gauge "countersign_in_flight" ["consumer"]
        "Handlers that are running.";
    HANDLER_TIME = Histogram "countersign_handler_seconds" ["consumer", "source"]
        "How long handlers ran.";
    RUNS = Counter "countersign_runs_total" ["consumer", "source", "outcome"]
        "Runs of handlers, by what is on record of them.";
    INBOX_OLDEST_DUE = Gauge "countersign_inbox_oldest_due_seconds" ["consumer"]
        "For how long the accepted event has been due that has been due longest; 0 where none is.";
    #[cfg(feature = "send")]
    ENQUEUED = Counter "countersign_enqueued_total" ["endpoint"]
        "Messages that this process put into the outbox; in a transaction of the application's, before it is committed.";
    #[cfg(feature = "send")]
    ATTEMPTS = Counter "countersign_attempts_total" ["endpoint", "outcome"]
        "Attempts to deliver, by what became of the message.";
    #[cfg(feature = "send")]
    ATTEMPT_TIME = Histogram "countersign_attempt_seconds" ["endpoint"]
        "How long attempts took.";
    #[cfg(feature = "send")]
    DELIVERY_TIME = Histogram "countersign_delivery_seconds" ["endpoint"]
        "From the moment a message was enqueued, or last replayed, until its delivery was on record.";
    #[cfg(feature = "send")]
    RETRY_WAIT = Histogram "countersign_retry_seconds" ["endpoint"]
        "How long messages have to wait for their next attempt.";
    #[cfg(feature = "send")]
    DEAD_LETTERS = Counter "countersign_dead_letters_total" ["endpoint"]
        "Messages that were given up at an attempt or by a claim and wait for an operator; not those that waited behind one then, nor those whose endpoint was removed.";
    #[cfg(feature = "send")]
    REFUSED = Counter "countersign_refused_total" ["endpoint"]
        "Attempts that the destination policy refused.";
    #[cfg(feature = "send")]
    ENDPOINTS_DISABLED = Counter "countersign_endpoints_disabled_total" ["endpoint"]
        "Endpoints that were seen to be disabled after attempts of this process.";
    #[cfg(feature = "send")]
    SENDING = Gauge "countersign_sending" ["endpoint"]
        "Attempts that are running.";
    #[cfg(feature = "send")]
    OUTBOX_OLDEST_DUE = Gauge "countersign_outbox_oldest_due_seconds" ["endpoint"]
        "For how long the message has been due that has been due longest; 0 where none is.";
    LEASES_LOST = Counter "countersign_leases_lost_total" ["walk"]
        "Runs (`inbox`) and attempts (`outbox`) whose result was dropped, since somebody else had taken over.";
    NOTICES = Counter "countersign_notices_total" ["operator", "notice", "outcome"]
        "Notices for operators, for each way to tell them, by whether they were told.";
}

#[cfg(all(test, feature = "telemetry"))]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const LABELS: &[&str] = &["source", "consumer", "endpoint", "outcome", "reason", "walk", "operator", "notice"];

    fn table() -> String {
        let mut table = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for Instrument { name, kind, labels, meaning } in INSTRUMENTS {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(table, "| `{name}` | {} | {} | {meaning} |", kind.as_str(), labels.join(", ")).expect("a string");
        }
        table
    }

    #[test]
    #[cfg(feature = "send")]
    fn the_guides_table_is_the_table_of_instruments() {
        let guide = include_str!("../guide/metrics.md");
        assert!(guide.contains(&table()), "the table in src/guide/metrics.md is to be:\n{}", table());
    }

    #[test]
    fn names_say_their_unit_and_are_there_once() {
        let mut names: Vec<_> = INSTRUMENTS.iter().map(|instrument| instrument.name).collect();
        for Instrument { name, kind, labels, .. } in INSTRUMENTS {
            assert!(name.starts_with("countersign_"), "{name}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            for label in *labels {
                assert!(LABELS.contains(label), "{label}");
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), INSTRUMENTS.len());
    }
}
