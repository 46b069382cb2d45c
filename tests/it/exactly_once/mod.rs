//! What a handler writes in its own transaction, and that its event is done, are one commit.

#[path = "../../ledger/books.rs"]
mod books;
mod commits;
mod leases;
pub(crate) mod ledger;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use countersign::receive::{DedupLayer, DedupLayerBuilder, Outcome, Reservation, ResponseBody};
use countersign::signature::Scheme;
use countersign::store::{InboxStore, MySqlStore, PostgresStore, Receipt};
use http::{HeaderMap, Response};

use self::books::{Books, Plan};
use super::servers::{Faults, MySqlDatabase, PostgresDatabase};
use super::support::{Answer, Server, standard, verify};

/// A database with a store and a ledger in it.
struct Place {
    url: String,
    kind: Kind,
    _folder: Option<tempfile::TempDir>,
}

enum Kind {
    Sqlite,
    Postgres(PostgresDatabase),
    MySql(MySqlDatabase),
}

impl Place {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("inbox.db").display());
        Self { url, kind: Kind::Sqlite, _folder: Some(folder) }
    }

    async fn postgres() -> Option<Self> {
        let database = PostgresDatabase::create().await?;
        Some(Self { url: database.url.clone(), kind: Kind::Postgres(database), _folder: None })
    }

    async fn mysql() -> Option<Self> {
        let database = MySqlDatabase::create().await?;
        Some(Self { url: database.url.clone(), kind: Kind::MySql(database), _folder: None })
    }

    /// The URL through a proxy; a file has none.
    async fn behind_proxy(&self) -> (String, Arc<Faults>) {
        match &self.kind {
            Kind::Sqlite => unreachable!("there is no network before a file"),
            Kind::Postgres(database) => database.behind_proxy().await,
            Kind::MySql(database) => database.behind_proxy().await,
        }
    }

    /// Every lease runs out now.
    async fn end_leases(&self) {
        let ended = "UPDATE countersign_inbox SET lease_until = 0, due = CASE WHEN due IS NOT NULL THEN 0 END
            WHERE state = 'processing'";
        self.execute(ended).await;
    }

    async fn execute(&self, sql: &'static str) {
        match &self.kind {
            Kind::Sqlite => {
                let Books::Sqlite(pool) = Books::open(&self.url, 1).await else { unreachable!() };
                sqlx::raw_sql(sql).execute(&pool).await.expect("it is done");
                pool.close().await;
            }
            Kind::Postgres(database) => database.execute(sql).await,
            Kind::MySql(database) => database.execute(sql).await,
        }
    }

    /// The URL through a pooler, on PostgreSQL, where there is one.
    fn behind_pooler(&self) -> Option<String> {
        match &self.kind {
            Kind::Postgres(database) => database.through_pgbouncer(),
            Kind::Sqlite | Kind::MySql(_) => None,
        }
    }
}

/// Runs a test in each kind of database that there is.
async fn in_each_database<F: Future<Output = ()>>(test: impl Fn(Place) -> F) {
    test(Place::sqlite()).await;
    on_each_server(test).await;
}

/// Runs a test on each server that there is.
async fn on_each_server<F: Future<Output = ()>>(test: impl Fn(Place) -> F) {
    if let Some(place) = Place::postgres().await {
        test(place).await;
    }
    if let Some(place) = Place::mysql().await {
        test(place).await;
    }
}

impl Books {
    /// A store over the same pool.
    async fn store_over_pool(&self) -> Arc<dyn InboxStore> {
        match self {
            Self::Sqlite(_) => unreachable!("a file has no pool to share"),
            Self::Postgres(pool) => {
                let options = PostgresStore::from_pool(pool.clone()).with_writers(1);
                Arc::new(options.open().await.expect("a store"))
            }
            Self::MySql(pool) => {
                let options = MySqlStore::from_pool(pool.clone()).with_writers(1);
                Arc::new(options.open().await.expect("a store"))
            }
        }
    }

    /// What has been booked, in any order.
    async fn entries(&self) -> Result<Vec<String>, sqlx::Error> {
        let all = "SELECT event FROM ledger";
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(all).fetch_all(pool).await,
            Self::Postgres(pool) => sqlx::query_scalar(all).fetch_all(pool).await,
            Self::MySql(pool) => sqlx::query_scalar(all).fetch_all(pool).await,
        }
    }
}

/// A receiver whose handler books each event, as planned.
struct Shop {
    server: Server,
    books: Books,
    plans: Plans,
    app: Router,
}

type Plans = Arc<Mutex<VecDeque<Plan>>>;

/// How a handler ends that has done its booking.
type Ending = fn(Result<Response<ResponseBody>, Outcome>) -> Result<Response<ResponseBody>, Outcome>;

impl Shop {
    async fn open(place: &Place) -> Self {
        Self::with(place, &place.url, |builder| builder, |booked| booked).await
    }

    /// `ledger` is the URL by which the handler comes to the database.
    async fn with(
        place: &Place,
        ledger: &str,
        settings: impl FnOnce(DedupLayerBuilder) -> DedupLayerBuilder,
        ending: Ending,
    ) -> Self {
        let store = books::store(&place.url).await;
        Self::over(store, Books::open(ledger, 4).await, settings, ending).await
    }

    async fn over(
        store: Arc<dyn InboxStore>,
        books: Books,
        settings: impl FnOnce(DedupLayerBuilder) -> DedupLayerBuilder,
        ending: Ending,
    ) -> Self {
        let plans = Plans::default();
        let app = {
            let (books, plans) = (books.clone(), Arc::clone(&plans));
            let handler = async move |run: Reservation| {
                let plan = plans.lock().expect("no panic").pop_front().unwrap_or_else(|| Plan::at_once(true));
                let booked = books.book(&run, response(), &plan).await;
                ending(booked.map_err(Outcome::from))
            };
            Router::new().route("/", post(handler))
        };
        let dedup = settings(DedupLayer::builder(Arc::clone(&store)));
        let server = Server::with(app.clone(), verify(Scheme::standard()), dedup, store).await;
        Self { server, books, plans, app }
    }

    /// The next run goes by this plan.
    fn plan(&self, plan: &Plan) {
        self.plans.lock().expect("no panic").push_back(plan.clone());
    }

    async fn deliver(&self, id: &str) -> Answer {
        self.server.post(standard(id, b"{}"), "{}").await
    }

    async fn receipt(&self, id: &str) -> Receipt {
        self.server.receipt(id).await.expect("it is there")
    }

    /// How often an event has been booked.
    async fn booked(&self, id: &str) -> usize {
        self.books.entries().await.expect("the ledger").iter().filter(|event| *event == id).count()
    }
}

/// What the handler answers: some of it is kept for repeats.
fn response() -> Response<String> {
    let mut response = Response::new("booked".to_owned());
    let headers: HeaderMap =
        super::support::headers(&[("content-type", "text/plain"), ("x-ledger", "1"), ("set-cookie", "a=b")]);
    *response.headers_mut() = headers;
    response
}
