//! The inbox in PostgreSQL.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};

use super::super::database::{
    Aged, AtOnce, Database, FailedEnd, Found, FoundDue, Fresh, Owed, StoredRequest, Takeover,
};
use super::super::header_block;
use super::super::row::{self, Cells};
use super::super::settle::kept;
use super::super::transactor::Done;
use super::connection::Connection;
use super::statements;
use crate::store::{
    Accept, FailedRun, Failure, Lease, Purged, ReceiptKey, ReceiptState, Reserve, StoreError, StoredResult, Token,
    admission,
};
use crate::{Digest, Name, Timestamp};

impl Database for Connection {
    async fn insert(&mut self, rows: &[Fresh<'_>], now: Timestamp) -> Done<Vec<bool>> {
        let keys = Keys::of(rows.iter().map(|row| &row.request.key));
        let tokens: Vec<&[u8]> = rows.iter().map(|row| row.token.as_bytes().as_slice()).collect();
        let ids: Vec<_> = rows.iter().map(|row| row.request.event_id.as_ref().map(|id| id.as_str())).collect();
        let flows: Vec<_> = rows.iter().map(|row| row.request.correlation_id.as_ref().map(Name::as_str)).collect();
        let digests: Vec<&[u8]> = rows.iter().map(|row| row.request.body.as_bytes().as_slice()).collect();
        let leases: Vec<i64> = rows.iter().map(|row| row.lease_until.as_micros()).collect();
        let query = keys.bind(self.query(statements::INSERT)).bind(ids).bind(flows).bind(digests);
        let query = query.bind(&tokens).bind(leases).bind(now.as_micros());
        let inserted = query.execute(self.open()?).await?.rows_affected();
        if u64::try_from(rows.len()) == Ok(inserted) {
            return Ok(vec![true; rows.len()]);
        }
        // One that was made before, and whose answer was lost, is recognised by its token later.
        if inserted == 0 {
            return Ok(vec![false; rows.len()]);
        }
        let query = keys.bind(self.query(statements::MADE)).bind(&tokens);
        chosen(rows.len(), &query.fetch_all(self.open()?).await?)
    }

    async fn at_once(&mut self, ends: &[(&Lease, &StoredResult)], fresh: &[(&Reserve, Token)]) -> Done<Option<AtOnce>> {
        if !self.is_set_up() {
            return Ok(None);
        }
        let columns = Ends::of(ends);
        let keys = Keys::of(fresh.iter().map(|(request, _)| &request.key));
        let ids: Vec<_> = fresh.iter().map(|(request, _)| request.event_id.as_ref().map(|id| id.as_str())).collect();
        let flows: Vec<_> =
            fresh.iter().map(|(request, _)| request.correlation_id.as_ref().map(Name::as_str)).collect();
        let digests: Vec<&[u8]> = fresh.iter().map(|(request, _)| request.body.as_bytes().as_slice()).collect();
        let tokens = tokens(fresh.iter().map(|(_, token)| token));
        let spans: Vec<i64> = fresh.iter().map(|(request, _)| micros(request.lease)).collect();
        let query = keys.bind(columns.bind(self.query(statements::AT_ONCE)));
        let done = query.bind(ids).bind(flows).bind(digests).bind(&tokens).bind(spans).fetch_one(self.open()?).await?;
        let ended = match done.try_get::<Option<Vec<i64>>, _>("ended")? {
            None => vec![true; ends.len()],
            Some(places) => at(ends.len(), places),
        };
        let made = match done.try_get::<Option<Vec<Vec<u8>>>, _>("made")? {
            None => vec![true; fresh.len()],
            Some(made) => {
                let made: HashSet<Vec<u8>> = made.into_iter().collect();
                tokens.iter().map(|token| made.contains(*token)).collect()
            }
        };
        Ok(Some(AtOnce { ended, made }))
    }

    async fn standings(&mut self, keys: &[&ReceiptKey], lock: bool) -> Done<Vec<Found>> {
        let statement = if lock { statements::LOCKED_STANDINGS } else { statements::STANDINGS };
        let keys = Keys::of(keys.iter().copied());
        let query = keys.bind(self.query(statement));
        query.fetch_all(self.open()?).await?.iter().map(standing).collect()
    }

    async fn take_turns(&mut self, turns: &[Digest]) -> Done {
        self.query(statements::TAKE_TURNS).bind(turn_numbers(turns)).execute(self.open()?).await.map(drop)
    }

    async fn accept(&mut self, rows: &[&Accept], now: Timestamp) -> Done<Vec<bool>> {
        let requests: Vec<_> = rows.iter().map(|row| StoredRequest::of(&row.request)).collect();
        let ids: Vec<_> = rows.iter().map(|row| row.event_id.as_ref().map(|id| id.as_str())).collect();
        let flows: Vec<_> = rows.iter().map(|row| row.correlation_id.as_ref().map(Name::as_str)).collect();
        let orders: Vec<_> = rows.iter().map(|row| row.ordering_key.as_ref().map(Name::as_str)).collect();
        let digests: Vec<&[u8]> = rows.iter().map(|row| row.body.as_bytes().as_slice()).collect();
        let reasons: Vec<_> = rows.iter().map(|row| row.quarantine.as_deref().map(admission::kept_text)).collect();
        let methods: Vec<&str> = requests.iter().map(|request| request.method).collect();
        let targets: Vec<&str> = requests.iter().map(|request| request.target).collect();
        let proofs: Vec<&str> = requests.iter().map(|request| request.proof).collect();
        let headers: Vec<&[u8]> = requests.iter().map(|request| request.headers.as_slice()).collect();
        let bodies: Vec<&[u8]> = requests.iter().map(|request| request.body).collect();
        let keys = Keys::of(rows.iter().map(|row| &row.key));
        let query = keys.bind(self.query(statements::ACCEPT)).bind(ids).bind(flows).bind(orders).bind(digests);
        let query = query
            .bind(reasons)
            .bind(methods)
            .bind(targets)
            .bind(proofs)
            .bind(headers)
            .bind(bodies)
            .bind(now.as_micros());
        let found = query.fetch_all(self.open()?).await?;
        if found.len() == rows.len() {
            return Ok(vec![true; rows.len()]);
        }
        let key = |row: &PgRow| Ok((row.try_get("consumer")?, row.try_get("source")?, row.try_get("key")?));
        let made = found.iter().map(key).collect::<Done<HashSet<(String, String, String)>>>()?;
        let of = |key: &ReceiptKey| {
            (key.consumer.as_str().to_owned(), key.source.as_str().to_owned(), key.key.as_str().to_owned())
        };
        Ok(rows.iter().map(|row| made.contains(&of(&row.key))).collect())
    }

    async fn owe(&mut self, owed: &Owed<'_>, now: Timestamp) -> Done {
        let StoredRequest { method, target, headers, body, proof } = &owed.request;
        self.query(statements::OWE)
            .bind(owed.id)
            .bind(owed.state.as_str())
            .bind(owed.due.map(Timestamp::as_micros))
            .bind(owed.reason.as_deref())
            .bind(now.as_micros())
            .bind(owed.ordering_key.map(Name::as_str))
            .bind(*method)
            .bind(*target)
            .bind(*proof)
            .bind(headers.as_slice())
            .bind(*body)
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn due(&mut self, consumer: &Name, most: usize, now: Timestamp) -> Done<Vec<FoundDue>> {
        let query = self.query(statements::DUE).bind(consumer.as_str()).bind(now.as_micros());
        let query = query.bind(i64::try_from(most).unwrap_or(i64::MAX));
        let due = |found: &PgRow| {
            let due = row::due(found).map_err(|error| error.to_string());
            Ok(FoundDue { id: found.try_get("id")?, due })
        };
        query.fetch_all(self.open()?).await?.iter().map(due).collect()
    }

    async fn release(&mut self, lease: &Lease, now: Timestamp) -> Done<bool> {
        let query = self.keyed(statements::RELEASE, &lease.key).bind(lease.token.as_bytes().as_slice());
        Ok(query.bind(now.as_micros()).execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn take_over(&mut self, run: &Takeover, now: Timestamp) -> Done {
        self.query(statements::TAKE_OVER)
            .bind(run.id)
            .bind(run.token.as_bytes().as_slice())
            .bind(run.lease_until.as_micros())
            .bind(i64::from(run.attempts))
            .bind(now.as_micros())
            .bind(run.due.map(Timestamp::as_micros))
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn bury(&mut self, id: i64, reason: &str, now: Timestamp) -> Done {
        let query = self.query(statements::BURY).bind(id).bind(reason).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn count_other_body(&mut self, id: i64) -> Done {
        self.query(statements::COUNT_OTHER_BODY).bind(id).execute(self.open()?).await.map(drop)
    }

    async fn note_failure(&mut self, id: i64, run: &FailedRun) -> Done {
        let noted = self
            .query(statements::NOTE_FAILURE)
            .bind(id)
            .bind(i64::from(run.attempt))
            .bind(run.at.as_micros())
            .bind(run.status.map(|status| i64::from(status.as_u16())))
            .bind(run.error.as_str())
            .fetch_one(self.open()?)
            .await?;
        let most = i64::try_from(Failure::MAX_KEPT).unwrap_or(i64::MAX);
        let last_surplus = noted.try_get::<i64, _>("seq")?.saturating_sub(most);
        if last_surplus > 0 {
            self.query(statements::FORGET_FAILURES).bind(id).bind(last_surplus).execute(self.open()?).await?;
        }
        self.query(statements::SHOW_ERROR).bind(id).bind(run.error.as_str()).execute(self.open()?).await.map(drop)
    }

    async fn renew(&mut self, leases: &[(&Lease, Timestamp)]) -> Done<Vec<bool>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = tokens(leases.iter().map(|(lease, _)| &lease.token));
        let until: Vec<i64> = leases.iter().map(|(_, until)| until.as_micros()).collect();
        let keys = Keys::of(leases.iter().map(|(lease, _)| &lease.key));
        let query = keys.bind(self.query(statements::RENEW)).bind(&tokens).bind(until);
        let renewed = chosen(leases.len(), &query.fetch_all(self.open()?).await?)?;
        if renewed.iter().all(|renewed| *renewed) {
            return Ok(renewed);
        }
        // One whose receipt is in hand is most likely being ended by its own holder's transaction.
        let query = keys.bind(self.query(statements::HELD)).bind(&tokens);
        chosen(leases.len(), &query.fetch_all(self.open()?).await?)
    }

    async fn complete(&mut self, ends: &[(&Lease, &StoredResult)], now: Timestamp) -> Done<Vec<bool>> {
        let columns = Ends::of(ends);
        let query = columns.bind(self.query(statements::COMPLETE)).bind(now.as_micros());
        chosen(ends.len(), &query.fetch_all(self.open()?).await?)
    }

    async fn fail(&mut self, end: &FailedEnd<'_>, now: Timestamp) -> Done<Option<(i64, u32)>> {
        let (answer, request) = (end.answer.as_ref(), end.request.as_ref());
        let held = self
            .keyed(statements::FAIL, &end.lease.key)
            .bind(end.lease.token.as_bytes().as_slice())
            .bind(now.as_micros())
            .bind(end.reason.as_deref())
            .bind(answer.map(|answer| i64::from(answer.status)))
            .bind(answer.map(|answer| answer.headers.as_slice()))
            .bind(answer.and_then(|answer| answer.body))
            .bind(request.map(|request| request.method))
            .bind(request.map(|request| request.target))
            .bind(request.map(|request| request.headers.as_slice()))
            .bind(request.map(|request| request.body))
            .bind(request.map(|request| request.proof))
            .bind(end.due.map(Timestamp::as_micros))
            .fetch_optional(self.open()?)
            .await?;
        let ids = |held: PgRow| {
            let attempts = u32::try_from(held.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX);
            Ok((held.try_get("id")?, attempts))
        };
        held.map(ids).transpose()
    }

    async fn ended(&mut self, lease: &Lease) -> Done<bool> {
        let query = self.keyed(statements::ENDED, &lease.key).bind(lease.token.as_bytes().as_slice());
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn retry(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        self.keyed(statements::RETRY, key).bind(now.as_micros()).execute(self.open()?).await?;
        let found = self.keyed(statements::STATE, key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn conclude(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        let result = StoredResult::concluded();
        self.keyed(statements::CONCLUDE, key)
            .bind(now.as_micros())
            .bind(i64::from(result.status.as_u16()))
            .bind(header_block::encode(&result.headers))
            .bind(kept(&result.body))
            .execute(self.open()?)
            .await?;
        let found = self.keyed(statements::STATE, key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn forget(&mut self, key: &ReceiptKey) -> Done<bool> {
        Ok(self.keyed(statements::FORGET, key).execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn purge(&mut self, aged: &Aged) -> Done<Purged> {
        let mut purged = Purged::default();
        if !self.query(statements::PURGE_ALONE).fetch_one(self.open()?).await?.try_get::<bool, _>("alone")? {
            return Ok(purged);
        }
        if aged.keys > 0 {
            let query = self.query(statements::PURGE_KEYS).bind(aged.keys_before.as_micros());
            purged.keys = query.bind(i64::from(aged.keys)).execute(self.open()?).await?.rows_affected();
        }
        if aged.results > 0 {
            let query = self.query(statements::PURGE_RESULTS).bind(aged.results_before.as_micros());
            purged.results = query.bind(i64::from(aged.results)).execute(self.open()?).await?.rows_affected();
        }
        Ok(purged)
    }

    async fn check(&mut self, now: Timestamp) -> Done {
        self.query(statements::CHECK).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }
}

impl Connection {
    pub(super) fn query<'q>(&self, statement: &'static str) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(statement).persistent(self.prepared)
    }

    /// A statement about one receipt: its key is `$1` to `$3`.
    fn keyed<'q>(&self, statement: &'static str, key: &'q ReceiptKey) -> Query<'q, Postgres, PgArguments> {
        self.query(statement).bind(key.consumer.as_str()).bind(key.source.as_str()).bind(key.key.as_str())
    }
}

/// The keys of a batch by column: `$1` to `$3`.
struct Keys<'a> {
    consumers: Vec<&'a str>,
    sources: Vec<&'a str>,
    keys: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    fn of(keys: impl Iterator<Item = &'a ReceiptKey>) -> Self {
        let mut columns = Self { consumers: Vec::new(), sources: Vec::new(), keys: Vec::new() };
        for key in keys {
            columns.consumers.push(key.consumer.as_str());
            columns.sources.push(key.source.as_str());
            columns.keys.push(key.key.as_str());
        }
        columns
    }

    fn bind<'q>(&'q self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query.bind(&self.consumers).bind(&self.sources).bind(&self.keys)
    }
}

/// The numbers of advisory locks, in their order: two turns that share one are one.
pub(super) fn turn_numbers(turns: &[Digest]) -> Vec<i64> {
    let numbers: BTreeSet<i64> = turns.iter().map(number).collect();
    numbers.into_iter().collect()
}

/// The number of an advisory lock: the first bytes of the digest.
fn number(digest: &Digest) -> i64 {
    let (number, _) = digest.as_bytes().split_first_chunk().unwrap_or((&[0; 8], &[]));
    i64::from_be_bytes(*number)
}

/// Ends of runs by column: `$1` to `$7`.
struct Ends<'a> {
    keys: Keys<'a>,
    tokens: Vec<&'a [u8]>,
    statuses: Vec<i64>,
    headers: Vec<Vec<u8>>,
    bodies: Vec<Option<&'a [u8]>>,
}

impl<'a> Ends<'a> {
    fn of(ends: &[(&'a Lease, &'a StoredResult)]) -> Self {
        Self {
            keys: Keys::of(ends.iter().map(|(lease, _)| &lease.key)),
            tokens: tokens(ends.iter().map(|(lease, _)| &lease.token)),
            statuses: ends.iter().map(|(_, result)| result.status.as_u16().into()).collect(),
            headers: ends.iter().map(|(_, result)| header_block::encode(&result.headers)).collect(),
            bodies: ends.iter().map(|(_, result)| kept(&result.body)).collect(),
        }
    }

    fn bind<'q>(&'q self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        self.keys.bind(query).bind(&self.tokens).bind(&self.statuses).bind(&self.headers).bind(&self.bodies)
    }
}

fn micros(span: Duration) -> i64 {
    // Far from the end of the clock, to which it is added.
    const MOST: i64 = i64::MAX / 4;
    i64::try_from(span.as_micros()).unwrap_or(MOST).min(MOST)
}

fn tokens<'a>(tokens: impl Iterator<Item = &'a Token>) -> Vec<&'a [u8]> {
    tokens.map(|token| token.as_bytes().as_slice()).collect()
}

/// One flag for each row of a batch, from the places that a statement returned.
fn chosen(rows: usize, places: &[PgRow]) -> Done<Vec<bool>> {
    let places = places.iter().map(|row| row.try_get("place")).collect::<Done<Vec<i64>>>()?;
    Ok(at(rows, places))
}

fn at(rows: usize, places: Vec<i64>) -> Vec<bool> {
    let mut chosen = vec![false; rows];
    for place in places {
        if let Some(chosen) = index(place).and_then(|index| chosen.get_mut(index)) {
            *chosen = true;
        }
    }
    chosen
}

/// Places count from 1.
fn index(place: i64) -> Option<usize> {
    usize::try_from(place.saturating_sub(1)).ok()
}

fn standing(found: &PgRow) -> Done<Found> {
    let place = index(found.try_get("place")?).unwrap_or(usize::MAX);
    let known = row::known(found).map_err(|error| row::named(error, found).to_string());
    Ok(Found { place, known })
}

impl Cells for PgRow {
    fn number(&self, column: &'static str) -> Done<Option<i64>> {
        self.try_get(column)
    }

    fn text(&self, column: &'static str) -> Done<Option<String>> {
        self.try_get(column)
    }

    fn bytes(&self, column: &'static str) -> Done<Option<Vec<u8>>> {
        self.try_get(column)
    }
}
