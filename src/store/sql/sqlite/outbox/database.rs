//! What the outbox's writer does, in the file.

use std::collections::HashSet;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::super::super::header_block;
use super::super::super::outbox::call::Selection;
use super::super::super::outbox::database::{
    Aged, Burial, Database, Ended, Ending, FoundAhead, FoundDue, FoundEndpoint, FoundMessage, Head, HeldUp, Note,
    Order, PARK_AT_ONCE, POSTPONE, POSTPONE_BEHIND, Ready, Share, Takeover, micros,
};
use super::super::super::outbox::row::{self, Columns, json};
use super::super::super::row::Cells as _;
use super::super::super::transactor::Done;
use super::super::connection::Connection;
use super::inserting::Inserting;
use super::statements;
use crate::store::delivery::Health;
use crate::store::page::FoundBy;
use crate::store::{Endpoint, MessageLease, MessageState, admission};
use crate::{Name, Timestamp};

impl Database for Connection {
    type Inserts<'a> = Inserting<'a>;

    fn inserts(&mut self, now: Timestamp) -> Done<Inserting<'_>> {
        Ok(Inserting::of_writer(self.open()?, now))
    }

    async fn endpoints(&mut self, names: &[&Name], _lock: bool) -> Done<Vec<FoundEndpoint>> {
        let query = sqlx::query(statements::ENDPOINTS).bind(json(&names)?);
        query.fetch_all(self.open()?).await?.iter().map(endpoint).collect()
    }

    async fn put_endpoint(&mut self, endpoint: &Endpoint, now: Timestamp) -> Done {
        let columns = Columns::of(endpoint)?;
        sqlx::query(statements::PUT_ENDPOINT)
            .bind(endpoint.name.as_str())
            .bind(&endpoint.url)
            .bind(&endpoint.scheme)
            .bind(columns.secrets)
            .bind(columns.types)
            .bind(header_block::encode(&endpoint.headers))
            .bind(columns.settings)
            .bind(now.as_micros())
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn set_health(&mut self, name: &Name, health: &Health, updated: Option<Timestamp>) -> Done {
        sqlx::query(statements::SET_HEALTH)
            .bind(name.as_str())
            .bind(health.disabled.as_deref())
            .bind(health.disabled_since.map(Timestamp::as_micros))
            .bind(health.paused_until.map(Timestamp::as_micros))
            .bind(health.failing_since.map(Timestamp::as_micros))
            .bind(i64::try_from(health.failures).unwrap_or(i64::MAX))
            .bind(updated.map(Timestamp::as_micros))
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn remove_endpoint(&mut self, name: &Name) -> Done<bool> {
        let query = sqlx::query(statements::REMOVE_ENDPOINT).bind(name.as_str());
        Ok(query.execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn has_more_than(&mut self, endpoint: &Name, most: u32) -> Done<bool> {
        let query = sqlx::query(statements::MORE_THAN).bind(endpoint.as_str()).bind(i64::from(most));
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn bury_all(&mut self, endpoint: &Name, reason: &str, most: u32, now: Timestamp) -> Done<u64> {
        let query = sqlx::query(statements::BURY_ALL).bind(endpoint.as_str()).bind(reason).bind(now.as_micros());
        Ok(query.bind(i64::from(most)).execute(self.open()?).await?.rows_affected())
    }

    async fn ready(&mut self, without: &[&Name], most: u32, now: Timestamp) -> Done<Vec<Ready>> {
        let query = sqlx::query(statements::READY).bind(now.as_micros()).bind(json(&without)?).bind(most);
        let ready = |found: &SqliteRow| {
            let has = |lane| Ok::<_, sqlx::Error>(found.number(lane)?.is_some());
            Ok(Ready { endpoint: endpoint(found)?, lanes: [has("fresh")?, has("tried")?, has("held_up")?] })
        };
        query.fetch_all(self.open()?).await?.iter().map(ready).collect()
    }

    async fn take(&mut self, shares: &[Share<'_>], now: Timestamp) -> Done<Vec<FoundDue>> {
        let mut taken = Vec::new();
        for (place, share) in shares.iter().enumerate() {
            let query = sqlx::query(statements::TAKE).bind(share.endpoint.as_str()).bind(share.lane.number());
            let query = query.bind(now.as_micros()).bind(share.most);
            for found in query.fetch_all(self.open()?).await? {
                let due = row::due(&found);
                taken.push(FoundDue { share: place, id: found.try_get("id")?, noted: found.try_get("noted")?, due });
            }
        }
        Ok(taken)
    }

    async fn ahead(&mut self, ids: &[i64], now: Timestamp) -> Done<Vec<FoundAhead>> {
        let query = sqlx::query(statements::AHEAD).bind(json(&ids)?).bind(now.as_micros());
        query.fetch_all(self.open()?).await?.iter().map(row::ahead).collect()
    }

    /// Nobody else writes; but the claim itself may have made one of them a dead letter.
    async fn lock_heads(&mut self, ids: &[i64]) -> Done<Vec<Head>> {
        let query = sqlx::query(statements::HEADS).bind(json(&ids)?);
        query.fetch_all(self.open()?).await?.iter().map(row::head).collect()
    }

    async fn postpone(&mut self, held_up: &[HeldUp<'_>], now: Timestamp) -> Done {
        let ids: Vec<i64> = held_up.iter().map(|held_up| held_up.id).collect();
        let (least, most) = (micros(POSTPONE.0), micros(POSTPONE.1));
        let query = sqlx::query(statements::POSTPONE).bind(json(&ids)?).bind(now.as_micros()).bind(least).bind(most);
        query.execute(self.open()?).await?;
        // The first one of each order: what is behind it is behind the others too.
        let mut seen = HashSet::new();
        for HeldUp { id, endpoint, ordering_key } in held_up {
            if seen.insert((*endpoint, *ordering_key)) {
                sqlx::query(statements::POSTPONE_BEHIND)
                    .bind(endpoint.as_str())
                    .bind(ordering_key.as_str())
                    .bind(*id)
                    .bind(now.as_micros())
                    .bind(least)
                    .bind(most)
                    .bind(POSTPONE_BEHIND)
                    .execute(self.open()?)
                    .await?;
            }
        }
        Ok(())
    }

    async fn promote(&mut self, orders: &[(&Name, &Name)]) -> Done {
        for (endpoint, order) in orders {
            let query = sqlx::query(statements::PROMOTE).bind(endpoint.as_str()).bind(order.as_str());
            query.execute(self.open()?).await?;
        }
        Ok(())
    }

    async fn promote_all(&mut self, endpoint: &Name, most: u32) -> Done<u64> {
        let query = sqlx::query(statements::PROMOTE_ALL).bind(endpoint.as_str()).bind(i64::from(most));
        Ok(query.execute(self.open()?).await?.rows_affected())
    }

    async fn park(&mut self, id: i64, (endpoint, order): (&Name, &Name), reason: &str, now: Timestamp) -> Done {
        let query = sqlx::query(statements::PARK).bind(id).bind(endpoint.as_str()).bind(order.as_str());
        query.bind(reason).bind(now.as_micros()).bind(i64::from(PARK_AT_ONCE)).execute(self.open()?).await.map(drop)
    }

    async fn take_over(&mut self, runs: &[Takeover], until: Timestamp, now: Timestamp) -> Done<Vec<(i64, Vec<u8>)>> {
        let cells: Vec<_> = runs.iter().map(|run| (run.id, u8::from(run.lapsed))).collect();
        let tokens: Vec<u8> = runs.iter().flat_map(|run| *run.token.as_bytes()).collect();
        let query = sqlx::query(statements::TAKE_OVER).bind(json(&cells)?).bind(tokens);
        let query = query.bind(until.as_micros()).bind(admission::LAPSED).bind(now.as_micros());
        query.execute(self.open()?).await?;
        let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
        let query = sqlx::query(statements::PAYLOADS).bind(json(&ids)?);
        query.fetch_all(self.open()?).await?.iter().map(row::payload).collect()
    }

    async fn bury(&mut self, burials: &[Burial], now: Timestamp) -> Done {
        let cell = |burial: &'_ Burial| (burial.id, burial.reason.clone(), u8::from(burial.lapsed));
        let cells: Vec<_> = burials.iter().map(cell).collect();
        let query = sqlx::query(statements::BURY).bind(json(&cells)?).bind(admission::LAPSED).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn note(&mut self, notes: &[Note], now: Timestamp) -> Done {
        let mut cells = Vec::with_capacity(notes.len());
        let mut bytes = Vec::new();
        for Note { message, seq, replay, number, report } in notes {
            let headers = header_block::encode(&report.headers);
            // `substr` counts from 1.
            let begin = bytes.len() + 1;
            let status = report.status.map(|status| status.as_u16());
            let lengths = (headers.len(), report.body.len());
            let (took, texts) = (micros(report.took), (&report.error, &report.kind));
            cells.push((message, seq, replay, number, took, status, texts.0, texts.1, begin, lengths.0, lengths.1));
            bytes.extend_from_slice(&headers);
            bytes.extend_from_slice(&report.body);
        }
        let query = sqlx::query(statements::NOTE).bind(json(&cells)?).bind(bytes).bind(now.as_micros());
        query.execute(self.open()?).await?;
        for (message, last) in notes.iter().filter_map(Note::surplus) {
            sqlx::query(statements::FORGET_ATTEMPTS).bind(message).bind(last).execute(self.open()?).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, leases: &[(&MessageLease, Timestamp)]) -> Done<Vec<bool>> {
        let mut held = Vec::with_capacity(leases.len());
        for (lease, until) in leases {
            let query = sqlx::query(statements::RENEW).bind(lease.row).bind(lease.token.as_bytes().as_slice());
            held.push(query.bind(until.as_micros()).execute(self.open()?).await?.rows_affected() > 0);
        }
        Ok(held)
    }

    async fn end(&mut self, ends: &[Ending<'_>], now: Timestamp) -> Done<Vec<Option<Ended>>> {
        let ids: Vec<i64> = ends.iter().map(|end| end.lease.row).collect();
        let tokens: Vec<u8> = ends.iter().flat_map(|end| *end.lease.token.as_bytes()).collect();
        let mut ended: Vec<Option<Ended>> = ends.iter().map(|_| None).collect();
        let noted = |place: usize| ends.get(place).map_or(0, |end| end.noted.into());
        let query = sqlx::query(statements::HELD).bind(json(&ids)?).bind(&tokens);
        for found in query.fetch_all(self.open()?).await? {
            let place = usize::try_from(found.try_get::<i64, _>("place")?).unwrap_or(usize::MAX);
            if let Some(ended) = ended.get_mut(place) {
                let before = row::ended(&found)?;
                *ended = Some(Ended { noted: before.noted.saturating_add(noted(place)), ..before });
            }
        }
        let cell = |end: &Ending<'_>| {
            let due = end.due.map(Timestamp::as_micros);
            let (uncounted, noted) = (u8::from(end.uncounted), u8::from(end.noted));
            (
                end.lease.row,
                end.state.as_str(),
                due,
                end.reason.clone(),
                uncounted,
                noted,
                end.status,
                end.error.map(str::to_owned),
            )
        };
        let cells: Vec<_> = ends.iter().map(cell).collect();
        let query = sqlx::query(statements::END).bind(json(&cells)?).bind(tokens).bind(now.as_micros());
        query.execute(self.open()?).await?;
        Ok(ended)
    }

    async fn ended(&mut self, _lease: &MessageLease) -> Done<bool> {
        Ok(false)
    }

    async fn select(
        &mut self,
        selection: &Selection,
        states: &[MessageState],
        must_have_endpoint: bool,
    ) -> Done<Vec<(i64, Option<FoundMessage>)>> {
        let filter = &selection.filter;
        let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        let statement = match filter.found_by() {
            FoundBy::Id => statements::SELECT_BY_ID,
            FoundBy::Correlation => statements::SELECT_BY_CORRELATION,
            FoundBy::State => statements::SELECT,
        };
        let query = sqlx::query(statement)
            .bind(selection.after)
            .bind(json(&states)?)
            .bind(filter.endpoint.as_ref().map(|name| name.as_str()))
            .bind(filter.id.as_ref().map(|id| id.as_str()))
            .bind(filter.event_type.as_ref().map(|name| name.as_str()))
            .bind(selection.most)
            .bind(must_have_endpoint)
            .bind(filter.before_micros())
            .bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
        query.fetch_all(self.open()?).await?.iter().map(row::selected).collect()
    }

    async fn replay(&mut self, ids: &[(i64, Timestamp)], now: Timestamp) -> Done {
        let cells: Vec<_> = ids.iter().map(|(id, due)| (id, due.as_micros())).collect();
        let query = sqlx::query(statements::REPLAY).bind(json(&cells)?).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn cancel(&mut self, ids: &[i64], reason: &str, now: Timestamp) -> Done {
        let query = sqlx::query(statements::CANCEL).bind(json(&ids)?).bind(reason).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn check(&mut self, now: Timestamp) -> Done {
        sqlx::query(super::super::statements::CHECK).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }

    async fn purge(&mut self, aged: &Aged, most: u32) -> Done<Vec<Option<Order>>> {
        let query = sqlx::query(statements::PURGE).bind(aged.done.as_micros());
        let query = query.bind(aged.dead.map(Timestamp::as_micros)).bind(most);
        Ok(query.fetch_all(self.open()?).await?.iter().map(row::order).collect())
    }
}

fn endpoint(found: &SqliteRow) -> Done<FoundEndpoint> {
    Ok(FoundEndpoint { name: found.try_get("name")?, entry: row::endpoint(found) })
}
