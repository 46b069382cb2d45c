//! What may be claimed of the outbox in memory, and when the next thing may.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::message::Row;
use super::outbox::{Outbox, most};
use crate::store::delivery::{self, Ahead, Turn};
use crate::store::fairness::{self, Chance, Lanes};
use crate::store::{ClaimMessages, Claims, Endpoint, StoreError, Token};
use crate::{Name, Timestamp};

impl Outbox {
    pub(super) fn claim(
        &mut self,
        claim: &ClaimMessages,
        chance: Chance,
        now: Timestamp,
    ) -> Result<Claims, StoreError> {
        let quotas: HashMap<&Name, u32> = claim.quotas.iter().map(|(name, quota)| (name, *quota)).collect();
        let due = self.due(claim, now);
        let quota = |endpoint: &Endpoint| quotas.get(&endpoint.name).copied().unwrap_or(claim.quota);
        let wanted: Vec<u32> = due.iter().map(|due| due.amount().min(quota(&due.endpoint))).collect();
        let shares = fairness::deal(claim.limit.min(ClaimMessages::MOST), &wanted, chance);
        let mut claims = Claims::default();
        for (due, share) in due.into_iter().zip(shares) {
            let endpoint = Arc::clone(&due.endpoint);
            for Candidate { number, turn, .. } in due.taken(share, chance) {
                match turn {
                    Turn::Bury { lapsed, reason } => {
                        if let Some(row) = self.rows.get(&number) {
                            claims.buried.push(row.buried(reason.clone()));
                        }
                        self.bury(number, lapsed, reason, now);
                    }
                    Turn::TakeOver { lapsed } => {
                        let token = Token::random()?;
                        let Some(row) = self.rows.get_mut(&number) else { continue };
                        row.note_lapse(lapsed, now);
                        let lease = row.begin(number, token, now.saturating_add(claim.lease), now);
                        claims.messages.push(row.claimed(lease, Arc::clone(&endpoint), now));
                    }
                    Turn::HeldUp => {}
                }
            }
        }
        Ok(claims)
    }

    /// What may be claimed, of each endpoint that has something due.
    fn due(&self, claim: &ClaimMessages, now: Timestamp) -> Vec<Due> {
        let mut all: BTreeMap<&Name, Due> = BTreeMap::new();
        for Open { number, row, ahead } in self.open(now) {
            let Some(entry) = self.endpoints.get(&row.entry.endpoint).filter(|entry| entry.is_served(now)) else {
                continue;
            };
            let Some(since) = row.entry.due.filter(|due| *due <= now) else { continue };
            let allowed = delivery::allowed_attempts(claim, &entry.endpoint);
            let turn = row.turn(allowed, &ahead, &entry.endpoint);
            if turn != Turn::HeldUp {
                let due = all.entry(&row.entry.endpoint).or_insert_with(|| Due::of(&entry.endpoint));
                due.lane(row).push(Candidate { since, number, turn });
            }
        }
        all.into_values().collect()
    }

    /// The messages that have no end, in their order, each with what stands before it in its ordering key.
    fn open(&self, now: Timestamp) -> impl Iterator<Item = Open<'_>> {
        // Those that are being delivered, wherever they stand.
        let mut delivered: HashMap<(&Name, &Name), i64> = HashMap::new();
        for (number, row) in &self.rows {
            if let Some(order) = row.order().filter(|_| row.is_leased(now)) {
                delivered.insert(order, *number);
            }
        }
        let mut heads: HashMap<(&Name, &Name), Ahead> = HashMap::new();
        self.rows.iter().filter_map(move |(number, row)| {
            let number = *number;
            let state = row.entry.state;
            let Some(order) = row.order() else {
                return delivery::is_open(state).then_some(Open { number, row, ahead: Ahead::Nothing });
            };
            let head = heads.entry(order).or_insert(Ahead::Nothing);
            if delivery::is_open(state) {
                let busy = delivered.get(&order).is_some_and(|other| *other != number);
                let ahead = std::mem::replace(head, Ahead::Open);
                return Some(Open { number, row, ahead: if busy { Ahead::Open } else { ahead } });
            }
            if delivery::holds_up(state) && *head == Ahead::Nothing {
                *head = Ahead::Ended(row.entry.message.id.clone());
            }
            None
        })
    }

    pub(super) fn next_due(&self, now: Timestamp) -> Option<Duration> {
        let times = self.open(now).filter_map(|Open { row, ahead, .. }| {
            let entry = self.endpoints.get(&row.entry.endpoint).filter(|entry| entry.disabled.is_none())?;
            let is_held_up = row.turn(u32::MAX, &ahead, &entry.endpoint) == Turn::HeldUp;
            let due = row.entry.due.filter(|_| !is_held_up)?;
            Some(entry.paused_until.map_or(due, |until| due.max(until)))
        });
        times.min().map(|due| due.saturating_since(now))
    }

    pub(super) fn oldest_due(&self, now: Timestamp) -> Vec<(Name, Duration)> {
        let mut oldest: BTreeMap<&Name, Timestamp> = BTreeMap::new();
        for Open { row, ahead, .. } in self.open(now) {
            let name = &row.entry.endpoint;
            let Some(entry) = self.endpoints.get(name).filter(|entry| entry.disabled.is_none()) else { continue };
            let is_held_up = row.turn(u32::MAX, &ahead, &entry.endpoint) == Turn::HeldUp;
            if let Some(due) = row.entry.due.filter(|due| !is_held_up && *due <= now) {
                let oldest = oldest.entry(name).or_insert(due);
                *oldest = due.min(*oldest);
            }
        }
        oldest.into_iter().map(|(name, due)| (name.clone(), now.saturating_since(due))).collect()
    }
}

/// A message that has no end, and what stands before it.
struct Open<'a> {
    number: i64,
    row: &'a Row,
    ahead: Ahead,
}

/// What one endpoint has due.
struct Due {
    endpoint: Arc<Endpoint>,
    fresh: Vec<Candidate>,
    tried: Vec<Candidate>,
}

struct Candidate {
    since: Timestamp,
    number: i64,
    turn: Turn,
}

impl Due {
    fn of(endpoint: &Endpoint) -> Self {
        Self { endpoint: Arc::new(endpoint.clone()), fresh: Vec::new(), tried: Vec::new() }
    }

    fn lane(&mut self, row: &Row) -> &mut Vec<Candidate> {
        if fairness::is_tried(row.entry.attempts, row.entry.replays) { &mut self.tried } else { &mut self.fresh }
    }

    fn amount(&self) -> u32 {
        amount(&self.fresh).saturating_add(amount(&self.tried))
    }

    /// The longest due ones of both lanes.
    fn taken(mut self, share: u32, chance: Chance) -> impl Iterator<Item = Candidate> {
        let lanes = Lanes::divide(share, amount(&self.fresh), amount(&self.tried), chance);
        for (lane, part) in [(&mut self.fresh, lanes.fresh), (&mut self.tried, lanes.tried)] {
            lane.sort_unstable_by_key(|candidate| (candidate.since, candidate.number));
            lane.truncate(most(part));
        }
        self.fresh.into_iter().chain(self.tried)
    }
}

fn amount(candidates: &[Candidate]) -> u32 {
    u32::try_from(candidates.len()).unwrap_or(u32::MAX)
}
