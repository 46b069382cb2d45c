//! Handing out what is due.

use std::collections::{HashMap, HashSet};

use super::super::transactor::Done;
use super::call::ClaimAsk;
use super::database::{Burial, Database, FoundAhead, FoundDue, HeldUp, Note, Takeover, id_of};
use super::dealing::{Asked, Dealing};
use super::order::{self, Ending};
use super::row::{Due, Unreadable};
use crate::store::delivery::{self, Ahead, Turn};
use crate::store::{Buried, ClaimMessages, ClaimedMessage, Claims, MessageLease, Token, admission};
use crate::{Name, Timestamp};

/// How often to look again: for what one endpoint left to the others, and for what stands behind messages that are held
/// up.
const LOOKS: usize = 8;

pub(super) async fn claim<D: Database>(database: &mut D, ask: &mut ClaimAsk, now: Timestamp) -> Done {
    let (claim, tokens, chance) = &ask.question;
    let quotas: HashMap<&Name, u32> = claim.quotas.iter().map(|(name, quota)| (name, *quota)).collect();
    let without: Vec<&Name> = quotas.iter().filter(|(_, quota)| **quota == 0).map(|(name, _)| *name).collect();
    let limit = claim.limit.min(ClaimMessages::MOST);
    let mut dealing = Dealing::new(limit, *chance);
    // Where only those with a quota of their own get anything, they must not be missed for others.
    let most = if claim.quota == 0 { u32::MAX } else { limit };
    let nothing = limit == 0 || (claim.quota == 0 && quotas.len() == without.len());
    let ready = if nothing { Vec::new() } else { database.ready(&without, most, now).await? };
    for ready in ready {
        match ready.endpoint.entry {
            Ok(entry) => {
                let quota = quotas.get(&entry.endpoint.name).copied().unwrap_or(claim.quota);
                dealing.add(entry.endpoint, quota, ready.lanes);
            }
            Err(error) => {
                let name = ready.endpoint.name;
                tracing::error!(%error, name, "an endpoint that cannot be read is left out, and its messages wait");
            }
        }
    }
    let mut tokens = tokens.iter().copied();
    let mut looks = Looks::default();
    let mut claims = Claims::default();
    for _ in 0..LOOKS {
        let round = dealing.round();
        if round.is_empty() {
            break;
        }
        let shares: Vec<_> = round.iter().filter_map(|asked| asked.share(&dealing)).collect();
        let found = database.take(&shares, now).await?;
        drop(shares);
        for (place, asked) in round.iter().enumerate() {
            let given = found.iter().filter(|found| found.share == place).count();
            dealing.given(*asked, u32::try_from(given).unwrap_or(u32::MAX));
        }
        let found = looks.look(database, claim, &mut dealing, &round, found, &mut tokens, now).await?;
        claims.messages.extend(found.messages);
        claims.buried.extend(found.buried);
    }
    ask.answer = Some(Ok(claims));
    Ok(())
}

/// How many bytes of payloads one claim brings; the first message comes whatever its size. Without a bound a claim could
/// bring gigabytes.
const MOST_BYTES: u64 = 32 * 1_024 * 1_024;

/// What one claim has seen so far.
#[derive(Default)]
struct Looks {
    /// How many bytes of payloads were taken.
    bytes: u64,
    /// Messages that are held up by one that somebody else has in hand, and so were left as they are.
    passed_over: HashSet<i64>,
}

/// What is to be done with what was found in one look.
#[derive(Default)]
struct Decided {
    runs: Vec<(Takeover, Due, usize)>,
    burials: Vec<Burial>,
    /// The same for whoever claims.
    buried: Vec<Buried>,
    notes: Vec<Note>,
    ends: Vec<Ending>,
    held_up: Vec<HeldBehind>,
    /// What is due and would be too much at once.
    left: Vec<(i64, Asked)>,
    /// How many bytes of payloads are taken, by this look and those before it.
    bytes: u64,
}

/// A message that is held up.
struct HeldBehind {
    id: i64,
    due: Due,
    /// The number of what holds it up.
    head: i64,
    /// Whether that had no end when it was seen.
    was_open: bool,
    /// What it was asked of.
    asked: Asked,
}

impl Looks {
    #[expect(clippy::too_many_arguments, reason = "the state of one claim")]
    async fn look<D: Database>(
        &mut self,
        database: &mut D,
        claim: &ClaimMessages,
        dealing: &mut Dealing,
        round: &[Asked],
        found: Vec<FoundDue>,
        tokens: &mut (impl Iterator<Item = Token> + Send),
        now: Timestamp,
    ) -> Done<Claims> {
        let found: Vec<FoundDue> = found.into_iter().filter(|found| !self.passed_over.contains(&found.id)).collect();
        let mut ahead = ahead(database, &found, now).await?;
        let mut decided = Decided { bytes: self.bytes, ..Decided::default() };
        for found in found {
            let Some(asked) = round.get(found.share) else { continue };
            let ahead = ahead.remove(&found.id);
            decided.add(found, ahead.as_ref(), *asked, claim, dealing, tokens);
        }
        if !decided.burials.is_empty() {
            decided.burials.sort_unstable_by_key(|burial| burial.id);
            database.bury(&decided.burials, now).await?;
            order::after(database, &decided.ends, now).await?;
        }
        self.postpone(database, dealing, &decided.held_up, now).await?;
        self.bytes = decided.bytes;
        for (id, asked) in &decided.left {
            self.passed_over.insert(*id);
            dealing.pass_over(*asked);
        }
        if !decided.runs.is_empty() {
            decided.runs.sort_unstable_by_key(|(run, ..)| run.id);
            let runs: Vec<Takeover> = decided.runs.iter().map(|(run, ..)| *run).collect();
            let payloads = database.take_over(&runs, now.saturating_add(claim.lease), now).await?;
            let mut payloads: HashMap<i64, Vec<u8>> = payloads.into_iter().collect();
            for (run, due, _) in &mut decided.runs {
                due.message.payload = payloads.remove(&run.id).unwrap_or_default().into();
            }
        }
        if !decided.notes.is_empty() {
            database.note(&decided.notes, now).await?;
        }
        let claimed = |(run, due, source)| claimed(run, due, dealing, source, now);
        Ok(Claims::new(decided.runs.into_iter().filter_map(claimed).collect(), decided.buried))
    }

    /// Has claims look later at what is held up. The one that holds it up is locked meanwhile: whoever ends it has the next
    /// one looked at, and must not do so before this. Where somebody has it in hand at this moment nothing is postponed.
    async fn postpone<D: Database>(
        &mut self,
        database: &mut D,
        dealing: &mut Dealing,
        held_up: &[HeldBehind],
        now: Timestamp,
    ) -> Done {
        if held_up.is_empty() {
            return Ok(());
        }
        let mut heads: Vec<i64> = held_up.iter().map(|held_up| held_up.head).collect();
        heads.sort_unstable();
        heads.dedup();
        let locked: HashMap<i64, bool> =
            database.lock_heads(&heads).await?.into_iter().map(|head| (head.id, head.is_open)).collect();
        let mut postponed = Vec::with_capacity(held_up.len());
        for HeldBehind { id, due, head, was_open, asked } in held_up {
            // One that has come to its end since it was seen has had the next one looked at already, and holds up no more,
            // or in another way: the next claim sees.
            let still_holds = locked.get(head).is_some_and(|is_open| *is_open || !was_open);
            match &due.message.ordering_key {
                Some(ordering_key) if still_holds => {
                    postponed.push(HeldUp { id: *id, endpoint: &due.key.endpoint, ordering_key });
                }
                _ => {
                    self.passed_over.insert(*id);
                    dealing.pass_over(*asked);
                }
            }
        }
        postponed.sort_unstable_by_key(|held_up| held_up.id);
        if postponed.is_empty() { Ok(()) } else { database.postpone(&postponed, now).await }
    }
}

impl Decided {
    fn add(
        &mut self,
        FoundDue { id, noted, due, .. }: FoundDue,
        found_ahead: Option<&FoundAhead>,
        asked: Asked,
        claim: &ClaimMessages,
        dealing: &mut Dealing,
        tokens: &mut impl Iterator<Item = Token>,
    ) {
        let due = match due {
            Ok(due) => due,
            Err(Unreadable { fault, which }) => {
                // It would be found again and again, and no attempt can ever be made.
                let reason = admission::kept_text(&fault);
                tracing::error!(id, reason, "a message that cannot be read is made a dead letter");
                self.buried.extend(which.map(|(key, event_type)| Buried::new(key, event_type, reason.clone())));
                self.burials.push(Burial { id, reason, lapsed: false });
                dealing.take(asked.source);
                return;
            }
        };
        let Some(source) = dealing.source(asked.source) else { return };
        let (on_dead, allowed) =
            (source.endpoint.settings.on_dead, delivery::allowed_attempts(claim, &source.endpoint));
        let (ahead, head) = stands(found_ahead);
        match delivery::turn(due.state, due.attempts, allowed, &ahead, on_dead) {
            Turn::HeldUp => {
                if let Some(head) = head {
                    let was_open = ahead == Ahead::Open;
                    self.held_up.push(HeldBehind { id, due, head, was_open, asked });
                }
            }
            Turn::Bury { lapsed, reason } => {
                self.note(lapsed, id, noted, &due);
                self.ends.push(Ending::dead(id, &due.key, due.message.ordering_key.clone(), on_dead));
                self.buried.push(Buried {
                    attempts: due.attempts,
                    replays: due.replays,
                    ..Buried::new(due.key, due.message.event_type, reason.clone())
                });
                self.burials.push(Burial { id, reason, lapsed });
                dealing.take(asked.source);
            }
            Turn::TakeOver { lapsed } => {
                let bytes = self.bytes.saturating_add(due.size);
                if self.bytes > 0 && bytes > MOST_BYTES {
                    self.left.push((id, asked));
                    return;
                }
                let Some(token) = tokens.next() else { return };
                self.bytes = bytes;
                self.note(lapsed, id, noted, &due);
                self.runs.push((Takeover { id, token, lapsed }, due, asked.source));
                dealing.take(asked.source);
            }
        }
    }

    fn note(&mut self, lapsed: bool, message: i64, noted: i64, due: &Due) {
        if lapsed {
            self.notes.push(Note {
                message,
                seq: noted.saturating_add(1),
                replay: due.replays,
                number: due.attempts,
                report: delivery::lapsed_report(),
            });
        }
    }
}

/// What stands before those of these messages that have an order.
async fn ahead<D: Database>(database: &mut D, found: &[FoundDue], now: Timestamp) -> Done<HashMap<i64, FoundAhead>> {
    let has_order = |found: &&FoundDue| found.due.as_ref().is_ok_and(|due| due.message.ordering_key.is_some());
    let ids: Vec<i64> = found.iter().filter(has_order).map(|found| found.id).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(database.ahead(&ids, now).await?.into_iter().map(|ahead| (ahead.id, ahead)).collect())
}

/// What stands before a message, and the number of what holds it up, if that does.
fn stands(found: Option<&FoundAhead>) -> (Ahead, Option<i64>) {
    let Some(found) = found else { return (Ahead::Nothing, None) };
    if let Some(open) = found.open {
        return (Ahead::Open, Some(open));
    }
    match id_of(found) {
        Some((number, id)) => (Ahead::Ended(id), Some(number)),
        None => (Ahead::Nothing, None),
    }
}

fn claimed(run: Takeover, due: Due, dealing: &Dealing, source: usize, now: Timestamp) -> Option<ClaimedMessage> {
    let Due { key, message, attempts, replays, created, since, .. } = due;
    let endpoint = std::sync::Arc::clone(&dealing.source(source)?.endpoint);
    let lease = MessageLease { key, row: run.id, token: run.token, attempt: attempts.saturating_add(1) };
    Some(ClaimedMessage { lease, message, endpoint, created, age: now.saturating_since(since), replays })
}
