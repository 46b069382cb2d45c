//! A store that fails.

use super::{Noting, Started, eventually};
use crate::cli::countersign;
use crate::dispatch::Receiver;
use crate::servers::postgres::Database;
use crate::servers::proxy::Side;
use crate::support::{SECRET, until};

/// The database is out of reach; then it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_is_told_once_by_the_command_and_its_end_once_and_both_by_the_webhook_after_that() {
    let Some(database) = Database::create().await else { return };
    let (proxied, faults) = database.behind_proxy().await;
    let operator = Receiver::with_statuses(&[200]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let noting = Noting::new(folder.path());
    let url = operator.url();
    let add = ["endpoint", "add", "ops", "--url", &url, "--secret-env", "SECRET", "--store", &database.url];
    countersign(add).env("SECRET", SECRET).run().exits(0);
    let receiving = ["receive", "--listen", "127.0.0.1:0", "--scheme", "standard", "--secret-env", "TEST_SECRET"];
    let more = ["--upstream", "http://127.0.0.1:9", "--store", &proxied];
    let told = ["--operator-endpoint", "ops", "--operator-command", noting.path()];
    let _receiver = Started::new(&[&receiving[..], &more, &told].concat(), 1).await;

    faults.plan(Side::Question, 1, true);
    eventually("it fails", async || !noting.of("store.failing").is_empty()).await;
    assert!(faults.heal(), "the cut has come");
    eventually("it answers again", async || !noting.of("store.recovered").is_empty()).await;
    let (begun, over) = (noting.of("store.failing"), noting.of("store.recovered"));
    assert_eq!((begun.len(), over.len()), (1, 1));
    assert_eq!(begun[0]["since"], over[0]["since"]);
    assert!(!begun[0].to_string().contains("://"), "no URL, which may hold a password");

    until("both are in the outbox", async || {
        let listed = countersign(["outbox", "list", "--json", "--store", &database.url]).run().exits(0).json();
        let types: Vec<_> = listed.as_array().expect("an array").iter().map(|one| one["type"].clone()).collect();
        let has = |kind: &str| types.iter().filter(|one| one.as_str() == Some(kind)).count() == 1;
        has("store.failing") && has("store.recovered")
    })
    .await;
}
