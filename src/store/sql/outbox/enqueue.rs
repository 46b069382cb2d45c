//! Taking messages in: for a store's own callers in their batches, and for who has a transaction of his own.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::time::Duration;

use super::super::fault::Fault;
use super::super::transactor::Done;
use super::call::{EnqueueAsk, PublishAsk};
use crate::store::{Enqueue, Enqueued, Message, StoreError, Token, TypePattern};
use crate::{Digest, Name};

/// A connection that takes new messages in, in whatever transaction it is.
pub(in crate::store::sql) trait Inserts: Send {
    fn fault(error: &sqlx::Error) -> Fault;

    /// Which of these endpoints there are. None of them is removed before this transaction ends: whoever removes one waits,
    /// and finds what was made for it.
    fn known(&mut self, names: &[&Name]) -> impl Future<Output = Done<HashSet<String>>> + Send;

    /// What each endpoint wants, by name.
    fn subscriptions(&mut self) -> impl Future<Output = Done<Vec<Subscription>>> + Send;

    /// Waits until no other transaction has any of these orders in hand, and has them until this one ends. The digests come
    /// sorted.
    fn take_turns(&mut self, turns: &[Digest]) -> impl Future<Output = Done> + Send;

    /// How many bytes one statement may have, where that is less than what a message may have. Asked for large ones alone.
    fn room(&mut self) -> impl Future<Output = Done<usize>> + Send;

    /// Makes the messages that are not there yet, in their order. Returns the endpoints and ids of those that were made.
    ///
    /// `again`: they may have been made before, under the same tokens, by a commit whose answer was lost.
    fn insert(&mut self, rows: &[New<'_>], again: bool) -> impl Future<Output = Done<Vec<Made>>> + Send;

    /// Tells dispatchers elsewhere when this is committed, where the database can.
    fn announce(&mut self) -> impl Future<Output = Done> + Send;
}

/// What an endpoint wants.
#[derive(Debug)]
pub(in crate::store::sql) struct Subscription {
    pub(in crate::store::sql) name: Name,
    pub(in crate::store::sql) types: Vec<TypePattern>,
}

/// A message to be made.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sql) struct New<'a> {
    pub(in crate::store::sql) endpoint: &'a Name,
    pub(in crate::store::sql) message: &'a Message,
    pub(in crate::store::sql) delay: Duration,
    /// SQLite always says what it made: nothing is recognised later.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(in crate::store::sql) token: Token,
}

impl New<'_> {
    pub(in crate::store::sql) fn delay_micros(&self) -> i64 {
        i64::try_from(self.delay.as_micros()).unwrap_or(i64::MAX).min(LONGEST_DELAY)
    }
}

/// Longer ones would not fit into a time beside the present one: about a thousand centuries.
const LONGEST_DELAY: i64 = i64::MAX / 3;

/// The endpoint and the id of a message that was made.
pub(in crate::store::sql) type Made = (String, String);

/// For a writer's batch. A call that names an endpoint that is not there fails alone.
pub(super) async fn enqueue(
    inserts: &mut impl Inserts,
    enqueues: Vec<&mut EnqueueAsk>,
    publishes: Vec<&mut PublishAsk>,
    again: bool,
) -> Done {
    let subscriptions = if publishes.is_empty() { Vec::new() } else { inserts.subscriptions().await? };
    let named = enqueues.iter().flat_map(|ask| &ask.question.0).map(|new| &new.endpoint);
    let wanted_by = publishes.iter().flat_map(|ask| wanted(&subscriptions, &ask.question.0, ask.question.1));
    let known = known(inserts, named.chain(wanted_by.map(|row| row.endpoint)).collect()).await?;
    let messages = enqueues.iter().flat_map(|ask| &ask.question.0).map(|new| &new.message);
    let room = room(inserts, messages.chain(publishes.iter().map(|ask| &ask.question.0))).await?;
    let mut rows = Vec::new();
    let mut calls = Vec::with_capacity(enqueues.len() + publishes.len());
    for ask in &enqueues {
        let (messages, token) = &ask.question;
        let refused = refusal(messages, &known, room);
        let begin = rows.len();
        if refused.is_none() {
            rows.extend(messages.iter().map(|new| new_row(new, *token)));
        }
        calls.push((refused, begin..rows.len()));
    }
    for ask in &publishes {
        let (message, token) = &ask.question;
        let begin = rows.len();
        let refused = too_large(message, room);
        if refused.is_none() {
            rows.extend(wanted(&subscriptions, message, *token).filter(|row| known.contains(row.endpoint.as_str())));
        }
        calls.push((refused, begin..rows.len()));
    }
    let enqueued = insert(inserts, &rows, room, again).await?;
    drop(rows);
    let mut answers = calls.into_iter().map(|(refused, range)| match refused {
        Some(error) => Err(error),
        None => Ok(enqueued.get(range).unwrap_or_default().to_vec()),
    });
    let waiting =
        enqueues.into_iter().map(|ask| &mut ask.answer).chain(publishes.into_iter().map(|ask| &mut ask.answer));
    for answer in waiting {
        *answer = answers.next();
    }
    Ok(())
}

/// For one call.
pub(super) async fn enqueue_all(
    inserts: &mut impl Inserts,
    messages: &[Enqueue],
) -> Result<Result<Vec<Enqueued>, StoreError>, sqlx::Error> {
    let token = match Token::random() {
        Ok(token) => token,
        Err(error) => return Ok(Err(error)),
    };
    let known = known(inserts, messages.iter().map(|new| &new.endpoint).collect()).await?;
    let room = room(inserts, messages.iter().map(|new| &new.message)).await?;
    if let Some(error) = refusal(messages, &known, room) {
        return Ok(Err(error));
    }
    let rows: Vec<New<'_>> = messages.iter().map(|new| new_row(new, token)).collect();
    insert(inserts, &rows, room, false).await.map(Ok)
}

/// The same for every endpoint that wants the message.
pub(super) async fn publish(
    inserts: &mut impl Inserts,
    message: &Message,
) -> Result<Result<Vec<Enqueued>, StoreError>, sqlx::Error> {
    let token = match Token::random() {
        Ok(token) => token,
        Err(error) => return Ok(Err(error)),
    };
    let room = room(inserts, std::iter::once(message)).await?;
    if let Some(error) = too_large(message, room) {
        return Ok(Err(error));
    }
    let subscriptions = inserts.subscriptions().await?;
    let mut rows: Vec<New<'_>> = wanted(&subscriptions, message, token).collect();
    // What was removed since then wants nothing any more.
    let known = known(inserts, rows.iter().map(|row| row.endpoint).collect()).await?;
    rows.retain(|row| known.contains(row.endpoint.as_str()));
    insert(inserts, &rows, room, false).await.map(Ok)
}

async fn known(inserts: &mut impl Inserts, mut names: Vec<&Name>) -> Done<HashSet<String>> {
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { Ok(HashSet::new()) } else { inserts.known(&names).await }
}

/// How much one statement may have. Small messages fit into any, and nobody is asked.
async fn room<'m>(inserts: &mut impl Inserts, messages: impl Iterator<Item = &'m Message>) -> Done<usize> {
    const ALWAYS_FITS: usize = 256 * 1_024;
    let bytes: usize = messages.map(|message| message.payload.len() + ROW).sum();
    if bytes <= ALWAYS_FITS { Ok(usize::MAX) } else { inserts.room().await }
}

/// What a message has beside its payload, at most: ids, names, content type, trace context.
const ROW: usize = 4 * 1_024;

fn refusal(messages: &[Enqueue], known: &HashSet<String>, room: usize) -> Option<StoreError> {
    if let Some(unknown) = messages.iter().find(|new| !known.contains(new.endpoint.as_str())) {
        return Some(StoreError::Rejected(format!("there is no endpoint {}", unknown.endpoint)));
    }
    messages.iter().find_map(|new| too_large(&new.message, room))
}

/// A server that is sent more than it takes ends the connection, and with it everybody's batch.
fn too_large(message: &Message, room: usize) -> Option<StoreError> {
    let bytes = message.payload.len();
    (bytes.saturating_add(ROW) > room).then(|| {
        let why = format!("a payload of {bytes} bytes: the server takes {room} in one packet (max_allowed_packet)");
        StoreError::Rejected(why)
    })
}

const fn new_row(new: &Enqueue, token: Token) -> New<'_> {
    New { endpoint: &new.endpoint, message: &new.message, delay: new.delay, token }
}

fn wanted<'a>(subscriptions: &'a [Subscription], message: &'a Message, token: Token) -> impl Iterator<Item = New<'a>> {
    let wants = |subscription: &&Subscription| {
        subscription.types.iter().any(|pattern| pattern.matches(message.event_type.as_str()))
    };
    let row = move |subscription: &'a Subscription| New {
        endpoint: &subscription.name,
        message,
        delay: Duration::ZERO,
        token,
    };
    subscriptions.iter().filter(wants).map(row)
}

/// In statements of a bounded size. A message that is named twice is new the first time.
async fn insert(inserts: &mut impl Inserts, rows: &[New<'_>], room: usize, again: bool) -> Done<Vec<Enqueued>> {
    let turns = turns(rows);
    if !turns.is_empty() {
        inserts.take_turns(&turns).await?;
    }
    let mut made_before = HashSet::new();
    let mut enqueued = Vec::with_capacity(rows.len());
    for rows in statements(rows, room) {
        let made: HashSet<Made> = inserts.insert(rows, again).await?.into_iter().collect();
        for row in rows {
            let key = (row.endpoint.as_str().to_owned(), row.message.id.as_str().to_owned());
            let created = made.contains(&key) && made_before.insert(key);
            enqueued.push(Enqueued::new(row.message.id.clone(), row.endpoint.clone(), created));
        }
    }
    if !made_before.is_empty() {
        inserts.announce().await?;
    }
    Ok(enqueued)
}

/// What has an order is put in by one transaction at a time: else the message that was made first could be committed last,
/// and a claim between the two commits would hand out the second one. Each order is a turn, taken before any message is
/// made, and in one order, so that nobody waits in a circle.
fn turns(rows: &[New<'_>]) -> Vec<Digest> {
    let turn = |row: &New<'_>| {
        let mut text = b"outbox\0".to_vec();
        for part in [row.endpoint, row.message.ordering_key.as_ref()?] {
            // Names hold no NUL: no two orders share one text.
            text.extend_from_slice(part.as_str().as_bytes());
            text.push(0);
        }
        Some(Digest::of(&text))
    };
    let turns: BTreeSet<Digest> = rows.iter().filter_map(turn).collect();
    turns.into_iter().collect()
}

/// Splits rows so that no statement has more than so many, or many more bytes than so many. What is encoded on its way is
/// a third longer.
fn statements<'r, 'a>(mut rows: &'r [New<'a>], room: usize) -> impl Iterator<Item = &'r [New<'a>]> {
    const ROWS: usize = 1_000;
    const BYTES: usize = 4 * 1_024 * 1_024;
    let most = BYTES.min(room / 2);
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fits = |row: &&New<'_>| {
            let weight = row.message.payload.len() + if room == usize::MAX { 1 } else { ROW };
            let fits = bytes == 0 || bytes + weight <= most;
            bytes += weight;
            fits
        };
        let length = rows.iter().take(ROWS).take_while(fits).count();
        let (statement, rest) = rows.split_at_checked(length)?;
        rows = rest;
        (!statement.is_empty()).then_some(statement)
    })
}
