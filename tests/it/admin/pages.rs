//! What the pages show, and what they keep to themselves.

use std::time::Duration;

use countersign::admin::Admin;
use countersign::store::{AttemptReport, ClaimMessages, Endpoint, Fate, OutboxStore, Settled, Settlement};
use http::StatusCode;

use super::{Stage, TOKEN, report, text};

/// What whoever sends events would like to run in an operator's browser.
const HOSTILE: &str = r#""><img src=x onerror=alert(1)><a href="javascript:alert(2)">'"#;

#[tokio::test]
async fn c151_whatever_others_wrote_stays_text() {
    let stage = Stage::open().await;
    stage.failed(HOSTILE, HOSTILE, None).await;
    stage.failed("evt_dead", HOSTILE, Some(HOSTILE)).await;
    stage.succeeded("evt_done", HOSTILE).await;
    stage.quarantined("evt_held", HOSTILE).await;
    stage.endpoint(HOSTILE, "https://shop.example/<script>alert(3)</script>").await;
    stage.store.disable_endpoint(text(HOSTILE), Some(HOSTILE.to_owned())).await.expect("an answer");
    stage.endpoint("shop", "javascript:alert(4)").await;
    stage.pending(HOSTILE, "msg_waits", HOSTILE, HOSTILE).await;
    stage.dead("shop", "msg_dead", HOSTILE, report(500, HOSTILE, HOSTILE), HOSTILE).await;
    let quoted: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    for page in [
        "overview".to_owned(),
        "inbox".to_owned(),
        format!("inbox?key={quoted}&consumer={quoted}&source={quoted}"),
        format!("receipt?consumer=orders&source=shop&key={quoted}"),
        "receipt?consumer=orders&source=shop&key=evt_dead".to_owned(),
        "receipt?consumer=orders&source=shop&key=evt_done".to_owned(),
        "receipt?consumer=orders&source=shop&key=evt_held".to_owned(),
        "outbox".to_owned(),
        format!("outbox?endpoint={quoted}&type={quoted}&id={quoted}"),
        format!("message?endpoint={quoted}&id=msg_waits"),
        "message?endpoint=shop&id=msg_dead".to_owned(),
        "endpoints".to_owned(),
        format!("endpoint?name={quoted}"),
        "endpoint?name=shop".to_owned(),
        format!("inbox?state={quoted}"),
        format!("endpoint?name=nobody{quoted}"),
    ] {
        let answer = stage.get(&page).await;
        let html = answer.text();
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{page}");
        for dangerous in ["<img", "<script", "href=\"javascript", "<a href=\"javascript"] {
            assert!(!html.contains(dangerous), "{page}: {dangerous} in {html}");
        }
        assert!(
            html.contains("alert(") || answer.status == StatusCode::NOT_FOUND || html.contains("no such state"),
            "{page} shows it as text"
        );
    }
    let json = stage.get("api/inbox").await;
    assert_eq!(json.headers["content-type"], "application/json");
}

#[tokio::test]
async fn every_link_of_every_page_leads_somewhere() {
    let stage = Stage::open().await;
    for id in ["a&b=c", "sp ace", "per%25cent", "pl+us", "sla/sh", "..", "ünï", "#hash?"] {
        stage.failed(id, "no", None).await;
    }
    for name in ["a&b=c", "sp ace", "..", "sla/sh", "ünï"] {
        stage.endpoint(name, "https://shop.example/hooks").await;
        stage.dead(name, "msg_1", "order.paid", report(500, "no", "no"), "no").await;
    }
    let (mut seen, mut open) = (Vec::new(), vec!["overview".to_owned()]);
    while let Some(page) = open.pop() {
        let answer = stage.get(&page).await;
        assert_eq!(answer.status, StatusCode::OK, "{page}: {}", answer.text());
        seen.push(page);
        let html = answer.text();
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let link = link.replace("&amp;", "&").replace("&#38;", "&");
            if !link.starts_with('#') && !seen.contains(&link) && !open.contains(&link) {
                open.push(link);
            }
        }
    }
    assert_eq!(seen.iter().filter(|page| page.starts_with("receipt?")).count(), 8, "{seen:?}");
    assert_eq!(seen.iter().filter(|page| page.starts_with("message?")).count(), 5, "{seen:?}");
    assert_eq!(seen.iter().filter(|page| page.starts_with("endpoint?")).count(), 5, "{seen:?}");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let stage = Stage::open().await;
    for number in 0..120 {
        stage.failed(&format!("evt_{number}"), "no", None).await;
    }
    stage.succeeded("evt_done", "ok").await;
    let mut page = "api/inbox?state=failed".to_owned();
    let (mut ids, mut sizes, mut after) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let found = stage.json(&page).await;
        let events = found["events"].as_array().expect("a list");
        sizes.push(events.len());
        ids.extend(events.iter().map(|event| event["key"].as_str().expect("a key").to_owned()));
        let Some(next) = found["next"].as_str() else { break };
        after.push(next.to_owned());
        page = format!("api/inbox?state=failed&after={next}");
    }
    assert_eq!(sizes, [50, 50, 20]);
    let expected: Vec<String> = (0..120).rev().map(|number| format!("evt_{number}")).collect();
    assert_eq!(ids, expected);
    let first = stage.get("inbox?state=failed").await.text();
    assert!(first.contains(&format!("&amp;after={}", after[0])) && !first.contains("rel=\"first\""));
    let last = stage.get(&format!("inbox?state=failed&after={}", after[1])).await.text();
    assert!(!last.contains("rel=\"next\"") && last.contains("rel=\"first\""));
    for (query, status) in [
        ("after=nonsense", StatusCode::BAD_REQUEST),
        ("after=1.2.3", StatusCode::BAD_REQUEST),
        ("state=nonsense", StatusCode::BAD_REQUEST),
        ("stat=failed", StatusCode::BAD_REQUEST),
        ("state=&consumer=&source=&key=", StatusCode::OK),
    ] {
        assert_eq!(stage.get(&format!("inbox?{query}")).await.status, status, "{query}");
        assert_eq!(stage.get(&format!("api/inbox?{query}")).await.status, status, "{query}");
    }
}

#[tokio::test]
async fn no_page_and_no_json_shows_what_is_secret() {
    let stage = Stage::with(|| Admin::behind_token(TOKEN).expect("a token"), Admin::router).await;
    let mut endpoint = Endpoint::new(text("shop"), "https://shop.example/hooks?key=planted-in-the-query");
    endpoint.headers.insert("x-api-key", "planted-in-a-header".parse().expect("a value"));
    endpoint.secrets = vec!["env:SHOP_SECRET".to_owned()];
    stage.store.put_endpoint(endpoint).await.expect("an answer");
    stage.failed("evt_1", "no", Some("given up")).await;
    stage.dead("shop", "msg_1", "order.paid", report(500, "no", "no"), "given up").await;
    let bearer = [("authorization", &*format!("Bearer {TOKEN}"))];
    let mut shown = 0;
    for target in [
        "overview",
        "inbox",
        "outbox",
        "endpoints",
        "endpoint?name=shop",
        "message?endpoint=shop&id=msg_1",
        "receipt?consumer=orders&source=shop&key=evt_1",
        "api/inbox",
        "api/outbox",
        "api/endpoints",
        "api/endpoints/endpoint?name=shop",
        "api/outbox/message?endpoint=shop&id=msg_1",
        "api/inbox/event?consumer=orders&source=shop&key=evt_1",
    ] {
        let answer = stage.ask(http::Method::GET, target, &bearer, String::new()).await;
        assert_eq!(answer.status, StatusCode::OK, "{target}");
        for planted in ["planted-in", "in-the-query", TOKEN, "what the sender sent"] {
            assert!(!answer.text().contains(planted), "{target} shows {planted}");
        }
        shown += usize::from(answer.text().contains("env:SHOP_SECRET"));
    }
    assert_eq!(shown, 3, "where the secret is may be shown");
}

#[tokio::test]
async fn the_overview_shows_what_is_in_quarantine_among_many_that_wait() {
    let stage = Stage::open().await;
    stage.quarantined("evt_held", "looks odd").await;
    for number in 0..20 {
        stage.accepted(&format!("evt_{number}"), None).await;
    }
    let overview = stage.get("overview").await.text();
    assert!(overview.contains("evt_held") && !overview.contains("evt_19"), "{overview}");
}

#[tokio::test]
async fn a_pause_that_is_over_is_no_trouble() {
    let stage = Stage::open().await;
    for (name, pause) in [("was-paused", Duration::ZERO), ("is-paused", Duration::from_secs(600))] {
        stage.endpoint(name, "https://shop.example/hooks").await;
        stage.pending(name, "msg_1", "order.paid", "{}").await;
        let claimed =
            stage.store.claim_messages(ClaimMessages::new(1, Duration::from_secs(60))).await.expect("a claim");
        let [claimed] = &claimed.messages[..] else { panic!("{name} has one") };
        let mut settlement = Settlement::new(Fate::Delivered, AttemptReport::default());
        settlement.endpoint.pause = Some(pause);
        let settled = stage.store.settle(claimed.lease.clone(), settlement).await.expect("an answer");
        assert_eq!(settled, Settled::Done);
    }
    let overview = stage.get("overview").await.text();
    assert!(overview.contains("is-paused") && overview.contains("paused until"), "{overview}");
    assert!(!overview.contains("was-paused"), "{overview}");
}

#[tokio::test]
async fn a_part_without_its_store_says_so() {
    let address = crate::support::serve(Admin::on_loopback().expect("random bytes").router()).await;
    let http = crate::support::client(false);
    for (page, status) in
        [("overview", StatusCode::OK), ("inbox", StatusCode::NOT_FOUND), ("api/outbox", StatusCode::NOT_FOUND)]
    {
        let mut request = crate::support::request(&format!("http://{address}/{page}"), http::HeaderMap::new(), "");
        *request.method_mut() = http::Method::GET;
        assert_eq!(crate::support::send(&http, request).await.status, status, "{page}");
    }
}
