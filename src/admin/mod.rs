//! For the people who run this: what came in, what is on its way, what is stuck and why, and the few actions that mend it.
//!
//! [`Admin::router`] is an axum `Router` that an application mounts where it likes. The program serves the same on
//! `--admin-listen`.
//!
//! ```no_run
//! use countersign::admin::Admin;
//! use countersign::store::SqliteStore;
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("countersign.db").await?;
//! let token = std::fs::read_to_string("/run/secrets/admin-token")?;
//! let admin = Admin::behind_token(token.trim_end())?.with_inbox(store.clone()).with_outbox(store);
//! let app: axum::Router = axum::Router::new().nest("/ops", admin.router());
//! # Ok(())
//! # }
//! ```
//!
//! | path | what it shows |
//! |---|---|
//! | `overview` | what wants a person's attention: dead letters, endpoints that fail, what is overdue; what this process did in the last six hours |
//! | `inbox`, `receipt` | what was received, with filters; one event with its result and its failed runs |
//! | `outbox`, `message` | what is on its way, with filters; one message with every attempt |
//! | `endpoints`, `endpoint` | where messages go, and how each place is doing |
//! | `api/…` | the same as JSON; `api/openapi.json` describes it |
//!
//! # Who gets in
//!
//! Whoever made the [`Admin`] says it: by a token, which a person types into a page and a program sends as
//! `Authorization: Bearer`; or the application's own guard stands in front ([`Admin::behind_own_guard`]); or nobody but
//! this machine can reach the address ([`Admin::on_loopback`]), and then only requests for a name of this machine are
//! answered, so that no web page can reach it through a name of its own.
//!
//! Everything that changes something is a `POST`. A page's form carries a token that no other site can know, and what a
//! browser says about where the request comes from has to fit. There is no script: the pages work without, and a strict
//! `Content-Security-Policy` keeps out what others wrote into ids, types, errors and bodies.
//!
//! # What is never shown
//!
//! Secrets are not in a store, only where to find them. Of an endpoint's URL the query is left out, and of its headers the
//! values. Of a kept request only sizes are shown. Results, payloads, the answers of endpoints and the paths of
//! their URLs are shown: whoever gets in may read them.

mod activity;
mod api;
mod endpoints;
mod fault;
mod guard;
mod inbox;
// For the program, which writes the same: not a promise to anybody else.
#[doc(hidden)]
pub mod json;
mod outbox;
mod overview;
mod page;
mod query;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::response::Redirect;
use axum::routing::get;

use self::guard::Guard;
pub use self::guard::{TokenError, asks_for_this_machine};
use crate::store::{InboxStore, OutboxStore};

/// Pages and a JSON API over an inbox, an outbox, or both.
///
/// Without a store a part is left out: its pages say that it is not here, and its API answers 404.
#[derive(Clone, Debug)]
pub struct Admin {
    guard: Arc<Guard>,
    inbox: Option<Arc<dyn InboxStore>>,
    outbox: Option<Arc<dyn OutboxStore>>,
}

impl Admin {
    /// Behind a token, which a person types in once in twelve hours.
    ///
    /// Take 16 random bytes or more, in any text form: `openssl rand -hex 32`. Several processes with the same token know
    /// each other's sessions; with another token all sessions end. Whoever logs out ends the session, also for a copy of its
    /// cookie, in this process until it ends; take another token where a cookie may have been stolen. Serve it over TLS unless it stays on one machine: the
    /// token travels in requests.
    ///
    /// # Errors
    ///
    /// [`TokenError`] where it is shorter than 16 bytes, or holds what a header cannot hold.
    pub fn behind_token(token: &str) -> Result<Self, TokenError> {
        Ok(Self::new(Guard::token(token)?))
    }

    /// Behind a guard of the application: whatever reaches the router may do everything.
    ///
    /// The guard must not let another site's requests in: one that goes by cookies sets `SameSite`.
    ///
    /// # Errors
    ///
    /// [`TokenError::NoRandomness`] where the operating system gives no random bytes.
    pub fn behind_own_guard() -> Result<Self, TokenError> {
        Ok(Self::new(Guard::application()?))
    }

    /// On an address that only this machine can reach, such as `127.0.0.1`: whoever is on it may do everything.
    ///
    /// Requests are answered where they ask for `localhost` or an address of loopback; others get 403.
    ///
    /// # Errors
    ///
    /// [`TokenError::NoRandomness`] where the operating system gives no random bytes.
    pub fn on_loopback() -> Result<Self, TokenError> {
        Ok(Self::new(Guard::loopback()?))
    }

    fn new(guard: Guard) -> Self {
        crate::telemetry::activity::began();
        Self { guard: Arc::new(guard), inbox: None, outbox: None }
    }

    /// Shows this inbox.
    #[must_use]
    pub fn with_inbox(mut self, inbox: impl InboxStore) -> Self {
        self.inbox = Some(Arc::new(inbox));
        self
    }

    /// Shows this outbox.
    #[must_use]
    pub fn with_outbox(mut self, outbox: impl OutboxStore) -> Self {
        self.outbox = Some(Arc::new(outbox));
        self
    }

    /// The pages and the API, to be served as they are or nested under a path of an application's router.
    ///
    /// Links between pages are relative, so that a proxy may serve them under another path too.
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let guard = Arc::clone(&self.guard);
        Router::new()
            .route("/", get(home))
            .route("/overview", get(overview::show))
            .route("/inbox", get(inbox::list))
            .route("/receipt", get(inbox::show).post(inbox::act))
            .route("/outbox", get(outbox::list).post(outbox::act_on_many))
            .route("/message", get(outbox::show).post(outbox::act))
            .route("/endpoints", get(endpoints::list))
            .route("/endpoint", get(endpoints::show).post(endpoints::act))
            .route("/style.css", get(page::style))
            .nest("/api", api::router())
            .merge(guard::router())
            .fallback(nowhere)
            .layer(axum::middleware::from_fn_with_state(guard, guard::stand))
            .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
            .with_state(self)
    }

    fn inbox(&self) -> Result<&dyn InboxStore, fault::Fault> {
        self.inbox.as_deref().ok_or(fault::Fault::NotHere("inbox"))
    }

    fn outbox(&self) -> Result<&dyn OutboxStore, fault::Fault> {
        self.outbox.as_deref().ok_or(fault::Fault::NotHere("outbox"))
    }
}

/// The largest form or JSON text that is read: a few names.
const MAX_FORM_BYTES: usize = 64 * 1_024;

async fn nowhere() -> fault::Sorry {
    fault::Sorry(fault::Fault::NotFound("page"))
}

/// Relative links need a page to stand beside: the bare mount point is not one.
///
/// By its last part alone: what stands before that may be a proxy's to say.
async fn home(OriginalUri(asked): OriginalUri) -> Redirect {
    match asked.path().rsplit('/').next() {
        Some(last) if !last.is_empty() => Redirect::to(&format!("{last}/overview")),
        _ => Redirect::to("overview"),
    }
}
