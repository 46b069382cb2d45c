//! The inbox in MySQL or MariaDB.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{MySql, Row as _};

use super::super::database::{Aged, Database, FailedEnd, Found, FoundDue, Fresh, Owed, StoredRequest, Takeover};
use super::super::header_block;
use super::super::row::{self, Cells};
use super::super::settle::kept;
use super::super::transactor::Done;
use super::connection::Connection;
use super::statements;
use crate::store::{
    Accept, FailedRun, Failure, Lease, Purged, ReceiptKey, ReceiptState, StoreError, StoredResult, Token, admission,
};
use crate::{Digest, Name, Timestamp};

impl Database for Connection {
    async fn insert(&mut self, rows: &[Fresh<'_>], now: Timestamp) -> Done<Vec<bool>> {
        let keys: Vec<_> = rows.iter().map(|row| encoded(&row.request.key)).collect();
        let known = sqlx::query(statements::KNOWN).bind(json(&keys)?).fetch_all(self.open()?).await?;
        let cells: Vec<_> = rows
            .iter()
            .zip(keys)
            .zip(chosen(rows.len(), &known)?)
            .filter(|(_, is_known)| !is_known)
            .map(|((row, [consumer, source, key]), _)| {
                let event_id = row.request.event_id.as_ref().map(|id| STANDARD.encode(id.as_str()));
                let (token, digest) =
                    (STANDARD.encode(row.token.as_bytes()), STANDARD.encode(row.request.body.as_bytes()));
                let flow = row.request.correlation_id.as_ref().map(|name| STANDARD.encode(name.as_str()));
                (consumer, source, key, event_id, token, digest, row.lease_until.as_micros(), flow)
            })
            .collect();
        if cells.is_empty() {
            return Ok(vec![false; rows.len()]);
        }
        let query = sqlx::query(statements::INSERT).bind(now.as_micros()).bind(now.as_micros()).bind(json(&cells)?);
        // How many were made cannot be told from the count: a row that was there counts as found.
        if query.execute(self.open()?).await?.rows_affected() == 0 {
            return Ok(vec![false; rows.len()]);
        }
        self.places(statements::MADE, rows.iter().map(|row| (&row.request.key, row.token))).await
    }

    async fn standings(&mut self, keys: &[&ReceiptKey], lock: bool) -> Done<Vec<Found>> {
        let statement = if lock { statements::LOCKED_STANDINGS } else { statements::STANDINGS };
        let cells: Vec<_> = keys.iter().map(|key| encoded(key)).collect();
        let found = sqlx::query(statement).bind(json(&cells)?).fetch_all(self.open()?).await?;
        found.iter().map(standing).collect()
    }

    async fn take_turns(&mut self, turns: &[Digest]) -> Done {
        self.named_locks = true;
        take_turns(self.open()?, turns).await
    }

    async fn accept(&mut self, rows: &[&Accept], now: Timestamp) -> Done<Vec<bool>> {
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                let StoredRequest { method, target, headers, body, proof } = StoredRequest::of(&row.request);
                let [consumer, source, key] = encoded(&row.key);
                let event_id = row.event_id.as_ref().map(|id| STANDARD.encode(id.as_str()));
                let order = row.ordering_key.as_ref().map(|order| STANDARD.encode(order.as_str()));
                let reason = row.quarantine.as_deref().map(|reason| STANDARD.encode(admission::kept_text(reason)));
                let digest = STANDARD.encode(row.body.as_bytes());
                let [method, target, proof] = [method, target, proof].map(|text| STANDARD.encode(text));
                let (headers, body) = (STANDARD.encode(headers), STANDARD.encode(body));
                let flow = row.correlation_id.as_ref().map(|name| STANDARD.encode(name.as_str()));
                (consumer, source, key, event_id, order, digest, reason, method, target, proof, headers, body, flow)
            })
            .collect();
        let query = sqlx::query(statements::ACCEPT).bind(now.as_micros()).bind(now.as_micros()).bind(now.as_micros());
        query.bind(json(&cells)?).execute(self.open()?).await?;
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                let [consumer, source, key] = encoded(&row.key);
                (consumer, source, key, STANDARD.encode(row.body.as_bytes()), u8::from(row.quarantine.is_some()))
            })
            .collect();
        let query = sqlx::query(statements::ACCEPTED).bind(json(&cells)?).bind(now.as_micros());
        chosen(rows.len(), &query.fetch_all(self.open()?).await?)
    }

    async fn owe(&mut self, owed: &Owed<'_>, now: Timestamp) -> Done {
        let StoredRequest { method, target, headers, body, proof } = &owed.request;
        sqlx::query(statements::OWE)
            .bind(owed.state.as_str().as_bytes())
            .bind(owed.due.map(Timestamp::as_micros))
            .bind(owed.due.is_none())
            .bind(owed.reason.as_deref())
            .bind(owed.ordering_key.map(|order| order.as_str().as_bytes()))
            .bind(owed.state == ReceiptState::Processing)
            .bind(now.as_micros())
            .bind(method.as_bytes())
            .bind(target.as_bytes())
            .bind(proof.as_bytes())
            .bind(headers.as_slice())
            .bind(*body)
            .bind(owed.id)
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn due(&mut self, consumer: &Name, most: usize, now: Timestamp) -> Done<Vec<FoundDue>> {
        let query = sqlx::query(statements::DUE).bind(consumer.as_str().as_bytes()).bind(now.as_micros());
        let query = query.bind(i64::try_from(most).unwrap_or(i64::MAX));
        let due = |found: &MySqlRow| {
            let due = row::due(found).map_err(|error| error.to_string());
            Ok(FoundDue { id: found.try_get("id")?, due })
        };
        query.fetch_all(self.open()?).await?.iter().map(due).collect()
    }

    async fn release(&mut self, lease: &Lease, now: Timestamp) -> Done<bool> {
        let query = sqlx::query(statements::RELEASE).bind(now.as_micros()).bind(now.as_micros());
        let query = keyed(query, &lease.key).bind(lease.token.as_bytes().as_slice());
        Ok(query.execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn take_over(&mut self, run: &Takeover, now: Timestamp) -> Done {
        sqlx::query(statements::TAKE_OVER)
            .bind(run.token.as_bytes().as_slice())
            .bind(run.lease_until.as_micros())
            .bind(i64::from(run.attempts))
            .bind(now.as_micros())
            .bind(run.due.map(Timestamp::as_micros))
            .bind(run.id)
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn bury(&mut self, id: i64, reason: &str, now: Timestamp) -> Done {
        let query = sqlx::query(statements::BURY).bind(reason).bind(now.as_micros()).bind(id);
        query.execute(self.open()?).await.map(drop)
    }

    async fn count_other_body(&mut self, id: i64) -> Done {
        if sqlx::query(statements::LOCK_FREE).bind(id).fetch_optional(self.open()?).await?.is_some() {
            sqlx::query(statements::COUNT_OTHER_BODY).bind(id).execute(self.open()?).await?;
        }
        Ok(())
    }

    async fn note_failure(&mut self, id: i64, run: &FailedRun) -> Done {
        let next = sqlx::query(statements::NEXT_FAILURE).bind(id).fetch_one(self.open()?).await?;
        let seq: i64 = next.try_get("seq")?;
        sqlx::query(statements::NOTE_FAILURE)
            .bind(id)
            .bind(seq)
            .bind(i64::from(run.attempt))
            .bind(run.at.as_micros())
            .bind(run.status.map(|status| i64::from(status.as_u16())))
            .bind(run.error.as_str())
            .execute(self.open()?)
            .await?;
        let last_surplus = seq.saturating_sub(i64::try_from(Failure::MAX_KEPT).unwrap_or(i64::MAX));
        if last_surplus > 0 {
            sqlx::query(statements::FORGET_FAILURES).bind(id).bind(last_surplus).execute(self.open()?).await?;
        }
        sqlx::query(statements::SHOW_ERROR).bind(run.error.as_str()).bind(id).execute(self.open()?).await.map(drop)
    }

    async fn renew(&mut self, leases: &[(&Lease, Timestamp)]) -> Done<Vec<bool>> {
        let pairs = || leases.iter().map(|(lease, _)| (&lease.key, lease.token));
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let free = self.places(statements::LOCK_HELD_AND_FREE, pairs()).await?;
        let cells: Vec<_> = leases
            .iter()
            .zip(&free)
            .filter(|(_, free)| **free)
            .map(|((lease, until), _)| {
                let [consumer, source, key] = encoded(&lease.key);
                (consumer, source, key, STANDARD.encode(lease.token.as_bytes()), until.as_micros())
            })
            .collect();
        if !cells.is_empty() {
            sqlx::query(statements::RENEW).bind(json(&cells)?).execute(self.open()?).await?;
        }
        if cells.len() == leases.len() {
            return Ok(free);
        }
        // One whose receipt is in hand is most likely being ended by its own holder's transaction.
        self.places(statements::HELD, pairs()).await
    }

    async fn complete(&mut self, ends: &[(&Lease, &StoredResult)], now: Timestamp) -> Done<Vec<bool>> {
        let held = self.places(statements::LOCK_HELD, ends.iter().map(|(lease, _)| (&lease.key, lease.token))).await?;
        let cells: Vec<_> = ends
            .iter()
            .zip(&held)
            .filter(|(_, held)| **held)
            .map(|((lease, result), _)| {
                let [consumer, source, key] = encoded(&lease.key);
                let headers = STANDARD.encode(header_block::encode(&result.headers));
                let body = kept(&result.body).map(|body| STANDARD.encode(body));
                let token = STANDARD.encode(lease.token.as_bytes());
                (consumer, source, key, token, result.status.as_u16(), headers, body)
            })
            .collect();
        if !cells.is_empty() {
            let query = sqlx::query(statements::COMPLETE).bind(json(&cells)?).bind(now.as_micros());
            query.execute(self.open()?).await?;
        }
        Ok(held)
    }

    async fn fail(&mut self, end: &FailedEnd<'_>, now: Timestamp) -> Done<Option<(i64, u32)>> {
        let query = keyed(sqlx::query(statements::LOCK_ONE_HELD), &end.lease.key);
        let held = query.bind(end.lease.token.as_bytes().as_slice()).fetch_optional(self.open()?).await?;
        let Some(held) = held else { return Ok(None) };
        let id: i64 = held.try_get("id")?;
        let attempts = u32::try_from(held.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX);
        let (answer, request) = (end.answer.as_ref(), end.request.as_ref());
        let state = if end.reason.is_some() { ReceiptState::DeadLetter } else { ReceiptState::Failed };
        sqlx::query(statements::FAIL)
            .bind(state.as_str().as_bytes())
            .bind(now.as_micros())
            .bind(end.reason.as_deref())
            .bind(end.reason.is_none())
            .bind(request.map(|request| request.method.as_bytes()))
            .bind(end.due.map(Timestamp::as_micros))
            .bind(now.as_micros())
            .bind(answer.is_some())
            .bind(answer.map(|answer| answer.headers.as_slice()))
            .bind(answer.is_some())
            .bind(answer.and_then(|answer| answer.body))
            .bind(answer.is_some())
            .bind(answer.map(|answer| i64::from(answer.status)))
            .bind(request.is_some())
            .bind(request.map(|request| request.target.as_bytes()))
            .bind(request.is_some())
            .bind(request.map(|request| request.headers.as_slice()))
            .bind(request.is_some())
            .bind(request.map(|request| request.body))
            .bind(request.is_some())
            .bind(request.map(|request| request.proof.as_bytes()))
            .bind(request.is_some())
            .bind(request.map(|request| request.method.as_bytes()))
            .bind(id)
            .execute(self.open()?)
            .await?;
        Ok(Some((id, attempts)))
    }

    async fn ended(&mut self, lease: &Lease) -> Done<bool> {
        let query = keyed(sqlx::query(statements::ENDED), &lease.key).bind(lease.token.as_bytes().as_slice());
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn retry(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        let query = sqlx::query(statements::RETRY).bind(now.as_micros()).bind(now.as_micros());
        keyed(query, key).execute(self.open()?).await?;
        let found = keyed(sqlx::query(statements::STATE), key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn conclude(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        let result = StoredResult::concluded();
        let query = sqlx::query(statements::CONCLUDE)
            .bind(now.as_micros())
            .bind(i64::from(result.status.as_u16()))
            .bind(header_block::encode(&result.headers))
            .bind(kept(&result.body));
        keyed(query, key).execute(self.open()?).await?;
        let found = keyed(sqlx::query(statements::STATE), key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn forget(&mut self, key: &ReceiptKey) -> Done<bool> {
        let found = keyed(sqlx::query(statements::LOCK_ONE), key).fetch_optional(self.open()?).await?;
        let Some(found) = found else { return Ok(false) };
        self.remove(&[found.try_get("id")?]).await?;
        Ok(true)
    }

    async fn purge(&mut self, aged: &Aged) -> Done<Purged> {
        let mut purged = Purged::default();
        self.named_locks = true;
        let alone = sqlx::raw_sql(statements::PURGE_ALONE).fetch_one(self.open()?).await?;
        if alone.try_get::<Option<i64>, _>("alone")? != Some(1) {
            return Ok(purged);
        }
        if aged.keys > 0 {
            let mut oldest = Vec::new();
            for state in [ReceiptState::Succeeded, ReceiptState::Failed] {
                let query = sqlx::query(statements::AGED_KEYS).bind(state.as_str().as_bytes());
                let query = query.bind(aged.keys_before.as_micros()).bind(i64::from(aged.keys));
                for row in query.fetch_all(self.open()?).await? {
                    oldest.push((row.try_get::<i64, _>("updated")?, row.try_get::<i64, _>("id")?));
                }
            }
            oldest.sort_unstable();
            oldest.truncate(usize::try_from(aged.keys).unwrap_or(usize::MAX));
            let ids: Vec<i64> = oldest.into_iter().map(|(_, id)| id).collect();
            purged.keys = self.remove(&ids).await?;
        }
        if aged.results > 0 {
            let query = sqlx::query(statements::AGED_RESULTS).bind(aged.results_before.as_micros());
            let rows = query.bind(i64::from(aged.results)).fetch_all(self.open()?).await?;
            let ids = rows.iter().map(|row| row.try_get("id")).collect::<Done<Vec<i64>>>()?;
            if !ids.is_empty() {
                let query = sqlx::query(statements::REMOVE_BODIES).bind(json(&ids)?);
                purged.results = query.execute(self.open()?).await?.rows_affected();
            }
        }
        Ok(purged)
    }

    async fn check(&mut self, now: Timestamp) -> Done {
        sqlx::query(statements::CHECK).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }
}

/// Waits for named locks, which are the session's: the writer frees them with its transaction.
pub(super) async fn take_turns(connection: &mut MySqlConnection, turns: &[Digest]) -> Done {
    for turn in turns {
        let query = sqlx::query(statements::TAKE_TURN).bind(turn.to_string());
        let taken = query.fetch_one(&mut *connection).await?;
        if taken.try_get::<Option<i64>, _>("taken")? != Some(1) {
            return Err(sqlx::Error::PoolTimedOut);
        }
    }
    Ok(())
}

impl Connection {
    /// One flag for each row of a batch, from the places that a statement returns. They count from 1.
    async fn places<'a>(
        &mut self,
        statement: &'static str,
        leases: impl ExactSizeIterator<Item = (&'a ReceiptKey, Token)>,
    ) -> Done<Vec<bool>> {
        let rows = leases.len();
        let cells: Vec<_> = leases
            .map(|(key, token)| {
                let [consumer, source, key] = encoded(key);
                (consumer, source, key, STANDARD.encode(token.as_bytes()))
            })
            .collect();
        chosen(rows, &sqlx::query(statement).bind(json(&cells)?).fetch_all(self.open()?).await?)
    }

    /// Removes receipts that are locked, and their histories.
    async fn remove(&mut self, ids: &[i64]) -> Done<u64> {
        if ids.is_empty() {
            return Ok(0);
        }
        let ids = json(&ids)?;
        sqlx::query(statements::REMOVE_HISTORIES).bind(&ids).execute(self.open()?).await?;
        Ok(sqlx::query(statements::REMOVE).bind(&ids).execute(self.open()?).await?.rows_affected())
    }
}

/// Binds the key of one receipt: consumer, source, key.
fn keyed<'q>(query: Query<'q, MySql, MySqlArguments>, key: &'q ReceiptKey) -> Query<'q, MySql, MySqlArguments> {
    let query = query.bind(key.consumer.as_str().as_bytes()).bind(key.source.as_str().as_bytes());
    query.bind(key.key.as_str().as_bytes())
}

/// A key as cells of a batch.
fn encoded(key: &ReceiptKey) -> [String; 3] {
    [key.consumer.as_str(), key.source.as_str(), key.key.as_str()].map(|text| STANDARD.encode(text))
}

/// The rows of a statement for a batch.
fn json(rows: &impl Serialize) -> Done<String> {
    serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

fn chosen(rows: usize, places: &[MySqlRow]) -> Done<Vec<bool>> {
    let mut chosen = vec![false; rows];
    for row in places {
        if let Some(chosen) = place(row)?.and_then(|place| chosen.get_mut(place)) {
            *chosen = true;
        }
    }
    Ok(chosen)
}

fn place(row: &MySqlRow) -> Done<Option<usize>> {
    Ok(usize::try_from(row.try_get::<i64, _>("place")?.saturating_sub(1)).ok())
}

fn standing(found: &MySqlRow) -> Done<Found> {
    let place = place(found)?.unwrap_or(usize::MAX);
    let known = row::known(found).map_err(|error| row::named(error, found).to_string());
    Ok(Found { place, known })
}

impl Cells for MySqlRow {
    fn number(&self, column: &'static str) -> Done<Option<i64>> {
        self.try_get(column)
    }

    /// Text is stored as bytes, so that nothing folds it.
    fn text(&self, column: &'static str) -> Done<Option<String>> {
        let text = self.bytes(column)?.map(String::from_utf8).transpose();
        text.map_err(|error| sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(error) })
    }

    fn bytes(&self, column: &'static str) -> Done<Option<Vec<u8>>> {
        self.try_get(column)
    }
}
