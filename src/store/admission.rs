//! Whether an event that is known already may be run, or taken in: the decisions that all stores share.
//!
//! They are functions of values, so that they can be read and tested without a database. A store looks the receipt up,
//! asks [`Standing::admit`] or [`Standing::accept`], and carries out what that says within the same transaction.

use std::time::Duration;

use super::{Accept, Claim, Failure, OtherBody, ReceiptState, Reserve, Token, Unclear};
use crate::{Digest, Timestamp};

/// What counts about a receipt when somebody asks to run its event.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) state: ReceiptState,
    pub(super) attempts: u32,
    pub(super) token: Option<Token>,
    pub(super) lease_until: Option<Timestamp>,
    /// `Some`: it is owed.
    pub(super) due: Option<Timestamp>,
    pub(super) body: Digest,
}

/// What to do for the one who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Make it a dead letter: its attempts are used up.
    Bury {
        /// The last run left no word: note it among the failures.
        lapsed: bool,
        other_body: bool,
        reason: String,
    },
    /// Nothing: the one who asks holds the lease already, from a commit whose answer did not arrive.
    Held,
    /// Refuse, and count the other body.
    Refuse,
    /// Repeat its end, and count the body if it is another one.
    Repeat { other_body: bool },
    /// Give it to the one who asks: new token, next attempt.
    TakeOver {
        /// The last run left no word: note it among the failures.
        lapsed: bool,
        other_body: bool,
    },
    /// Another holder has it for this long.
    Wait(Duration),
}

/// What to do for one who asks to take the event in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// Nothing: it is there, and cannot be more so. Count the body if it is another one.
    Known { other_body: bool },
    /// Keep the request. Put it into this state; without a due time, into quarantine.
    Owe { state: ReceiptState, due: Option<Timestamp>, other_body: bool },
    /// Refuse, and count the other body.
    Refuse,
    /// Repeat its end, and count the body if it is another one.
    Repeat { other_body: bool },
}

impl Standing {
    pub(super) fn accept(&self, request: &Accept, now: Timestamp) -> Acceptance {
        let other_body = self.body != request.body;
        if other_body && request.other_body == OtherBody::Refuse {
            return Acceptance::Refuse;
        }
        let waits = request.quarantine.is_some();
        match self.state {
            ReceiptState::Succeeded | ReceiptState::DeadLetter => Acceptance::Repeat { other_body },
            _ if self.due.is_some() => Acceptance::Known { other_body },
            // Its sender is being answered by the run that goes on; should that one die, this due time takes over.
            ReceiptState::Processing if !waits => {
                Acceptance::Owe { state: ReceiptState::Processing, due: self.lease_until, other_body }
            }
            ReceiptState::Failed if waits => Acceptance::Owe { state: ReceiptState::Received, due: None, other_body },
            ReceiptState::Processing | ReceiptState::Received if waits => Acceptance::Known { other_body },
            state => Acceptance::Owe { state, due: Some(now), other_body },
        }
    }

    /// What to do with an event that is due, or whose lease ran out.
    pub(super) fn claim(&self, claim: &Claim) -> Admission {
        self.next_run((claim.max_attempts, claim.unclear), self.state == ReceiptState::Processing, false)
    }

    /// When it will be due, having gone over to somebody who may run it until then.
    pub(super) fn due_under(&self, lease_until: Timestamp) -> Option<Timestamp> {
        (self.due.is_some() || self.state == ReceiptState::Received).then_some(lease_until)
    }

    pub(super) fn admit(&self, request: &Reserve, token: Token, now: Timestamp) -> Admission {
        if self.token == Some(token) {
            return Admission::Held;
        }
        let other_body = self.body != request.body;
        if other_body && request.other_body == OtherBody::Refuse {
            return Admission::Refuse;
        }
        match self.state {
            ReceiptState::Succeeded | ReceiptState::DeadLetter => Admission::Repeat { other_body },
            ReceiptState::Processing => match self.lease_until {
                Some(until) if until > now => Admission::Wait(until.saturating_since(now)),
                _ => self.next_run((request.max_attempts, request.unclear), true, other_body),
            },
            ReceiptState::Failed | ReceiptState::Received => {
                self.next_run((request.max_attempts, request.unclear), false, other_body)
            }
        }
    }

    fn next_run(&self, (max_attempts, unclear): (u32, Unclear), lapsed: bool, other_body: bool) -> Admission {
        if lapsed && unclear == Unclear::Hold {
            return Admission::Bury { lapsed, other_body, reason: Unclear::HELD.to_owned() };
        }
        let allowed = max_attempts.max(1);
        if self.attempts < allowed {
            return Admission::TakeOver { lapsed, other_body };
        }
        let reason = format!("attempts used up: {} of {allowed}", self.attempts);
        Admission::Bury { lapsed, other_body, reason }
    }
}

/// What the history says of a run that ended without a word.
pub(super) const LAPSED: &str = "the lease ran out before the run ended";

/// A text for operators, as every store keeps it. NUL is replaced: not every database can hold it in text.
pub(super) fn kept_text(text: &str) -> String {
    let mut kept = text.replace('\0', "\u{fffd}");
    kept.truncate(kept.floor_char_boundary(Failure::MAX_ERROR_BYTES));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ReceiptKey;
    use crate::{DedupKey, Name};

    #[test]
    fn c083_runs_that_end_without_a_word_use_up_attempts() {
        let standing = processing(3, 100);
        let lapsed = Timestamp::from_micros(100);
        assert_eq!(
            standing.admit(&request(4), token(2), lapsed),
            Admission::TakeOver { lapsed: true, other_body: false }
        );
        assert_eq!(
            standing.admit(&request(3), token(2), lapsed),
            Admission::Bury { lapsed: true, other_body: false, reason: "attempts used up: 3 of 3".into() }
        );
    }

    #[test]
    fn a_run_that_ends_without_a_word_is_held_where_that_is_asked_for() {
        let strict = Reserve { unclear: Unclear::Hold, ..request(9) };
        let held = Admission::Bury { lapsed: true, other_body: false, reason: Unclear::HELD.into() };
        let lapsed = Timestamp::from_micros(100);
        assert_eq!(processing(1, 100).admit(&strict, token(2), lapsed), held);
        // One that failed with a word is run again, and one that runs is waited for.
        let failed = Standing { state: ReceiptState::Failed, token: None, lease_until: None, ..processing(1, 100) };
        let next = Admission::TakeOver { lapsed: false, other_body: false };
        assert_eq!(failed.admit(&strict, token(2), lapsed), next);
        let before = Timestamp::from_micros(99);
        assert!(matches!(processing(1, 100).admit(&strict, token(2), before), Admission::Wait(_)));
    }

    #[test]
    fn a_lease_holds_until_its_last_microsecond() {
        let standing = processing(1, 100);
        let wait = standing.admit(&request(9), token(2), Timestamp::from_micros(99));
        assert_eq!(wait, Admission::Wait(Duration::from_micros(1)));
    }

    #[test]
    fn the_holder_is_recognised_by_its_token() {
        let standing = processing(1, 100);
        assert_eq!(standing.admit(&request(9), token(1), Timestamp::from_micros(0)), Admission::Held);
    }

    #[test]
    fn a_text_is_cut_at_the_end_of_a_character() {
        let long = format!("{}é", "x".repeat(Failure::MAX_ERROR_BYTES - 1));
        assert_eq!(kept_text(&long), "x".repeat(Failure::MAX_ERROR_BYTES - 1));
        assert_eq!(kept_text("a\0b"), "a\u{fffd}b");
    }

    fn processing(attempts: u32, until: i64) -> Standing {
        Standing {
            state: ReceiptState::Processing,
            attempts,
            token: Some(token(1)),
            lease_until: Some(Timestamp::from_micros(until)),
            due: None,
            body: Digest::of(b"body"),
        }
    }

    fn token(byte: u8) -> Token {
        Token::from_bytes([byte; 16])
    }

    fn request(max_attempts: u32) -> Reserve {
        let name = Name::new("n").expect("a name");
        Reserve {
            key: ReceiptKey { consumer: name.clone(), source: name, key: DedupKey::from_digest(&Digest::of(b"body")) },
            event_id: None,
            correlation_id: None,
            body: Digest::of(b"body"),
            lease: Duration::from_secs(1),
            max_attempts,
            other_body: OtherBody::Accept,
            unclear: Unclear::RunAgain,
        }
    }
}
