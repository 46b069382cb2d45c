//! Committed, rolled back, and everything between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use countersign::receive::{Backoff, CompleteError, DedupLayer, Outcome, Processor, Reservation};
use countersign::signature::Scheme;
use countersign::store::{MemoryStore, ReceiptState, ResultBody};
use http::Response;
use tokio_util::sync::CancellationToken;

use super::books::{self, Books, Plan, Unbooked};
use super::{Kind, Place, Shop, in_each_database, on_each_server};
use crate::support::{Server, standard, until, verify};

#[tokio::test]
async fn an_event_and_its_effects_are_one_commit_and_repeats_get_its_response() {
    in_each_database(async |place| {
        let shop = Shop::open(&place).await;
        let first = shop.deliver("evt_1").await;
        assert_eq!((first.status, first.text().as_str(), first.is_replay()), (StatusCode::OK, "booked", false));
        assert_eq!(
            (&first.headers["x-ledger"], &first.headers["set-cookie"]),
            (&"1".parse().unwrap(), &"a=b".parse().unwrap())
        );
        let repeat = shop.deliver("evt_1").await;
        assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::OK, "booked", true));
        assert_eq!(repeat.headers["content-type"], "text/plain");
        assert_eq!((repeat.headers.contains_key("x-ledger"), repeat.headers.contains_key("set-cookie")), (true, false));

        let receipt = shop.receipt("evt_1").await;
        assert_eq!((receipt.state, receipt.attempts, receipt.failures.len()), (ReceiptState::Succeeded, 1, 0));
        let age = countersign::Clock::now(&countersign::SystemClock).saturating_since(receipt.updated);
        assert!(age < Duration::from_secs(60), "the time of its end is now: {age:?}");
        assert_eq!(shop.booked("evt_1").await, 1);
    })
    .await;
}

/// A sender that got a 2xx does not come back.
#[tokio::test]
async fn c060_a_handler_that_rolls_back_and_answers_2xx_is_not_believed() {
    in_each_database(async |place| {
        let shop = Shop::open(&place).await;
        shop.plan(&Plan::at_once(false));
        let answer = shop.deliver("evt_1").await;
        assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "handler-failed"));
        let receipt = shop.receipt("evt_1").await;
        assert_eq!((receipt.state, receipt.attempts), (ReceiptState::Failed, 1));
        assert!(receipt.error.as_deref().is_some_and(|error| error.contains("not committed")), "{receipt:?}");
        assert_eq!(shop.booked("evt_1").await, 0);

        let again = shop.deliver("evt_1").await;
        assert_eq!((again.status, again.is_replay(), shop.booked("evt_1").await), (StatusCode::OK, false, 1));
        assert_eq!(shop.receipt("evt_1").await.attempts, 2);
    })
    .await;
}

#[tokio::test]
async fn c060_a_handler_that_commits_and_then_fails_has_succeeded() {
    let endings: [super::Ending; 4] = [
        |_| Err(Outcome::transient("too late")),
        |_| Err(Outcome::permanent("too late")),
        |booked| {
            let mut response = booked?;
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            Ok(response)
        },
        // Like `panic!`, but nothing is printed.
        |_| std::panic::resume_unwind(Box::new("too late")),
    ];
    in_each_database(async |place| {
        for (number, ending) in endings.into_iter().enumerate() {
            let shop = Shop::with(&place, &place.url, |builder| builder, ending).await;
            let id = format!("evt_{number}");
            for replayed in [false, true] {
                let answer = shop.deliver(&id).await;
                let got = (answer.status, answer.text(), answer.is_replay());
                assert_eq!(got, (StatusCode::OK, "booked".to_owned(), replayed), "{number}");
                assert_eq!(answer.headers["x-ledger"], "1");
            }
            let receipt = shop.receipt(&id).await;
            assert_eq!((receipt.state, receipt.error, shop.booked(&id).await), (ReceiptState::Succeeded, None, 1));
        }
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_rolls_back_and_says_why_counts_as_it_says() {
    in_each_database(async |place| {
        let shop =
            Shop::with(&place, &place.url, |builder| builder, |_| Err(Outcome::permanent("no such account"))).await;
        shop.plan(&Plan::at_once(false));
        for replayed in [false, true] {
            let answer = shop.deliver("evt_1").await;
            assert_eq!((answer.status, answer.is_replay()), (StatusCode::UNPROCESSABLE_ENTITY, replayed));
        }
        let receipt = shop.receipt("evt_1").await;
        assert_eq!((receipt.state, receipt.reason.as_deref()), (ReceiptState::DeadLetter, Some("no such account")));
        assert_eq!(shop.booked("evt_1").await, 0);
    })
    .await;
}

/// It is dropped, and its transaction with it.
#[tokio::test]
async fn a_handler_that_is_too_slow_to_commit_has_failed_and_booked_nothing() {
    in_each_database(async |place| {
        let quick = Duration::from_millis(300);
        let shop = Shop::with(&place, &place.url, |builder| builder.handler_timeout(quick), |booked| booked).await;
        let mut plan = Plan::at_once(true);
        plan.end = CancellationToken::new();
        shop.plan(&plan);
        let answer = shop.deliver("evt_1").await;
        assert_eq!((answer.status, plan.completed.is_cancelled()), (StatusCode::INTERNAL_SERVER_ERROR, true));
        assert_eq!((shop.receipt("evt_1").await.state, shop.booked("evt_1").await), (ReceiptState::Failed, 0));
        assert_eq!((shop.deliver("evt_1").await.status, shop.booked("evt_1").await), (StatusCode::OK, 1));
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_begun_anew_within_its_handler_is_completed_once() {
    in_each_database(async |place| {
        let (store, books) = (books::store(&place.url).await, Books::open(&place.url, 1).await);
        let app = {
            let books = books.clone();
            let handler = async move |run: Reservation| {
                let response = || Response::new(String::new());
                books.book(&run, response(), &Plan::at_once(false)).await.expect("it is rolled back");
                let booked = books.book(&run, response(), &Plan::at_once(true)).await.expect("it is committed");
                let third = books.book(&run, response(), &Plan::at_once(true)).await;
                assert!(matches!(third, Err(Unbooked::Complete(CompleteError::LeaseLost))), "{third:?}");
                booked
            };
            Router::new().route("/", post(handler))
        };
        let server =
            Server::with(app, verify(Scheme::standard()), DedupLayer::builder(Arc::clone(&store)), store).await;
        assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
        assert_eq!(books.entries().await.expect("the ledger"), ["evt_1"]);
    })
    .await;
}

#[tokio::test]
async fn a_response_over_the_limit_reaches_the_first_sender_and_is_kept_as_its_status() {
    in_each_database(async |place| {
        let shop = Shop::with(&place, &place.url, |builder| builder.result_limit(5), |booked| booked).await;
        assert_eq!(shop.deliver("evt_1").await.text(), "booked");
        let repeat = shop.deliver("evt_1").await;
        assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::OK, "", true));
        let result = shop.receipt("evt_1").await.result.expect("a result");
        assert_eq!((result.body, &result.headers["x-ledger"]), (ResultBody::Omitted, &"1".parse().unwrap()));
    })
    .await;
}

#[tokio::test]
async fn deferred_a_processor_books_what_was_accepted_once() {
    in_each_database(async |place| {
        let shop = Shop::with(&place, &place.url, |builder| builder.deferred(), |booked| booked).await;
        shop.plan(&Plan::at_once(false));
        assert_eq!(shop.deliver("evt_1").await.status, StatusCode::ACCEPTED);
        let stop = CancellationToken::new();
        let soon = Duration::from_millis(10);
        let processor = Processor::builder(Arc::clone(&shop.server.store), shop.app.clone())
            .backoff(Backoff::new(soon, soon))
            .poll(soon)
            .build()
            .expect("a processor");
        let processing = tokio::spawn(processor.run(stop.clone().cancelled_owned()));
        until("it has succeeded", async || shop.receipt("evt_1").await.state == ReceiptState::Succeeded).await;
        stop.cancel();
        processing.await.expect("no panic");

        let receipt = shop.receipt("evt_1").await;
        assert_eq!((receipt.attempts, receipt.failures.len(), &receipt.request), (2, 1, &None));
        assert!(receipt.failures[0].error.contains("not committed"), "{receipt:?}");
        let repeat = shop.deliver("evt_1").await;
        assert_eq!((repeat.status, repeat.text().as_str(), repeat.is_replay()), (StatusCode::OK, "booked", true));
        assert_eq!(shop.booked("evt_1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_connection_to_another_database_than_the_stores_books_nothing() {
    in_each_database(async |place| {
        let elsewhere = match &place.kind {
            Kind::Sqlite => Some(Place::sqlite()),
            Kind::Postgres(_) => Place::postgres().await,
            Kind::MySql(_) => Place::mysql().await,
        };
        let elsewhere = elsewhere.expect("another one");
        let other_store = books::store(&elsewhere.url).await;
        let shop = Shop::with(&place, &elsewhere.url, |builder| builder, |booked| booked).await;
        assert_eq!(shop.deliver("evt_1").await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((shop.receipt("evt_1").await.state, shop.booked("evt_1").await), (ReceiptState::Failed, 0));
        drop(other_store);

        // A store in memory shares no transaction with anybody.
        let memory = Arc::new(MemoryStore::new());
        let shop = Shop::over(memory, Books::open(&place.url, 1).await, |builder| builder, |booked| booked).await;
        assert_eq!(shop.deliver("evt_1").await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((shop.receipt("evt_1").await.state, shop.booked("evt_1").await), (ReceiptState::Failed, 0));
    })
    .await;
}

/// The handler hears of an error and says so; the commit has happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_counts_where_it_took_place() {
    on_each_server(async |place| {
        let (url, faults) = place.behind_proxy().await;
        let shop = Shop::with(&place, &url, |builder| builder, |booked| booked).await;
        faults.lose_answer_to_commit.store(true, Ordering::SeqCst);
        for replayed in [false, true] {
            let answer = shop.deliver("evt_1").await;
            assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "booked"), "{url}");
            assert_eq!(answer.is_replay(), replayed, "{url}");
        }
        assert_eq!(faults.lost.load(Ordering::SeqCst), 1);
        assert_eq!((shop.receipt("evt_1").await.attempts, shop.booked("evt_1").await), (1, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c101_a_transaction_through_a_pooler_completes_its_run() {
    let Some(place) = Place::postgres().await else { return };
    let Some(url) = place.behind_pooler() else { return };
    // Statements are not prepared for a connection that is another one the next time.
    let url = format!("{url}?statement-cache-capacity=0");
    let shop = Shop::with(&place, &url, |builder| builder, |booked| booked).await;
    let answers = (0..16).map(|number| {
        let shop = &shop;
        async move { shop.deliver(&format!("evt_{number}")).await.status }
    });
    for status in futures_util::future::join_all(answers).await {
        assert_eq!(status, StatusCode::OK);
    }
    let booked = Books::open(&place.url, 1).await.entries().await.expect("the ledger");
    assert_eq!(booked.len(), 16);
}

/// It cannot tell whether the lease was only renewed since, or lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_with_an_older_view_of_a_renewed_lease_books_nothing_and_runs_again() {
    let Some(place) = Place::postgres().await else { return };
    let url = format!("{}?options[default_transaction_isolation]=repeatable%20read", place.url);
    let shop = Arc::new(Shop::with(&place, &url, |builder| builder, |booked| booked).await);
    let mut slow = Plan::at_once(true);
    slow.complete = CancellationToken::new();
    shop.plan(&slow);
    let first = {
        let shop = Arc::clone(&shop);
        tokio::spawn(async move { shop.deliver("evt_1").await.status })
    };
    slow.written.cancelled().await;
    place.execute("UPDATE countersign_inbox SET lease_until = lease_until + 1").await;
    slow.complete.cancel();
    assert_eq!(first.await.expect("an answer"), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((shop.receipt("evt_1").await.state, shop.booked("evt_1").await), (ReceiptState::Failed, 0));
    assert_eq!((shop.deliver("evt_1").await.status, shop.booked("evt_1").await), (StatusCode::OK, 1));
}
