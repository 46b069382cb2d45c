//! What a handler is handling, known to whatever it makes: [`Cause`].

use std::future::Future;

use crate::telemetry::Traceparent;
use crate::{EventId, Name};

tokio::task_local! {
    static CURRENT: Cause;
}

/// The delivery that is being handled.
///
/// The receiver's layers and processors set it around each handler, and a message that is made meanwhile inherits it
/// (`Message::json`, `Envelope::new`): what it belongs to, which event caused it, and its trace, without the application's
/// help.
///
/// It is known to the task that runs the handler. One that the handler spawns takes it along like this:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use countersign::Cause;
///
/// let cause = Cause::current();
/// let work = async { Cause::current() };
/// let spawned = tokio::spawn(async move {
///     match cause {
///         Some(cause) => cause.scope(work).await,
///         None => work.await,
///     }
/// });
/// assert_eq!(spawned.await.unwrap(), None, "nothing is being handled here");
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    event_id: Option<Name>,
    correlation_id: Option<Name>,
    traceparent: Option<Traceparent>,
}

impl Cause {
    /// Something that belongs to `correlation_id`, in the trace that a header `traceparent` says: a request that begins a flow,
    /// for example. What headers cannot hold, or is no trace context, is left out: it could not be passed on.
    #[must_use]
    pub fn new(correlation_id: Option<&str>, traceparent: Option<&str>) -> Self {
        Self::of_delivery(None, correlation_id, traceparent.and_then(Traceparent::parse))
    }

    /// A delivery with this id. One that does not say what it belongs to begins something of its own, which is known by its
    /// id.
    pub(crate) fn of_delivery(
        event_id: Option<&EventId>,
        correlation_id: Option<&str>,
        traceparent: Option<Traceparent>,
    ) -> Self {
        let event_id = event_id.and_then(|id| passable(id.as_str()));
        let correlation_id = correlation_id.and_then(passable).or_else(|| event_id.clone());
        Self { event_id, correlation_id, traceparent }
    }

    /// The one that this task is handling. `None` outside of handlers.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs something on its behalf.
    ///
    /// # Cancel safety
    ///
    /// May be dropped where what it runs may.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The id of the event. `None` where it has none.
    #[must_use]
    pub fn event_id(&self) -> Option<&Name> {
        self.event_id.as_ref()
    }

    /// What it belongs to: an order, a flow. `None` where it has no id either.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&Name> {
        self.correlation_id.as_ref()
    }

    /// Its W3C trace context, as the header `traceparent` has it.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        self.traceparent.as_ref().map(ToString::to_string)
    }
}

/// A name that a header can hold, as those of a message are sent in.
pub(crate) fn passable(text: &str) -> Option<Name> {
    let is_visible = text.trim() == text && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_visible { Name::new(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_belongs_to_nothing_begins_something_of_its_own() {
        let id = EventId::new("evt_1").expect("an id");
        let own = Cause::of_delivery(Some(&id), None, None);
        assert_eq!(own.correlation_id().map(Name::as_str), Some("evt_1"));
        let part = Cause::of_delivery(Some(&id), Some("order-7"), None);
        assert_eq!(part.correlation_id().map(Name::as_str), Some("order-7"));
        assert_eq!(part.event_id().map(Name::as_str), Some("evt_1"));
    }

    #[test]
    fn what_no_header_holds_is_not_passed_on() {
        let id = EventId::new("événement").expect("an id");
        assert_eq!(Cause::of_delivery(Some(&id), Some(" "), None), Cause::new(None, Some("no trace")));
    }
}
