//! Many orders, while services are killed and stand still, and deliveries come late, twice or not at all: every order ends,
//! and the books are right to the unit.
//!
//! `COUNTERSIGN_ORDERS` says how many orders: 60 by default.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::shop::{SERVICES, Seen, Shop, trace_of};
use crate::cli::{Ended, countersign};
use crate::servers::PostgresDatabase;
use crate::support::Dice;

/// When all must have ended after the last mishap.
const CALM: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_order_ends_and_the_books_add_up_whatever_dies_when() {
    all_end_and_the_books_add_up(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_order_ends_and_the_books_add_up_in_four_schemas_of_one_postgres() {
    if let Some(database) = PostgresDatabase::create().await {
        all_end_and_the_books_add_up(Some(database)).await;
    }
}

async fn all_end_and_the_books_add_up(postgres: Option<PostgresDatabase>) {
    let orders = std::env::var("COUNTERSIGN_ORDERS").ok().and_then(|orders| orders.parse().ok()).unwrap_or(60);
    let began = Instant::now();
    let mut shop = Shop::start(orders as u64, Duration::from_secs(8), postgres).await;
    shop.roughen(true);
    let customers = shop.customers();
    let placing = tokio::spawn(async move {
        for chunk in (0..orders).collect::<Vec<_>>().chunks(8) {
            let mut together = JoinSet::new();
            for number in chunk.iter().copied() {
                let customers = customers.clone();
                together.spawn(async move { customers.place(number).await });
            }
            together.join_all().await;
        }
    });
    let mut dice = Dice(11);
    let mut mishaps = BTreeMap::new();
    for turn in 0..(6 + orders / 20) {
        // Each service is killed at least once.
        let service = SERVICES[turn % SERVICES.len()];
        let kills = turn < SERVICES.len() || dice.roll(2) == 0;
        sleep(Duration::from_millis(200 + dice.roll(800))).await;
        if kills {
            shop.kill(service).await;
        } else {
            shop.pause(service, Duration::from_millis(500 + dice.roll(2_500))).await;
        }
        *mishaps.entry((service, if kills { "killed" } else { "paused" })).or_insert(0) += 1;
    }
    placing.await.expect("all are placed");
    shop.roughen(false);
    let seen = shop.seen();
    println!("{orders} orders placed after {:?}, meanwhile {mishaps:?} and {seen:?}", began.elapsed());
    let Seen { came_twice, lost, unanswered, overtaken } = seen;
    for (count, what) in
        [(came_twice, "came twice"), (lost, "was lost"), (unanswered, "was not answered"), (overtaken, "was overtaken")]
    {
        assert!(count > 0, "no delivery {what}: this run shows less than it says");
    }

    let calm = Instant::now();
    while let Some(left) = left(&shop).await {
        assert!(calm.elapsed() < CALM, "stuck: {left:?}");
        sleep(Duration::from_millis(200)).await;
    }
    println!("all ended after {:?}", began.elapsed());
    let ends = ends(&shop, orders).await;
    nothing_is_left(&shop).await;
    stock_adds_up(&shop, &ends).await;
    money_adds_up(&shop, &ends).await;
    each_customer_is_told_once(&shop, &ends).await;
    for number in [0, 1, 3] {
        everything_is_found(&shop, number).await;
    }
    the_flows_are_purged(&shop, orders).await;
}

/// What has no end, in any service.
async fn left(shop: &Shop) -> Option<Vec<(String, String, String)>> {
    const OPEN: &str = "SELECT 'message', type, state FROM countersign_outbox WHERE state <> 'succeeded'
        UNION ALL SELECT 'receipt', \"key\", state FROM countersign_inbox WHERE state <> 'succeeded'
        UNION ALL SELECT 'saga', instance, COALESCE(step, 'not begun') FROM countersign_saga WHERE ended IS NULL";
    let mut left = Vec::new();
    for service in SERVICES {
        left.extend(shop.rows(service, OPEN).await);
    }
    Some(left).filter(|left| !left.is_empty())
}

async fn nothing_is_left(shop: &Shop) {
    let bodies = shop.rows("orders", "SELECT instance, body, step FROM countersign_saga").await;
    for (order, body, _) in bodies {
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&body["undo"], &body["deferred"]), (&Value::Array(vec![]), &Value::Array(vec![])), "{order}");
    }
}

/// How each order ended.
async fn ends(shop: &Shop, orders: usize) -> BTreeMap<String, String> {
    let ends = shop.rows("orders", "SELECT instance, step, 'ended' FROM countersign_saga").await;
    let ends: BTreeMap<String, String> = ends.into_iter().map(|(order, step, _)| (order, step)).collect();
    assert_eq!(ends.len(), orders, "each order is there once");
    for (order, step) in &ends {
        // Others may have been cancelled because somebody stood still for too long.
        let expected: &[&str] = if must_fail(order) { &["cancelled"] } else { &["approved", "cancelled"] };
        assert!(expected.contains(&step.as_str()), "{order} ended as {step}");
    }
    let fail_at_once = ends.keys().filter(|order| must_fail(order)).count();
    assert_eq!(fail_at_once, orders.div_ceil(3), "a third must fail");
    let approved = ends.values().filter(|step| *step == "approved").count();
    println!("{approved} were approved; {} cancelled, {fail_at_once} of which had to be", orders - approved);
    assert!(approved > 0);
    ends
}

fn must_fail(order: &str) -> bool {
    order.trim_start_matches("order-").parse::<usize>().expect("a number").is_multiple_of(3)
}

/// Movements of a service: for each order how often each kind, and how much.
async fn movements(shop: &Shop, service: &str, sql: &'static str) -> BTreeMap<(String, String), Vec<i64>> {
    let mut movements: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for (order, kind, amount) in shop.rows(service, sql).await {
        movements.entry((order, kind)).or_default().push(amount.parse().expect("a number"));
    }
    for (movement, amounts) in &movements {
        assert_eq!(amounts.len(), 1, "{service}: {movement:?} happened more than once");
    }
    movements
}

async fn stock_adds_up(shop: &Shop, ends: &BTreeMap<String, String>) {
    let moved = movements(shop, "stock", "SELECT order_id, kind, CAST(quantity AS TEXT) FROM movement").await;
    let amount = |order: &String, kind: &str| moved.get(&(order.clone(), kind.to_owned())).map(|amounts| amounts[0]);
    let mut sold = 0;
    for (order, end) in ends {
        let (reserved, released) = (amount(order, "reserved"), amount(order, "released"));
        match end.as_str() {
            "approved" => {
                assert_eq!((reserved, released), (Some(1), None), "{order}");
                sold += 1;
            }
            _ => assert_eq!(released, Some(reserved.unwrap_or(0)), "{order}: all is given back, once"),
        }
    }
    let there = shop.rows("stock", "SELECT CAST(available AS TEXT), '', '' FROM stock").await;
    assert_eq!(there[0].0, (1_000_000 - sold).to_string());
}

async fn money_adds_up(shop: &Shop, ends: &BTreeMap<String, String>) {
    let moved = movements(shop, "payment", "SELECT order_id, kind, CAST(cents AS TEXT) FROM movement").await;
    let amount = |order: &String, kind: &str| moved.get(&(order.clone(), kind.to_owned())).map(|amounts| amounts[0]);
    let mut taken = 0;
    for (order, end) in ends {
        let (charged, declined, refunded) =
            (amount(order, "charged"), amount(order, "declined"), amount(order, "refunded"));
        match (end.as_str(), charged.or(declined)) {
            ("approved", _) => {
                assert_eq!((charged, refunded), (Some(1_999), None), "{order}");
                taken += 1_999;
            }
            (_, Some(_)) => assert_eq!(refunded, Some(charged.unwrap_or(0)), "{order}: all is given back, once"),
            (_, None) => assert_eq!(refunded, None, "{order}: payment was never asked"),
        }
    }
    let there = shop.rows("payment", "SELECT CAST(SUM(cents) AS TEXT), '', '' FROM account").await;
    assert_eq!(there[0].0, (100_000_000 - taken).to_string());
}

async fn each_customer_is_told_once(shop: &Shop, ends: &BTreeMap<String, String>) {
    let told = shop.rows("notification", "SELECT order_id, text, '' FROM notice").await;
    assert_eq!(told.len(), ends.len());
    let told: BTreeMap<String, String> = told.into_iter().map(|(order, text, _)| (order, text)).collect();
    for (order, end) in ends {
        assert!(told.get(order).is_some_and(|text| text.starts_with(end)), "{order} {end}: {:?}", told.get(order));
    }
}

/// From an order's number all is found: messages, attempts, receipts, log lines, in all services.
async fn everything_is_found(shop: &Shop, number: usize) {
    let id = format!("order-{number}");
    let order = shop.customers().order(number).await;
    the_flow_is_shown(shop, &order).await;
    let history = order["history"].as_array().expect("a history");
    assert_eq!(history[0]["event_type"], "order.placed");
    let placed = history[0]["event_id"].as_str().expect("an id").to_owned();

    let mut messages = BTreeMap::new();
    for service in SERVICES {
        const MESSAGES: &str = "SELECT correlation_id, message_id || ' ' || causation_id || ' ' || traceparent,
            CAST((SELECT COUNT(*) FROM countersign_attempt WHERE message = countersign_outbox.id) AS TEXT)
            FROM countersign_outbox";
        for (belongs_to, names, attempts) in shop.rows(service, MESSAGES).await {
            if belongs_to == id {
                let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
                assert_ne!(attempts, "0", "every message was tried: {names:?}");
                messages.insert(names[0].clone(), (names[1].clone(), names[2].clone()));
            }
        }
    }
    for service in SERVICES {
        everything_is_listed(shop, service, &id, &messages).await;
    }
    let mut receipts = BTreeSet::new();
    for service in SERVICES {
        let found = shop.rows(service, "SELECT \"key\", consumer, state FROM countersign_inbox").await;
        let handled: Vec<String> =
            found.into_iter().map(|(key, ..)| key).filter(|key| messages.contains_key(key)).collect();
        let log = shop.log(service);
        let belongs = |span: &Value| span["correlation_id"] == *id;
        let has_logged = log.iter().any(|line| line["spans"].as_array().is_some_and(|spans| spans.iter().any(belongs)));
        assert_eq!(has_logged, !handled.is_empty(), "{service} has logged what it did for {id}");
        receipts.extend(handled);
    }
    assert!(messages.len() >= 4, "{messages:?}");
    for (message, (cause, trace)) in &messages {
        assert!(receipts.contains(message), "{message} has a receipt");
        assert!(*cause == placed || messages.contains_key(cause), "{message} leads back to where it began");
        assert_eq!(*trace, trace_of(number), "{message} is in the trace of its order");
    }
    for step in history {
        let event = step["event_id"].as_str().expect("an id");
        assert!(event == placed || messages.contains_key(event), "{event} is one of its messages");
        for sent in step["sent"].as_array().expect("what was sent") {
            assert!(messages.contains_key(sent["id"].as_str().expect("an id")), "{sent}");
        }
    }
}

/// The program finds the same: what a service has sent of an order, and what it has received.
async fn everything_is_listed(shop: &Shop, service: &str, id: &str, messages: &BTreeMap<String, (String, String)>) {
    let listed = async |list: &'static str, field: &str| {
        let store = shop.store(service);
        let found = run(&[list, "list", "--json", "--correlation-id", id, "--store", &store]).await.exits(0).json();
        let found = found.as_array().expect("an array").iter().map(|one| one[field].as_str().expect("text").to_owned());
        found.collect::<BTreeSet<String>>()
    };
    for (list, field, sql) in [
        ("outbox", "id", "SELECT message_id, '', '' FROM countersign_outbox"),
        ("inbox", "key", "SELECT \"key\", '', '' FROM countersign_inbox"),
    ] {
        let there = shop.rows(service, sql).await.into_iter().map(|(id, ..)| id);
        let expected: BTreeSet<String> = there.filter(|id| messages.contains_key(id)).collect();
        assert_eq!(listed(list, field).await, expected, "{service} {list}");
    }
}

/// The program shows a flow as its service does, with what became of each message.
async fn the_flow_is_shown(shop: &Shop, order: &Value) {
    let id = order["order"]["instance"].as_str().expect("an id");
    let shown = run(&["saga", "show", "order", id, "--json", "--store", &shop.store("orders")]).await.exits(0).json();
    assert_eq!(
        (&shown["saga"], &shown["instance"], &shown["step"]),
        (&"order".into(), &id.into(), &order["order"]["step"])
    );
    let (ours, theirs) = (shown["history"].as_array().expect("it"), order["history"].as_array().expect("it"));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!((&ours["event_id"], &ours["answer"]), (&theirs["event_id"], &theirs["answer"]));
        for sent in ours["sent"].as_array().expect("what was sent") {
            let deliveries = sent["deliveries"].as_array().expect("what became of it");
            assert!(!deliveries.is_empty() && deliveries.iter().all(|one| one["state"] == "succeeded"), "{sent}");
        }
    }
    let page = run(&["saga", "show", "order", id, "--store", &shop.store("orders")]).await.exits(0).text();
    assert!(page.contains("order.placed") && page.contains("succeeded"), "{page}");
}

/// All have ended, so that none is stuck; and where their age is reached, nobody knows them any more.
async fn the_flows_are_purged(shop: &Shop, orders: usize) {
    let store = shop.store("orders");
    let open = run(&["saga", "list", "--json", "--store", &store]).await.exits(0).json();
    assert_eq!(open, serde_json::json!([]));
    let purge = ["purge", "--json", "--store", &store];
    assert_eq!(run(&purge).await.exits(0).json()["sagas"], 0, "they are kept unless somebody says for how long");
    let purged = run(&[&purge[..], &["--keep-sagas", "0"]].concat()).await.exits(0).json();
    assert_eq!(purged["sagas"], orders);
    let gone = run(&["saga", "show", "order", "order-0", "--store", &store]).await;
    gone.exits(1).says("`countersign saga list`");
}

/// On another thread than the one that serves.
async fn run(args: &[&str]) -> Ended {
    let program = countersign(args.iter().copied());
    tokio::task::spawn_blocking(move || program.run()).await.expect("no panic")
}
