//! What the outbox's writer does, in PostgreSQL.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::super::super::header_block;
use super::super::super::outbox::call::Selection;
use super::super::super::outbox::database::{
    Aged, Burial, Database, Ended, Ending, FoundAhead, FoundDue, FoundEndpoint, FoundMessage, Head, HeldUp, Note,
    Order, PARK_AT_ONCE, POSTPONE, POSTPONE_BEHIND, Ready, Share, Takeover, micros,
};
use super::super::super::outbox::row::{self, Columns};
use super::super::super::row::Cells as _;
use super::super::super::transactor::Done;
use super::super::connection::Connection;
use super::inserting::Inserting;
use super::statements;
use crate::store::delivery::Health;
use crate::store::{Endpoint, MessageLease, MessageState, admission};
use crate::{Name, Timestamp};

impl Database for Connection {
    type Inserts<'a> = Inserting<'a>;

    fn inserts(&mut self, now: Timestamp) -> Done<Inserting<'_>> {
        let (prepared, announces) = (self.prepared, self.announces);
        Ok(Inserting::of_writer(self.open()?, prepared, announces, now))
    }

    async fn endpoints(&mut self, names: &[&Name], lock: bool) -> Done<Vec<FoundEndpoint>> {
        let statement = if lock { statements::LOCKED_ENDPOINTS } else { statements::ENDPOINTS };
        let query = self.query(statement).bind(texts(names));
        query.fetch_all(self.open()?).await?.iter().map(endpoint).collect()
    }

    async fn put_endpoint(&mut self, endpoint: &Endpoint, now: Timestamp) -> Done {
        let columns = Columns::of(endpoint)?;
        self.query(statements::PUT_ENDPOINT)
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
        self.query(statements::SET_HEALTH)
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
        let query = self.query(statements::REMOVE_ENDPOINT).bind(name.as_str());
        Ok(query.execute(self.open()?).await?.rows_affected() > 0)
    }

    async fn has_more_than(&mut self, endpoint: &Name, most: u32) -> Done<bool> {
        let query = self.query(statements::MORE_THAN).bind(endpoint.as_str()).bind(i64::from(most));
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn bury_all(&mut self, endpoint: &Name, reason: &str, most: u32, now: Timestamp) -> Done<u64> {
        let query = self.query(statements::BURY_ALL).bind(endpoint.as_str()).bind(reason).bind(now.as_micros());
        Ok(query.bind(i64::from(most)).execute(self.open()?).await?.rows_affected())
    }

    async fn ready(&mut self, without: &[&Name], most: u32, now: Timestamp) -> Done<Vec<Ready>> {
        let began = Instant::now();
        let is_whole = self.floors.begin();
        let query = self.query(statements::READY).bind(now.as_micros()).bind(texts(without)).bind(i64::from(most));
        let query = query.bind(self.floors.json().to_string());
        let rows = query.fetch_all(self.open()?).await?;
        let mut firsts = HashMap::with_capacity(rows.len());
        let mut ready = Vec::with_capacity(rows.len());
        for row in &rows {
            let of_row = [row.number("fresh")?, row.number("tried")?, row.number("held_up")?];
            firsts.insert(row.try_get("name")?, of_row);
            ready.push(Ready { endpoint: endpoint(row)?, lanes: of_row.map(|first| first.is_some()) });
        }
        let is_all = u32::try_from(rows.len()).is_ok_and(|found| found < most);
        self.floors.found(&firsts, without, is_all, now);
        if is_whole {
            self.floors.looked(began.elapsed());
        }
        Ok(ready)
    }

    async fn take(&mut self, shares: &[Share<'_>], now: Timestamp) -> Done<Vec<FoundDue>> {
        let endpoints: Vec<&str> = shares.iter().map(|share| share.endpoint.as_str()).collect();
        let lanes: Vec<i64> = shares.iter().map(|share| share.lane.number()).collect();
        let most: Vec<i64> = shares.iter().map(|share| share.most.into()).collect();
        let floors: Vec<i64> = shares.iter().map(|share| self.floors.of(share.endpoint, share.lane)).collect();
        let query = self.query(statements::TAKE).bind(endpoints).bind(lanes).bind(most).bind(now.as_micros());
        let rows = query.bind(floors).fetch_all(self.open()?).await?;
        let mut found = Vec::with_capacity(rows.len());
        let mut taken: Vec<(u64, Option<i64>)> = vec![(0, None); shares.len()];
        for row in &rows {
            let share = place(row)?;
            if let Some((count, first)) = taken.get_mut(share) {
                *count += 1;
                *first = (*first).or(row.number("claim_at")?);
            }
            found.push(FoundDue { share, id: row.try_get("id")?, noted: row.try_get("noted")?, due: row::due(row) });
        }
        for (share, (count, first)) in shares.iter().zip(taken) {
            self.floors.took(share.endpoint, share.lane, count, first, now);
        }
        Ok(found)
    }

    async fn ahead(&mut self, ids: &[i64], now: Timestamp) -> Done<Vec<FoundAhead>> {
        let query = self.query(statements::AHEAD).bind(ids).bind(now.as_micros());
        query.fetch_all(self.open()?).await?.iter().map(row::ahead).collect()
    }

    async fn lock_heads(&mut self, ids: &[i64]) -> Done<Vec<Head>> {
        let query = self.query(statements::LOCK_HEADS).bind(ids);
        query.fetch_all(self.open()?).await?.iter().map(row::head).collect()
    }

    async fn postpone(&mut self, held_up: &[HeldUp<'_>], now: Timestamp) -> Done {
        let ids: Vec<i64> = held_up.iter().map(|held_up| held_up.id).collect();
        let (least, most) = (micros(POSTPONE.0), micros(POSTPONE.1));
        let query = self.query(statements::POSTPONE).bind(&ids).bind(now.as_micros()).bind(least).bind(most);
        query.execute(self.open()?).await?;
        // The first one of each order: what is behind it is behind the others too.
        let mut seen = HashSet::new();
        let first = held_up.iter().filter(|held_up| seen.insert((held_up.endpoint, held_up.ordering_key)));
        let (mut endpoints, mut orders, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for HeldUp { id, endpoint, ordering_key } in first {
            endpoints.push(endpoint.as_str());
            orders.push(ordering_key.as_str());
            ids.push(*id);
        }
        let query = self.query(statements::POSTPONE_BEHIND).bind(endpoints).bind(orders).bind(ids);
        let query = query.bind(now.as_micros()).bind(least).bind(most).bind(i64::from(POSTPONE_BEHIND));
        query.execute(self.open()?).await.map(drop)
    }

    async fn promote(&mut self, orders: &[(&Name, &Name)]) -> Done {
        let (endpoints, orders): (Vec<&str>, Vec<&str>) =
            orders.iter().map(|(endpoint, order)| (endpoint.as_str(), order.as_str())).unzip();
        // They may be due for long.
        self.floors.forget();
        let query = self.query(statements::PROMOTE).bind(endpoints).bind(orders);
        query.execute(self.open()?).await.map(drop)
    }

    async fn promote_all(&mut self, endpoint: &Name, most: u32) -> Done<u64> {
        self.floors.forget();
        let query = self.query(statements::PROMOTE_ALL).bind(endpoint.as_str()).bind(i64::from(most));
        Ok(query.execute(self.open()?).await?.rows_affected())
    }

    async fn park(&mut self, id: i64, (endpoint, order): (&Name, &Name), reason: &str, now: Timestamp) -> Done {
        let query = self.query(statements::PARK).bind(id).bind(endpoint.as_str()).bind(order.as_str());
        query.bind(reason).bind(now.as_micros()).bind(i64::from(PARK_AT_ONCE)).execute(self.open()?).await.map(drop)
    }

    async fn take_over(&mut self, runs: &[Takeover], until: Timestamp, now: Timestamp) -> Done<Vec<(i64, Vec<u8>)>> {
        let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
        let tokens: Vec<&[u8]> = runs.iter().map(|run| run.token.as_bytes().as_slice()).collect();
        let lapsed: Vec<i64> = runs.iter().map(|run| run.lapsed.into()).collect();
        let query = self.query(statements::TAKE_OVER).bind(ids).bind(tokens).bind(lapsed);
        let query = query.bind(until.as_micros()).bind(admission::LAPSED).bind(now.as_micros());
        query.fetch_all(self.open()?).await?.iter().map(row::payload).collect()
    }

    async fn bury(&mut self, burials: &[Burial], now: Timestamp) -> Done {
        let ids: Vec<i64> = burials.iter().map(|burial| burial.id).collect();
        let reasons: Vec<&str> = burials.iter().map(|burial| burial.reason.as_str()).collect();
        let lapsed: Vec<i64> = burials.iter().map(|burial| burial.lapsed.into()).collect();
        let query = self.query(statements::BURY).bind(ids).bind(reasons).bind(lapsed);
        query.bind(admission::LAPSED).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }

    async fn note(&mut self, notes: &[Note], now: Timestamp) -> Done {
        let of = |number: fn(&Note) -> i64| notes.iter().map(number).collect::<Vec<i64>>();
        let statuses: Vec<Option<i64>> =
            notes.iter().map(|note| note.report.status.map(|status| status.as_u16().into())).collect();
        let headers: Vec<Vec<u8>> = notes.iter().map(|note| header_block::encode(&note.report.headers)).collect();
        let bodies: Vec<&[u8]> = notes.iter().map(|note| &*note.report.body).collect();
        let errors: Vec<Option<&str>> = notes.iter().map(|note| note.report.error.as_deref()).collect();
        let kinds: Vec<Option<&str>> = notes.iter().map(|note| note.report.kind.as_deref()).collect();
        let query = self
            .query(statements::NOTE)
            .bind(of(|note| note.message))
            .bind(of(|note| note.seq))
            .bind(of(|note| note.replay.into()))
            .bind(of(|note| note.number.into()))
            .bind(of(|note| micros(note.report.took)));
        let query = query.bind(statuses).bind(headers).bind(bodies).bind(errors).bind(kinds).bind(now.as_micros());
        query.execute(self.open()?).await?;
        let surplus: (Vec<i64>, Vec<i64>) = notes.iter().filter_map(Note::surplus).unzip();
        if !surplus.0.is_empty() {
            let query = self.query(statements::FORGET_ATTEMPTS).bind(surplus.0).bind(surplus.1);
            query.execute(self.open()?).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, leases: &[(&MessageLease, Timestamp)]) -> Done<Vec<bool>> {
        let ids: Vec<i64> = leases.iter().map(|(lease, _)| lease.row).collect();
        let tokens: Vec<&[u8]> = leases.iter().map(|(lease, _)| lease.token.as_bytes().as_slice()).collect();
        let until: Vec<i64> = leases.iter().map(|(_, until)| until.as_micros()).collect();
        let query = self.query(statements::RENEW).bind(ids).bind(tokens).bind(until);
        let mut held = vec![false; leases.len()];
        for row in query.fetch_all(self.open()?).await? {
            if let Some(held) = held.get_mut(place(&row)?) {
                *held = true;
            }
        }
        Ok(held)
    }

    async fn end(&mut self, ends: &[Ending<'_>], now: Timestamp) -> Done<Vec<Option<Ended>>> {
        let ids: Vec<i64> = ends.iter().map(|end| end.lease.row).collect();
        let tokens: Vec<&[u8]> = ends.iter().map(|end| end.lease.token.as_bytes().as_slice()).collect();
        let states: Vec<&str> = ends.iter().map(|end| end.state.as_str()).collect();
        let due: Vec<Option<i64>> = ends.iter().map(|end| end.due.map(Timestamp::as_micros)).collect();
        let reasons: Vec<Option<&str>> = ends.iter().map(|end| end.reason.as_deref()).collect();
        let uncounted: Vec<i64> = ends.iter().map(|end| end.uncounted.into()).collect();
        let noted: Vec<i64> = ends.iter().map(|end| end.noted.into()).collect();
        let statuses: Vec<Option<i64>> = ends.iter().map(|end| end.status.map(i64::from)).collect();
        let errors: Vec<Option<&str>> = ends.iter().map(|end| end.error).collect();
        let query = self.query(statements::END).bind(ids).bind(tokens).bind(states).bind(due).bind(reasons);
        let query = query.bind(uncounted).bind(noted).bind(statuses).bind(errors).bind(now.as_micros());
        let mut ended: Vec<Option<Ended>> = ends.iter().map(|_| None).collect();
        for found in query.fetch_all(self.open()?).await? {
            if let Some(ended) = ended.get_mut(place(&found)?) {
                *ended = Some(row::ended(&found)?);
            }
        }
        Ok(ended)
    }

    async fn ended(&mut self, lease: &MessageLease) -> Done<bool> {
        let query = self.query(statements::ENDED).bind(lease.row).bind(lease.token.as_bytes().as_slice());
        Ok(query.fetch_optional(self.open()?).await?.is_some())
    }

    async fn select(
        &mut self,
        selection: &Selection,
        states: &[MessageState],
        must_have_endpoint: bool,
    ) -> Done<Vec<(i64, Option<FoundMessage>)>> {
        sqlx::raw_sql(statements::PLAN_ANEW).execute(self.open()?).await?;
        let filter = &selection.filter;
        let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        let statement = if filter.id.is_some() { statements::SELECT_BY_ID } else { statements::SELECT };
        let query = self
            .query(statement)
            .bind(selection.after)
            .bind(states)
            .bind(filter.endpoint.as_ref().map(|name| name.as_str()))
            .bind(filter.id.as_ref().map(|id| id.as_str()))
            .bind(filter.event_type.as_ref().map(|name| name.as_str()))
            .bind(i64::from(selection.most))
            .bind(must_have_endpoint)
            .bind(filter.before_micros())
            .bind(filter.correlation_id.as_ref().map(|name| name.as_str()));
        query.fetch_all(self.open()?).await?.iter().map(row::selected).collect()
    }

    async fn replay(&mut self, ids: &[(i64, Timestamp)], now: Timestamp) -> Done {
        let (ids, due): (Vec<i64>, Vec<i64>) = ids.iter().map(|(id, due)| (*id, due.as_micros())).unzip();
        let query = self.query(statements::REPLAY).bind(ids).bind(due).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn cancel(&mut self, ids: &[i64], reason: &str, now: Timestamp) -> Done {
        let query = self.query(statements::CANCEL).bind(ids).bind(reason).bind(now.as_micros());
        query.execute(self.open()?).await.map(drop)
    }

    async fn check(&mut self, now: Timestamp) -> Done {
        self.query(super::super::statements::CHECK).bind(now.as_micros()).execute(self.open()?).await.map(drop)
    }

    async fn purge(&mut self, aged: &Aged, most: u32) -> Done<Vec<Option<Order>>> {
        let query = self.query(statements::PURGE).bind(aged.done.as_micros());
        let query = query.bind(aged.dead.map(Timestamp::as_micros)).bind(i64::from(most));
        Ok(query.fetch_all(self.open()?).await?.iter().map(row::order).collect())
    }
}

fn texts<'a>(names: &[&'a Name]) -> Vec<&'a str> {
    names.iter().map(|name| name.as_str()).collect()
}

/// They count from 1.
fn place(row: &PgRow) -> Done<usize> {
    Ok(usize::try_from(row.try_get::<i64, _>("place")?.saturating_sub(1)).unwrap_or(usize::MAX))
}

fn endpoint(found: &PgRow) -> Done<FoundEndpoint> {
    Ok(FoundEndpoint { name: found.try_get("name")?, entry: row::endpoint(found) })
}
