//! A dispatcher over the stores on servers: transactions that are open while it looks, and the ledger.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign::EventId;
use countersign::store::{Enqueue, Message, MessageState, MySqlStore, OutboxConnection, PostgresStore};
use sqlx::Connection as _;

use super::{mysql, postgres};
use crate::dispatch::{Receiver, Running, Sender, ledger, named, status};
use crate::exactly_once::ledger::{Kind, Place};
use crate::support::{Gate, until};

#[tokio::test(flavor = "multi_thread")]
async fn c079_the_books_balance_on_postgres() {
    if let Some(place) = Place::start(Kind::Postgres).await {
        let store = PostgresStore::connect(&place.url).await.expect("the store opens");
        ledger::balances(&place.url, Arc::new(store), async || place.power_cut().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c079_the_books_balance_on_mysql() {
    if let Some(place) = Place::start(Kind::MySql).await {
        let store = MySqlStore::connect(&place.url).await.expect("the store opens");
        ledger::balances(&place.url, Arc::new(store), async || place.power_cut().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c072_and_c073_what_commits_late_is_sent_late_and_what_is_rolled_back_never_on_postgres() {
    let Some(database) = postgres::Database::create().await else { return };
    let sender = Sender::new(Arc::new(database.open().await));
    let [mut early, mut late, mut never] = [
        postgres::connect(&database.url).await,
        postgres::connect(&database.url).await,
        postgres::connect(&database.url).await,
    ];
    let [mut early, mut late, mut never] = [
        early.begin().await.expect("a transaction"),
        late.begin().await.expect("a transaction"),
        never.begin().await.expect("a transaction"),
    ];
    let receiver = Receiver::with_statuses(&[200]).await;
    sender.endpoint("shop", receiver.url()).await;
    let running = Running::start(sender.dispatcher());

    // The lowest number commits last.
    for (transaction, id) in [(&mut late, "late"), (&mut never, "never"), (&mut early, "early")] {
        assert!(transaction.enqueue(&[one(id)]).await.expect("it is enqueued")[0].created);
    }
    early.commit().await.expect("a commit");
    sender.until_state("shop", "early", MessageState::Succeeded).await;
    never.rollback().await.expect("a rollback");
    // Several polls look past it meanwhile.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.seen().len(), 1);
    late.commit().await.expect("a commit");
    sender.until_state("shop", "late", MessageState::Succeeded).await;
    running.stop().await;
    assert_eq!((receiver.seen().len(), sender.all().await.len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn c072_and_c073_what_commits_late_is_sent_late_and_what_is_rolled_back_never_on_mysql() {
    let Some(database) = mysql::Database::create().await else { return };
    let sender = Sender::new(Arc::new(database.open().await));
    let [mut early, mut late, mut never] =
        [mysql::connect(&database.url).await, mysql::connect(&database.url).await, mysql::connect(&database.url).await];
    let [mut early, mut late, mut never] = [
        early.begin().await.expect("a transaction"),
        late.begin().await.expect("a transaction"),
        never.begin().await.expect("a transaction"),
    ];
    let receiver = Receiver::with_statuses(&[200]).await;
    sender.endpoint("shop", receiver.url()).await;
    let running = Running::start(sender.dispatcher());

    for (transaction, id) in [(&mut late, "late"), (&mut never, "never"), (&mut early, "early")] {
        assert!(transaction.enqueue(&[one(id)]).await.expect("it is enqueued")[0].created);
    }
    early.commit().await.expect("a commit");
    sender.until_state("shop", "early", MessageState::Succeeded).await;
    never.rollback().await.expect("a rollback");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.seen().len(), 1);
    late.commit().await.expect("a commit");
    sender.until_state("shop", "late", MessageState::Succeeded).await;
    running.stop().await;
    assert_eq!((receiver.seen().len(), sender.all().await.len()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn c103_no_transaction_is_open_while_messages_are_sent() {
    let Some(database) = postgres::Database::create().await else { return };
    let sender = Sender::new(Arc::new(database.open().await));
    let gate = Gate::default();
    let receiver = {
        let gate = gate.clone();
        Receiver::answering(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                status(200)
            }
        })
        .await
    };
    sender.endpoint("slow", receiver.url()).await;
    for number in 0..50 {
        sender.enqueue("slow", &format!("msg_{number}"), "{}").await;
    }
    let running = Running::start(sender.dispatcher().concurrency(64).endpoint_concurrency(64));
    until("all are being sent", async || receiver.seen().len() == 50).await;
    let open = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'
                    AND xact_start < clock_timestamp() - interval '500 milliseconds'";
    // Claims and renewals come and go meanwhile, each within a moment.
    for _ in 0..100 {
        assert_eq!(database.number(open).await, 0);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // And the store answers others.
    assert_eq!(sender.all().await.len(), 50);
    gate.open();
    sender.until_done().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c099_a_commit_elsewhere_wakes_a_dispatcher_and_a_lost_listener_costs_no_more_than_a_poll() {
    let Some(database) = postgres::Database::create().await else { return };
    let sender = Sender::new(Arc::new(database.open().await));
    let receiver = Receiver::with_statuses(&[200]).await;
    sender.endpoint("shop", receiver.url()).await;
    let running = Running::start(sender.dispatcher().poll(Duration::from_secs(3)));
    let mut other = postgres::connect(&database.url).await;
    let listening = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE 'LISTEN%'";
    until("it listens", async || database.number(listening).await > 0).await;

    let began = Instant::now();
    other.enqueue(&[one("msg_1")]).await.expect("it is enqueued");
    sender.until_state("shop", "msg_1", MessageState::Succeeded).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    database
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE 'LISTEN%'",
        )
        .await;
    other.enqueue(&[one("msg_2")]).await.expect("it is enqueued");
    sender.until_state("shop", "msg_2", MessageState::Succeeded).await;
    until("it listens again", async || database.number(listening).await > 0).await;
    running.stop().await;
}

fn one(id: &str) -> Enqueue {
    Enqueue::new(named("shop"), Message::new(EventId::new(id).expect("an id"), named("order.paid"), "{}"))
}
