//! What cannot work is refused when it is built.

use std::time::Duration;

use countersign::ConfigError;
use countersign::receive::{DedupLayer, DedupLayerBuilder, ReceiveLayer, VerifyLayer};
use countersign::signature::{Keyring, ReplayWindow, Scheme, Verifier};
use countersign::store::{MemoryStore, Retention};
use countersign::{SystemClock, Timestamp};
use http::{HeaderName, StatusCode};

use super::support::{SECRET, Server, TEXT_SECRET, standard, verifier, verify};

#[test]
fn c022_no_scheme_takes_an_empty_secret() {
    for scheme in Scheme::all() {
        for secret in ["", "   ", "\n", "\t\r\n"] {
            assert!(scheme.parse_secret(secret).is_err(), "{} took {secret:?}", scheme.name());
        }
    }
}

#[test]
fn c023_without_a_live_secret_there_is_no_verifier_and_so_no_layer() {
    assert_eq!(Keyring::from_secrets([]).err(), Some(ConfigError::NoLiveSecret));
    let secret = || Scheme::standard().parse_secret(SECRET).expect("a secret");
    let past = Timestamp::from_unix_seconds(1_700_000_000).expect("in range");
    let expired = Keyring::new(secret()).with_current_until(past).with_previous_until(secret(), past);
    assert_eq!(Verifier::new(Scheme::standard(), expired).err(), Some(ConfigError::NoLiveSecret));
}

#[tokio::test]
async fn c023_a_secret_that_expires_later_is_refused_from_then_on() {
    use countersign::Clock as _;
    let secret = Scheme::standard().parse_secret(SECRET).expect("a secret");
    let soon = SystemClock.now().saturating_add(Duration::from_secs(60));
    let clock = std::sync::Arc::new(countersign::clock::ManualClock::new(SystemClock.now()));
    let verifier = Verifier::new(Scheme::standard(), Keyring::new(secret).with_current_until(soon))
        .expect("a verifier")
        .with_clock(std::sync::Arc::clone(&clock));
    let store = std::sync::Arc::new(MemoryStore::new());
    let app = axum::Router::new().route("/", axum::routing::post(async || "done"));
    let server =
        Server::with(app, VerifyLayer::builder("test", verifier), DedupLayer::builder(store.clone()), store).await;
    assert_eq!(server.post(standard("evt_1", b"{}"), "{}").await.status, StatusCode::OK);
    clock.advance(Duration::from_secs(61));
    assert_eq!(server.post(standard("evt_2", b"{}"), "{}").await.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn c050_keys_are_kept_for_as_long_as_a_request_can_be_replayed() {
    let receiver = |verifier: Verifier, keys: u64| {
        let retention = Retention { keys: Duration::from_secs(keys), ..Retention::default() };
        let verify = VerifyLayer::new("test", verifier).expect("a layer");
        ReceiveLayer::new(verify, dedup().retention(retention).build().expect("a layer"))
    };
    let standard = || verifier(Scheme::standard(), SECRET);
    assert!(matches!(receiver(standard(), 60), Err(ConfigError::WindowExceedsRetention { .. })));
    assert!(matches!(receiver(standard(), 600), Err(ConfigError::WindowExceedsRetention { .. })));
    assert!(receiver(standard(), 601).is_ok());
    let wide = standard().with_window(ReplayWindow::new(Duration::from_secs(86_400), Duration::from_secs(60)));
    assert!(matches!(receiver(wide, 86_400), Err(ConfigError::WindowExceedsRetention { .. })));
    // No timestamp, no window: protection lasts for as long as the table remembers, so that has to be long.
    let github = || verifier(Scheme::github(), TEXT_SECRET);
    assert!(matches!(receiver(github(), 86_399), Err(ConfigError::TooShort { .. })));
    assert!(receiver(github(), 86_400).is_ok());
    assert!(
        ReceiveLayer::new(verify(Scheme::github()).build().expect("a layer"), dedup().build().expect("a layer"))
            .is_ok()
    );
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let error = |builder: DedupLayerBuilder| builder.build().expect_err("a refusal");
    assert!(matches!(error(dedup().lease(Duration::from_millis(999))), ConfigError::TooShort { what: "lease", .. }));
    assert!(matches!(error(dedup().handler_timeout(Duration::ZERO)), ConfigError::TooShort { .. }));
    assert_eq!(error(dedup().max_attempts(0)), ConfigError::NoAttempts);
    for status in [StatusCode::OK, StatusCode::FOUND] {
        assert_eq!(error(dedup().in_flight_status(status)), ConfigError::InFlightStatus);
    }
    for name in ["set-cookie", "date", "connection", "transfer-encoding", "content-length"] {
        let name = HeaderName::from_static(name);
        assert!(matches!(error(dedup().result_headers([name])), ConfigError::ResultHeader(_)));
    }
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert!(matches!(error(dedup().consumer(name)), ConfigError::Name { what: "consumer", .. }));
    }
}

fn dedup() -> DedupLayerBuilder {
    DedupLayer::builder(MemoryStore::new())
}
