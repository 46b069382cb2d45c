//! What most of a batch consists of when all is well: new events, and runs that succeeded.
//!
//! On a server each statement is a way there and back, and a transaction is two more. Where the database can do both kinds
//! in one statement that is its own transaction, they are done before the rest of the batch; what is not as simple as it
//! looked, a repeat or a lost lease, goes the usual way after them.

use std::collections::HashSet;

use super::call::Call;
use super::database::{AtOnce, Database};
use super::settle::settled;
use super::transactor::Done;
use crate::store::{Lease, ReceiptKey, Reserved};

/// Answers what it can. Where this fails, it may have been committed all the same.
pub(super) async fn answer<D: Database>(database: &mut D, calls: &mut [Call]) -> Done {
    // The second of two calls about one receipt must find what the first one left.
    let mut keys: HashSet<&ReceiptKey> = HashSet::with_capacity(calls.len());
    let firsts: Vec<bool> = calls.iter().map(|call| key(call).is_some_and(|key| keys.insert(key))).collect();
    let (mut completes, mut reserves) = (Vec::new(), Vec::new());
    for (call, is_first) in calls.iter_mut().zip(firsts) {
        match call {
            Call::Complete(ask) if is_first => completes.push(ask),
            Call::Reserve(ask) if is_first => reserves.push(ask),
            _ => {}
        }
    }
    if completes.is_empty() && reserves.is_empty() {
        return Ok(());
    }
    completes.sort_by(|one, two| one.question.0.key.cmp(&two.question.0.key));
    reserves.sort_by(|one, two| one.question.0.key.cmp(&two.question.0.key));
    let ends: Vec<_> = completes.iter().map(|ask| (&ask.question.0, &ask.question.1)).collect();
    let fresh: Vec<_> = reserves.iter().map(|ask| (&ask.question.0, ask.question.1)).collect();
    let Some(AtOnce { ended, made }) = database.at_once(&ends, &fresh).await? else { return Ok(()) };
    drop((ends, fresh));
    for (ask, ended) in completes.into_iter().zip(ended) {
        if ended {
            ask.answer = Some(Ok(settled(true)));
        }
    }
    for (ask, made) in reserves.into_iter().zip(made) {
        if made {
            let (request, token) = &ask.question;
            ask.answer = Some(Ok(Reserved::Acquired(Lease { key: request.key.clone(), token: *token, attempt: 1 })));
        }
    }
    Ok(())
}

/// Of what can be done at once.
const fn key(call: &Call) -> Option<&ReceiptKey> {
    match call {
        Call::Complete(ask) => Some(&ask.question.0.key),
        Call::Reserve(ask) => Some(&ask.question.0.key),
        _ => None,
    }
}
