//! The inbox in the file.

use serde::Serialize;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row as _, Sqlite};

use super::super::database::{Aged, Database, FailedEnd, Found, FoundDue, Fresh, Owed, StoredRequest, Takeover};
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
        let mut cells = Vec::with_capacity(rows.len());
        let mut bytes = Vec::with_capacity(48 * rows.len());
        for row in rows {
            let ReceiptKey { consumer, source, key } = &row.request.key;
            let Reserve { event_id, correlation_id, .. } = row.request;
            cells.push((consumer, source, key, event_id, correlation_id, row.lease_until.as_micros()));
            bytes.extend_from_slice(row.token.as_bytes());
            bytes.extend_from_slice(row.request.body.as_bytes());
        }
        let query = sqlx::query(statements::INSERT).bind(json(&cells)?).bind(bytes).bind(now.as_micros());
        let inserted = query.execute(self.open()?).await?.rows_affected();
        if u64::try_from(rows.len()) == Ok(inserted) {
            return Ok(vec![true; rows.len()]);
        }
        self.places(statements::MADE, rows.iter().map(|row| (&row.request.key, row.token))).await
    }

    async fn standings(&mut self, keys: &[&ReceiptKey], _lock: bool) -> Done<Vec<Found>> {
        let cells: Vec<_> = keys.iter().map(|key| (&key.consumer, &key.source, &key.key)).collect();
        let found = sqlx::query(statements::STANDINGS).bind(json(&cells)?).fetch_all(self.open()?).await?;
        found.iter().map(standing).collect()
    }

    /// Nobody else writes.
    async fn take_turns(&mut self, _turns: &[Digest]) -> Done {
        Ok(())
    }

    async fn accept(&mut self, rows: &[&Accept], now: Timestamp) -> Done<Vec<bool>> {
        let mut cells = Vec::with_capacity(rows.len());
        let mut bytes = Vec::new();
        for row in rows {
            let ReceiptKey { consumer, source, key } = &row.key;
            let StoredRequest { method, target, headers, body, proof } = StoredRequest::of(&row.request);
            let quarantine = row.quarantine.as_deref().map(admission::kept_text);
            // `substr` counts from 1.
            let begin = bytes.len() + 1;
            cells.push((
                (consumer, source, key, &row.event_id, &row.ordering_key, quarantine, &row.correlation_id),
                (method, target, proof),
                (begin, headers.len(), body.len()),
            ));
            bytes.extend_from_slice(row.body.as_bytes());
            bytes.extend_from_slice(&headers);
            bytes.extend_from_slice(body);
        }
        let query = sqlx::query(statements::ACCEPT).bind(json(&cells)?).bind(bytes).bind(now.as_micros());
        query.execute(self.open()?).await?;
        // Nobody else writes, and none of them was there: the statement makes them all or fails.
        Ok(vec![true; rows.len()])
    }

    async fn owe(&mut self, owed: &Owed<'_>, now: Timestamp) -> Done {
        let StoredRequest { method, target, headers, body, proof } = &owed.request;
        sqlx::query(statements::OWE)
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
        let found = sqlx::query(statements::DUE)
            .bind(consumer.as_str())
            .bind(now.as_micros())
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .fetch_all(self.open()?)
            .await?;
        let due = |found: &SqliteRow| {
            let due = row::due(found).map_err(|error| error.to_string());
            Ok(FoundDue { id: found.try_get("id")?, due })
        };
        found.iter().map(due).collect()
    }

    async fn release(&mut self, lease: &Lease, now: Timestamp) -> Done<bool> {
        let query =
            keyed(statements::RELEASE, &lease.key).bind(lease.token.as_bytes().as_slice()).bind(now.as_micros());
        Ok(query.execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn take_over(&mut self, run: &Takeover, now: Timestamp) -> Done {
        sqlx::query(statements::TAKE_OVER)
            .bind(run.id)
            .bind(run.token.as_bytes().as_slice())
            .bind(run.lease_until.as_micros())
            .bind(run.attempts)
            .bind(now.as_micros())
            .bind(run.due.map(Timestamp::as_micros))
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn bury(&mut self, id: i64, reason: &str, now: Timestamp) -> Done {
        let query = sqlx::query(statements::BURY).bind(id).bind(reason).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn count_other_body(&mut self, id: i64) -> Done {
        sqlx::query(statements::COUNT_OTHER_BODY).bind(id).execute(self.open()?).await.map(drop)
    }

    async fn note_failure(&mut self, id: i64, run: &FailedRun) -> Done {
        let noted = sqlx::query(statements::NOTE_FAILURE)
            .bind(id)
            .bind(run.attempt)
            .bind(run.at.as_micros())
            .bind(run.status.map(|status| status.as_u16()))
            .bind(run.error.as_str())
            .fetch_one(self.open()?)
            .await?;
        let most = i64::try_from(Failure::MAX_KEPT).unwrap_or(i64::MAX);
        let last_surplus = noted.try_get::<i64, _>("seq")?.saturating_sub(most);
        if last_surplus > 0 {
            sqlx::query(statements::FORGET_FAILURES).bind(id).bind(last_surplus).execute(self.open()?).await?;
        }
        sqlx::query(statements::SHOW_ERROR).bind(id).bind(run.error.as_str()).execute(self.open()?).await.map(drop)
    }

    async fn renew(&mut self, leases: &[(&Lease, Timestamp)]) -> Done<Vec<bool>> {
        let mut cells = Vec::with_capacity(leases.len());
        let mut bytes = Vec::with_capacity(16 * leases.len());
        for (lease, until) in leases {
            let ReceiptKey { consumer, source, key } = &lease.key;
            cells.push((consumer, source, key, until.as_micros()));
            bytes.extend_from_slice(lease.token.as_bytes());
        }
        let held = self.places(statements::HELD, leases.iter().map(|(lease, _)| (&lease.key, lease.token))).await?;
        sqlx::query(statements::RENEW).bind(json(&cells)?).bind(bytes).execute(self.open()?).await?;
        Ok(held)
    }

    async fn complete(&mut self, ends: &[(&Lease, &StoredResult)], now: Timestamp) -> Done<Vec<bool>> {
        let mut cells = Vec::with_capacity(ends.len());
        let mut bytes = Vec::new();
        for (lease, result) in ends {
            let ReceiptKey { consumer, source, key } = &lease.key;
            let headers = header_block::encode(&result.headers);
            let body = kept(&result.body);
            // `substr` counts from 1.
            let begin = bytes.len() + 1;
            let lengths = (headers.len(), body.map(<[u8]>::len));
            cells.push((consumer, source, key, result.status.as_u16(), begin, lengths.0, lengths.1));
            bytes.extend_from_slice(lease.token.as_bytes());
            bytes.extend_from_slice(&headers);
            bytes.extend_from_slice(body.unwrap_or_default());
        }
        let held = self.places(statements::HELD, ends.iter().map(|(lease, _)| (&lease.key, lease.token))).await?;
        let query = sqlx::query(statements::COMPLETE).bind(json(&cells)?).bind(bytes).bind(now.as_micros());
        query.execute(self.open()?).await?;
        Ok(held)
    }

    async fn fail(&mut self, end: &FailedEnd<'_>, now: Timestamp) -> Done<Option<(i64, u32)>> {
        let (answer, request) = (end.answer.as_ref(), end.request.as_ref());
        let held = keyed(statements::FAIL, &end.lease.key)
            .bind(end.lease.token.as_bytes().as_slice())
            .bind(now.as_micros())
            .bind(end.reason.as_deref())
            .bind(answer.map(|answer| answer.status))
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
        held.map(|held| Ok((held.try_get("id")?, held.try_get("attempts")?))).transpose()
    }

    async fn ended(&mut self, _lease: &Lease) -> Done<bool> {
        Ok(false)
    }

    async fn retry(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        keyed(statements::RETRY, key).bind(now.as_micros()).execute(self.open()?).await?;
        let found = keyed(statements::STATE, key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn conclude(&mut self, key: &ReceiptKey, now: Timestamp) -> Done<Option<Result<ReceiptState, StoreError>>> {
        let result = StoredResult::concluded();
        keyed(statements::CONCLUDE, key)
            .bind(now.as_micros())
            .bind(result.status.as_u16())
            .bind(header_block::encode(&result.headers))
            .bind(kept(&result.body))
            .execute(self.open()?)
            .await?;
        let found = keyed(statements::STATE, key).fetch_optional(self.open()?).await?;
        Ok(found.map(|found| row::state(&found)))
    }

    async fn forget(&mut self, key: &ReceiptKey) -> Done<bool> {
        Ok(keyed(statements::FORGET, key).execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn purge(&mut self, aged: &Aged) -> Done<Purged> {
        let keys = sqlx::query(statements::PURGE_KEYS).bind(aged.keys_before.as_micros()).bind(aged.keys);
        let keys = keys.execute(self.open()?).await?.rows_affected();
        let results = sqlx::query(statements::PURGE_RESULTS).bind(aged.results_before.as_micros()).bind(aged.results);
        let results = results.execute(self.open()?).await?.rows_affected();
        Ok(Purged { results, keys })
    }

    async fn check(&mut self, now: Timestamp) -> Done {
        sqlx::query(statements::CHECK).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }
}

impl Connection {
    /// The places within the batch that a statement answers with, one flag for each row of it.
    async fn places<'a>(
        &mut self,
        statement: &'static str,
        leases: impl ExactSizeIterator<Item = (&'a ReceiptKey, Token)>,
    ) -> Done<Vec<bool>> {
        let mut chosen = vec![false; leases.len()];
        let mut cells = Vec::with_capacity(leases.len());
        let mut tokens = Vec::with_capacity(16 * leases.len());
        for (key, token) in leases {
            cells.push((&key.consumer, &key.source, &key.key));
            tokens.extend_from_slice(token.as_bytes());
        }
        let found = sqlx::query(statement).bind(json(&cells)?).bind(tokens).fetch_one(self.open()?).await?;
        let places: Vec<usize> =
            serde_json::from_str(found.try_get(0)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        for place in places {
            if let Some(chosen) = chosen.get_mut(place) {
                *chosen = true;
            }
        }
        Ok(chosen)
    }
}

/// A statement about one receipt: its key is `?1` to `?3`.
fn keyed<'q>(statement: &'static str, key: &'q ReceiptKey) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(statement).bind(key.consumer.as_str()).bind(key.source.as_str()).bind(key.key.as_str())
}

/// The rows of a statement for a batch.
fn json(rows: &impl Serialize) -> Done<String> {
    serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

fn standing(found: &SqliteRow) -> Done<Found> {
    let place = usize::try_from(found.try_get::<i64, _>("place")?).unwrap_or(usize::MAX);
    let known = row::known(found).map_err(|error| row::named(error, found).to_string());
    Ok(Found { place, known })
}

impl Cells for SqliteRow {
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
