//! What runs by a file.

use countersign::store::{InboxStore as _, ListFilter, OutboxStore as _, SqliteStore};
use http::StatusCode;

use super::{check, file};
use crate::cli::countersign;
use crate::dispatch::Receiver;
use crate::gateway::Application;
use crate::operators::{Started, eventually};
use crate::support::{SECRET, TEXT_SECRET, client, github, request, send, standard};

#[tokio::test]
async fn several_sources_are_received_on_one_address_each_for_its_own_application() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (Application::default(), Application::default());
    second.answers(StatusCode::CREATED, &[], "second");
    let store = folder.path().join("events.db");
    std::fs::write(folder.path().join("github"), TEXT_SECRET).expect("a file");
    let text = format!(
        "store = \"sqlite:{store}\"\n[receive]\nlisten = \"127.0.0.1:0\"\n\
         [sources.shop]\nscheme = \"standard\"\nsecret-env = [\"TEST_SECRET\"]\npath = \"/shop\"\nupstream = \"{first}\"\n\
         [sources.code]\nscheme = \"github\"\nsecret-file = \"{folder}/github\"\npath = \"/shop/code\"\nupstream = \"{second}/in\"\n\
         [sources.later]\nscheme = \"standard\"\nsecret-env = \"TEST_SECRET\"\npath = \"/later\"\nupstream = \"{first}\"\nmode = \"deferred\"\n",
        store = store.display(),
        folder = folder.path().display(),
        first = first.start().await,
        second = second.start().await,
    );
    let path = file(folder.path(), &text);
    let mut receiver = Started::new(&["receive", "--config", path.to_str().expect("UTF-8")], 1).await;
    let post = async |path: &str, headers| {
        send(&client(false), request(&format!("{}{path}", receiver.addresses[0]), headers, "{}")).await
    };
    assert_eq!(post("/shop", standard("evt_1", b"{}")).await.status, StatusCode::NO_CONTENT);
    let answer = post("/shop/code/push", github(Some("a"), b"{}")).await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::CREATED, "second"), "the longest path counts");
    assert_eq!(second.last().0.uri.path(), "/in/push");
    assert_eq!(post("/shop/code", standard("evt_1", b"{}")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(post("/later", standard("evt_1", b"{}")).await.status, StatusCode::ACCEPTED, "another consumer's");
    assert_eq!(post("/elsewhere", standard("evt_1", b"{}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(post("/shop/../later", standard("evt_2", b"{}")).await.status, StatusCode::NOT_FOUND);
    eventually("what was accepted has run", async || first.runs() == 2).await;
    assert!(receiver.stop().await.success());

    let store = SqliteStore::open(&store).await.expect("a store");
    let receipts = store.list(ListFilter::default()).await.expect("an answer");
    let mut keys: Vec<_> = receipts.iter().map(|one| format!("{} {}", one.key.consumer, one.key.source)).collect();
    keys.sort();
    assert_eq!(keys, ["code code", "later later", "shop shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_of_the_file_are_added_changed_and_delivered_to_and_others_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::with_statuses(&[200]).await;
    let store = format!("sqlite:{}", folder.path().join("events.db").display());
    let add =
        ["endpoint", "add", "by-hand", "--url", "https://example.com/", "--secret-env", "SECRET", "--store", &store];
    countersign(add).run().exits(0);
    let text = format!(
        "store = \"{store}\"\n[dispatch]\nallow-http = true\nallow = [\"127.0.0.1\"]\n\
         [endpoints.shop]\nurl = \"{}\"\nsecret-env = \"SECRET\"\ntypes = [\"order.*\"]\nheader = [\"x-tenant: 7\"]\n",
        receiver.url()
    );
    let path = file(folder.path(), &text);
    let dispatch = async || {
        let program = countersign(["dispatch", "--drain", "--config"]).args([&path]);
        tokio::task::spawn_blocking(move || program.run()).await.expect("it ends")
    };
    let ended = dispatch().await.exits(0);
    assert!(ended.shows_on_stderr("by-hand") && ended.shows_on_stderr("it stays"), "{ended:?}");
    assert!(ended.shows_on_stderr("added from the file"));
    countersign(["endpoint", "disable", "shop", "--store", &store]).run().exits(0);
    assert!(!dispatch().await.exits(0).shows_on_stderr("from the file"), "nothing has changed");

    let changed = text.replace("x-tenant: 7", "x-tenant: 8");
    file(folder.path(), &changed);
    assert!(dispatch().await.exits(0).shows_on_stderr("changed as the file says"));
    let opened = SqliteStore::open(folder.path().join("events.db")).await.expect("a store");
    let entries = opened.endpoints().await.expect("an answer");
    assert_eq!(entries.len(), 2);
    let shop = entries.iter().find(|entry| entry.endpoint.name.as_str() == "shop").expect("it is there");
    assert!(shop.disabled.is_some(), "its state is the operator's");
    opened.close().await.expect("it closes");
    countersign(["endpoint", "enable", "shop", "--store", &store]).run().exits(0);
    let publish = ["publish", "--type", "order.paid", "--body", "-", "--store", &store];
    countersign(publish).stdin(b"{}").run().exits(0);
    dispatch().await.exits(0);
    assert_eq!(receiver.seen().len(), 1);
    assert_eq!(receiver.seen()[0].header("x-tenant"), "8");
}

/// The dispatcher adds it, too, but may start later.
#[tokio::test]
async fn a_receiver_adds_the_operators_endpoint_that_its_file_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("events.db");
    let text = |endpoint: &str| {
        format!(
            "store = \"sqlite:{}\"\noperator-endpoint = \"ops\"\n[receive]\nlisten = \"127.0.0.1:0\"\n\
             [sources.a]\nscheme = \"standard\"\nsecret-env = \"TEST_SECRET\"\nupstream = \"http://127.0.0.1:9\"\n\
             [endpoints.{endpoint}]\nurl = \"https://ops.example/\"\nsecret-env = \"TEST_SECRET\"\n",
            path.display()
        )
    };
    let config = file(folder.path(), &text("other"));
    check(&config).env("TEST_SECRET", SECRET).args(["--without-secrets"]).run().exits(0);
    let refused = countersign(["receive", "--config"]).args([&config]);
    refused.env("TEST_SECRET", SECRET).run().exits(2).says("no endpoint `ops`");
    let config = file(folder.path(), &text("ops"));
    let mut receiver = Started::new(&["receive", "--config", config.to_str().expect("UTF-8")], 1).await;
    assert!(receiver.stop().await.success());
    let store = SqliteStore::open(&path).await.expect("a store");
    let names: Vec<_> = store.endpoints().await.expect("an answer").into_iter().map(|one| one.endpoint.name).collect();
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["ops"]);
}

#[tokio::test]
async fn each_source_of_a_file_has_its_own_profile() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bank, mail) = (Application::default(), Application::default());
    for application in [&bank, &mail] {
        application.answers(StatusCode::INTERNAL_SERVER_ERROR, &[], "");
    }
    let text = format!(
        "store = \"sqlite:{store}\"\n[receive]\nlisten = \"127.0.0.1:0\"\n\
         [sources.bank]\nscheme = \"standard\"\nsecret-env = \"TEST_SECRET\"\npath = \"/bank\"\nupstream = \"{bank}\"\nprofile = \"strict\"\n\
         [sources.mail]\nscheme = \"standard\"\nsecret-env = \"TEST_SECRET\"\npath = \"/mail\"\nupstream = \"{mail}\"\n",
        store = folder.path().join("events.db").display(),
        bank = bank.start().await,
        mail = mail.start().await,
    );
    let path = file(folder.path(), &text);
    let receiver = Started::new(&["receive", "--config", path.to_str().expect("UTF-8")], 1).await;
    for (path, status) in [("/bank", StatusCode::SERVICE_UNAVAILABLE), ("/mail", StatusCode::INTERNAL_SERVER_ERROR)] {
        for _ in 0..2 {
            let url = format!("{}{path}", receiver.addresses[0]);
            let answer = send(&client(false), request(&url, standard("evt_1", b"{}"), "{}")).await;
            assert_eq!(answer.status, status, "{path}");
        }
    }
    assert_eq!((bank.runs(), mail.runs()), (1, 2));
}

#[test]
fn the_file_says_in_which_form_is_logged_and_a_flag_goes_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("store = \"sqlite:{}\"\nlog-format = \"json\"\n", folder.path().join("events.db").display());
    let path = file(folder.path(), &text);
    let first_line = |program: crate::cli::Program| program.run().exits(0).first_line_of_stderr();
    let of_file = first_line(countersign(["dispatch", "--drain", "--config"]).args([&path]));
    assert!(serde_json::from_str::<serde_json::Value>(&of_file).is_ok(), "{of_file}");
    let by_flag = first_line(countersign(["--log-format", "text", "dispatch", "--drain", "--config"]).args([&path]));
    assert!(serde_json::from_str::<serde_json::Value>(&by_flag).is_err(), "{by_flag}");
}
