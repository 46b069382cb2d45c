//! Hearing of what others have enqueued.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::Postgres;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::super::super::source::Source;

/// Who listens for a store: nobody before somebody wants to be told.
#[derive(Debug)]
pub(in super::super) struct Listening {
    pub(in super::super) runtime: Handle,
    /// `None`: it is not to be listened.
    pub(in super::super) source: Option<Source<Postgres>>,
    pub(in super::super) listener: OnceLock<AbortHandle>,
}

impl Listening {
    /// What is told, from now on.
    pub(in super::super) fn wake(&self, wake: &Arc<Notify>) -> Arc<Notify> {
        if let Some(source) = &self.source {
            self.listener.get_or_init(|| self.runtime.spawn(listen(source.clone(), Arc::clone(wake))).abort_handle());
        }
        Arc::clone(wake)
    }

    pub(in super::super) fn end(&self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long to wait before a connection is made anew, and how long at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Listens until it is dropped, on a connection of its own, and passes on what it hears.
///
/// A connection that breaks is made anew. What was said meanwhile is lost: so whoever is told is told once more when it
/// listens again, and looks.
async fn listen(source: Source<Postgres>, wake: Arc<Notify>) {
    let options = match source {
        Source::Own(options) => options,
        Source::Pool(pool) => pool.connect_options().as_ref().clone(),
    };
    // One of its own, so that the application's pool is not used up by who only waits.
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(10)).connect_lazy_with(options);
    let mut pause = PAUSE.0;
    loop {
        match PgListener::connect_with(&pool).await {
            Ok(mut listener) => {
                listener.eager_reconnect(false);
                match listener.listen("countersign_outbox").await {
                    Ok(()) => {
                        pause = PAUSE.0;
                        wake.notify_one();
                        pass_on(&mut listener, &wake).await;
                    }
                    Err(error) => tracing::debug!(%error, "the database did not let us listen"),
                }
            }
            Err(error) => tracing::debug!(%error, "there is no connection to listen on"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn pass_on(listener: &mut PgListener, wake: &Notify) {
    loop {
        match listener.try_recv().await {
            Ok(Some(_)) => wake.notify_one(),
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the connection to listen on failed");
                return;
            }
        }
    }
}
