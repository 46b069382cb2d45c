//! The same pages, served by the program.

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use super::TOKEN;
use super::api::{conforms, description};
use crate::cli::countersign;
use crate::gateway::started;
use crate::support::{Answer, client, request, send, standard};

#[tokio::test]
async fn a_receiver_on_loopback_shows_its_inbox_and_its_outbox() {
    let address = free_address("127.0.0.1");
    let (gateway, _application, _folder) = started(&["--admin-listen", &address]).await;
    gateway.post(standard("evt_1", b"{}"), "{}").await;
    for page in ["", "overview", "outbox", "endpoints"] {
        let answer = get(&address, page, &[]).await;
        assert!(answer.status == StatusCode::OK || (page.is_empty() && answer.headers["location"] == "overview"));
    }
    assert!(get(&address, "inbox", &[]).await.text().contains("evt_1"));
    assert_eq!(get(&address, "nowhere", &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&address, "inbox", &[("host", "evil.example")]).await.status, StatusCode::FORBIDDEN);
    // Probes come under any name. What is measured is for this machine alone, not for a web page whose name leads here.
    for path in ["healthz", "readyz"] {
        assert_eq!(get(&address, path, &[("host", "evil.example")]).await.status, StatusCode::OK);
    }
    for theirs in [("host", "evil.example"), ("x-forwarded-for", "203.0.113.7")] {
        let refused = get(&address, "metrics", &[theirs]).await;
        assert_eq!((refused.status, refused.text().contains("countersign_")), (StatusCode::FORBIDDEN, false));
    }
    assert!(get(&address, "metrics", &[]).await.text().contains("countersign_"));
}

#[tokio::test]
async fn what_a_receiver_did_lately_is_drawn_and_counted() {
    let address = free_address("127.0.0.1");
    let (gateway, application, _folder) = started(&["--admin-listen", &address]).await;
    let before = get(&address, "overview", &[]).await.text();
    assert!(before.contains("nothing since") && !before.contains("<svg"), "{before}");

    for (id, status, outcome) in [
        ("evt_1", StatusCode::NO_CONTENT, ""),
        ("evt_1", StatusCode::NO_CONTENT, ""),
        ("evt_2", StatusCode::BAD_GATEWAY, ""),
        ("evt_3", StatusCode::GONE, "permanent"),
    ] {
        application.answers(status, &[("countersign-outcome", outcome)][usize::from(outcome.is_empty())..], "");
        gateway.post(standard(id, b"{}"), "{}").await;
    }
    gateway.post(HeaderMap::new(), "{}").await;
    let activity: Value = serde_json::from_slice(&get(&address, "api/activity", &[]).await.body).expect("JSON");
    conforms(&description()["components"]["schemas"]["Activity"], &activity, "");
    // Five minutes may end between two requests.
    let counted = |what: &str, kind: &str| -> u64 {
        activity[what].as_array().expect("steps").iter().map(|step| step[kind].as_u64().expect("a count")).sum()
    };
    assert_eq!(["new", "repeats", "turned_away"].map(|kind| counted("requests", kind)), [3, 1, 1], "{activity}");
    assert_eq!(["succeeded", "failed", "given_up"].map(|kind| counted("runs", kind)), [1, 1, 1], "{activity}");
    assert_eq!(activity["attempts"], json!([]));

    let page = get(&address, "overview", &[]).await.text();
    let plots: Vec<_> = page.split("<figure>").skip(1).collect();
    assert_eq!(plots.len(), 2, "it attempts no delivery: {page}");
    for (plot, title, rows) in [
        (plots[0], "Requests", [("new events", 3), ("repeats", 1), ("turned away", 1)]),
        (plots[1], "Runs of handlers", [("succeeded", 1), ("failed", 1), ("given up", 1)]),
    ] {
        assert!(plot.contains(title) && plot.contains("<rect class=\"good\""), "{plot}");
        for (name, count) in rows {
            let row = plot.split("<tr>").find(|row| row.contains(&format!(">{name}</span>"))).expect("a row");
            assert!(row.contains(&format!("<td class=\"number\">{count}</td>")), "{row}");
        }
    }
}

#[tokio::test]
async fn with_a_token_the_pages_ask_for_it_and_health_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("a file");
    let address = free_address("127.0.0.1");
    let more = ["--admin-listen", &address, "--admin-token-file", file.to_str().expect("text")];
    let (_gateway, _application, _folder) = started(&more).await;
    assert_eq!(get(&address, "inbox", &[]).await.headers["location"], "login");
    assert_eq!(get(&address, "api/inbox", &[]).await.status, StatusCode::UNAUTHORIZED);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(get(&address, "api/inbox", &[("authorization", &bearer)]).await.status, StatusCode::OK);
    assert_eq!(get(&address, "metrics", &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn where_others_can_reach_the_address_there_are_no_pages_without_a_token() {
    let address = free_address("0.0.0.0");
    let (_gateway, _application, _folder) = started(&["--admin-listen", &address]).await;
    for page in ["overview", "inbox", "api/inbox", "login"] {
        let answer = get(&address, page, &[]).await;
        assert_eq!((answer.status, answer.text().contains("/healthz")), (StatusCode::NOT_FOUND, true), "{page}");
    }
    assert_eq!(get(&address, "healthz", &[]).await.status, StatusCode::OK);
}

#[test]
fn a_token_that_could_be_guessed_is_refused() {
    let with = |more: &[&str]| {
        countersign(["dispatch", "--store", "sqlite::memory:", "--admin-listen", "127.0.0.1:0"])
            .args(more)
            .env("SHORT", "secret")
            .env("EMPTY", "")
            .run()
            .exits(2)
    };
    assert!(with(&["--admin-token-env", "SHORT"]).fails().says("openssl rand -hex 32").text().is_empty());
    with(&["--admin-token-env", "EMPTY"]).fails().says("--admin-token-env");
    with(&["--admin-token-env", "NOT_SET_AT_ALL"]).fails().says("--admin-token-env");
}

async fn get(address: &str, page: &str, headers: &[(&'static str, &str)]) -> Answer {
    let headers =
        headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value")));
    let headers: HeaderMap = headers.collect();
    let address = address.replace("0.0.0.0", "127.0.0.1");
    let mut request = request(&format!("http://{address}/{page}"), headers, "");
    *request.method_mut() = Method::GET;
    send(&client(false), request).await
}

pub(super) fn free_address(host: &str) -> String {
    let free = std::net::TcpListener::bind((host, 0)).expect("a socket");
    format!("{host}:{}", free.local_addr().expect("an address").port())
}
