//! Holding on to a lease, and ending a run: each names its token, and changes nothing where another one holds.

use std::collections::HashMap;
use std::time::Duration;

use super::call::Ask;
use super::database::{Database, FailedEnd, StoredAnswer, StoredRequest};
use super::header_block;
use super::transactor::Done;
use crate::Timestamp;
use crate::store::{FailedRun, Failure, KeptRequest, Lease, ReceiptKey, ResultBody, Settled, StoredResult, admission};

pub(super) async fn renew<D: Database>(
    database: &mut D,
    asks: Vec<&mut Ask<(Lease, Duration), Settled>>,
    now: Timestamp,
) -> Done {
    for round in rounds(asks, |ask| &ask.question.0.key) {
        let leases: Vec<_> = round.iter().map(|ask| (&ask.question.0, now.saturating_add(ask.question.1))).collect();
        let held = database.renew(&leases).await?;
        drop(leases);
        for (ask, held) in round.into_iter().zip(held) {
            ask.answer = Some(Ok(settled(held)));
        }
    }
    Ok(())
}

pub(super) async fn complete<D: Database>(
    database: &mut D,
    asks: Vec<&mut Ask<(Lease, StoredResult), Settled>>,
    now: Timestamp,
    again: bool,
) -> Done {
    for round in rounds(asks, |ask| &ask.question.0.key) {
        let ends: Vec<_> = round.iter().map(|ask| (&ask.question.0, &ask.question.1)).collect();
        let held = database.complete(&ends, now).await?;
        drop(ends);
        for (ask, held) in round.into_iter().zip(held) {
            let held = held || (again && database.ended(&ask.question.0).await?);
            ask.answer = Some(Ok(settled(held)));
        }
    }
    Ok(())
}

/// One by one: failures are rare beside the rest, and each brings a line of history.
pub(super) async fn fail<D: Database>(
    database: &mut D,
    mut asks: Vec<&mut Ask<(Lease, Box<Failure>), Settled>>,
    now: Timestamp,
    again: bool,
) -> Done {
    asks.sort_by(|one, two| one.question.0.key.cmp(&two.question.0.key));
    for ask in asks {
        let (lease, failure) = &ask.question;
        let held = database.fail(&end(lease, failure, now), now).await?;
        if let Some((id, attempt)) = held {
            let status = failure.result.as_ref().map(|result| result.status);
            let run = FailedRun { attempt, at: now, status, error: admission::kept_text(&failure.error) };
            database.note_failure(id, &run).await?;
        }
        let held = held.is_some() || (again && database.ended(lease).await?);
        ask.answer = Some(Ok(settled(held)));
    }
    Ok(())
}

fn end<'a>(lease: &'a Lease, failure: &'a Failure, now: Timestamp) -> FailedEnd<'a> {
    FailedEnd {
        lease,
        reason: failure.dead.as_deref().map(admission::kept_text),
        answer: failure.result.as_ref().map(|result| StoredAnswer {
            status: result.status.as_u16(),
            headers: header_block::encode(&result.headers),
            body: kept(&result.body),
        }),
        request: failure.request.as_ref().map(StoredRequest::of),
        due: failure.retry_in.map(|wait| now.saturating_add(wait)),
    }
}

impl<'a> StoredRequest<'a> {
    pub(super) fn of(request: &'a KeptRequest) -> Self {
        Self {
            method: request.method.as_str(),
            target: &request.target,
            headers: header_block::encode(&request.headers),
            body: &request.body,
            proof: &request.proof,
        }
    }
}

/// A body as it is stored; `None` where it was not kept.
pub(super) fn kept(body: &ResultBody) -> Option<&[u8]> {
    match body {
        ResultBody::Kept(body) => Some(body),
        ResultBody::Omitted => None,
    }
}

/// Splits asks so that no receipt occurs twice in a round, for the second of two must find what the first one left, and
/// sorts each round by key.
pub(super) fn rounds<T>(asks: Vec<T>, key: impl Fn(&T) -> &ReceiptKey) -> Vec<Vec<T>> {
    let mut rounds: Vec<Vec<T>> = Vec::new();
    let mut seen: HashMap<ReceiptKey, usize> = HashMap::with_capacity(asks.len());
    for ask in asks {
        let turn = seen.entry(key(&ask).clone()).and_modify(|turn| *turn += 1).or_insert(0);
        match rounds.get_mut(*turn) {
            Some(round) => round.push(ask),
            None => rounds.push(vec![ask]),
        }
    }
    for round in &mut rounds {
        round.sort_by(|one, two| key(one).cmp(key(two)));
    }
    rounds
}

pub(super) const fn settled(held: bool) -> Settled {
    if held { Settled::Done } else { Settled::LeaseLost }
}
