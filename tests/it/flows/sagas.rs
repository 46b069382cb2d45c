//! What every database promises to a saga.

use std::time::Duration;

use countersign::Timestamp;
use countersign::receive::Outcome;
use countersign::saga::{self, SagaError};
use countersign::store::{
    AttemptReport, ClaimMessages, Fate, MessageFilter, SagaConnection as _, SagaKey, Settled, Settlement, StepAnswer,
    StoreError,
};
use tokio::task::JoinSet;

use super::{Jar, Place, Pool, event, in_each_database, name, transaction};

/// Puts a coin into a jar; whether that is committed is the caller's choice.
async fn put(place: &Place, id: &str, says: &str, commits: bool) -> Result<(), SagaError> {
    let coin = event(id, "jar-1", says);
    transaction!(&place.pool, |connection| {
        let advanced = saga::advance::<Jar, _>(connection, &coin).await.map(drop);
        (commits && advanced.is_ok(), advanced)
    })
}

async fn jar(place: &Place) -> Option<saga::Instance<Jar>> {
    transaction!(&place.pool, |connection| {
        (false, saga::find::<Jar, _>(connection, "jar-1").await.expect("the database answers"))
    })
}

async fn messages(place: &Place) -> usize {
    place.outbox.list_messages(MessageFilter::default()).await.expect("the store answers").len()
}

#[tokio::test]
async fn a_move_its_history_and_what_it_sends_are_one_commit() {
    in_each_database(|place| async move {
        put(&place, "evt_1", "coin", false).await.expect("it moves");
        assert!(jar(&place).await.is_none(), "it was rolled back");
        assert_eq!(messages(&place).await, 0);

        put(&place, "evt_1", "coin", true).await.expect("it moves");
        put(&place, "evt_2", "coin", true).await.expect("it moves");
        let jar = jar(&place).await.expect("it is there");
        assert_eq!((jar.state, jar.entry.version), (Some(Jar { coins: 2, full: false }), 2));
        assert_eq!((jar.entry.step, jar.entry.ended), (Some(name("filling")), None));
        assert_eq!(messages(&place).await, 2);
        let [first, second] = &jar.steps[..] else { panic!("two steps: {:?}", jar.steps) };
        assert_eq!((first.number, first.from.as_ref(), first.to.as_ref()), (1, None, Some(&name("filling"))));
        assert_eq!((second.event_id.as_str(), second.answer), ("evt_2", StepAnswer::Moved));
        assert!(second.at >= first.at);

        let sent = &second.sent[0];
        let mut filter = MessageFilter::default();
        filter.id = Some(sent.id.clone());
        let listed = place.outbox.list_messages(filter).await.expect("the store answers");
        let message = &listed[0].message;
        assert_eq!((&message.event_type, message.causation_id.as_ref()), (&sent.event_type, Some(&name("evt_2"))));
        assert_eq!(
            (message.correlation_id.as_ref(), message.ordering_key.as_ref()),
            (Some(&name("jar-1")), Some(&name("jar-1")))
        );
    })
    .await;
}

#[tokio::test]
async fn early_late_and_senseless_events_get_their_declared_answers() {
    in_each_database(|place| async move {
        let refused = put(&place, "evt_0", "button", true).await.expect_err("a button");
        assert!(matches!(refused, SagaError::Refused(reason) if reason == "it is a button"));
        assert!(jar(&place).await.is_none());

        put(&place, "evt_1", "lid", true).await.expect("it is deferred");
        let waiting = jar(&place).await.expect("it is there");
        assert_eq!((waiting.state, waiting.deferred.len(), waiting.entry.step), (None, 1, None));

        put(&place, "evt_2", "coin", true).await.expect("it moves");
        put(&place, "evt_3", "coin", true).await.expect("it is ignored");
        let full = jar(&place).await.expect("it is there");
        assert_eq!((full.state, full.deferred.len()), (Some(Jar { coins: 1, full: true }), 0));
        let answers: Vec<_> = full.steps.iter().map(|step| (step.event_id.as_str(), step.answer)).collect();
        let expected = [
            ("evt_1", StepAnswer::Deferred),
            ("evt_2", StepAnswer::Moved),
            ("evt_1", StepAnswer::Moved),
            ("evt_3", StepAnswer::Ignored),
        ];
        assert_eq!(answers, expected);
        assert_eq!(full.steps[3].reason.as_deref(), Some("it is full"));
        assert!(full.entry.ended.is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_at_once_move_an_instance_one_after_the_other() {
    const COINS: u32 = 12;
    in_each_database(|place| async move {
        let mut putting = JoinSet::new();
        for coin in 0..COINS {
            let place = place.clone();
            putting.spawn(async move {
                // Whoever comes second is sent away, and comes again.
                for _ in 0..100 {
                    match put(&place, &format!("evt_{coin}"), "coin", true).await {
                        Ok(()) => return,
                        Err(SagaError::Conflict | SagaError::Store(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                panic!("a coin never got in");
            });
        }
        putting.join_all().await;
        let jar = jar(&place).await.expect("it is there");
        assert_eq!(jar.state, Some(Jar { coins: COINS, full: false }));
        let numbers: Vec<u64> = jar.steps.iter().map(|step| step.number).collect();
        assert_eq!(numbers, (1..=u64::from(COINS)).collect::<Vec<_>>());
        assert_eq!(messages(&place).await, usize::try_from(COINS).expect("few"));
    })
    .await;
}

/// On servers: a file has one writer at a time.
#[tokio::test]
async fn instances_that_begin_at_once_do_not_wait_for_each_other() {
    in_each_database(|place| async move {
        if matches!(place.pool, Pool::Sqlite(_)) {
            return;
        }
        let both = transaction!(&place.pool, |connection| {
            let first = saga::advance::<Jar, _>(connection, &event("evt_1", "jar-1", "lid")).await;
            let second = transaction!(&place.pool, |beside| {
                let lid = event("evt_2", "jar-2", "lid");
                let second = saga::advance::<Jar, _>(beside, &lid);
                let second = tokio::time::timeout(Duration::from_secs(3), second).await;
                (matches!(second, Ok(Ok(_))), second)
            });
            (first.is_ok(), (first, second))
        });
        assert!(matches!(both, (Ok(Some(_)), Ok(Ok(Some(_))))), "{both:?}");
    })
    .await;
}

#[tokio::test]
async fn what_is_stuck_is_listed_and_what_has_ended_is_purged() {
    in_each_database(|place| async move {
        put(&place, "evt_1", "coin", true).await.expect("it moves");
        let moved = jar(&place).await.expect("it is there").entry.moved;
        let later = moved.saturating_add(Duration::from_secs(60));
        let open = |since: Timestamp| {
            let place = place.clone();
            async move {
                transaction!(&place.pool, |connection| {
                    (false, connection.open_sagas(&name("jar"), since, 10).await.expect("a list").len())
                })
            }
        };
        let purge = || {
            let place = place.clone();
            async move {
                transaction!(&place.pool, |connection| {
                    (true, connection.purge_sagas(later, 10).await.expect("a purge"))
                })
            }
        };
        assert_eq!((open(moved).await, open(moved.saturating_sub(Duration::from_secs(1))).await), (1, 0));
        assert_eq!(purge().await, 0, "it has not ended");

        put(&place, "evt_2", "lid", true).await.expect("it ends");
        assert_eq!(open(later).await, 0);
        assert_eq!(purge().await, 1);
        assert!(jar(&place).await.is_none());
        put(&place, "evt_3", "coin", true).await.expect("it begins anew");
        assert_eq!(jar(&place).await.expect("it is there").steps.len(), 1, "the history was purged too");
    })
    .await;
}

/// What operators ask a store is what stands in its database.
#[tokio::test]
async fn a_store_shows_what_is_stuck_in_any_of_its_sagas_and_purges_what_has_ended() {
    in_each_database(|place| async move {
        let open = async |saga: Option<&str>, since| {
            let open = place.sagas.open_sagas(saga.map(name), since, 10).await.expect("a list");
            open.into_iter().map(|entry| entry.key.instance.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(open(None, Timestamp::from_micros(i64::MAX)).await, Vec::<String>::new());
        for (id, instance) in [("evt_1", "jar-1"), ("evt_2", "jar-2")] {
            transaction!(&place.pool, |connection| {
                let moved = saga::advance::<Jar, _>(connection, &event(id, instance, "coin")).await;
                (true, moved.expect("it moves"))
            });
        }
        let key = SagaKey { saga: name("jar"), instance: name("jar-1") };
        let entry = place.sagas.find_saga(key.clone()).await.expect("an answer").expect("it is there");
        let later = entry.moved.saturating_add(Duration::from_secs(60));
        assert_eq!(open(None, later).await, ["jar-1", "jar-2"], "the one that has stood still for longest first");
        assert_eq!(open(Some("jar"), later).await, ["jar-1", "jar-2"]);
        assert_eq!(open(Some("Jar"), later).await, Vec::<String>::new());
        assert_eq!(open(None, entry.moved.saturating_sub(Duration::from_secs(1))).await, Vec::<String>::new());
        assert_eq!(place.sagas.open_sagas(None, later, 1).await.expect("a list").len(), 1);
        let steps = place.sagas.saga_steps(key.clone()).await.expect("a history");
        assert_eq!((steps.len(), steps[0].event_id.as_str()), (1, "evt_1"));

        put(&place, "evt_3", "lid", true).await.expect("it ends");
        assert_eq!(open(None, later).await, ["jar-2"]);
        assert_eq!(place.sagas.purge_sagas(later, 10).await.expect("a purge"), 1);
        assert_eq!(place.sagas.find_saga(key.clone()).await.expect("an answer"), None);
        assert_eq!(place.sagas.saga_steps(key).await.expect("a history"), []);
    })
    .await;
}

#[tokio::test]
async fn what_a_late_event_takes_up_again_while_it_is_purged_is_kept_with_its_history() {
    in_each_database(|place| async move {
        // A file has one writer at a time.
        if matches!(place.pool, Pool::Sqlite(_)) {
            return;
        }
        put(&place, "evt_1", "coin", true).await.expect("it moves");
        put(&place, "evt_2", "lid", true).await.expect("it ends");
        let later = jar(&place).await.expect("it is there").entry.moved.saturating_add(Duration::from_secs(60));
        let purging = transaction!(&place.pool, |connection| {
            let hammer = event("evt_3", "jar-1", "hammer");
            let moved = saga::advance::<Jar, _>(connection, &hammer).await.expect("it moves").expect("it is there");
            assert_eq!(moved.ended, None);
            let beside = place.clone();
            let purging = tokio::spawn(async move {
                transaction!(&beside.pool, |connection| { (true, connection.purge_sagas(later, 10).await) })
            });
            // It has found the instance as it was, and waits for it.
            tokio::time::sleep(Duration::from_millis(300)).await;
            (true, purging)
        });
        let purged = purging.await.expect("it ends");
        assert!(matches!(purged, Ok(0)), "{purged:?}");
        assert_eq!(jar(&place).await.expect("it is there").steps.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn what_a_move_sends_to_one_endpoint_leaves_in_the_order_in_which_it_says_it() {
    in_each_database(|place| async move {
        put(&place, "evt_1", "purse", true).await.expect("it moves");
        let jar = jar(&place).await.expect("it is there");
        let said: Vec<_> = jar.steps[0].sent.iter().map(|sent| sent.id.clone()).collect();
        let mut leaves = Vec::new();
        let claim = ClaimMessages::new(1, Duration::from_secs(60));
        while let [claimed] = &place.outbox.claim_messages(claim.clone()).await.expect("the store answers").messages[..]
        {
            leaves.push(claimed.lease.key.id.clone());
            let settlement = Settlement::new(Fate::Delivered, AttemptReport::default());
            let settled = place.outbox.settle(claimed.lease.clone(), settlement).await.expect("the store answers");
            assert_eq!(settled, Settled::Done);
        }
        assert_eq!(leaves, said);
    })
    .await;
}

#[tokio::test]
async fn an_instance_whose_name_no_header_can_hold_goes_its_way() {
    in_each_database(|place| async move {
        let coin = event("evt_é", "glas-é", "coin");
        let moved = transaction!(&place.pool, |connection| {
            (true, saga::advance::<Jar, _>(connection, &coin).await.expect("it moves"))
        });
        assert_eq!(moved.expect("it is there").version, 1);
        let listed = place.outbox.list_messages(MessageFilter::default()).await.expect("the store answers");
        let message = &listed[0].message;
        assert_eq!((message.correlation_id.as_ref(), message.causation_id.as_ref()), (None, None));
        assert_eq!(message.ordering_key, Some(name("glas-é")));
    })
    .await;
}

#[tokio::test]
async fn what_no_run_can_mend_is_a_dead_letter_at_once() {
    in_each_database(|place| async move {
        let nameless = event("evt_1", "", "coin");
        let refused = transaction!(&place.pool, |connection| {
            (false, saga::advance::<Jar, _>(connection, &nameless).await.expect_err("it has no name"))
        });
        let outcome = Outcome::from(refused);
        assert!(matches!(&outcome, Outcome::Permanent(reason) if reason.contains("instance")), "{outcome:?}");
        let lost = SagaError::Store(StoreError::Rejected("too long".into()));
        assert!(matches!(Outcome::from(lost), Outcome::Permanent(_)));
        assert!(matches!(Outcome::from(SagaError::Conflict), Outcome::Transient(_)));
    })
    .await;
}
