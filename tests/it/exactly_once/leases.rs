//! Who has lost the lease cannot commit, and a transaction that takes its time loses none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use countersign::store::{ReceiptState, Retention};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::books::{Books, Plan};
use super::{Kind, Shop, in_each_database, on_each_server};
use crate::support::{client, request, send, standard, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c079_a_run_that_lost_its_lease_cannot_commit() {
    in_each_database(async |place| {
        let shop = Arc::new(Shop::open(&place).await);
        // On a file it would hold the right to write, and nobody could take its lease.
        let mut slow = Plan::at_once(true);
        slow.complete = CancellationToken::new();
        if matches!(place.kind, Kind::Sqlite) {
            slow.begin = CancellationToken::new();
        }
        shop.plan(&slow);
        let first = {
            let shop = Arc::clone(&shop);
            tokio::spawn(async move { shop.deliver("evt_1").await })
        };
        match place.kind {
            Kind::Sqlite => slow.begun.cancelled().await,
            Kind::Postgres(_) | Kind::MySql(_) => slow.written.cancelled().await,
        }
        place.end_leases().await;
        let second = shop.deliver("evt_1").await;
        assert_eq!((second.status, second.is_replay()), (StatusCode::OK, false), "it takes over");

        slow.begin.cancel();
        slow.complete.cancel();
        let first = first.await.expect("an answer");
        assert_eq!((first.status, first.text().as_str()), (StatusCode::OK, "booked"), "what was recorded meanwhile");
        let receipt = shop.receipt("evt_1").await;
        assert_eq!((receipt.state, receipt.attempts, shop.booked("evt_1").await), (ReceiptState::Succeeded, 2, 1));
    })
    .await;
}

/// The lease is over for as long as the transaction is open: on a server the row is locked, in a file nobody else writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_over_a_run_that_is_being_committed() {
    in_each_database(async |place| {
        let shop = Arc::new(Shop::open(&place).await);
        let mut slow = Plan::at_once(true);
        slow.end = CancellationToken::new();
        shop.plan(&slow);
        let first = {
            let shop = Arc::clone(&shop);
            tokio::spawn(async move { shop.deliver("evt_1").await })
        };
        slow.completed.cancelled().await;
        if matches!(place.kind, Kind::Sqlite) {
            let second = {
                let shop = Arc::clone(&shop);
                tokio::spawn(async move { shop.deliver("evt_1").await })
            };
            tokio::time::sleep(Duration::from_millis(50)).await;
            slow.end.cancel();
            let second = second.await.expect("an answer");
            assert_eq!((second.status, second.is_replay()), (StatusCode::OK, true));
        } else {
            let second = shop.deliver("evt_1").await;
            assert_eq!((second.status, second.problem().as_str()), (StatusCode::CONFLICT, "still-processing"));
            slow.end.cancel();
        }
        assert_eq!(first.await.expect("an answer").status, StatusCode::OK);
        assert_eq!((shop.receipt("evt_1").await.attempts, shop.booked("evt_1").await), (1, 1));
    })
    .await;
}

/// A lease of one second is renewed four times within it. The transaction lasts for most of one, then for more than one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_outlasts_its_renewals_keeps_its_lease() {
    in_each_database(async |place| {
        for (id, lasts) in [("evt_1", Duration::from_millis(700)), ("evt_2", Duration::from_millis(2_500))] {
            let lease = Duration::from_secs(1);
            let shop = Shop::with(&place, &place.url, |builder| builder.lease(lease), |booked| booked).await;
            let shop = Arc::new(shop);
            let mut slow = Plan::at_once(true);
            slow.complete = CancellationToken::new();
            shop.plan(&slow);
            let first = {
                let shop = Arc::clone(&shop);
                tokio::spawn(async move { shop.deliver(id).await })
            };
            slow.written.cancelled().await;
            let others = tokio::spawn({
                let (shop, slow) = (Arc::clone(&shop), slow.clone());
                async move {
                    while !slow.completed.is_cancelled() {
                        let other = shop.deliver(id).await;
                        let replayed = (StatusCode::OK, true);
                        assert!(other.status == StatusCode::CONFLICT || (other.status, other.is_replay()) == replayed);
                    }
                }
            });
            // The passing of time is what is tried here.
            tokio::time::sleep(lasts).await;
            slow.complete.cancel();
            let first = first.await.expect("an answer");
            assert_eq!((first.status, first.is_replay()), (StatusCode::OK, false));
            others.await.expect("no other answer");
            assert_eq!((shop.receipt(id).await.attempts, shop.booked(id).await), (1, 1), "{id}");
        }
    })
    .await;
}

/// Senders leave, and handlers are dropped at their time-out, at every step of a transaction over a slow network, out of a
/// pool that has one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c054_senders_that_leave_and_handlers_that_are_dropped_never_poison_a_pool_of_one() {
    on_each_server(async |place| {
        let (slow_url, faults) = place.behind_proxy().await;
        let books = Books::open(&slow_url, 1).await;
        // The store comes to the database by the slow way too, and out of the same pool.
        let store = books.store_over_pool().await;
        faults.latency.store(25, Ordering::SeqCst);
        for (number, patience) in (0..12).map(|number| (number, Duration::from_millis(10 + 15 * number))) {
            // On MySQL only the senders leave: a connection that is dropped while sqlx prepares a statement on it is out of step.
            let limit = if matches!(place.kind, Kind::MySql(_)) { Duration::from_secs(60) } else { patience };
            let dropped = Shop::over(
                Arc::clone(&store),
                books.clone(),
                |builder| builder.handler_timeout(limit).max_attempts(1_000),
                |booked| booked,
            )
            .await;
            let id = format!("evt_{number}");
            let url = format!("http://{}/", dropped.server.address);
            let client = client(false);
            let leaves = send(&client, request(&url, standard(&id, b"{}"), "{}"));
            let _ = timeout(patience, leaves).await;
            assert_eq!(dropped.server.layer.tasks().drain(Duration::from_secs(30)).await, 0);
        }
        faults.latency.store(0, Ordering::SeqCst);
        let shop = Shop::over(Arc::clone(&store), books.clone(), |builder| builder, |booked| booked).await;
        let direct = Books::open(&place.url, 1).await;
        for number in 0..13 {
            let id = format!("evt_{number}");
            until("it has succeeded", async || shop.deliver(&id).await.status == StatusCode::OK).await;
            let seen = direct.entries().await.expect("the ledger");
            assert_eq!(seen.iter().filter(|event| **event == id).count(), 1, "another connection sees {id} once");
        }
        let open = match &place.kind {
            Kind::Postgres(database) => {
                let idle = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
                database.number(idle).await
            }
            Kind::MySql(database) => {
                let open = "SELECT count(*) FROM information_schema.innodb_trx
                    JOIN information_schema.processlist ON trx_mysql_thread_id = processlist.id WHERE db = DATABASE()";
                database.number(open).await
            }
            Kind::Sqlite => 0,
        };
        assert_eq!(open, 0, "no transaction is left open");
    })
    .await;
}

/// Under the server's usual isolation, which on MariaDB locks gaps: no error reaches a sender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_senders_of_neighbouring_ids_never_fail_while_a_purge_runs() {
    on_each_server(async |place| {
        let shop = Arc::new(Shop::open(&place).await);
        let stop = CancellationToken::new();
        let purging = tokio::spawn({
            let (store, stop) = (Arc::clone(&shop.server.store), stop.clone());
            async move {
                let soon = Retention { results: Duration::ZERO, keys: Duration::from_secs(3_600) };
                while !stop.is_cancelled() {
                    store.purge(soon, 1_000).await.expect("no error");
                }
            }
        });
        let next = Arc::new(AtomicU32::new(0));
        let mut senders = JoinSet::new();
        for _ in 0..64 {
            let (shop, next) = (Arc::clone(&shop), Arc::clone(&next));
            senders.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= 640 {
                        return;
                    }
                    let answer = shop.deliver(&format!("evt_{number}")).await;
                    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                }
            });
        }
        while let Some(sent) = senders.join_next().await {
            sent.expect("no other answer");
        }
        stop.cancel();
        purging.await.expect("no error");
        let mut booked = shop.books.entries().await.expect("the ledger");
        booked.sort_unstable();
        booked.dedup();
        assert_eq!(booked.len(), 640);
        assert_eq!(shop.books.entries().await.expect("the ledger").len(), 640);
    })
    .await;
}
