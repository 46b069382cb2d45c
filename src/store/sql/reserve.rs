//! Who may run an event.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::call::Ask;
use super::database::{Database, Fresh, Takeover};
use super::row::Known;
use super::transactor::Done;
use crate::Timestamp;
use crate::store::admission::{self, Admission, Standing};
use crate::store::{FailedRun, Lease, ReceiptKey, ReceiptState, Repeat, Reserve, Reserved, StoreError, Token};

/// How often to look again for a receipt that was there when it was to be made and gone when it was read: another
/// process removed it in between.
pub(super) const LOOKS: usize = 4;

/// What a caller is told of a receipt that another transaction has in hand at this moment: it is being taken over or
/// ended. Nobody waits for it, for the whole batch would.
const IN_HAND: Duration = Duration::from_secs(1);

/// First the many that nobody asked for before, in one statement; then those that are known.
///
/// A repeat of a succeeded event is a row that the statement passes over, and one that is read: nothing is changed, and a
/// transaction that changed nothing costs no write and no sync when it is committed.
pub(super) async fn reserve<D: Database>(
    database: &mut D,
    mut asks: Vec<&mut Ask<(Reserve, Token), Reserved>>,
    now: Timestamp,
) -> Done {
    asks.sort_by(|one, two| one.question.0.key.cmp(&two.question.0.key));
    for _ in 0..LOOKS {
        if asks.is_empty() {
            return Ok(());
        }
        asks = make(database, asks, now).await?;
        asks = answer(database, asks, now).await?;
    }
    for ask in asks {
        let what = "a row is there and is not found: check the database's indexes";
        ask.answer = Some(Err(StoreError::Corrupt(what.into())));
    }
    Ok(())
}

/// Returns those that were not made.
async fn make<'a, D: Database>(
    database: &mut D,
    asks: Vec<&'a mut Ask<(Reserve, Token), Reserved>>,
    now: Timestamp,
) -> Done<Vec<&'a mut Ask<(Reserve, Token), Reserved>>> {
    let rows: Vec<Fresh<'_>> = asks
        .iter()
        .map(|ask| {
            let (request, token) = &ask.question;
            Fresh { request, token: *token, lease_until: now.saturating_add(request.lease) }
        })
        .collect();
    let made = database.insert(&rows, now).await?;
    drop(rows);
    let mut others = Vec::new();
    for (ask, made) in asks.into_iter().zip(made) {
        if made {
            let (request, token) = &ask.question;
            ask.answer = Some(Ok(Reserved::Acquired(Lease { key: request.key.clone(), token: *token, attempt: 1 })));
        } else {
            others.push(ask);
        }
    }
    Ok(others)
}

/// Returns those that nothing is known of.
async fn answer<'a, D: Database>(
    database: &mut D,
    asks: Vec<&'a mut Ask<(Reserve, Token), Reserved>>,
    now: Timestamp,
) -> Done<Vec<&'a mut Ask<(Reserve, Token), Reserved>>> {
    if asks.is_empty() {
        return Ok(asks);
    }
    let mut known = Standings::default();
    let keys: BTreeSet<&ReceiptKey> = asks.iter().map(|ask| &ask.question.0.key).collect();
    look(database, &mut known, keys.into_iter().collect(), D::ALONE).await?;
    let mut in_hand = HashSet::new();
    if !D::ALONE {
        // Most need no change, and then no lock.
        let taken: BTreeSet<&ReceiptKey> = asks
            .iter()
            .map(|ask| &ask.question)
            .filter(|(request, token)| match known.get(&request.key) {
                Some(Ok(known)) => takes(&known.standing.admit(request, *token, now)),
                _ => false,
            })
            .map(|(request, _)| &request.key)
            .collect();
        if !taken.is_empty() {
            taken.iter().for_each(|key| drop(known.remove(*key)));
            look(database, &mut known, taken.iter().copied().collect(), true).await?;
            in_hand.extend(taken.into_iter().filter(|key| !known.contains_key(*key)).cloned());
        }
    }
    let mut unknown = Vec::new();
    for ask in asks {
        let (request, token) = &ask.question;
        match known.get_mut(&request.key) {
            Some(Ok(known)) => ask.answer = Some(Ok(admit(database, known, request, *token, now).await?)),
            Some(Err(what)) => ask.answer = Some(Err(StoreError::Corrupt(what.clone()))),
            None if in_hand.contains(&request.key) => ask.answer = Some(Ok(Reserved::Processing(IN_HAND))),
            None => unknown.push(ask),
        }
    }
    Ok(unknown)
}

/// What is known of each receipt, or why its row cannot be read.
pub(super) type Standings = HashMap<ReceiptKey, Result<Known, String>>;

pub(super) async fn look<D: Database>(
    database: &mut D,
    known: &mut Standings,
    keys: Vec<&ReceiptKey>,
    lock: bool,
) -> Done {
    for found in database.standings(&keys, lock).await? {
        if let Some(&key) = keys.get(found.place) {
            known.insert(key.clone(), found.known);
        }
    }
    Ok(())
}

/// Whether the receipt changes hands, so that nobody else may change it meanwhile.
const fn takes(admission: &Admission) -> bool {
    match admission {
        Admission::Bury { .. } | Admission::TakeOver { .. } => true,
        Admission::Held | Admission::Refuse | Admission::Repeat { .. } | Admission::Wait(_) => false,
    }
}

/// Does what [`Standing::admit`] says, and keeps `known` true for the next who asks.
async fn admit<D: Database>(
    database: &mut D,
    known: &mut Known,
    request: &Reserve,
    token: Token,
    now: Timestamp,
) -> Done<Reserved> {
    match known.standing.admit(request, token, now) {
        Admission::Held => Ok(Reserved::Acquired(known.lease(request, token))),
        Admission::Wait(remaining) => Ok(Reserved::Processing(remaining)),
        Admission::Refuse => {
            count(database, known, true).await?;
            Ok(Reserved::OtherBody)
        }
        Admission::Repeat { other_body } => {
            count(database, known, other_body).await?;
            Ok(known.reserved(other_body))
        }
        Admission::TakeOver { lapsed, other_body } => {
            note_lapse(database, known.id, &known.standing, lapsed, now).await?;
            count(database, known, other_body).await?;
            let lease_until = now.saturating_add(request.lease);
            known.standing.due = known.standing.due_under(lease_until);
            known.standing.state = ReceiptState::Processing;
            known.standing.attempts = known.standing.attempts.saturating_add(1);
            known.standing.token = Some(token);
            known.standing.lease_until = Some(lease_until);
            let run = Takeover {
                id: known.id,
                token,
                lease_until,
                attempts: known.standing.attempts,
                due: known.standing.due,
            };
            database.take_over(&run, now).await?;
            Ok(Reserved::Acquired(known.lease(request, token)))
        }
        Admission::Bury { lapsed, other_body, reason } => {
            note_lapse(database, known.id, &known.standing, lapsed, now).await?;
            count(database, known, other_body).await?;
            known.standing.state = ReceiptState::DeadLetter;
            known.standing.token = None;
            known.standing.lease_until = None;
            known.standing.due = None;
            database.bury(known.id, &reason, now).await?;
            Ok(known.reserved(other_body))
        }
    }
}

impl Known {
    fn lease(&self, request: &Reserve, token: Token) -> Lease {
        Lease { key: request.key.clone(), token, attempt: self.standing.attempts }
    }

    fn reserved(&self, other_body: bool) -> Reserved {
        Reserved::of_end(self.standing.state, self.repeat(other_body))
    }

    pub(super) fn repeat(&self, other_body: bool) -> Repeat {
        Repeat { result: self.result.clone(), same_body: !other_body }
    }
}

pub(super) async fn count<D: Database>(database: &mut D, known: &Known, other_body: bool) -> Done {
    if other_body {
        database.count_other_body(known.id).await?;
    }
    Ok(())
}

pub(super) async fn note_lapse<D: Database>(
    database: &mut D,
    id: i64,
    standing: &Standing,
    lapsed: bool,
    now: Timestamp,
) -> Done {
    if lapsed {
        let attempt = standing.attempts;
        let run = FailedRun { attempt, at: now, status: None, error: admission::LAPSED.to_owned() };
        database.note_failure(id, &run).await?;
    }
    Ok(())
}
