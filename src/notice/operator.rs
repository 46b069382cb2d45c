//! Who is told.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use thiserror::Error;

use super::Notice;

/// What [`Operator::tell`] returns.
pub type TellFuture<'a> = Pin<Box<dyn Future<Output = Result<(), NotTold>> + Send + 'a>>;

/// Somebody who is to know, or a way to them.
///
/// Notices come one at a time and in order. Whatever it takes delays only what comes behind in its own queue.
pub trait Operator: fmt::Debug + Send + Sync + 'static {
    /// What it is called in logs and metrics: one word.
    fn name(&self) -> &'static str;

    /// Tells it.
    ///
    /// # Errors
    ///
    /// [`NotTold`] where it could not be told; it is logged and counted, and not tried again.
    ///
    /// # Cancel safety
    ///
    /// It is dropped where the process ends before it has.
    fn tell(&self, notice: Notice) -> TellFuture<'_>;
}

/// Why somebody could not be told. It is logged: no secret may be in it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NotTold(String);

impl NotTold {
    /// For this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A plain function.
pub(super) struct Hook<F>(pub(super) F);

impl<F: Fn(&Notice) + Send + Sync + 'static> Operator for Hook<F> {
    fn name(&self) -> &'static str {
        "hook"
    }

    fn tell(&self, notice: Notice) -> TellFuture<'_> {
        Box::pin(async move {
            (self.0)(&notice);
            Ok(())
        })
    }
}

impl<F> fmt::Debug for Hook<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
