//! Who gets in, and from where a change may come.

use std::time::Duration;

use axum::Router;
use countersign::admin::{Admin, TokenError};
use countersign::store::{InboxStore, ReceiptState};
use http::{Method, StatusCode, header};
use tokio::io::AsyncWriteExt as _;

use super::{FORM, Stage, TOKEN, csrf};
use crate::support::Answer;

const PAGES: [&str; 7] =
    ["overview", "inbox", "outbox", "endpoints", "receipt?key=1", "message?id=1", "endpoint?name=1"];

async fn log_in(stage: &Stage, token: &str) -> Answer {
    stage.ask(Method::POST, "login", FORM, format!("token={token}")).await
}

async fn behind_token() -> Stage {
    Stage::with(|| Admin::behind_token(TOKEN).expect("a token"), Admin::router).await
}

#[tokio::test]
async fn without_the_token_pages_lead_to_the_login_and_the_api_says_401() {
    let stage = behind_token().await;
    for page in PAGES {
        let answer = stage.get(page).await;
        assert_eq!(
            (answer.status, &answer.headers["location"]),
            (StatusCode::SEE_OTHER, &"login".parse().expect("a value"))
        );
    }
    for call in ["api/inbox", "api/outbox", "api/endpoints", "api/openapi.json"] {
        let answer = stage.get(call).await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"), "{call}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        let wrong = [("authorization", "Bearer another-token-of-the-same-kind-01")];
        assert_eq!(stage.ask(Method::GET, call, &wrong, String::new()).await.status, StatusCode::UNAUTHORIZED);
        let right = [("authorization", &*format!("bearer {TOKEN}"))];
        assert_eq!(stage.ask(Method::GET, call, &right, String::new()).await.status, StatusCode::OK, "{call}");
    }
    let forget = r#"{"consumer":"orders","source":"shop","key":"evt_1"}"#.to_owned();
    let json = [("content-type", "application/json")];
    assert_eq!(stage.ask(Method::POST, "api/inbox/forget", &json, forget).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_person_logs_in_and_out() {
    let stage = behind_token().await;
    assert!(!stage.get("login").await.text().contains("csrf"), "nothing to try tokens on in peace");
    let wrong = log_in(&stage, "another-token-of-the-same-kind-01").await;
    assert_eq!((wrong.status, wrong.headers.contains_key("set-cookie")), (StatusCode::UNAUTHORIZED, false));
    assert!(wrong.text().contains("That is not the token."));

    let right = log_in(&stage, TOKEN).await;
    assert_eq!((right.status, right.headers["location"].as_bytes()), (StatusCode::SEE_OTHER, &b"overview"[..]));
    let cookie = right.headers["set-cookie"].to_str().expect("text").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Lax") && !cookie.contains(TOKEN), "{cookie}");
    let session = [("cookie", cookie.split(';').next().expect("a pair"))];
    for page in ["overview", "inbox", "outbox", "endpoints"] {
        assert_eq!(stage.ask(Method::GET, page, &session, String::new()).await.status, StatusCode::OK, "{page}");
    }

    let forged = "countersign-admin=9999999999.AAAA.AAAA";
    assert_eq!(
        stage.ask(Method::GET, "inbox", &[("cookie", forged)], String::new()).await.status,
        StatusCode::SEE_OTHER
    );
    let both = format!("{forged}; {}", session[0].1);
    assert_eq!(stage.ask(Method::GET, "inbox", &[("cookie", &both)], String::new()).await.status, StatusCode::OK);

    let out = log_out(&stage, session[0].1).await;
    assert!(out.headers["set-cookie"].to_str().expect("text").contains("Max-Age=0"));
}

#[tokio::test]
async fn who_logs_out_ends_the_session_for_whoever_has_a_copy_of_its_cookie() {
    let stage = behind_token().await;
    let (here, elsewhere) = (session(&stage).await, session(&stage).await);
    log_out(&stage, &here).await;
    assert_eq!(status(&stage, "inbox", &here).await, StatusCode::SEE_OTHER);
    assert_eq!(status(&stage, "api/inbox", &here).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&stage, "inbox", &elsewhere).await, StatusCode::OK, "another session goes on");
}

#[tokio::test]
async fn another_token_ends_all_sessions() {
    let stage = behind_token().await;
    let session = session(&stage).await;
    let another = || Admin::behind_token("another-token-of-the-same-kind-01").expect("a token");
    let later = Stage::with(another, Admin::router).await;
    assert_eq!(status(&stage, "inbox", &session).await, StatusCode::OK);
    assert_eq!(status(&later, "inbox", &session).await, StatusCode::SEE_OTHER);
    assert_eq!(status(&later, "api/inbox", &session).await, StatusCode::UNAUTHORIZED);
}

/// The cookie of somebody who has just logged in.
async fn session(stage: &Stage) -> String {
    let answer = log_in(stage, TOKEN).await;
    let cookie = answer.headers["set-cookie"].to_str().expect("text");
    cookie.split(';').next().expect("a pair").to_owned()
}

async fn status(stage: &Stage, target: &str, cookie: &str) -> StatusCode {
    stage.ask(Method::GET, target, &[("cookie", cookie)], String::new()).await.status
}

async fn log_out(stage: &Stage, cookie: &str) -> Answer {
    let page = stage.ask(Method::GET, "overview", &[("cookie", cookie)], String::new()).await.text();
    stage.ask(Method::POST, "logout", &[FORM[0], ("cookie", cookie)], format!("csrf={}", csrf(&page))).await
}

#[tokio::test]
async fn c152_nothing_changes_by_get_head_or_a_form_that_is_not_ours() {
    let stage = behind_token().await;
    let key = stage.failed("evt_1", "no", Some("given up")).await;
    let login = log_in(&stage, TOKEN).await;
    let cookie = login.headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    let form = "action=retry&consumer=orders&source=shop&key=evt_1";
    let target = format!("receipt?{form}");
    let session = ("cookie", cookie.as_str());
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        stage.ask(method, &target, &[session], String::new()).await;
    }
    let state = async || stage.store.find(key.clone()).await.expect("an answer").expect("a receipt").state;
    assert_eq!(state().await, ReceiptState::DeadLetter);

    let other = log_in(&stage, TOKEN).await;
    let other = other.headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    let of_other = csrf(&stage.ask(Method::GET, "overview", &[("cookie", other.as_str())], String::new()).await.text());
    let ours = csrf(&stage.ask(Method::GET, "overview", &[session], String::new()).await.text());
    let host = stage.address.to_string();
    let origin = format!("http://{host}");
    for (why, headers, body) in [
        ("no token", vec![session], form.to_owned()),
        ("an empty token", vec![session], format!("csrf=&{form}")),
        ("that of another session", vec![session], format!("csrf={of_other}&{form}")),
        ("another site", vec![session, ("origin", "https://evil.example")], format!("csrf={ours}&{form}")),
        ("a page without origin", vec![session, ("origin", "null")], format!("csrf={ours}&{form}")),
        ("another site", vec![session, ("sec-fetch-site", "cross-site")], format!("csrf={ours}&{form}")),
    ] {
        let headers = [headers, FORM.to_vec()].concat();
        let answer = stage.ask(Method::POST, "receipt", &headers, body).await;
        assert_eq!((answer.status, state().await), (StatusCode::FORBIDDEN, ReceiptState::DeadLetter), "{why}");
    }
    let headers = [session, FORM[0], ("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
    let answer = stage.ask(Method::POST, "receipt", &headers, format!("csrf={ours}&{form}")).await;
    assert_eq!((answer.status, state().await), (StatusCode::SEE_OTHER, ReceiptState::Failed));
}

#[tokio::test]
async fn c152_an_api_on_loopback_is_out_of_reach_of_web_pages() {
    let stage = Stage::open().await;
    let key = stage.failed("evt_1", "no", Some("given up")).await;
    let body = || r#"{"consumer":"orders","source":"shop","key":"evt_1","force":true}"#.to_owned();
    let json = ("content-type", "application/json");
    for (why, headers, status) in [
        ("a name that was pointed here", vec![json, ("host", "evil.example")], StatusCode::FORBIDDEN),
        ("another site", vec![json, ("origin", "https://evil.example")], StatusCode::FORBIDDEN),
        ("a proxy on this machine", vec![json, ("x-forwarded-for", "203.0.113.9")], StatusCode::FORBIDDEN),
        ("another one", vec![json, ("via", "1.1 nginx")], StatusCode::FORBIDDEN),
        ("a form, which no browser asks about first", vec![("content-type", "text/plain")], StatusCode::BAD_REQUEST),
    ] {
        let answer = stage.ask(Method::POST, "api/inbox/forget", &headers, body()).await;
        assert_eq!(answer.status, status, "{why}");
        assert!(stage.store.find(key.clone()).await.expect("an answer").is_some(), "{why}");
    }
    let rebound = stage.ask(Method::GET, "api/inbox", &[("host", "evil.example")], String::new()).await;
    assert_eq!(rebound.status, StatusCode::FORBIDDEN);
    assert_eq!(stage.ask(Method::POST, "api/inbox/forget", &[json], body()).await.status, StatusCode::OK);
    assert!(stage.store.find(key).await.expect("an answer").is_none());
}

/// There the name that is asked for is no header.
#[tokio::test]
async fn pages_and_forms_work_over_http_2() {
    let stage = Stage { http: crate::support::client(true), ..Stage::open().await };
    let key = stage.failed("evt_1", "no", Some("given up")).await;
    let page = "receipt?consumer=orders&source=shop&key=evt_1";
    let csrf = csrf(&stage.get(page).await.text());
    let form = || format!("csrf={csrf}&action=retry&consumer=orders&source=shop&key=evt_1");
    let theirs = [FORM[0], ("origin", "http://evil.example")];
    assert_eq!(stage.ask(Method::POST, "receipt", &theirs, form()).await.status, StatusCode::FORBIDDEN);
    let ours = [FORM[0], ("origin", &*format!("http://{}", stage.address))];
    assert_eq!(stage.ask(Method::POST, "receipt", &ours, form()).await.status, StatusCode::SEE_OTHER);
    let receipt = stage.store.find(key).await.expect("an answer").expect("a receipt");
    assert_eq!(receipt.state, ReceiptState::Failed);
}

#[tokio::test]
async fn every_answer_is_sealed() {
    let stage = behind_token().await;
    for target in ["", "login", "overview", "style.css", "api/inbox", "nowhere", "api/nowhere"] {
        let answer = stage.get(target).await;
        let csp = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(csp.starts_with("default-src 'none'") && !csp.contains("unsafe"), "{target}: {csp}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{target}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{target}");
    }
}

#[tokio::test]
async fn it_works_below_a_path_of_the_applications_own() {
    let nested = |admin: Admin| Router::new().nest("/ops", admin.router());
    let stage = Stage::with(|| Admin::behind_token(TOKEN).expect("a token"), nested).await;
    // Relative, as all links are.
    assert_eq!(stage.get("ops").await.headers["location"], "ops/overview");
    assert_eq!(stage.get("ops/overview").await.headers["location"], "login");
    let right = [("authorization", &*format!("Bearer {TOKEN}"))];
    assert_eq!(stage.ask(Method::GET, "ops/overview", &right, String::new()).await.status, StatusCode::OK);
    assert_eq!(stage.get("ops/api/inbox").await.problem(), "unauthorized");
    assert_eq!(stage.ask(Method::GET, "ops/api/inbox", &right, String::new()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_is_no_page_leads_nowhere() {
    let nested = |admin: Admin| Router::new().nest("/ops", admin.router());
    let stage = Stage::with(|| Admin::behind_token(TOKEN).expect("a token"), nested).await;
    for path in ["ops/x/y", "ops/overview/", "ops/login/"] {
        let answer = stage.get(path).await;
        assert!(!answer.headers.contains_key("location") && answer.status.is_client_error(), "{path}: {answer:?}");
    }
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    assert_eq!(Admin::behind_token("secret").err(), Some(TokenError::TooShort(6)));
    assert!(!format!("{:?}", Admin::behind_token(TOKEN).expect("a token")).contains(TOKEN));
}

#[tokio::test]
async fn who_sends_a_form_slowly_takes_nobodys_turn() {
    let stage = Stage::open().await;
    let head = format!(
        "POST /api/inbox/retry HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        stage.address
    );
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut connection = tokio::net::TcpStream::connect(stage.address).await.expect("a connection");
        connection.write_all(head.as_bytes()).await.expect("it is sent");
        stalled.push(connection);
    }
    // Until all of them are being read.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let answer = tokio::time::timeout(Duration::from_secs(5), stage.get("overview")).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::OK);
    drop(stalled);
}
