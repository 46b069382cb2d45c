//! Why an event did not move a saga, and what that means to whoever delivered it.

use thiserror::Error;

use crate::envelope::ContractError;
use crate::receive::{CompleteError, Outcome};
use crate::send::MessageError;
use crate::store::StoreError;

/// An event was not answered by a saga. The transaction must be rolled back.
///
/// It becomes an [`Outcome`]: a dead letter with its reason where the saga refused the event or nobody can read it, else one
/// that is tried again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SagaError {
    /// The end of the run could not be recorded.
    #[error(transparent)]
    Complete(#[from] CompleteError),
    /// Somebody else has moved the instance meanwhile.
    #[error("somebody else has moved the instance meanwhile")]
    Conflict,
    /// Sender and receiver do not agree on the event.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The instance keeps so many events that came too early that it takes no more.
    #[error("the instance keeps too many events that came too early")]
    DeferredTooMany,
    /// A message could not be made, a step or an instance could not be named, or the state could not be written.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The saga refused it, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The database failed, or holds what cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SagaError> for Outcome {
    fn from(error: SagaError) -> Self {
        match error {
            SagaError::Contract(error) => error.into(),
            SagaError::Refused(reason) => Self::Permanent(reason),
            // No run of it can ever end otherwise: its names, its state, or what the database holds of it.
            SagaError::Message(MessageError::Json(_) | MessageError::Name { .. })
            | SagaError::Store(StoreError::Corrupt(_) | StoreError::Rejected(_)) => Self::Permanent(error.to_string()),
            SagaError::Complete(_)
            | SagaError::Conflict
            | SagaError::DeferredTooMany
            | SagaError::Message(_)
            | SagaError::Store(_) => Self::Transient(error.to_string()),
        }
    }
}
