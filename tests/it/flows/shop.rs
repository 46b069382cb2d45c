//! The example `orders` as four processes, and between them a network that delivers late, twice, or not at all.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::servers::PostgresDatabase;
use crate::support::{Answer, Dice, SECRET, client, headers, request, send, serve, try_send};

pub(crate) const SERVICES: [&str; 4] = ["orders", "stock", "payment", "notification"];

pub(crate) struct Shop {
    folder: tempfile::TempDir,
    /// Where the four databases are schemas of one, and not files.
    postgres: Option<PostgresDatabase>,
    settings: Vec<(String, String)>,
    addresses: BTreeMap<&'static str, String>,
    processes: BTreeMap<&'static str, Child>,
    network: Network,
}

/// Between the services.
#[derive(Clone)]
struct Network {
    addresses: Arc<BTreeMap<&'static str, String>>,
    dice: Arc<Mutex<Dice>>,
    is_rough: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    queue: Arc<Mutex<Turns>>,
}

/// In which order requests to each service set out, and which was the latest that arrived.
#[derive(Debug, Default)]
struct Turns(BTreeMap<String, (usize, usize)>);

impl Turns {
    fn turn(&mut self, service: &str) -> usize {
        let (last, _) = self.0.entry(service.to_owned()).or_default();
        *last += 1;
        *last
    }

    /// Whether one that set out later was there before it.
    fn arrives(&mut self, service: &str, turn: usize) -> bool {
        let (_, latest) = self.0.entry(service.to_owned()).or_default();
        let is_overtaken = turn < *latest;
        *latest = turn.max(*latest);
        is_overtaken
    }
}

/// What befell requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) came_twice: usize,
    pub(crate) lost: usize,
    pub(crate) unanswered: usize,
    /// Those that one to the same service arrived before, though it was sent later.
    pub(crate) overtaken: usize,
}

impl Shop {
    /// Starts the four. `patience` is how long stock and payment have to answer.
    pub(crate) async fn start(seed: u64, patience: Duration, postgres: Option<PostgresDatabase>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut addresses = BTreeMap::new();
        for service in SERVICES {
            let free = TcpListener::bind("127.0.0.1:0").await.expect("a socket").local_addr().expect("an address");
            addresses.insert(service, free.to_string());
        }
        let network = Network {
            addresses: Arc::new(addresses.clone()),
            dice: Arc::new(Mutex::new(Dice(seed))),
            is_rough: Arc::default(),
            seen: Arc::default(),
            queue: Arc::default(),
        };
        let between = serve(network.clone().router()).await;
        let mut settings = vec![
            ("ORDERS_FOLDER".to_owned(), folder.path().display().to_string()),
            ("ORDERS_PATIENCE_MS".to_owned(), patience.as_millis().to_string()),
            ("RUST_LOG".to_owned(), "info".to_owned()),
        ];
        for service in SERVICES {
            let upper = service.to_uppercase();
            settings.push((format!("ORDERS_URL_{upper}"), format!("http://{between}/{service}")));
            settings.push((format!("ORDERS_SECRET_{upper}"), SECRET.to_owned()));
        }
        if let Some(database) = &postgres {
            settings.push(("ORDERS_POSTGRES".to_owned(), database.url.clone()));
        }
        let mut shop = Self { folder, postgres, settings, addresses, processes: BTreeMap::new(), network };
        for service in SERVICES {
            shop.begin(service).await;
        }
        shop
    }

    async fn begin(&mut self, service: &'static str) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_file(service)).expect("a file");
        let mut process = Command::new(crate::examples::path("orders"))
            .arg(service)
            .env("LISTEN", &self.addresses[service])
            .env_remove("ORDERS_POSTGRES")
            .envs(self.settings.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("it runs");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = timeout(Duration::from_secs(60), lines.next_line()).await.expect("it starts").expect("text");
        assert!(first.is_some_and(|line| line.starts_with("listening on ")), "{service} does not listen");
        self.processes.insert(service, process);
    }

    /// Kills a service, and begins it anew where it was.
    pub(crate) async fn kill(&mut self, service: &'static str) {
        self.processes.get_mut(service).expect("it runs").kill().await.expect("it is killed");
        self.begin(service).await;
    }

    /// Has a service stand still for a while, and go on as if nothing had been.
    pub(crate) async fn pause(&self, service: &str, span: Duration) {
        self.signal(service, "-STOP").await;
        sleep(span).await;
        self.signal(service, "-CONT").await;
    }

    async fn signal(&self, service: &str, signal: &str) {
        let id = self.processes[service].id().expect("it runs").to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await.expect("kill runs");
        assert!(sent.success());
    }

    /// From now on the network does what it likes, or what it should.
    pub(crate) fn roughen(&self, is_rough: bool) {
        self.network.is_rough.store(is_rough, Ordering::SeqCst);
    }

    /// The service `orders`, as customers reach it.
    pub(crate) fn customers(&self) -> Customers {
        Customers { url: format!("http://{}/orders", self.addresses["orders"]) }
    }

    /// What has befallen requests so far.
    pub(crate) fn seen(&self) -> Seen {
        *self.network.seen.lock().expect("no panic")
    }

    /// Where a service's store is, for the program.
    pub(crate) fn store(&self, service: &str) -> String {
        match &self.postgres {
            Some(database) => format!("{}?options=-csearch_path%3D{service}", database.url),
            None => format!("sqlite:{}", self.folder.path().join(format!("{service}.db")).display()),
        }
    }

    /// What a query finds in a service's database. Cells are read as text.
    pub(crate) async fn rows(&self, service: &str, sql: &'static str) -> Vec<(String, String, String)> {
        if let Some(database) = &self.postgres {
            let options: PgConnectOptions = database.url.parse().expect("a URL");
            let options = options.options([("search_path", service)]);
            let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.expect("the database");
            let rows = sqlx::query_as(sql).fetch_all(&pool).await.expect("rows");
            pool.close().await;
            return rows;
        }
        let file = self.folder.path().join(format!("{service}.db"));
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("the database");
        let rows = sqlx::query_as(sql).fetch_all(&pool).await.expect("rows");
        pool.close().await;
        rows
    }

    /// The lines that a service has logged.
    pub(crate) fn log(&self, service: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log_file(service)).expect("a log");
        // One that was killed may have left half a line.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn log_file(&self, service: &str) -> PathBuf {
        self.folder.path().join(format!("{service}.log"))
    }
}

#[derive(Clone)]
pub(crate) struct Customers {
    url: String,
}

impl Customers {
    /// Places an order, again and again until somebody says that it is.
    pub(crate) async fn place(&self, number: usize) {
        let trace = trace_of(number);
        let body = order(number).to_string();
        for _ in 0..600 {
            let sent = headers(&[("content-type", "application/json"), ("traceparent", &trace)]);
            let client = client(false);
            let answer = timeout(Duration::from_secs(8), try_send(&client, request(&self.url, sent, body.clone())));
            match answer.await.ok().flatten() {
                Some(StatusCode::ACCEPTED) => return,
                Some(status) if status.is_client_error() => panic!("order {number}: {status}"),
                // Busy, dead, or standing still.
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("order {number} was never taken");
    }

    pub(crate) async fn order(&self, number: usize) -> Value {
        let mut question = request(&format!("{}/order-{number}", self.url), HeaderMap::new(), "");
        *question.method_mut() = http::Method::GET;
        let Answer { status, body, .. } = send(&client(false), question).await;
        assert_eq!(status, StatusCode::OK, "order {number}");
        serde_json::from_slice(&body).expect("JSON")
    }
}

/// Of three orders one must fail: for want of goods, or of money.
fn order(number: usize) -> Value {
    let (customer, quantity) = match number % 6 {
        0 => ("alice", 2_000_000),
        3 => ("broke", 1),
        _ => ("alice", 1),
    };
    serde_json::json!({
        "order": format!("order-{number}"), "customer": customer, "item": "book", "quantity": quantity, "cents": 1_999
    })
}

pub(crate) fn trace_of(number: usize) -> String {
    format!("00-{:032x}-00000000000000b7-01", number + 1)
}

/// What befalls a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Passes,
    /// It is delivered, and once more after a while.
    ComesTwice,
    /// It never arrives.
    IsLost,
    /// It arrives, and its sender hears nothing good of it.
    IsUnanswered,
}

impl Network {
    fn router(self) -> Router {
        Router::new()
            .fallback(async move |uri: Uri, headers: HeaderMap, body: Bytes| self.pass(&uri, headers, body).await)
    }

    async fn pass(&self, uri: &Uri, headers: HeaderMap, body: Bytes) -> Response {
        let (fate, delay, again) = self.roll();
        let service = uri.path().trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
        let url = format!("http://{}/events", self.addresses[&*service]);
        let turn = self.queue.lock().expect("no panic").turn(&service);
        sleep(delay).await;
        self.note(fate, &service, turn);
        if let Fate::IsLost = fate {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        if let Fate::ComesTwice = fate {
            let (url, headers, body) = (url.clone(), headers.clone(), body.clone());
            tokio::spawn(async move {
                sleep(again).await;
                try_send(&client(false), request(&url, headers, body)).await
            });
        }
        // In a task of its own: a sender that gives up does not take it back.
        let sent = tokio::spawn(async move { client(false).request(request(&url, headers, body)).await });
        match (sent.await.expect("no panic"), fate) {
            (Err(_), _) | (_, Fate::IsUnanswered) => StatusCode::BAD_GATEWAY.into_response(),
            (Ok(answer), _) => answer.map(Body::new),
        }
    }

    fn note(&self, fate: Fate, service: &str, turn: usize) {
        let is_overtaken = self.queue.lock().expect("no panic").arrives(service, turn);
        let mut seen = self.seen.lock().expect("no panic");
        seen.overtaken += usize::from(is_overtaken);
        match fate {
            Fate::Passes => {}
            Fate::ComesTwice => seen.came_twice += 1,
            Fate::IsLost => seen.lost += 1,
            Fate::IsUnanswered => seen.unanswered += 1,
        }
    }

    fn roll(&self) -> (Fate, Duration, Duration) {
        if !self.is_rough.load(Ordering::SeqCst) {
            return (Fate::Passes, Duration::ZERO, Duration::ZERO);
        }
        let mut dice = self.dice.lock().expect("no panic");
        let fate = match dice.roll(20) {
            0 | 1 => Fate::ComesTwice,
            2 => Fate::IsLost,
            3 => Fate::IsUnanswered,
            _ => Fate::Passes,
        };
        // Late ones are overtaken.
        let delay = if dice.roll(4) == 0 { dice.roll(300) } else { 0 };
        (fate, Duration::from_millis(delay), Duration::from_millis(dice.roll(3_000)))
    }
}
