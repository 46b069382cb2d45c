//! The pages and the API for operators, over real HTTP and in a real browser: cases K.

mod actions;
mod api;
mod browser;
mod guard;
mod large;
mod pages;
mod program;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use countersign::admin::Admin;
use countersign::store::{
    Accept, AttemptReport, ClaimMessages, Endpoint, Enqueue, Failure, Fate, InboxStore, KeptRequest, Message,
    OtherBody, OutboxStore, ReceiptKey, Reserve, Reserved, ResultBody, Settled, Settlement, SqliteStore, StoredResult,
    Unclear,
};
use countersign::{DedupKey, Digest, EventId, Name};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::Value;

use crate::support::{Answer, client, send, serve};

/// What an operator logs in with.
const TOKEN: &str = "a-token-for-these-tests-0123456789";

/// An operator's pages on a socket, over a store in a file.
struct Stage {
    store: SqliteStore,
    address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// Whoever is on this machine may do everything.
    async fn open() -> Self {
        Self::with(|| Admin::on_loopback().expect("random bytes"), |admin| admin.router()).await
    }

    async fn with(admin: impl FnOnce() -> Admin, router: impl FnOnce(Admin) -> Router) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(folder.path().join("store.db")).await.expect("a store");
        let admin = admin().with_inbox(store.clone()).with_outbox(store.clone());
        let address = serve(router(admin)).await;
        Self { store, address, http: client(false), _folder: folder }
    }

    fn url(&self, target: &str) -> String {
        format!("http://{}/{target}", self.address)
    }

    async fn get(&self, target: &str) -> Answer {
        self.ask(Method::GET, target, &[], String::new()).await
    }

    async fn ask(&self, method: Method, target: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let mut request = Request::builder().method(method).uri(self.url(target));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(&self.http, request.body(Full::from(body)).expect("a request")).await
    }

    /// Sends a form as the page that shows it would.
    async fn submit(&self, page: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = csrf(&self.get(page).await.text());
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("csrf", &csrf).extend_pairs(fields);
        self.ask(Method::POST, action, FORM, form.finish()).await
    }

    async fn json(&self, target: &str) -> Value {
        let answer = self.get(target).await;
        assert_eq!(answer.status, StatusCode::OK, "{target}: {}", answer.text());
        serde_json::from_slice(&answer.body).expect("JSON")
    }

    async fn post_json(&self, target: &str, body: &Value) -> Answer {
        self.ask(Method::POST, target, &[("content-type", "application/json")], body.to_string()).await
    }

    /// An event that failed, with an answer and a kept request.
    async fn failed(&self, id: &str, error: &str, dead: Option<&str>) -> ReceiptKey {
        let Reserved::Acquired(lease) = self.store.reserve(reserve(id)).await.expect("an answer") else {
            panic!("{id} is there already")
        };
        let failure = Failure {
            error: error.to_owned(),
            result: Some(result(StatusCode::BAD_GATEWAY, error)),
            dead: dead.map(str::to_owned),
            request: Some(kept("/hooks?token=in-the-query", "what the sender sent")),
            retry_in: None,
        };
        let key = lease.key.clone();
        assert_eq!(self.store.fail(lease, failure).await.expect("an answer"), Settled::Done);
        key
    }

    async fn succeeded(&self, id: &str, body: &str) -> ReceiptKey {
        let Reserved::Acquired(lease) = self.store.reserve(reserve(id)).await.expect("an answer") else {
            panic!("{id} is there already")
        };
        let key = lease.key.clone();
        assert_eq!(self.store.complete(lease, result(StatusCode::OK, body)).await.expect("an answer"), Settled::Done);
        key
    }

    async fn quarantined(&self, id: &str, reason: &str) -> ReceiptKey {
        self.accepted(id, Some(reason)).await
    }

    /// An event that waits: for its turn, or for a person.
    async fn accepted(&self, id: &str, quarantine: Option<&str>) -> ReceiptKey {
        let Reserve { key, event_id, correlation_id, body, other_body, .. } = reserve(id);
        let accept = Accept {
            key: key.clone(),
            event_id,
            correlation_id,
            body,
            other_body,
            request: kept("/hooks", "{}"),
            ordering_key: None,
            quarantine: quarantine.map(str::to_owned),
        };
        self.store.accept(accept).await.expect("an answer");
        key
    }

    async fn endpoint(&self, name: &str, url: &str) {
        self.store.put_endpoint(Endpoint::new(text(name), url)).await.expect("an answer");
    }

    async fn pending(&self, endpoint: &str, id: &str, event_type: &str, payload: &str) {
        let id = EventId::new(id).expect("an id");
        let message = Message::new(id, text(event_type), payload.as_bytes().to_vec());
        self.store.enqueue(vec![Enqueue::new(text(endpoint), message)]).await.expect("an answer");
    }

    /// A message that was tried once and given up.
    async fn dead(&self, endpoint: &str, id: &str, event_type: &str, report: AttemptReport, reason: &str) {
        self.pending(endpoint, id, event_type, "{}").await;
        let claimed =
            self.store.claim_messages(ClaimMessages::new(100, Duration::from_secs(60))).await.expect("a claim");
        for claimed in claimed.messages {
            if claimed.message.id.as_str() == id {
                let end = Settlement::new(Fate::Dead(reason.to_owned()), report.clone());
                assert_eq!(self.store.settle(claimed.lease, end).await.expect("an answer"), Settled::Done);
            } else {
                assert_eq!(self.store.release_message(claimed.lease).await.expect("an answer"), Settled::Done);
            }
        }
    }
}

const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];

/// The token in the first form of a page.
fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).unwrap_or_else(|| panic!("no form in {page}"));
    rest.split('"').next().expect("the end of the value").to_owned()
}

fn text(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn reserve(id: &str) -> Reserve {
    let id = EventId::new(id).expect("an id");
    Reserve {
        key: ReceiptKey { consumer: text("orders"), source: text("shop"), key: DedupKey::from_id(&id) },
        event_id: Some(id),
        correlation_id: None,
        body: Digest::of(b"what the sender sent"),
        lease: Duration::from_secs(60),
        max_attempts: 5,
        other_body: OtherBody::Accept,
        unclear: Unclear::RunAgain,
    }
}

fn result(status: StatusCode, body: &str) -> StoredResult {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, "text/plain".parse().expect("a value"));
    StoredResult { status, headers, body: ResultBody::Kept(Bytes::copy_from_slice(body.as_bytes())) }
}

fn kept(target: &str, body: &str) -> KeptRequest {
    KeptRequest {
        method: Method::POST,
        target: target.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        proof: "{}".to_owned(),
    }
}

fn report(status: u16, body: &str, error: &str) -> AttemptReport {
    let mut report = AttemptReport::default();
    report.status = StatusCode::from_u16(status).ok();
    report.body = Bytes::copy_from_slice(body.as_bytes());
    report.error = Some(error.to_owned());
    report
}
