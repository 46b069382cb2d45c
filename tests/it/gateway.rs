//! `countersign receive`, the real program, between a real sender and a real application.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use countersign::store::{ReceiptState, SqliteStore};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::support::{Answer, SECRET, client, headers, receipt, request, serve, standard, unix_now, until};

/// The program, listening.
pub(crate) struct Gateway {
    pub(crate) process: Child,
    pub(crate) address: String,
    admin: Option<String>,
    store: std::path::PathBuf,
}

impl Gateway {
    pub(crate) async fn start(upstream: &str, store: &std::path::Path, more: &[&str]) -> Self {
        let mut process =
            Self::command(upstream, store, more).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let ready = lines.next_line().await.expect("its stdout is read").expect("it says that it listens");
        let address = ready.strip_prefix("listening on ").expect("the promised line").to_owned();
        Self { process, address, admin: None, store: store.to_owned() }
    }

    fn command(upstream: &str, store: &std::path::Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command
            .args(["receive", "--upstream", upstream])
            .args(if more.contains(&"--scheme") { &[][..] } else { &["--scheme", "standard"] })
            .args(if more.contains(&"--hook-secret-file") { &[][..] } else { &["--secret-env", "TEST_SECRET"] })
            .arg("--store")
            .arg(format!("sqlite:{}", store.display()))
            .args(if more.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] })
            .args(if more.contains(&"--lease") { &[][..] } else { &["--lease", "1"] })
            .args(more)
            .env("TEST_SECRET", SECRET)
            .env("RUST_LOG", "error")
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn post(&self, headers: HeaderMap, body: impl Into<Bytes>) -> Answer {
        self.post_to("/", headers, body).await
    }

    pub(crate) async fn post_to(&self, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Answer {
        self.try_post(target, headers, body).await.expect("an answer")
    }

    /// `None` where the program is not there, or not any more.
    pub(crate) async fn try_post(&self, target: &str, headers: HeaderMap, body: impl Into<Bytes>) -> Option<Answer> {
        let response =
            client(false).request(request(&format!("{}{target}", self.address), headers, body)).await.ok()?;
        let (parts, body) = response.into_parts();
        Some(Answer { status: parts.status, headers: parts.headers, body: body.collect().await.ok()?.to_bytes() })
    }

    pub(crate) async fn state(&self, key: &str) -> Option<ReceiptState> {
        let store = SqliteStore::open(&self.store).await.expect("a store");
        let found = receipt(&store, "standard", "standard", key).await;
        store.close().await.expect("closed");
        found.map(|receipt| receipt.state)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(sent.success(), "kill {signal} {id}");
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.process.wait()).await;
        ended.expect("it ends").expect("its status")
    }
}

/// What reached the application, and what it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Application(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    requests: Vec<(http::request::Parts, Bytes)>,
    answer: Option<(StatusCode, HeaderMap, &'static str)>,
    delay: Duration,
}

impl Application {
    pub(crate) async fn start(&self) -> String {
        format!("http://{}", serve(Router::new().fallback(application).with_state(self.clone())).await)
    }

    pub(crate) fn answers(&self, status: StatusCode, pairs: &[(&str, &str)], body: &'static str) {
        self.0.lock().expect("unpoisoned").answer = Some((status, headers(pairs), body));
    }

    pub(crate) fn delays(&self, time: Duration) {
        self.0.lock().expect("unpoisoned").delay = time;
    }

    pub(crate) fn runs(&self) -> usize {
        self.0.lock().expect("unpoisoned").requests.len()
    }

    /// How often each event came.
    pub(crate) fn runs_by_event(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for (parts, _) in &self.0.lock().expect("unpoisoned").requests {
            let id = parts.headers["countersign-event-id"].to_str().expect("text").to_owned();
            *runs.entry(id).or_default() += 1;
        }
        runs
    }

    /// The events in the order in which they came.
    pub(crate) fn order(&self) -> Vec<String> {
        let seen = self.0.lock().expect("unpoisoned");
        let ids = seen.requests.iter().map(|(parts, _)| parts.headers["countersign-event-id"].to_str().expect("text"));
        ids.map(str::to_owned).collect()
    }

    pub(crate) fn last(&self) -> (http::request::Parts, Bytes) {
        self.0.lock().expect("unpoisoned").requests.last().cloned().expect("a request")
    }
}

async fn application(State(application): State<Application>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let (answer, delay) = {
        let mut seen = application.0.lock().expect("unpoisoned");
        seen.requests.push((parts, body));
        (seen.answer.clone(), seen.delay)
    };
    tokio::time::sleep(delay).await;
    match answer {
        Some(answer) => answer.into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

pub(crate) async fn started(more: &[&str]) -> (Gateway, Application, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let application = Application::default();
    let upstream = application.start().await;
    let gateway = Gateway::start(&upstream, &folder.path().join("inbox.db"), more).await;
    (gateway, application, folder)
}

#[tokio::test]
async fn a_verified_request_reaches_the_application_byte_for_byte() {
    let (gateway, application, _folder) = started(&[]).await;
    let body = b"{\"a\":\"\xff\"}\0\r\n";
    let mut sent = standard("evt_1", body);
    sent.insert("x-own", HeaderValue::from_static("kept"));
    sent.append("x-own", HeaderValue::from_static("twice"));
    sent.insert("countersign-attempt", HeaderValue::from_static("7"));
    sent.insert("countersign-key", HeaderValue::from_static("forged"));
    sent.insert("connection", HeaderValue::from_static("x-hop"));
    sent.insert("x-hop", HeaderValue::from_static("gone"));
    let answer = gateway.post_to("/a/b%20c?d=%2F", sent, &body[..]).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);

    let (parts, received) = application.last();
    assert_eq!(received, &body[..]);
    assert_eq!(parts.method, "POST");
    assert_eq!(parts.uri, "/a/b%20c?d=%2F");
    assert_eq!(parts.headers.get_all("x-own").iter().collect::<Vec<_>>(), ["kept", "twice"]);
    assert_eq!(parts.headers["countersign-event-id"], "evt_1");
    assert_eq!(parts.headers["countersign-key"], "evt_1");
    assert_eq!(parts.headers["countersign-attempt"], "1");
    assert!(!parts.headers.contains_key("x-hop"));
}

#[tokio::test]
async fn c061_a_repeat_gets_the_applications_answer_from_the_store() {
    let (gateway, application, _folder) = started(&[]).await;
    application.answers(StatusCode::CREATED, &[("x-trace", "a"), ("x-trace", "b"), ("set-cookie", "c=1")], "booked");
    let one = gateway.post(standard("evt_1", b"{}"), "{}").await;
    let two = gateway.post(standard("evt_1", b"{}"), "{}").await;
    for answer in [&one, &two] {
        assert_eq!((answer.status, answer.text().as_str()), (StatusCode::CREATED, "booked"));
        assert_eq!(answer.headers.get_all("x-trace").iter().collect::<Vec<_>>(), ["a", "b"]);
    }
    assert!(!one.is_replay() && two.is_replay());
    assert!(one.headers.contains_key("set-cookie") && !two.headers.contains_key("set-cookie"));
    assert_eq!(application.runs(), 1);
}

#[tokio::test]
async fn what_is_not_signed_does_not_reach_the_application() {
    let (gateway, application, _folder) = started(&[]).await;
    let unsigned = gateway.post(HeaderMap::new(), "{}").await;
    let forged = gateway.post(standard("evt_1", b"{}"), "{ }").await;
    assert_eq!(unsigned.status, StatusCode::UNAUTHORIZED);
    assert_eq!((forged.status, &forged.body), (unsigned.status, &unsigned.body));
    assert_eq!(application.runs(), 0);
    assert_eq!(gateway.state("evt_1").await, None);
}

#[tokio::test]
async fn the_application_ends_an_event_for_good_by_a_header() {
    let (gateway, application, _folder) = started(&[]).await;
    application.answers(StatusCode::NOT_FOUND, &[("countersign-outcome", "permanent")], "no such account");
    let one = gateway.post(standard("evt_1", b"{}"), "{}").await;
    let two = gateway.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((one.status, two.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    assert!(two.is_replay());
    assert!(!one.headers.contains_key("countersign-outcome"));
    assert_eq!(application.runs(), 1);
    assert_eq!(gateway.state("evt_1").await, Some(ReceiptState::DeadLetter));
}

#[tokio::test]
async fn an_application_that_is_away_or_slow_fails_the_event_and_its_next_delivery_runs_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("inbox.db");
    let away = Gateway::start("http://127.0.0.1:1", &store, &[]).await;
    let answer = away.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::BAD_GATEWAY, "upstream-unavailable"));
    assert_eq!(away.state("evt_1").await, Some(ReceiptState::Failed));

    let application = Application::default();
    application.delays(Duration::from_secs(30));
    let slow = Gateway::start(&application.start().await, &store, &["--upstream-timeout", "1"]).await;
    let answer = slow.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    application.delays(Duration::ZERO);
    let answer = slow.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((answer.status, answer.is_replay()), (StatusCode::NO_CONTENT, false));
    assert_eq!(application.last().0.headers["countersign-attempt"], "3");
}

#[tokio::test]
async fn only_the_served_path_is_received_and_the_upstreams_path_takes_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let application = Application::default();
    let upstream = format!("{}/app", application.start().await);
    let gateway = Gateway::start(&upstream, &folder.path().join("inbox.db"), &["--path", "/in"]).await;
    assert_eq!(gateway.post_to("/other", standard("evt_1", b""), "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(gateway.post_to("/inner", standard("evt_1", b""), "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(gateway.post_to("/in/x?y", standard("evt_1", b""), "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(application.last().0.uri, "/app/x?y");
}

#[tokio::test]
async fn c062_two_gateways_for_two_paths_on_one_store_each_run_an_id_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("inbox.db");
    let application = Application::default();
    let upstream = application.start().await;
    let a = Gateway::start(&upstream, &store, &["--path", "/hooks/a"]).await;
    let b = Gateway::start(&upstream, &store, &["--path", "/hooks/b"]).await;
    for _ in 0..2 {
        assert_eq!(a.post_to("/hooks/a", standard("evt_1", b"{}"), "{}").await.status, StatusCode::NO_CONTENT);
        assert_eq!(b.post_to("/hooks/b", standard("evt_1", b"{}"), "{}").await.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(application.runs(), 2);
}

#[tokio::test]
async fn settings_that_cannot_work_end_the_program_with_2_and_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("inbox.db");
    for (upstream, more, expected) in [
        ("http://127.0.0.1:9", &["--tolerance", "300", "--keep-keys", "60", "--keep-results", "60"][..], "keys"),
        ("https://127.0.0.1:9", &[][..], "http://"),
        ("nonsense", &[][..], "--upstream"),
        ("http://127.0.0.1:9", &["--lease", "0"][..], "lease"),
        ("http://127.0.0.1:9", &["--max-attempts", "0"][..], "attempt"),
        ("http://127.0.0.1:9", &["--in-flight-status", "200"][..], "400"),
        ("http://127.0.0.1:9", &["--path", "in"][..], "--path"),
        ("http://127.0.0.1:9", &["--path", "/a b"][..], "--path"),
        ("http://127.0.0.1:9", &["--path", "/a/../b"][..], "--path"),
        ("http://127.0.0.1:9", &["--upstream-timeout", "18446744073709551615"][..], "--upstream-timeout"),
        ("http://127.0.0.1:9", &["--grace", "18446744073709551615"][..], "--grace"),
        ("http://127.0.0.1:99999", &[][..], "port"),
        ("http://user:hunter2@127.0.0.1:9", &[][..], "password"),
        ("whsec_hunter2", &[][..], "--upstream"),
        ("http://127.0.0.1:9", &["--consumer", ""][..], "consumer"),
        ("http://127.0.0.1:9", &["--secret-env", "NOT_SET_ANYWHERE"][..], "NOT_SET_ANYWHERE"),
    ] {
        let output = Gateway::command(upstream, &store, more).output().await.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(expected), "{more:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        assert!(!said.contains(SECRET) && !said.contains("hunter2"), "{said}");
    }
}

#[tokio::test]
async fn a_path_that_climbs_out_of_the_served_one_is_not_received() {
    let (gateway, application, _folder) = started(&["--path", "/in"]).await;
    for (target, number) in ["/in/../admin", "/in/%2e%2E/admin", "/in/..%2fadmin", "/in/..;/admin"].iter().zip(1..) {
        let answer = gateway.post_to(target, standard(&format!("evt_{number}"), b"{}"), "{}").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{target}");
    }
    assert_eq!(application.runs(), 0);
    assert_eq!(gateway.post_to("/in/a..b", standard("evt_9", b"{}"), "{}").await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn c144_a_large_upload_to_a_path_that_is_not_served_reads_its_404() {
    let (gateway, _application, _folder) = started(&["--path", "/in"]).await;
    let body = vec![b'x'; 6 * 1024 * 1024];
    let head = format!("POST /out HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let answer = exchange(&gateway, &[head.as_bytes(), &body].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[tokio::test]
async fn a_tunnel_is_refused_and_runs_nothing() {
    let (gateway, application, _folder) = started(&[]).await;
    let mut head = String::from("CONNECT / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nconnection: close\r\n");
    for (name, value) in &standard("evt_1", b"{}") {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
    }
    let answer = exchange(&gateway, format!("{head}\r\n{{}}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(application.runs(), 0);
}

#[tokio::test]
async fn an_answer_that_is_none_is_a_bad_gateway_and_no_change_of_protocol() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let upstream = format!("http://{}", listener.local_addr().expect("an address"));
    let application = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = BufReader::new(&mut stream).lines();
        while head.next_line().await.expect("a line").is_some_and(|line| !line.is_empty()) {}
        let answer = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n                      countersign-outcome: done\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.expect("it is sent");
        stream
    });
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(&upstream, &folder.path().join("inbox.db"), &[]).await;
    let answer = gateway.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(gateway.state("evt_1").await, Some(ReceiptState::Failed));
    application.await.expect("it answered");
}

#[tokio::test]
async fn an_applications_mark_of_a_repeat_is_not_taken_for_ours() {
    let (gateway, application, _folder) = started(&[]).await;
    application.answers(StatusCode::OK, &[("idempotent-replayed", "true")], "once");
    assert!(!gateway.post(standard("evt_1", b"{}"), "{}").await.headers.contains_key("idempotent-replayed"));
    assert!(gateway.post(standard("evt_1", b"{}"), "{}").await.headers.contains_key("idempotent-replayed"));
}

#[tokio::test]
async fn a_log_that_nobody_reads_any_more_harms_no_request() {
    let application = Application::default();
    application.answers(StatusCode::INTERNAL_SERVER_ERROR, &[], "");
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Gateway::command(&application.start().await, &folder.path().join("inbox.db"), &[])
        .env("RUST_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(process.stderr.take());
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let ready = lines.next_line().await.expect("its stdout is read").expect("it says that it listens");
    let address = ready.strip_prefix("listening on ").expect("the promised line").to_owned();
    let mut gateway = Gateway { process, address, admin: None, store: folder.path().join("inbox.db") };

    assert_eq!(gateway.post(HeaderMap::new(), "{}").await.status, StatusCode::UNAUTHORIZED);
    for _ in 0..2 {
        assert_eq!(gateway.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    assert_eq!(application.runs(), 2);
    gateway.signal("-TERM");
    assert_eq!(gateway.end().await.code(), Some(0));
}

#[tokio::test]
async fn an_address_in_use_ends_the_program_with_3() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let folder = tempfile::tempdir().expect("a folder");
    let address = taken.local_addr().expect("an address").to_string();
    let mut command = Gateway::command("http://127.0.0.1:9", &folder.path().join("inbox.db"), &["--listen", &address]);
    let output = command.output().await.expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn health_readiness_and_counts_are_answered_on_the_admin_address() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        free.local_addr().expect("an address").port()
    };
    let admin = format!("127.0.0.1:{port}");
    let (mut gateway, _application, _folder) = started(&["--admin-listen", &admin]).await;
    gateway.admin = Some(admin.clone());
    gateway.post(standard("evt_1", b"{}"), "{}").await;
    gateway.post(standard("evt_1", b"{}"), "{}").await;
    gateway.post(HeaderMap::new(), "{}").await;
    let get = async |path: &str| {
        let mut socket = TcpStream::connect(&admin).await.expect("it listens");
        let asked = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(asked.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200 "));
    assert!(get("/readyz").await.starts_with("HTTP/1.1 200 "));
    assert!(get("/nothing").await.starts_with("HTTP/1.1 404 "));
    let metrics = get("/metrics").await;
    for line in [
        "countersign_received_total{source=\"standard\",outcome=\"succeeded\"} 1",
        "countersign_received_total{source=\"standard\",outcome=\"replayed\"} 1",
        "countersign_received_total{source=\"standard\",outcome=\"refused\"} 1",
        "countersign_in_flight{consumer=\"standard\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn c053_after_sigterm_what_runs_is_finished_and_nothing_new_is_taken() {
    for signal in ["-TERM", "-INT"] {
        let (mut gateway, application, _folder) = started(&[]).await;
        application.delays(Duration::from_millis(700));
        application.answers(StatusCode::OK, &[], "done");
        let sending = {
            let url = gateway.address.clone();
            tokio::spawn(async move {
                let sent = request(&url, standard("evt_1", b"{}"), "{}");
                client(false).request(sent).await.expect("an answer").status()
            })
        };
        until("the application has it", || async { application.runs() == 1 }).await;
        gateway.signal(signal);
        assert_eq!(sending.await.expect("joined"), StatusCode::OK, "{signal}");
        assert!(gateway.end().await.success(), "{signal}");
        assert_eq!(gateway.state("evt_1").await, Some(ReceiptState::Succeeded));
    }
}

#[tokio::test]
async fn c053_a_sender_that_hangs_up_changes_nothing() {
    let (gateway, application, _folder) = started(&[]).await;
    application.delays(Duration::from_millis(300));
    application.answers(StatusCode::OK, &[], "done");
    let sending = {
        let url = gateway.address.clone();
        tokio::spawn(async move { client(false).request(request(&url, standard("evt_1", b"{}"), "{}")).await.is_ok() })
    };
    until("the application has it", || async { application.runs() == 1 }).await;
    sending.abort();
    until("its result is stored", || async { gateway.state("evt_1").await == Some(ReceiptState::Succeeded) }).await;
    let repeat = gateway.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((repeat.status, repeat.is_replay(), application.runs()), (StatusCode::OK, true, 1));
}

#[tokio::test]
async fn c057_after_kill_9_the_event_waits_for_the_lease_and_then_runs() {
    let (gateway, application, folder) = started(&[]).await;
    application.delays(Duration::from_secs(60));
    let stuck = {
        let url = gateway.address.clone();
        tokio::spawn(async move { client(false).request(request(&url, standard("evt_1", b"{}"), "{}")).await.is_ok() })
    };
    until("the application has it", || async { application.runs() == 1 }).await;
    gateway.signal("-KILL");
    assert!(!stuck.await.expect("joined"), "nothing was answered");

    application.delays(Duration::ZERO);
    let again = Gateway::start(&application.start().await, &folder.path().join("inbox.db"), &[]).await;
    let early = again.post(standard("evt_1", b"{}"), "{}").await;
    assert_eq!((early.status, early.problem().as_str()), (StatusCode::CONFLICT, "still-processing"));
    assert_eq!(early.headers["retry-after"], "1");
    until("the lease runs out and it runs again", || async {
        again.post(standard("evt_1", b"{}"), "{}").await.status == StatusCode::NO_CONTENT
    })
    .await;
    assert_eq!(application.runs(), 2);
    assert_eq!(application.last().0.headers["countersign-attempt"], "2");
}

/// Twenty times: senders at work, SIGKILL at a random moment, the same store again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_at_random_moments_loses_nothing_that_was_answered_2xx() {
    const SENDERS: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("inbox.db");
    let application = Application::default();
    let upstream = application.start().await;
    let sent: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let answered: Arc<Mutex<BTreeSet<String>>> = Arc::default();

    for round in 0..20_u64 {
        let gateway = Arc::new(Gateway::start(&upstream, &store, &[]).await);
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let (gateway, sent, answered) = (Arc::clone(&gateway), Arc::clone(&sent), Arc::clone(&answered));
            senders.spawn(async move {
                for number in 0.. {
                    let id = format!("evt_{round}_{sender}_{number}");
                    sent.lock().expect("unpoisoned").insert(id.clone());
                    match gateway.try_post("/", standard(&id, id.as_bytes()), id.clone()).await {
                        Some(answer) => {
                            assert_eq!(answer.status, StatusCode::NO_CONTENT, "{id}");
                            answered.lock().expect("unpoisoned").insert(id);
                        }
                        None => return,
                    }
                }
            });
        }
        // Any moment will do; these are spread over a fifth of a second.
        tokio::time::sleep(Duration::from_millis(40 + round * 37 % 200)).await;
        gateway.signal("-KILL");
        while let Some(ended) = senders.join_next().await {
            ended.expect("a sender saw only answers from the table");
        }
    }

    let (sent, answered) = (sent.lock().expect("unpoisoned").clone(), answered.lock().expect("unpoisoned").clone());
    assert!(!answered.is_empty(), "some were answered");
    assert!(sent.len() > answered.len(), "some were cut off");
    let runs_before = application.runs_by_event();

    let inbox = SqliteStore::open(&store).await.expect("the store opens");
    for id in &answered {
        let state = receipt(&inbox, "standard", "standard", id).await.map(|receipt| receipt.state);
        assert_eq!(state, Some(ReceiptState::Succeeded), "{id} was answered 2xx");
    }
    inbox.close().await.expect("closed");

    let gateway = Gateway::start(&upstream, &store, &[]).await;
    for id in &sent {
        until("the event ends well", || async {
            gateway.post(standard(id, id.as_bytes()), id.clone()).await.status == StatusCode::NO_CONTENT
        })
        .await;
        assert_eq!(gateway.state(id).await, Some(ReceiptState::Succeeded), "{id}");
    }
    let runs_after = application.runs_by_event();
    for id in &answered {
        assert_eq!(runs_after[id], runs_before[id], "{id} was not run again");
    }
    for id in &sent {
        assert!(runs_after.contains_key(id), "{id} ran");
    }
}

#[tokio::test]
async fn c142_an_endless_body_is_cut_off_and_memory_stays_flat() {
    let (gateway, application, _folder) = started(&["--max-body", "1048576"]).await;
    let id = gateway.process.id().expect("it runs");
    let before = resident_kib(id);
    let now = unix_now().to_string();
    let mut socket = TcpStream::connect(gateway.address.trim_start_matches("http://")).await.expect("it listens");
    let head = format!(
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nwebhook-id: evt_1\r\nwebhook-timestamp: {now}\r\n\
         webhook-signature: v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let chunk = [&b"10000\r\n"[..], &[b'x'; 65_536], b"\r\n"].concat();
    let mut taken = 0_u64;
    // 10 GB, were they taken.
    while taken < 10_000_000_000 {
        if socket.write_all(&chunk).await.is_err() {
            break;
        }
        taken += 65_536;
    }
    assert!(taken < 100_000_000, "{taken} bytes were taken");
    let grown = resident_kib(id).saturating_sub(before);
    assert!(grown < 16 * 1_024, "{grown} KiB more than before");
    assert_eq!(application.runs(), 0);
}

fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// What comes back for these bytes until the connection is closed.
async fn exchange(gateway: &Gateway, bytes: &[u8]) -> String {
    let address = gateway.address.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("all of it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("all of it is read");
    String::from_utf8_lossy(&answer).into_owned()
}
