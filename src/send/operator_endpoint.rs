//! The operator's endpoint: gets notices as signed messages, by way of the outbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use crate::Name;
use crate::cause::passable;
use crate::notice::{NotTold, Notice, Operator, TellFuture};
use crate::store::{Enqueue, Message, OutboxStore, StoreError};
use crate::work::in_time;

/// An endpoint of an outbox that gets each notice as a message, whose type is the notice's
/// [`kind`](crate::notice::Notice::kind). A dispatcher delivers it like any other.
///
/// While the store does not answer, what waits is kept, and enqueued when it does: that the store fails reaches this operator
/// only when that is over. Tell it to another one too.
///
/// Nothing about the endpoint itself is sent to it: each of its failures would make another message for it.
///
/// ```
/// # fn example(store: countersign::store::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
/// use countersign::Name;
/// use countersign::notice::Notices;
/// use countersign::send::OperatorEndpoint;
///
/// let ops = OperatorEndpoint::new(store, Name::new("ops")?);
/// let (notices, telling) = Notices::builder().operator(ops).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OperatorEndpoint {
    store: Arc<dyn OutboxStore>,
    name: Name,
}

impl OperatorEndpoint {
    /// The endpoint of this name in this store.
    pub fn new(store: impl OutboxStore, name: Name) -> Self {
        Self { store: Arc::new(store), name }
    }

    async fn enqueue(&self, message: &Message) -> Result<(), StoreError> {
        let mut pause = Duration::from_millis(100);
        loop {
            match in_time(self.store.enqueue(vec![Enqueue::new(self.name.clone(), message.clone())])).await {
                Err(error) if error.is_transient() => {
                    debug!(%error, operator = %self.name, "a notice could not be enqueued; trying again");
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                enqueued => return enqueued.map(drop),
            }
        }
    }
}

impl Operator for OperatorEndpoint {
    fn name(&self) -> &'static str {
        "endpoint"
    }

    fn tell(&self, notice: Notice) -> TellFuture<'_> {
        Box::pin(async move {
            if notice.endpoint() == Some(&self.name) {
                return Ok(());
            }
            let message = message(&notice).map_err(|error| NotTold::new(error.to_string()))?;
            self.enqueue(&message).await.map_err(|error| NotTold::new(error.to_string()))
        })
    }
}

fn message(notice: &Notice) -> Result<Message, serde_json::Error> {
    let mut message = Message::new(notice.id(), Name::literal(notice.kind()), serde_json::to_vec(notice)?);
    message.causation_id = match notice {
        Notice::MessageDead { id, .. } => passable(id.as_str()),
        Notice::EventDead { event_id: Some(id), .. } | Notice::EventQuarantined { event_id: Some(id), .. } => {
            passable(id.as_str())
        }
        _ => None,
    };
    Ok(message)
}

/// Between two tries at a store that does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
