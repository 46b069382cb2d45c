//! Holding on to a lease, and ending an attempt: each names its token, and changes nothing where another one holds.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::super::call::Ask;
use super::super::settle::settled;
use super::super::transactor::Done;
use super::call::SettleAsk;
use super::database::{Database, Ended, Ending, FoundEndpoint, Note};
use super::order;
use crate::store::delivery::{self, Course};
use crate::store::{AttemptReport, EndpointEntry, MessageLease, OnDead, Settled, Settlement};
use crate::{Name, Timestamp};

pub(super) async fn renew<D: Database>(
    database: &mut D,
    mut asks: Vec<&mut Ask<(MessageLease, Duration), Settled>>,
    now: Timestamp,
) -> Done {
    if asks.is_empty() {
        return Ok(());
    }
    asks.sort_by_key(|ask| ask.question.0.row);
    let leases: Vec<_> = asks.iter().map(|ask| (&ask.question.0, now.saturating_add(ask.question.1))).collect();
    let held = database.renew(&leases).await?;
    drop(leases);
    for (ask, held) in asks.into_iter().zip(held) {
        ask.answer = Some(Ok(settled(held)));
    }
    Ok(())
}

/// Ends attempts, and gives back those that were not made.
pub(super) async fn settle<D: Database>(
    database: &mut D,
    mut settles: Vec<&mut SettleAsk>,
    mut releases: Vec<&mut Ask<MessageLease, Settled>>,
    now: Timestamp,
    again: bool,
) -> Done {
    if settles.is_empty() && releases.is_empty() {
        return Ok(());
    }
    // Each attempt ends once: of two calls about one the second finds it ended.
    let mut seen = HashSet::new();
    let mut ends: Vec<End<'_>> = Vec::with_capacity(settles.len() + releases.len());
    let settled_ones = settles.iter_mut().map(|ask| {
        let (lease, settlement) = &ask.question;
        End { lease, settlement: Some(settlement), report: None, answer: &mut ask.answer }
    });
    let released = releases.iter_mut().map(|ask| End {
        lease: &ask.question,
        settlement: None,
        report: None,
        answer: &mut ask.answer,
    });
    for mut end in settled_ones.chain(released) {
        if seen.insert((end.lease.row, *end.lease.token.as_bytes())) {
            end.report = end.settlement.map(|settlement| delivery::kept_report(settlement.report.clone()));
            ends.push(end);
        } else {
            *end.answer = Some(Ok(Settled::LeaseLost));
        }
    }
    ends.sort_unstable_by_key(|end| end.lease.row);
    let endings: Vec<Ending<'_>> = ends.iter().map(|end| end.ending(now)).collect();
    let ended = database.end(&endings, now).await?;
    drop(endings);

    let mut held = Vec::with_capacity(ends.len());
    for (end, ended) in ends.into_iter().zip(ended) {
        match ended {
            Some(ended) => held.push((end, ended)),
            None => {
                let stands = again && database.ended(end.lease).await?;
                *end.answer = Some(Ok(settled(stands)));
            }
        }
    }
    note(database, &mut held, now).await?;
    let endpoints = endpoints(database, &held, now).await?;
    let ends: Vec<order::Ending> = held
        .iter()
        .filter(|(_, ended)| ended.ordering_key.is_some())
        .map(|(end, ended)| {
            let MessageLease { key, row, .. } = end.lease;
            let on_dead = endpoints.get(key.endpoint.as_str()).copied().unwrap_or_default();
            order::Ending::new(*row, key, ended.ordering_key.clone(), end.course(now).state, on_dead)
        })
        .collect();
    order::after(database, &ends, now).await?;
    for (end, _) in held {
        *end.answer = Some(Ok(Settled::Done));
    }
    Ok(())
}

/// An attempt that is to be ended, or without a settlement to be given back.
struct End<'a> {
    lease: &'a MessageLease,
    settlement: Option<&'a Settlement>,
    /// As it is kept.
    report: Option<AttemptReport>,
    answer: &'a mut Option<Result<Settled, crate::store::StoreError>>,
}

impl End<'_> {
    fn course(&self, now: Timestamp) -> Course {
        let attempts = self.lease.attempt;
        self.settlement
            .map_or_else(|| Course::released(attempts, now), |settlement| Course::of(&settlement.fate, attempts, now))
    }

    fn ending(&self, now: Timestamp) -> Ending<'_> {
        let course = self.course(now);
        Ending {
            lease: self.lease,
            state: course.state,
            due: course.due,
            reason: course.reason,
            uncounted: course.attempts < self.lease.attempt,
            noted: self.report.is_some(),
            status: self.report.as_ref().and_then(|report| report.status).map(|status| status.as_u16()),
            error: self.report.as_ref().and_then(|report| report.error.as_deref()),
        }
    }
}

async fn note<D: Database>(database: &mut D, held: &mut [(End<'_>, Ended)], now: Timestamp) -> Done {
    let note = |(end, ended): &mut (End<'_>, Ended)| {
        Some(Note {
            message: end.lease.row,
            seq: ended.noted,
            replay: ended.replays,
            number: end.lease.attempt,
            report: end.report.take()?,
        })
    };
    let notes: Vec<Note> = held.iter_mut().filter_map(note).collect();
    if notes.is_empty() { Ok(()) } else { database.note(&notes, now).await }
}

/// Notes what the attempts showed about their endpoints, where that is anything new: an endpoint that does well is not
/// written to. Returns what each of them wants done with those behind a message that is dead.
async fn endpoints<D: Database>(
    database: &mut D,
    held: &[(End<'_>, Ended)],
    now: Timestamp,
) -> Done<BTreeMap<String, OnDead>> {
    let mut news: BTreeMap<&Name, Vec<&Settlement>> = BTreeMap::new();
    for (end, _) in held {
        if let Some(settlement) = end.settlement {
            news.entry(&end.lease.key.endpoint).or_default().push(settlement);
        }
    }
    let names: Vec<&Name> = news.keys().copied().collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = database.endpoints(&names, false).await?;
    let changes = |entry: &EndpointEntry| {
        let settlements = news.get(&entry.endpoint.name)?;
        let before = entry.health();
        let after = settlements
            .iter()
            .filter(|settlement| settlement.endpoint.is_about(&entry.endpoint))
            .fold(before.clone(), |health, settlement| health.after(settlement, now));
        (after != before).then_some((before, after))
    };
    let readable = |found: &FoundEndpoint| found.entry.as_ref().ok().cloned();
    let mut changed: Vec<EndpointEntry> =
        found.iter().filter_map(readable).filter(|entry| changes(entry).is_some()).collect();
    if !D::ALONE && !changed.is_empty() {
        let names: Vec<&Name> = changed.iter().map(|entry| &entry.endpoint.name).collect();
        let locked = database.endpoints(&names, true).await?;
        drop(names);
        changed = locked.iter().filter_map(readable).collect();
    }
    for entry in &changed {
        if let Some((before, after)) = changes(entry) {
            let updated = (before.disabled != after.disabled).then_some(now);
            database.set_health(&entry.endpoint.name, &after, updated).await?;
        }
    }
    let on_dead = |found: FoundEndpoint| Some((found.name, found.entry.ok()?.endpoint.settings.on_dead));
    Ok(found.into_iter().filter_map(on_dead).collect())
}
