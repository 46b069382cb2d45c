//! Three receivers on one database, many events, each delivered several times and by several senders at once; processes
//! are killed, and stopped for longer than their leases, and the server loses power. The ledger has each event once.
//!
//! `COUNTERSIGN_LEDGER_EVENTS` says how many events: 200 by default.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use countersign::store::{InboxStore, ListFilter, ReceiptState};
use sqlx::ConnectOptions as _;
use sqlx::mysql::MySqlConnectOptions;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::books::{self, Books};
use crate::servers::server;
use crate::support::{Dice, SECRET, client, receipt, request, standard, try_send};

macro_rules! ledger_tests {
    ($($name:ident: $database:ident, $mode:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if let Some(place) = Place::start(Kind::$database).await {
                books_balance(&place, Mode::$mode).await;
            }
        }
    )*};
}

ledger_tests! {
    c057_c079_every_event_is_booked_once_on_sqlite_inline: Sqlite, Inline;
    c057_c079_every_event_is_booked_once_on_sqlite_deferred: Sqlite, Deferred;
    c057_c079_every_event_is_booked_once_on_postgres_inline: Postgres, Inline;
    c057_c079_every_event_is_booked_once_on_postgres_deferred: Postgres, Deferred;
    c057_c079_every_event_is_booked_once_on_mysql_inline: MySql, Inline;
    c057_c079_every_event_is_booked_once_on_mysql_deferred: MySql, Deferred;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MySql,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Inline,
    Deferred,
}

impl Mode {
    /// Whether a sender is told that the event is done, or in good hands.
    fn promises(self, status: StatusCode) -> bool {
        match self {
            Self::Inline => status == StatusCode::OK,
            Self::Deferred => status == StatusCode::OK || status == StatusCode::ACCEPTED,
        }
    }
}

/// What goes wrong while a part of the deliveries is under way.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// A process is killed, and begun anew.
    Kill,
    /// A process stands still for longer than its leases, and goes on as if nothing had been.
    Pause,
    /// The server of the database loses power, and is begun anew.
    PowerCut,
}

const MISHAPS: [Mishap; 9] = [
    Mishap::Kill,
    Mishap::Pause,
    Mishap::PowerCut,
    Mishap::Kill,
    Mishap::Kill,
    Mishap::Pause,
    Mishap::PowerCut,
    Mishap::Pause,
    Mishap::Kill,
];

/// How long nobody hears of a process that stands still. Leases are a second long.
const PAUSE: Duration = Duration::from_millis(2_500);
/// When what is left at the end must be done.
const PATIENCE: Duration = Duration::from_secs(60);

async fn books_balance(place: &Place, mode: Mode) {
    let events = std::env::var("COUNTERSIGN_LEDGER_EVENTS").ok().and_then(|events| events.parse().ok()).unwrap_or(200);
    let began = Instant::now();
    let deliveries = deliveries(events);
    // Whoever comes first makes the tables.
    let store = books::store(&place.url).await;
    let books = Books::open(&place.url, 2).await;
    let mut receivers = Vec::new();
    for _ in 0..3 {
        receivers.push(Receiver::start(&place.url, mode, "127.0.0.1:0").await);
    }
    let urls: Vec<String> = receivers.iter().map(|receiver| receiver.url.clone()).collect();
    let senders = Senders { mode, urls: Arc::new(urls), answers: Arc::default() };
    let mut parts = deliveries.chunks(deliveries.len().div_ceil(MISHAPS.len()));
    for (turn, mishap) in MISHAPS.into_iter().enumerate() {
        let part = parts.next().unwrap_or_default().to_vec();
        let victim = turn % receivers.len();
        let befall = async {
            match mishap {
                Mishap::Kill => receivers[victim].kill(&place.url, mode).await,
                Mishap::Pause => pause(&receivers, victim, &senders, &*store, slow(turn)).await,
                Mishap::PowerCut => place.power_cut().await,
            }
        };
        tokio::join!(senders.deliver(part), befall);
    }

    let all: BTreeSet<String> = deliveries.into_iter().chain(slow_ones()).collect();
    println!("{} deliveries of {} events in {:?}: {:?}", senders.made(), all.len(), began.elapsed(), senders.tally());
    // Who got no 2xx delivers again; nobody else does.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<String> = all.difference(&senders.answered()).cloned().collect();
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "never answered with a 2xx: {left:?}");
        senders.deliver(left).await;
    }
    // What was taken in is done without anybody's help.
    while let Some(unfinished) = unfinished(&*store, all.len()).await {
        assert!(Instant::now() < deadline, "stuck: {unfinished:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let mut booked: BTreeMap<String, usize> = all.into_iter().map(|event| (event, 0)).collect();
    for event in books.entries().await.expect("the ledger") {
        *booked.entry(event).or_default() += 1;
    }
    booked.retain(|_, times| *times != 1);
    assert_eq!(booked, BTreeMap::new(), "each event is booked once");
    let receipts = store.list(ListFilter { limit: u32::MAX, ..ListFilter::default() }).await.expect("the store");
    let runs: u32 = receipts.iter().map(|receipt| receipt.attempts).sum();
    println!("balanced after {:?}, in {runs} runs", began.elapsed());
}

/// Each event three times at once, as senders do that hear nothing, and up to three times more at any time.
fn deliveries(events: u64) -> Vec<String> {
    let mut dice = Dice(events);
    let mut deliveries: Vec<(u64, u64)> = Vec::new();
    for event in 0..events {
        let moment = dice.roll(u64::MAX);
        deliveries.extend([(moment, event); 3]);
        deliveries.extend((0..dice.roll(4)).map(|_| (dice.roll(u64::MAX), event)));
    }
    deliveries.sort_unstable();
    deliveries.into_iter().map(|(_, event)| format!("evt_{event}")).collect()
}

/// The event whose run the pause of this turn meets: its first run takes its time.
fn slow(turn: usize) -> String {
    format!("slow_{turn}")
}

fn slow_ones() -> impl Iterator<Item = String> {
    MISHAPS.iter().enumerate().filter(|(_, mishap)| matches!(mishap, Mishap::Pause)).map(|(turn, _)| slow(turn))
}

/// States of events that have not succeeded, if there are any, or if the database does not say.
async fn unfinished(store: &dyn InboxStore, events: usize) -> Option<Vec<(String, ReceiptState, u32)>> {
    let Ok(receipts) = store.list(ListFilter { limit: u32::MAX, ..ListFilter::default() }).await else {
        return Some(Vec::new());
    };
    if receipts.iter().filter(|receipt| receipt.state == ReceiptState::Succeeded).count() == events {
        return None;
    }
    let open = receipts.into_iter().filter(|receipt| receipt.state != ReceiptState::Succeeded);
    Some(open.map(|receipt| (receipt.key.key.to_string(), receipt.state, receipt.attempts)).collect())
}

/// Stops a process in the middle of a run, until another one has had the time to take the event over.
async fn pause(receivers: &[Receiver], victim: usize, senders: &Senders, store: &dyn InboxStore, event: String) {
    let begun = Instant::now();
    let deliver = || tokio::spawn(senders.clone().deliver_to(receivers[victim].url.clone(), event.clone()));
    let mut first = deliver();
    loop {
        let receipt = receipt(store, "default", "ledger", &event).await;
        if receipt.as_ref().is_some_and(|receipt| receipt.attempts > 0) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{event} is never run: {receipt:?}");
        // A process that has only just got its database back may not have taken it.
        if first.is_finished() && receipt.is_none() {
            first = deliver();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{event} is run after {:?}", begun.elapsed());
    match senders.mode {
        Mode::Inline => {
            receivers[victim].signal("-STOP").await;
            // In a file it may hold the right to write: then nobody can take over before it goes on.
            let deadline = Instant::now() + 2 * PAUSE;
            for turn in 1.. {
                let other = receivers[(victim + 1 + turn % 2) % receivers.len()].url.clone();
                let answer = senders.clone().deliver_to(other, event.clone()).await;
                if answer == Some(StatusCode::OK) || Instant::now() > deadline {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            receivers[victim].signal("-CONT").await;
        }
        // Whoever claimed it stands still. Who goes on first takes it over, and the others find out when they do.
        Mode::Deferred => {
            for receiver in receivers {
                receiver.signal("-STOP").await;
            }
            tokio::time::sleep(PAUSE).await;
            for receiver in receivers {
                receiver.signal("-CONT").await;
                tokio::time::sleep(PAUSE / 4).await;
            }
        }
    }
    // The one that was stopped has come to its end, too.
    first.await.expect("no panic");
}

/// A process of its own.
struct Receiver {
    child: Child,
    url: String,
}

impl Receiver {
    async fn start(ledger: &str, mode: Mode, listen: &str) -> Self {
        let mode = match mode {
            Mode::Inline => "inline",
            Mode::Deferred => "deferred",
        };
        let mut child = Command::new(crate::examples::path("ledger_receiver"))
            .envs([("LEDGER", ledger), ("LISTEN", listen), ("MODE", mode), ("WEBHOOK_SECRET", SECRET)])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it runs");
        let mut printed = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = timeout(Duration::from_secs(60), printed.next_line()).await.expect("it starts").expect("text");
        let url = first.as_deref().and_then(|line| line.strip_prefix("listening on ")).expect("where").to_owned();
        Self { child, url }
    }

    /// Kills it, and begins it anew where it was.
    async fn kill(&mut self, ledger: &str, mode: Mode) {
        self.child.kill().await.expect("it is killed");
        let listen = self.url.trim_start_matches("http://").to_owned();
        *self = Self::start(ledger, mode, &listen).await;
    }

    async fn signal(&self, signal: &str) {
        let id = self.child.id().expect("it still runs").to_string();
        let sent = Command::new("kill").args([signal, &id]).status().await.expect("kill runs");
        assert!(sent.success());
    }
}

/// Many senders at once, who come again for a while, as senders do.
#[derive(Clone)]
struct Senders {
    mode: Mode,
    urls: Arc<Vec<String>>,
    answers: Arc<Mutex<Answers>>,
}

/// Of each delivery its event, and the status where there was an answer.
type Answers = Vec<(String, Option<StatusCode>)>;

impl Senders {
    async fn deliver(&self, deliveries: Vec<String>) {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        let queue = Arc::new(Mutex::new(deliveries));
        let mut senders = JoinSet::new();
        for _ in 0..48 {
            let (queue, this) = (Arc::clone(&queue), self.clone());
            senders.spawn(async move {
                loop {
                    let Some(event) = queue.lock().expect("no panic").pop() else { return };
                    for _ in 0..8 {
                        let url = &this.urls[TURN.fetch_add(1, Ordering::Relaxed) % this.urls.len()];
                        let answer = this.clone().deliver_to(url.clone(), event.clone()).await;
                        if answer.is_some_and(|status| this.mode.promises(status)) {
                            break;
                        }
                        tokio::time::sleep(Duration::from_millis(250)).await;
                    }
                }
            });
        }
        senders.join_all().await;
    }

    /// One delivery to this process. One that was killed refuses, or breaks off; one that stands still says nothing.
    async fn deliver_to(self, url: String, event: String) -> Option<StatusCode> {
        let request = request(&format!("{url}/"), standard(&event, b"{}"), "{}");
        let client = client(false);
        let answer = timeout(Duration::from_secs(8), try_send(&client, request)).await.ok().flatten();
        self.answers.lock().expect("no panic").push((event, answer));
        answer
    }

    /// The events that a sender was told are done, or in good hands.
    fn answered(&self) -> BTreeSet<String> {
        let answers = self.answers.lock().expect("no panic");
        let promised = |status: &Option<StatusCode>| status.is_some_and(|status| self.mode.promises(status));
        answers.iter().filter(|(_, status)| promised(status)).map(|(event, _)| event.clone()).collect()
    }

    fn made(&self) -> usize {
        self.answers.lock().expect("no panic").len()
    }

    fn tally(&self) -> BTreeMap<Option<u16>, usize> {
        let mut tally = BTreeMap::new();
        for (_, status) in self.answers.lock().expect("no panic").iter() {
            *tally.entry(status.map(|status| status.as_u16())).or_default() += 1;
        }
        tally
    }
}

/// A database of this test's own, and its server, so that nobody else is in the dark.
pub(crate) struct Place {
    pub(crate) url: String,
    kind: Kind,
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn start(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Sqlite => {}
            // Only asks whether there is one.
            Kind::Postgres => drop(server("COUNTERSIGN_TEST_POSTGRES")?),
            Kind::MySql => drop(server("COUNTERSIGN_TEST_MYSQL")?),
        }
        let folder = tempfile::tempdir().expect("a folder");
        // The servers run as somebody else, who must get to their files.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let url = format!("sqlite:{}", folder.path().join("inbox.db").display());
        let mut place = Self { url, kind, folder };
        if let Some(name) = place.server() {
            let said = place.script(&["start", name]).await;
            let (_, url) = said.trim().split_once('=').expect("where");
            place.url = url.to_owned();
        }
        if kind == Kind::MySql {
            let options: MySqlConnectOptions = place.url.parse().expect("a URL");
            let mut connection = options.connect().await.expect("a connection");
            sqlx::raw_sql("CREATE DATABASE ledger").execute(&mut connection).await.expect("a database");
            place.url.push_str("/ledger");
        }
        Some(place)
    }

    fn server(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some("postgres"),
            Kind::MySql => Some("mariadb"),
        }
    }

    pub(crate) async fn power_cut(&self) {
        if let Some(name) = self.server() {
            self.script(&["crash", name]).await;
        }
    }

    /// Calls `tests/servers.sh COMMAND FOLDER SERVER`.
    async fn script(&self, call: &[&str]) -> String {
        let (log, said) = (self.folder.path().join("servers.log"), self.folder.path().join("said"));
        // Files, not pipes: the servers that it starts would keep those open.
        let file = |path: &Path| std::fs::File::create(path).expect("a file");
        let done = Command::new(script())
            .arg(call[0])
            .arg(self.folder.path().join("server"))
            .args(&call[1..])
            .stdin(Stdio::null())
            .stdout(file(&said))
            .stderr(file(&log))
            .status()
            .await
            .expect("it runs");
        assert!(done.success(), "{}", std::fs::read_to_string(log).unwrap_or_default());
        std::fs::read_to_string(said).expect("what it said")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server().is_some() {
            let mut stop = std::process::Command::new(script());
            let stopped = stop.arg("stop").arg(self.folder.path().join("server")).status();
            // A test that fails has more to say than this.
            drop(stopped);
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers.sh")
}
