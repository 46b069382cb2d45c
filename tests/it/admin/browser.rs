//! The pages in a real browser: Chromium, driven over WebDriver. Without it the tests are left out, except in CI.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use countersign::EventId;
use countersign::admin::Admin;
use countersign::store::{MessageKey, MessageState, OutboxStore};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::program::free_address;
use super::{Stage, TOKEN, report, text};
use crate::gateway::started;
use crate::support::{client, send, standard};

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_mends_everything_by_mouse() {
    let Some(browser) = Browser::start().await else { return };
    let stage = behind_token().await;
    stage.failed("evt_dead", "the bank did not answer", Some("attempts used up")).await;
    stage.quarantined("evt_held", "looks odd").await;
    stage.endpoint("shop", "https://shop.example/hooks?key=secret").await;
    for id in ["msg_1", "msg_2", "msg_3"] {
        stage.dead("shop", id, "order.paid", report(503, "try later", "503"), "attempts used up").await;
    }

    browser.go(&stage.url("inbox")).await;
    browser.log_in().await;
    browser.sees("h1", "Overview").await;
    browser.photograph("overview").await;

    browser.click("a[href='inbox']").await;
    browser.photograph("inbox").await;
    browser.click("a[href*='key=evt_dead']").await;
    browser.sees("main", "the bank did not answer").await;
    browser.photograph("receipt").await;
    browser.click("button[value=retry]").await;
    browser.sees("dd .state", "failed").await;
    browser.click("summary").await;
    browser.click("button[value=forget]").await;
    browser.sees("h1", "Inbox").await;
    assert!(!browser.text("main").await.contains("evt_dead"));
    browser.click("a[href*='key=evt_held']").await;
    browser.click("button[value=retry]").await;
    browser.sees("dd .state", "received").await;

    browser.go(&stage.url("outbox?state=dead_letter")).await;
    browser.click("a[href*='id=msg_1']").await;
    browser.photograph("message").await;
    browser.click("button[value=replay]").await;
    browser.sees("dd .state", "pending").await;
    browser.click("summary").await;
    browser.click("button[value=cancel]").await;
    browser.sees("dd .state", "cancelled").await;
    browser.go(&stage.url("outbox?state=dead_letter&endpoint=shop")).await;
    browser.photograph("outbox").await;
    browser.click("details summary").await;
    browser.click("details button[value=replay]").await;
    browser.sees("main", "2 messages were changed").await;
    browser.sees("main", "No message fits.").await;

    browser.click("a[href=endpoints]").await;
    browser.photograph("endpoints").await;
    browser.click("a[href='endpoint?name=shop']").await;
    browser.type_into("input[name=reason]", "until Monday").await;
    browser.click("button[value=disable]").await;
    browser.sees("dl", "until Monday").await;
    browser.photograph("endpoint").await;
    browser.click("button[value=enable]").await;
    browser.sees("dd .state", "enabled").await;

    browser.click("header form button").await;
    browser.sees("h1", "Log in").await;
    browser.go(&stage.url("overview")).await;
    browser.sees("h1", "Log in").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_gets_in_and_replays_by_keyboard_alone() {
    let Some(browser) = Browser::start().await else { return };
    let stage = behind_token().await;
    stage.endpoint("shop", "https://shop.example/hooks").await;
    stage.dead("shop", "msg_1", "order.paid", report(503, "try later", "503"), "attempts used up").await;
    browser.go(&stage.url("login")).await;
    // The field has the focus.
    browser.press(&format!("{TOKEN}{ENTER}")).await;
    browser.sees("h1", "Overview").await;
    browser.go(&stage.url("message?endpoint=shop&id=msg_1")).await;
    for _ in 0..20 {
        browser.press(TAB).await;
        if browser.run("return document.activeElement.value || ''").await == "replay" {
            break;
        }
    }
    browser.press(ENTER).await;
    let key = MessageKey { endpoint: text("shop"), id: EventId::new("msg_1").expect("an id") };
    crate::support::until("the message to be replayed", || async {
        let entry = stage.store.find_message(key.clone()).await.expect("an answer").expect("a message");
        entry.state == MessageState::Pending
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_hours_are_seen_by_day_and_by_night() {
    let Some(browser) = Browser::start().await else { return };
    let address = free_address("127.0.0.1");
    let (gateway, application, _folder) = started(&["--admin-listen", &address]).await;
    for (id, status, outcome) in [
        ("evt_1", StatusCode::NO_CONTENT, ""),
        ("evt_1", StatusCode::NO_CONTENT, ""),
        ("evt_2", StatusCode::BAD_GATEWAY, ""),
        ("evt_3", StatusCode::GONE, "permanent"),
    ] {
        application.answers(status, &[("countersign-outcome", outcome)][usize::from(outcome.is_empty())..], "");
        gateway.post(standard(id, b"{}"), "{}").await;
    }
    browser.go(&format!("http://{address}/overview")).await;
    browser.run("document.querySelector('.plots').scrollIntoView()").await;
    browser.photograph("activity").await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        // The policy of these pages keeps out styles that stand in the page: only the sheet can colour them.
        let bars = browser
            .run(
                "const ground = getComputedStyle(document.querySelector('svg')).backgroundColor;
                 return [...document.querySelectorAll('rect')].map((bar) => {
                     const { width, height } = bar.getBoundingClientRect();
                     const fill = getComputedStyle(bar).fill;
                     return width > 1 && height > 1 && fill !== ground && fill !== 'rgb(0, 0, 0)';
                 });",
            )
            .await;
        let bars = bars.as_array().expect("bars");
        assert!(bars.len() >= 5 && bars.iter().all(|is_seen| is_seen == true), "{scheme}: {bars:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c151_nothing_that_others_wrote_runs_or_is_fetched() {
    const HOSTILE: &str =
        r#""><img src=x onerror=alert(1)><script>alert(2)</script><a href="javascript:alert(3)">x</a>"#;
    let Some(browser) = Browser::start().await else { return };
    let stage = Stage::open().await;
    stage.failed(HOSTILE, HOSTILE, Some(HOSTILE)).await;
    stage.succeeded("evt_1", HOSTILE).await;
    stage.endpoint(HOSTILE, "javascript:alert(4)").await;
    stage.dead(HOSTILE, "msg_1", HOSTILE, report(500, HOSTILE, HOSTILE), HOSTILE).await;
    let quoted: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    for page in [
        "overview".to_owned(),
        "inbox".to_owned(),
        "outbox".to_owned(),
        "endpoints".to_owned(),
        format!("receipt?consumer=orders&source=shop&key={quoted}"),
        "receipt?consumer=orders&source=shop&key=evt_1".to_owned(),
        format!("message?endpoint={quoted}&id=msg_1"),
        format!("endpoint?name={quoted}"),
        format!("inbox?key={quoted}"),
    ] {
        browser.go(&stage.url(&page)).await;
        assert!(browser.has_no_alert().await, "{page}");
        let foreign = "return document.querySelectorAll(\"img, script, iframe, [href^=javascript], [onerror]\").length";
        assert_eq!(browser.run(foreign).await, 0, "{page}");
        let shown = browser.run("return document.body.textContent.includes('onerror')").await;
        assert_eq!(shown, page != "endpoints" || shown == true, "{page}");
    }
}

async fn behind_token() -> Stage {
    Stage::with(|| Admin::behind_token(TOKEN).expect("a token"), Admin::router).await
}

/// One window of a browser of its own.
struct Browser {
    driver: Child,
    http: Client<HttpConnector, Full<Bytes>>,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    async fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let Ok(mut driver) = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            assert!(env::var("CI").as_deref() != Ok("true"), "no chromedriver: tests/run.sh installs it");
            eprintln!("LEFT OUT: there is no chromedriver here");
            return None;
        };
        let lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let rest = line.split_once("started successfully on port ")?.1;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        let profile = tempfile::tempdir().expect("a folder");
        let user = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,900",
            &user,
        ];
        let mut browser = Self {
            driver,
            http: client(false),
            session: format!("http://127.0.0.1:{}/session", port.expect("chromedriver says its port")),
            _profile: profile,
        };
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "unhandledPromptBehavior": "ignore",
        } } });
        let session = browser.ask(Method::POST, "", wanted).await.expect("a session");
        let id = session["sessionId"].as_str().expect("an id").to_owned();
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    /// One command of WebDriver; its error's name where it fails.
    async fn ask(&self, method: Method, command: &str, body: Value) -> Result<Value, String> {
        let body = if method == Method::GET { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(format!("{}{command}", self.session));
        let request = request.header("content-type", "application/json").body(Full::from(body)).expect("a request");
        let answer = tokio::time::timeout(Duration::from_secs(60), send(&self.http, request)).await.expect("an answer");
        let mut said: Value = serde_json::from_slice(&answer.body).expect("JSON");
        match answer.status {
            StatusCode::OK => Ok(said["value"].take()),
            _ => Err(said["value"]["error"].as_str().unwrap_or_default().to_owned()),
        }
    }

    async fn post(&self, command: &str, body: Value) -> Value {
        self.ask(Method::POST, command, body.clone()).await.unwrap_or_else(|error| panic!("{command} {body}: {error}"))
    }

    async fn go(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// Waits for it, as for a text.
    async fn element(&self, selector: &str) -> String {
        let found = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                match self.ask(Method::POST, "/element", by(selector)).await {
                    Ok(found) => break found,
                    Err(error) => assert_eq!(error, "no such element", "{selector}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        id(&found.await.unwrap_or_else(|_| panic!("{selector} does not come")))
    }

    async fn click(&self, selector: &str) {
        self.post(&format!("/element/{}/click", self.element(selector).await), json!({})).await;
    }

    async fn text(&self, selector: &str) -> String {
        self.try_text(selector).await.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    async fn try_text(&self, selector: &str) -> Result<String, String> {
        let found = self.ask(Method::POST, "/element", by(selector)).await?;
        let text = self.ask(Method::GET, &format!("/element/{}/text", id(&found)), Value::Null).await?;
        Ok(text.as_str().expect("a text").trim_start_matches("● ").to_owned())
    }

    /// Waits for a page that shows this: a click returns before the next page is there.
    async fn sees(&self, selector: &str, shown: &str) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            while !self.try_text(selector).await.is_ok_and(|text| text.contains(shown)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "{selector} does not show {shown:?}: {:?}", self.try_text("body").await);
    }

    async fn type_into(&self, selector: &str, text: &str) {
        self.post(&format!("/element/{}/value", self.element(selector).await), json!({ "text": text })).await;
    }

    async fn log_in(&self) {
        self.type_into("#token", TOKEN).await;
        self.click("main button").await;
    }

    /// Keys for whatever has the focus.
    async fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        self.post("/actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] })).await;
    }

    async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn has_no_alert(&self) -> bool {
        self.ask(Method::GET, "/alert/text", Value::Null).await == Err("no such alert".to_owned())
    }

    async fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let parameters = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.post("/goog/cdp/execute", parameters).await;
    }

    /// Keeps a picture of the page where `COUNTERSIGN_PICTURES` names a folder, in light and in dark.
    async fn photograph(&self, name: &str) {
        let Ok(folder) = env::var("COUNTERSIGN_PICTURES") else { return };
        for scheme in ["light", "dark"] {
            self.prefer(scheme).await;
            let picture = self.ask(Method::GET, "/screenshot", Value::Null).await.expect("a picture");
            let bytes = STANDARD.decode(picture.as_str().expect("base64")).expect("base64");
            std::fs::write(format!("{folder}/{name}-{scheme}.png"), bytes).expect("a file");
        }
    }
}

fn by(selector: &str) -> Value {
    json!({ "using": "css selector", "value": selector })
}

/// Of an element that was found.
fn id(found: &Value) -> String {
    let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
    id.expect("an element").to_owned()
}

/// The session is ended first, and with it the browser: a driver that ends alone leaves that behind.
impl Drop for Browser {
    fn drop(&mut self) {
        let ended =
            self.session.strip_prefix("http://").and_then(|rest| rest.split_once('/')).map(|(address, path)| {
                let mut socket = std::net::TcpStream::connect(address)?;
                let request = format!("DELETE /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
                socket.write_all(request.as_bytes())?;
                socket.set_read_timeout(Some(Duration::from_secs(10)))?;
                socket.read_to_end(&mut Vec::new())
            });
        if let Some(Err(error)) = ended {
            eprintln!("the browser was not ended: {error}");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
