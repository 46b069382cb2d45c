//! A trip of three bookings, each of which can be undone, without any database.

use super::*;
use crate::envelope::{Contract, ContractError};
use crate::store::SagaKey;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Trip {
    booked: u32,
    over: bool,
}

#[derive(Serialize, Deserialize)]
struct Said(String);

impl Contract for Said {
    const TYPE: &'static str = "trip.said";
}

#[derive(Serialize, Deserialize)]
struct Book(u32);

impl Contract for Book {
    const TYPE: &'static str = "trip.book";
}

#[derive(Serialize, Deserialize)]
struct Cancel(u32);

impl Contract for Cancel {
    const TYPE: &'static str = "trip.cancel";
}

impl Saga for Trip {
    const NAME: &'static str = "trip";
    type Event = Said;

    fn read(event: &Envelope) -> Result<Said, ContractError> {
        Ok(event.read()?.data)
    }

    fn instance(_: &Said) -> &str {
        "7"
    }

    fn step(&self) -> &'static str {
        if self.over { "over" } else { "booking" }
    }

    fn decide(state: Option<&Self>, event: &Said) -> Decision<Self> {
        let book = |number| {
            let step = Move::to(Self { booked: number, over: false });
            step.send("agency", &Book(number)).undo_with("agency", &Cancel(number)).into()
        };
        match (state, event.0.as_str()) {
            (_, "nonsense") => Decision::refuse("it is nonsense"),
            (None, "begin") => book(1),
            (None, "late") => Decision::ignore("there is no such trip"),
            (None, _) => Decision::defer("it has not begun"),
            (Some(_), "begin") => Decision::ignore("it has begun"),
            (Some(trip), _) if trip.over => Decision::ignore("it is over"),
            (Some(trip), "next") if trip.booked < 3 => book(trip.booked + 1),
            (Some(trip), "end") if trip.booked < 3 => Decision::defer("not all is booked"),
            (Some(trip), "end") => Move::to(Self { over: true, ..*trip }).settle().end().into(),
            (Some(trip), _) => Move::to(Self { over: true, ..*trip }).undo().end().into(),
        }
    }
}

struct Instance {
    progress: Progress<Trip>,
    ids: u32,
}

impl Instance {
    fn new() -> Self {
        let name = |text| Name::new(text).expect("a name");
        let entry = SagaEntry::new(SagaKey { saga: name("trip"), instance: name("7") }, Timestamp::default());
        Self { progress: Progress::of(entry).expect("a new one"), ids: 0 }
    }

    fn say(&mut self, text: &str) -> Result<(), SagaError> {
        self.ids += 1;
        let event = serde_json::json!({ "id": format!("evt_{}", self.ids), "type": "trip.said", "schema_version": 1,
            "occurred_at": "2026-01-31T12:00:00Z", "data": text });
        let envelope = Envelope::from_json(event.to_string().as_bytes()).expect("an envelope");
        let mut count = self.progress.outbox.len();
        let mut new_id = || {
            count += 1;
            Ok(EventId::new(&format!("msg_{count}")).expect("an id"))
        };
        let mut now = Now { at: Timestamp::from_micros(self.ids.into()), new_id: &mut new_id };
        let event = Trip::read(&envelope).expect("an event");
        self.progress.answer(&envelope, &event, &mut now)
    }

    fn said(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.say(text).expect("an answer"));
    }

    fn sent(&self) -> Vec<String> {
        let sent = self.progress.outbox.iter();
        sent.map(|sending| format!("{} {}", sending.envelope.event_type, sending.envelope.data.get())).collect()
    }

    fn answers(&self) -> Vec<&'static str> {
        self.progress.steps.iter().map(|step| step.answer.as_str()).collect()
    }
}

#[test]
fn what_was_done_is_undone_from_the_last_to_the_first_and_once() {
    let mut trip = Instance::new();
    trip.said(&["begin", "next", "fail", "fail"]);
    assert_eq!(trip.sent(), ["trip.book 1", "trip.book 2", "trip.cancel 2", "trip.cancel 1"]);
    assert_eq!(trip.answers(), ["moved", "moved", "moved", "ignored"]);
    assert!(trip.progress.body.undo.is_empty());
    assert_eq!(trip.progress.entry.ended, Some(Timestamp::from_micros(3)));
}

#[test]
fn what_is_settled_is_not_undone() {
    let mut trip = Instance::new();
    trip.said(&["begin", "next", "next", "end"]);
    assert_eq!(trip.sent(), ["trip.book 1", "trip.book 2", "trip.book 3"]);
    assert!(trip.progress.body.undo.is_empty());
}

#[test]
fn what_comes_too_early_is_taken_up_when_its_time_has_come() {
    let mut trip = Instance::new();
    trip.said(&["end", "next", "begin"]);
    assert_eq!(trip.answers(), ["deferred", "deferred", "moved", "moved"], "`end` waits on");
    trip.said(&["next"]);
    assert_eq!(trip.answers()[4..], ["moved", "moved"]);
    assert_eq!(trip.progress.body.state, Some(Trip { booked: 3, over: true }));
    assert!(trip.progress.body.deferred.is_empty());
    let numbers: Vec<u64> = trip.progress.steps.iter().map(|step| step.number).collect();
    assert_eq!((numbers, trip.progress.entry.version), (vec![1, 2, 3, 4, 5, 6], 6));
}

#[test]
fn what_is_refused_or_unheard_of_leaves_nothing_behind() {
    let mut trip = Instance::new();
    assert!(matches!(trip.say("nonsense"), Err(SagaError::Refused(reason)) if reason == "it is nonsense"));
    trip.said(&["late"]);
    assert_eq!((trip.progress.entry.version, trip.answers().len()), (0, 0));
}

#[test]
fn an_instance_keeps_so_many_early_events_and_no_more() {
    let mut trip = Instance::new();
    trip.said(&["next"; MOST_DEFERRED]);
    assert!(matches!(trip.say("next"), Err(SagaError::DeferredTooMany)));
    trip.said(&["begin"]);
    assert_eq!(trip.progress.body.state, Some(Trip { booked: 3, over: true }), "the fourth one was one too many");
    assert!(trip.progress.body.deferred.is_empty());
}

#[test]
fn what_is_sent_names_its_cause_and_keeps_the_order_of_its_instance() {
    let mut trip = Instance::new();
    trip.said(&["begin"]);
    let Sending { to, envelope, .. } = &trip.progress.outbox[0];
    let name = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
    assert_eq!(name(to).as_deref(), Some("agency"));
    assert_eq!(name(&envelope.causation_id).as_deref(), Some("evt_1"));
    assert_eq!(name(&envelope.correlation_id).as_deref(), Some("7"));
    assert_eq!(name(&envelope.ordering_key).as_deref(), Some("7"));
    let later = Move::to(Trip { booked: 0, over: false }).later(Duration::from_secs(1), "agency", &Cancel(1));
    assert!(matches!(&later.acts[..], [Act::Send(command)] if command.delay == Duration::from_secs(1)));
}

#[test]
fn a_state_reads_back_with_what_undoes_it_and_what_waits() {
    let mut trip = Instance::new();
    trip.said(&["begin", "end"]);
    let mut entry = trip.progress.entry.clone();
    entry.body = serde_json::to_string(&trip.progress.body).expect("text");
    let again = Progress::<Trip>::of(entry.clone()).expect("it reads back");
    assert_eq!((again.body.undo.len(), again.body.deferred.len()), (1, 1));
    entry.body = r#"{"state":{"card":"4111"}}"#.to_owned();
    let Err(error) = Progress::<Trip>::of(entry) else { panic!("that is none") };
    assert!(!error.to_string().contains("4111"), "{error}");
}
