//! Moves an instance in a transaction of the caller's, together with what it sends and the receipt of what moved it.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::progress::{Now, Progress, Sending};
use super::{Saga, SagaError};
use crate::Name;
use crate::envelope::Envelope;
use crate::receive::{Reservation, ResponseBody};
use crate::send::{MessageError, new_id};
use crate::store::{Enqueue, SagaConnection, SagaEntry, SagaKey, SagaStep, StoreError};

/// Answers a delivery: moves the instance that it belongs to, puts into the outbox what that sends, and ends the run, all in
/// the transaction that this connection is in. Commit it, and return the response (204).
///
/// What the transaction needs to be says [`Reservation::complete_in`], which this calls last.
///
/// # Errors
///
/// [`SagaError`] says why it was not answered. Roll back, and let it become the handler's
/// [`Outcome`](crate::receive::Outcome): a `?` does both.
///
/// # Cancel safety
///
/// May be dropped, with its transaction: nothing is recorded then.
pub async fn handle<S: Saga, C: SagaConnection>(
    connection: &mut C,
    run: &Reservation,
    event: &Envelope,
) -> Result<Response<ResponseBody>, SagaError> {
    advance::<S, C>(connection, event).await?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(run.complete_in(connection, response).await?)
}

/// The same without a delivery: for an event that the application itself makes, the one that begins a flow for example.
/// Durable with the commit of the transaction.
///
/// Says where the instance stands now. `None`: the event was ignored, and there is no instance.
///
/// # Errors
///
/// [`SagaError`] says why it was not answered. Roll back.
///
/// # Cancel safety
///
/// May be dropped, with its transaction: nothing is recorded then.
pub async fn advance<S: Saga, C: SagaConnection>(
    connection: &mut C,
    envelope: &Envelope,
) -> Result<Option<SagaEntry>, SagaError> {
    let event = S::read(envelope)?;
    let key = key_of::<S>(S::instance(&event))?;
    let found = connection.lock_saga(&key).await?;
    // Behind the lock, for which it may have waited: the history of an instance does not run backwards.
    let now = connection.saga_clock().await?;
    let entry = found.unwrap_or_else(|| SagaEntry::new(key, now));
    let before = entry.version;
    let mut progress = Progress::<S>::of(entry)?;
    progress.answer(envelope, &event, &mut Now { at: now, new_id: &mut new_id })?;
    let Progress { mut entry, body, steps, outbox } = progress;
    if steps.is_empty() {
        return Ok(None);
    }
    entry.body = serde_json::to_string(&body).map_err(MessageError::Json)?;
    if !connection.save_saga(before, &entry, &steps).await? {
        return Err(SagaError::Conflict);
    }
    send(connection, outbox).await?;
    tracing::debug!(saga = %entry.key.saga, instance = %entry.key.instance, step = ?entry.step, "a saga answered");
    Ok(Some(entry))
}

/// An instance as it stands, with its history.
#[derive(Debug)]
#[non_exhaustive]
pub struct Instance<S> {
    /// Where it stands.
    pub entry: SagaEntry,
    /// Its state. `None` until it begins.
    pub state: Option<S>,
    /// What came too early and waits.
    pub deferred: Vec<Envelope>,
    /// All that it has answered, in order.
    pub steps: Vec<SagaStep>,
}

/// Looks an instance up.
///
/// # Errors
///
/// [`SagaError`] where the database failed, or holds what cannot be read.
///
/// # Cancel safety
///
/// It only reads.
pub async fn find<S: Saga, C: SagaConnection>(
    connection: &mut C,
    instance: &str,
) -> Result<Option<Instance<S>>, SagaError> {
    let key = key_of::<S>(instance)?;
    let Some(entry) = connection.find_saga(&key).await? else { return Ok(None) };
    let steps = connection.saga_steps(&key).await?;
    let Progress { entry, body, .. } = Progress::<S>::of(entry)?;
    Ok(Some(Instance { entry, state: body.state, deferred: body.deferred, steps }))
}

fn key_of<S: Saga>(instance: &str) -> Result<SagaKey, MessageError> {
    let named = |what, text| Name::new(text).map_err(|reason| MessageError::Name { what, reason });
    Ok(SagaKey { saga: named("saga", S::NAME)?, instance: named("instance", instance)? })
}

async fn send<C: SagaConnection>(connection: &mut C, outbox: Vec<Sending>) -> Result<(), SagaError> {
    let mut addressed = Vec::new();
    for Sending { to, envelope, delay } in outbox {
        let message = envelope.message()?;
        match to {
            Some(endpoint) => addressed.push(Enqueue { delay, ..Enqueue::new(endpoint, message) }),
            None => {
                // In the order in which the move says it: an endpoint may get both.
                enqueue(connection, std::mem::take(&mut addressed)).await?;
                connection.publish(&message).await?;
            }
        }
    }
    enqueue(connection, addressed).await
}

async fn enqueue<C: SagaConnection>(connection: &mut C, addressed: Vec<Enqueue>) -> Result<(), SagaError> {
    if addressed.is_empty() {
        return Ok(());
    }
    let enqueued = connection.enqueue(&addressed).await?;
    // A new id is nobody's: one that is there already would be lost.
    match enqueued.iter().find(|enqueued| !enqueued.created) {
        Some(known) => Err(StoreError::Rejected(format!("there is a message {} already", known.id)).into()),
        None => Ok(()),
    }
}
