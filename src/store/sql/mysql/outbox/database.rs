//! What the outbox's writer does, in MySQL or MariaDB.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

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
        let connection = self.connection.as_mut().ok_or(sqlx::Error::WorkerCrashed)?;
        Ok(Inserting::of_writer(connection, &mut self.named_locks, now))
    }

    async fn endpoints(&mut self, names: &[&Name], lock: bool) -> Done<Vec<FoundEndpoint>> {
        if !lock {
            let query = sqlx::query(statements::ENDPOINTS).bind(encoded(names)?);
            return query.fetch_all(self.open()?).await?.iter().map(endpoint).collect();
        }
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let query = sqlx::query(statements::LOCKED_ENDPOINT).bind(name.as_str().as_bytes());
            found.extend(query.fetch_optional(self.open()?).await?.as_ref().map(endpoint).transpose()?);
        }
        Ok(found)
    }

    async fn put_endpoint(&mut self, endpoint: &Endpoint, now: Timestamp) -> Done {
        let Columns { secrets, types, settings } = Columns::of(endpoint)?;
        let headers = header_block::encode(&endpoint.headers);
        let (url, scheme) = (endpoint.url.as_bytes(), endpoint.scheme.as_bytes());
        sqlx::query(statements::PUT_ENDPOINT)
            .bind(endpoint.name.as_str().as_bytes())
            .bind(url)
            .bind(scheme)
            .bind(secrets.as_bytes())
            .bind(types.as_bytes())
            .bind(&headers)
            .bind(settings.as_bytes())
            .bind(now.as_micros())
            .bind(now.as_micros())
            .bind(url)
            .bind(scheme)
            .bind(secrets.as_bytes())
            .bind(types.as_bytes())
            .bind(&headers)
            .bind(settings.as_bytes())
            .bind(now.as_micros())
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn set_health(&mut self, name: &Name, health: &Health, updated: Option<Timestamp>) -> Done {
        sqlx::query(statements::SET_HEALTH)
            .bind(health.disabled.as_deref())
            .bind(health.disabled_since.map(Timestamp::as_micros))
            .bind(health.paused_until.map(Timestamp::as_micros))
            .bind(health.failing_since.map(Timestamp::as_micros))
            .bind(i64::try_from(health.failures).unwrap_or(i64::MAX))
            .bind(updated.map(Timestamp::as_micros))
            .bind(name.as_str().as_bytes())
            .execute(self.open()?)
            .await
            .map(drop)
    }

    async fn remove_endpoint(&mut self, name: &Name) -> Done<bool> {
        let query = sqlx::query(statements::REMOVE_ENDPOINT).bind(name.as_str().as_bytes());
        Ok(query.execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn has_more_than(&mut self, endpoint: &Name, most: u32) -> Done<bool> {
        let query = sqlx::query(statements::MORE_THAN).bind(endpoint.as_str().as_bytes()).bind(i64::from(most));
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn bury_all(&mut self, endpoint: &Name, reason: &str, most: u32, now: Timestamp) -> Done<u64> {
        let query =
            sqlx::query(statements::BURY_ALL).bind(reason).bind(now.as_micros()).bind(endpoint.as_str().as_bytes());
        Ok(query.bind(i64::from(most)).execute(self.open()?).await?.rows_affected())
    }

    async fn ready(&mut self, without: &[&Name], most: u32, now: Timestamp) -> Done<Vec<Ready>> {
        let now = now.as_micros();
        let query = sqlx::query(statements::READY).bind(now).bind(now).bind(now).bind(now);
        let query = query.bind(encoded(without)?).bind(i64::from(most));
        let ready = |found: &MySqlRow| {
            let has = |lane| Ok::<_, sqlx::Error>(found.number(lane)?.is_some());
            Ok(Ready { endpoint: endpoint(found)?, lanes: [has("fresh")?, has("tried")?, has("held_up")?] })
        };
        query.fetch_all(self.open()?).await?.iter().map(ready).collect()
    }

    async fn take(&mut self, shares: &[Share<'_>], now: Timestamp) -> Done<Vec<FoundDue>> {
        let mut taken = Vec::new();
        for (place, share) in shares.iter().enumerate() {
            let query = sqlx::query(statements::TAKE).bind(share.endpoint.as_str().as_bytes());
            let query = query.bind(share.lane.number()).bind(now.as_micros()).bind(i64::from(share.most));
            for found in query.fetch_all(self.open()?).await? {
                let due = row::due(&found);
                taken.push(FoundDue { share: place, id: found.try_get("id")?, noted: found.try_get("noted")?, due });
            }
        }
        Ok(taken)
    }

    async fn ahead(&mut self, ids: &[i64], now: Timestamp) -> Done<Vec<FoundAhead>> {
        let query = sqlx::query(statements::AHEAD).bind(now.as_micros()).bind(json(&ids)?);
        query.fetch_all(self.open()?).await?.iter().map(row::ahead).collect()
    }

    async fn lock_heads(&mut self, ids: &[i64]) -> Done<Vec<Head>> {
        let query = sqlx::query(statements::LOCK_HEADS).bind(json(&ids)?);
        query.fetch_all(self.open()?).await?.iter().map(row::head).collect()
    }

    async fn postpone(&mut self, held_up: &[HeldUp<'_>], now: Timestamp) -> Done {
        let mut ids: Vec<i64> = held_up.iter().map(|held_up| held_up.id).collect();
        // The first one of each order: what is behind it is behind the others too.
        let mut seen = HashSet::new();
        for HeldUp { id, endpoint, ordering_key } in held_up {
            if !seen.insert((*endpoint, *ordering_key)) {
                continue;
            }
            let query = sqlx::query(statements::BEHIND).bind(ordering_key.as_str().as_bytes());
            let query = query.bind(endpoint.as_str().as_bytes()).bind(*id).bind(now.as_micros());
            for row in query.bind(i64::from(POSTPONE_BEHIND)).fetch_all(self.open()?).await? {
                ids.push(row.try_get("id")?);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let query = sqlx::query(statements::POSTPONE).bind(json(&ids)?).bind(now.as_micros()).bind(now.as_micros());
        let query = query.bind(micros(POSTPONE.0)).bind(micros(POSTPONE.1)).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn promote(&mut self, orders: &[(&Name, &Name)]) -> Done {
        let mut ids = Vec::with_capacity(orders.len());
        for (endpoint, order) in orders {
            let (endpoint, order) = (endpoint.as_str().as_bytes(), order.as_str().as_bytes());
            let query = sqlx::query(statements::NEXT).bind(order).bind(endpoint).bind(order).bind(endpoint);
            for row in query.fetch_all(self.open()?).await? {
                ids.push(row.try_get::<i64, _>("id")?);
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        ids.sort_unstable();
        sqlx::query(statements::PROMOTE).bind(json(&ids)?).execute(self.open()?).await.map(drop)
    }

    async fn promote_all(&mut self, endpoint: &Name, most: u32) -> Done<u64> {
        let query = sqlx::query(statements::PROMOTE_ALL).bind(endpoint.as_str().as_bytes()).bind(i64::from(most));
        Ok(query.execute(self.open()?).await?.rows_affected())
    }

    async fn park(&mut self, id: i64, (endpoint, order): (&Name, &Name), reason: &str, now: Timestamp) -> Done {
        let query = sqlx::query(statements::PARK).bind(reason).bind(now.as_micros());
        let query = query.bind(order.as_str().as_bytes()).bind(endpoint.as_str().as_bytes()).bind(id);
        query.bind(i64::from(PARK_AT_ONCE)).execute(self.open()?).await.map(drop)
    }

    async fn take_over(&mut self, runs: &[Takeover], until: Timestamp, now: Timestamp) -> Done<Vec<(i64, Vec<u8>)>> {
        let cell = |run: &Takeover| (run.id, STANDARD.encode(run.token.as_bytes()), u8::from(run.lapsed));
        let cells: Vec<_> = runs.iter().map(cell).collect();
        let query = sqlx::query(statements::TAKE_OVER).bind(json(&cells)?);
        let query = query.bind(until.as_micros()).bind(until.as_micros()).bind(now.as_micros());
        query.bind(admission::LAPSED).execute(self.open()?).await?;
        let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
        let query = sqlx::query(statements::PAYLOADS).bind(json(&ids)?);
        query.fetch_all(self.open()?).await?.iter().map(row::payload).collect()
    }

    async fn bury(&mut self, burials: &[Burial], now: Timestamp) -> Done {
        let cell = |burial: &Burial| (burial.id, STANDARD.encode(&burial.reason), u8::from(burial.lapsed));
        let cells: Vec<_> = burials.iter().map(cell).collect();
        let query = sqlx::query(statements::BURY).bind(json(&cells)?).bind(now.as_micros()).bind(admission::LAPSED);
        query.execute(self.open()?).await.map(drop)
    }

    async fn note(&mut self, notes: &[Note], now: Timestamp) -> Done {
        let cells: Vec<_> = notes
            .iter()
            .map(|Note { message, seq, replay, number, report }| {
                let text = |text: &Option<String>| text.as_ref().map(|text| STANDARD.encode(text));
                let headers = STANDARD.encode(header_block::encode(&report.headers));
                let (took, status) = (micros(report.took), report.status.map(|status| status.as_u16()));
                let (body, error, kind) = (STANDARD.encode(&report.body), text(&report.error), text(&report.kind));
                (message, seq, replay, number, took, status, headers, body, error, kind)
            })
            .collect();
        let query = sqlx::query(statements::NOTE).bind(now.as_micros()).bind(json(&cells)?);
        query.execute(self.open()?).await?;
        for (message, last) in notes.iter().filter_map(Note::surplus) {
            sqlx::query(statements::FORGET_ATTEMPTS).bind(message).bind(last).execute(self.open()?).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, leases: &[(&MessageLease, Timestamp)]) -> Done<Vec<bool>> {
        let held = self.held(leases.iter().map(|(lease, _)| *lease)).await?;
        let cell = |(lease, until): &(&MessageLease, Timestamp)| {
            (lease.row, STANDARD.encode(lease.token.as_bytes()), until.as_micros())
        };
        let cells: Vec<_> = leases.iter().map(cell).collect();
        sqlx::query(statements::RENEW).bind(json(&cells)?).execute(self.open()?).await?;
        Ok(held.into_iter().map(|held| held.is_some()).collect())
    }

    async fn end(&mut self, ends: &[Ending<'_>], now: Timestamp) -> Done<Vec<Option<Ended>>> {
        let mut held = self.held(ends.iter().map(|end| end.lease)).await?;
        for (held, end) in held.iter_mut().zip(ends) {
            if let Some(held) = held {
                held.noted = held.noted.saturating_add(end.noted.into());
            }
        }
        let cells: Vec<_> = ends
            .iter()
            .map(|end| {
                let (token, state) = (STANDARD.encode(end.lease.token.as_bytes()), STANDARD.encode(end.state.as_str()));
                let due = end.due.map(Timestamp::as_micros);
                let reason = end.reason.as_ref().map(|reason| STANDARD.encode(reason));
                let (uncounted, noted) = (u8::from(end.uncounted), u8::from(end.noted));
                let error = end.error.map(|error| STANDARD.encode(error));
                (end.lease.row, token, state, due, reason, uncounted, noted, end.status, error)
            })
            .collect();
        let query = sqlx::query(statements::END).bind(json(&cells)?).bind(now.as_micros());
        query.execute(self.open()?).await?;
        Ok(held)
    }

    async fn ended(&mut self, lease: &MessageLease) -> Done<bool> {
        let query = sqlx::query(statements::ENDED).bind(lease.row).bind(lease.token.as_bytes().as_slice());
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn select(
        &mut self,
        selection: &Selection,
        states: &[MessageState],
        must_have_endpoint: bool,
    ) -> Done<Vec<(i64, Option<FoundMessage>)>> {
        let filter = &selection.filter;
        let statement = match filter.found_by() {
            FoundBy::Id => statements::SELECT_BY_ID,
            FoundBy::Correlation => statements::SELECT_BY_CORRELATION,
            FoundBy::State => statements::SELECT,
        };
        // No call asks for more than three; what is not asked for is a state that no message has.
        let mut states = states.iter().map(|state| state.as_str().as_bytes());
        let mut state = || states.next().unwrap_or_default();
        let endpoint = filter.endpoint.as_ref().map(|name| name.as_str().as_bytes());
        let id = filter.id.as_ref().map(|id| id.as_str().as_bytes());
        let event_type = filter.event_type.as_ref().map(|name| name.as_str().as_bytes());
        let query = sqlx::query(statement).bind(selection.after).bind(filter.before_micros());
        let query = query.bind(state()).bind(state()).bind(state());
        let correlation = filter.correlation_id.as_ref().map(|name| name.as_str().as_bytes());
        let query = query.bind(endpoint).bind(endpoint).bind(id).bind(id).bind(event_type).bind(event_type);
        let query = query.bind(correlation).bind(correlation);
        let query = query.bind(!must_have_endpoint).bind(i64::from(selection.most));
        query.fetch_all(self.open()?).await?.iter().map(row::selected).collect()
    }

    async fn replay(&mut self, ids: &[(i64, Timestamp)], now: Timestamp) -> Done {
        let cells: Vec<_> = ids.iter().map(|(id, due)| (id, due.as_micros())).collect();
        let query = sqlx::query(statements::REPLAY).bind(json(&cells)?).bind(now.as_micros()).bind(now.as_micros());
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
        let states = [
            (MessageState::Succeeded, Some(aged.done)),
            (MessageState::Cancelled, Some(aged.done)),
            (MessageState::DeadLetter, aged.dead),
            (MessageState::Failed, aged.dead),
        ];
        let mut oldest = Vec::new();
        for (state, before) in states {
            let Some(before) = before else { continue };
            let query = sqlx::query(statements::AGED).bind(state.as_str().as_bytes()).bind(before.as_micros());
            for found in query.bind(i64::from(most)).fetch_all(self.open()?).await? {
                let at = (found.try_get::<i64, _>("updated")?, found.try_get::<i64, _>("id")?);
                oldest.push((at, row::order(&found)));
            }
        }
        oldest.sort_unstable_by_key(|(at, _)| *at);
        oldest.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        if oldest.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = oldest.iter().map(|((_, id), _)| *id).collect();
        let ids = json(&ids)?;
        sqlx::query(statements::REMOVE_HISTORIES).bind(&ids).execute(self.open()?).await?;
        sqlx::query(statements::REMOVE).bind(&ids).execute(self.open()?).await?;
        Ok(oldest.into_iter().map(|(_, order)| order).collect())
    }
}

impl Connection {
    /// What is known of the messages whose leases are held. They are locked.
    async fn held(&mut self, leases: impl ExactSizeIterator<Item = &MessageLease>) -> Done<Vec<Option<Ended>>> {
        let mut held: Vec<Option<Ended>> = std::iter::repeat_with(|| None).take(leases.len()).collect();
        let cells: Vec<_> = leases.map(|lease| (lease.row, STANDARD.encode(lease.token.as_bytes()))).collect();
        let query = sqlx::query(statements::LOCK_HELD).bind(json(&cells)?);
        for found in query.fetch_all(self.open()?).await? {
            let place = usize::try_from(found.try_get::<i64, _>("place")?.saturating_sub(1)).unwrap_or(usize::MAX);
            if let Some(held) = held.get_mut(place) {
                *held = Some(row::ended(&found)?);
            }
        }
        Ok(held)
    }
}

/// Names as the rows of a statement.
fn encoded(names: &[&Name]) -> Done<String> {
    json(&names.iter().map(|name| STANDARD.encode(name.as_str())).collect::<Vec<_>>())
}

fn endpoint(found: &MySqlRow) -> Done<FoundEndpoint> {
    Ok(FoundEndpoint { name: found.text("name")?.unwrap_or_default(), entry: row::endpoint(found) })
}
