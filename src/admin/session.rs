//! Who has logged in: a signed cookie says it, so that no store is asked; what was ended before its time is remembered here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::guard::TokenError;
use crate::{Clock, SystemClock};

/// How long a person stays logged in.
pub(super) const SESSION: Duration = Duration::from_secs(12 * 60 * 60);

pub(super) struct Sessions {
    /// Signs sessions and the tokens of forms.
    key: Zeroizing<[u8; 32]>,
    /// Sessions that somebody logged out of, each with the moment from which on it would not be live anyway. Only a live one
    /// comes in, so that nobody can fill it who has not logged in as often.
    ended: Mutex<HashMap<String, i64>>,
}

impl Sessions {
    /// From the token, so that several processes know each other's sessions, and with another token there are none.
    pub(super) fn of_token(token: &str) -> Self {
        Self::signed_with(Zeroizing::new(mac(token.as_bytes(), &["countersign admin sessions"])))
    }

    /// Of this process alone.
    pub(super) fn of_process() -> Result<Self, TokenError> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key).map_err(|_| TokenError::NoRandomness)?;
        Ok(Self::signed_with(key))
    }

    fn signed_with(key: Zeroizing<[u8; 32]>) -> Self {
        Self { key, ended: Mutex::default() }
    }

    /// A cookie's value: until when, something random, and the proof that it came from here.
    pub(super) fn begin(&self) -> Result<String, TokenError> {
        self.begin_until(SystemClock.now().saturating_add(SESSION).as_unix_seconds())
    }

    fn begin_until(&self, until: i64) -> Result<String, TokenError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| TokenError::NoRandomness)?;
        let said = format!("{until}.{}", URL_SAFE_NO_PAD.encode(random));
        Ok(format!("{said}.{}", self.sign("session", &said)))
    }

    pub(super) fn is_live(&self, session: &str) -> bool {
        self.live_until(session).is_some()
    }

    /// Ends a session, also for whoever has a copy of its cookie.
    pub(super) fn end(&self, session: &str) {
        let (Some(until), Some((said, _))) = (self.live_until(session), session.rsplit_once('.')) else { return };
        let now = SystemClock.now().as_unix_seconds();
        let mut ended = self.ended();
        ended.retain(|_, until| now < *until);
        ended.insert(said.to_owned(), until);
    }

    /// What a form must bring back: another site cannot read it, and another session has another.
    pub(super) fn form_token(&self, session: &str) -> String {
        self.sign("form", session)
    }

    /// The end of a session that came from here, has not come to it, and that nobody has logged out of.
    fn live_until(&self, session: &str) -> Option<i64> {
        let (said, proof) = session.rsplit_once('.')?;
        if !bool::from(proof.as_bytes().ct_eq(self.sign("session", said).as_bytes())) {
            return None;
        }
        let until = said.split('.').next()?.parse().ok()?;
        (SystemClock.now().as_unix_seconds() < until && !self.ended().contains_key(said)).then_some(until)
    }

    fn sign(&self, purpose: &str, said: &str) -> String {
        URL_SAFE_NO_PAD.encode(mac(&*self.key, &[purpose, said]))
    }

    fn ended(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of parts with their lengths, so that no two lists of parts are the same text.
fn mac(key: &[u8], parts: &[&str]) -> [u8; 32] {
    // A key of any length is one: the error cannot occur, and an all-zero tag would still be checked like any other.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef-token";

    #[test]
    fn a_session_is_known_to_whoever_has_the_token_and_to_nobody_else() {
        let (one, same) = (Sessions::of_token(TOKEN), Sessions::of_token(TOKEN));
        let other = Sessions::of_token("another-token-0123456789");
        let session = one.begin().expect("a session");
        assert!(one.is_live(&session) && same.is_live(&session));
        assert!(!other.is_live(&session));
        for broken in ["", ".", "..", "9999999999.x.y", &session[1..], &format!("9{session}"), &format!("{session}x")] {
            assert!(!one.is_live(broken), "{broken}");
        }
    }

    #[test]
    fn a_session_ends_when_its_time_is_over() {
        let sessions = Sessions::of_token(TOKEN);
        let now = SystemClock.now().as_unix_seconds();
        assert!(!sessions.is_live(&sessions.begin_until(now - 1).expect("a session")));
        assert!(sessions.is_live(&sessions.begin_until(now + 60).expect("a session")));
    }

    #[test]
    fn a_session_that_was_ended_stays_ended_and_others_go_on() {
        let sessions = Sessions::of_token(TOKEN);
        let (one, other) = (sessions.begin().expect("a session"), sessions.begin().expect("a session"));
        sessions.end(&one);
        assert!(!sessions.is_live(&one) && sessions.is_live(&other));
        sessions.end(&one);
        assert!(!sessions.is_live(&one));
    }

    #[test]
    fn what_is_remembered_of_ended_sessions_does_not_grow() {
        let sessions = Sessions::of_token(TOKEN);
        for forged in ["", "9999999999.x.y", "x"] {
            sessions.end(forged);
        }
        assert!(sessions.ended().is_empty());
        sessions.ended().insert("1.long-ago".to_owned(), 1);
        sessions.end(&sessions.begin().expect("a session"));
        assert_eq!(sessions.ended().len(), 1, "what is over is forgotten");
    }
}
