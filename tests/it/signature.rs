//! How requests go wrong, at the level of one signature.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use countersign::clock::ManualClock;
use countersign::signature::{
    Head, IdOrigin, Keyring, Message, RepeatedId, ReplayWindow, Scheme, SignError, Signer, Verified, Verifier,
    VerifyError,
};
use countersign::{ConfigError, DedupKey, Digest, EventId, Secret, Timestamp};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

const NOW: i64 = 1_700_000_000;
const BODY: &[u8] = br#"{"id":"evt_1","event_id":"Ev1","amount":12}"#;
const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_WHSEC: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

#[test]
fn c004_c005_bodies_are_bytes_and_may_be_empty() {
    for scheme in schemes() {
        for body in [&b""[..], b"{\"a\":\"\xff\"}", b"\0"] {
            let request = Request::signed(&scheme, body);
            assert!(request.verify().is_ok(), "{} {body:?}", scheme.name());
            assert_eq!(request.with_body(b"other").reason(), "mismatch", "{}", scheme.name());
        }
    }
}

#[test]
fn c014_a_mismatch_says_how_many_secrets_were_tried_and_shows_none() {
    let scheme = Scheme::standard();
    let keyring = Keyring::new(secret(&scheme)).with_previous(scheme.parse_secret(OLD_WHSEC).expect("a secret"));
    let verifier = Verifier::new(scheme.clone(), keyring).expect("a verifier");
    let request = Request::signed(&scheme, BODY).with_body(b"{}");
    let refused = request.verify_with(&verifier).expect_err("another body");
    assert_eq!(refused, VerifyError::Mismatch { tried: 2 });
    assert!(refused.to_string().contains("2 secret(s) tried"));
    assert!(!format!("{verifier:?}").contains("MfKQ"));
}

#[test]
fn c016_only_what_is_signed_is_covered() {
    let github = Request::signed(&Scheme::github(), BODY).set("x-github-event", "push");
    assert!(github.clone().set("x-github-event", "ping").verify().is_ok());
    let relabelled = github.set("x-github-delivery", "another").verify().expect("a signed body");
    assert_eq!(relabelled.id_origin(), IdOrigin::Unsigned);

    let envelope = Request::signed(&Scheme::envelope(), BODY);
    for (name, value) in [("webhook-type", "order.refunded"), ("content-type", "text/plain"), ("webhook-id", "msg_2")] {
        assert_eq!(envelope.clone().set(name, value).reason(), "mismatch", "{name}");
    }
    for name in ["webhook-type", "content-type"] {
        assert_eq!(envelope.clone().without(name).reason(), "mismatch", "without {name}");
        assert_eq!(envelope.clone().set(name, "").reason(), "mismatch", "empty {name}");
    }
}

#[test]
fn c021_c022_the_signature_of_the_empty_key_never_passes() {
    // `v1,` and HMAC-SHA256 with no key, over `msg_1.1700000000.{"a":1}`.
    let request = Request::signed(&Scheme::standard(), br#"{"a":1}"#)
        .set("webhook-signature", "v1,HA9nSvEEuynF+mEPWgOAUWbrVA21G6kMzfOt+yEvB3I=");
    assert_eq!(request.reason(), "mismatch");
    for text in ["whsec_", "", "   ", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        assert!(Scheme::standard().parse_secret(text).is_err(), "{text:?}");
    }
}

#[test]
fn c023_a_verifier_or_signer_without_a_live_secret_cannot_be_built() {
    for scheme in schemes() {
        let expired = Keyring::new(secret(&scheme)).with_current_until(at(1));
        let verifier = Verifier::new(scheme.clone(), expired.clone());
        assert_eq!(verifier.err(), Some(ConfigError::NoLiveSecret));
        assert_eq!(Signer::new(scheme, expired).err(), Some(ConfigError::NoLiveSecret));
    }
    assert_eq!(Keyring::from_secrets([]).err(), Some(ConfigError::NoLiveSecret));
}

#[test]
fn c023_a_secret_that_expires_later_stops_counting_then() {
    let scheme = Scheme::github();
    let expires = at(4_000_000_000);
    let clock = Arc::new(ManualClock::new(at(3_999_999_999)));
    let keyring = Keyring::new(secret(&scheme)).with_current_until(expires);
    let verifier = Verifier::new(scheme.clone(), keyring).expect("a live secret").with_clock(Arc::clone(&clock));
    let request = Request::signed(&scheme, BODY);
    assert!(verifier.verify(request.head(), BODY).is_ok());
    clock.set(expires);
    assert_eq!(verifier.verify(request.head(), BODY).err(), Some(VerifyError::Mismatch { tried: 0 }));
}

#[test]
fn c024_each_required_header_is_required_and_may_not_be_empty_or_twice() {
    for scheme in schemes() {
        let request = Request::signed(&scheme, BODY);
        for name in required(&scheme) {
            let name = name.as_str();
            let missing = request.clone().without(name);
            assert_eq!(missing.reason(), "missing_header", "{} without {name}", scheme.name());
            assert!(missing.begins().is_err(), "{} without {name} is refused before the body", scheme.name());
            let empty = request.clone().set(name, "");
            assert_eq!(empty.reason(), "malformed", "{} with empty {name}", scheme.name());
            assert!(empty.begins().is_err(), "{} with empty {name} is refused before the body", scheme.name());
            let value = request.value(name);
            for values in [["", &value], [&value, ""], [&value, &value]] {
                let twice = request.clone().set_all(name, &values);
                assert_eq!(twice.reason(), "duplicate_header", "{} with {name} {values:?}", scheme.name());
                assert!(twice.begins().is_err(), "{} with two {name} is refused before the body", scheme.name());
            }
        }
    }
}

#[test]
fn c024_an_unreadable_header_is_refused() {
    for scheme in schemes() {
        let request = Request::signed(&scheme, BODY);
        for name in required(&scheme) {
            let garbled = request.clone().set_bytes(name.as_str(), b"\xff\xfe");
            assert!(garbled.verify().is_err(), "{} {name}", scheme.name());
        }
    }
}

#[test]
fn c025_the_whole_whsec_text_is_a_key_for_stripe_and_not_for_standard() {
    let whole = Secret::from_bytes(WHSEC.as_bytes().to_vec()).expect("a secret");
    for (scheme, accepted) in [(Scheme::standard(), false), (Scheme::stripe(), true)] {
        let signer = Signer::new(scheme.clone(), Keyring::new(whole.clone())).expect("a signer");
        let headers = signer.sign(&message(BODY)).expect("headers");
        let verifier = Verifier::new(scheme.clone(), Keyring::new(scheme.parse_secret(WHSEC).expect("a secret")));
        let head = Head::new(&Method::POST, URL, &headers);
        let verified = verifier.expect("a verifier").verify_at(head, BODY, at(NOW));
        assert_eq!(verified.is_ok(), accepted, "{}", scheme.name());
    }
}

#[test]
fn c026_a_signature_has_one_spelling() {
    let request = Request::signed(&Scheme::standard(), BODY);
    let good = request.value("webhook-signature");
    assert!(good.ends_with('='));
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let last = good.as_bytes()[good.len() - 2];
    let place = alphabet.bytes().position(|byte| byte == last).expect("base64");
    let spare_bit = format!("{}{}=", &good[..good.len() - 2], &alphabet[place + 1..place + 2]);
    for text in [&good[..good.len() - 1], &spare_bit, &format!("{good}="), &good.replace("v1,", "v1, ")] {
        assert_eq!(request.clone().set("webhook-signature", text).reason(), "malformed", "{text}");
    }
}

#[test]
fn c028_ten_thousand_signatures_are_bounded_work() {
    let request = Request::signed(&Scheme::standard(), BODY);
    let good = request.value("webhook-signature");
    let wrong = format!("v1,{}=", "A".repeat(43));
    let many = request.clone().set("webhook-signature", &format!("{} {good}", [wrong.as_str(); 1_400].join(" ")));
    assert_eq!(many.reason(), "malformed");
    assert!(many.begins().is_err(), "before any hashing");
    let empty = request.clone().set("webhook-signature", &"v1, ".repeat(10_000));
    assert_eq!(empty.reason(), "malformed");
    let sixteen = [wrong.as_str(); 15].join(" ");
    assert!(request.clone().set("webhook-signature", &format!("{sixteen} {good}")).verify().is_ok());
    assert_eq!(request.set("webhook-signature", &format!("{sixteen} {good} {good}")).reason(), "malformed");
}

#[test]
fn c029_signatures_of_another_length_are_malformed() {
    let unpadded = format!("v1,{}", "A".repeat(44));
    assert_eq!(Request::signed(&Scheme::standard(), BODY).set("webhook-signature", &unpadded).reason(), "malformed");
    let request = Request::signed(&Scheme::github(), BODY);
    let good = request.value("x-hub-signature-256");
    for text in [&good[..good.len() - 1], &format!("{good}0"), &good[..good.len() - 2], &format!("{good}00"), "sha256="]
    {
        assert_eq!(request.clone().set("x-hub-signature-256", text).reason(), "malformed", "{text}");
    }
    let upper = format!("sha256={}", good["sha256=".len()..].to_uppercase());
    assert!(request.set("x-hub-signature-256", &upper).verify().is_ok());
}

#[test]
fn c031_a_timestamp_that_is_no_plain_number_is_malformed() {
    for (scheme, name) in [(Scheme::standard(), "webhook-timestamp"), (Scheme::slack(), "x-slack-request-timestamp")] {
        let request = Request::signed(&scheme, BODY);
        for text in ODD_NUMBERS {
            let refused = request.clone().set_bytes(name, text.as_bytes());
            assert_eq!(refused.reason(), "malformed", "{name} {text:?}");
        }
        assert_eq!(request.set(name, "9223372036854775807").reason(), "mismatch", "{name}");
    }
}

#[test]
fn c031_a_signature_header_of_stripe_is_read_whole_or_refused() {
    let request = Request::signed(&Scheme::stripe(), BODY);
    let good = request.value("stripe-signature");
    let signature = good.split_once(',').expect("two fields").1.to_owned();
    let with = |text: &str| request.clone().set_bytes("stripe-signature", text.as_bytes()).reason();
    for text in ["t", "t=", "=", ",,,", "t=1,t=2", "v1=", "t=1", "t=1,v1=", ",", "v1", "t=,v1="] {
        assert_eq!(with(text), "malformed", "{text}");
    }
    for number in ODD_NUMBERS {
        assert_eq!(with(&format!("t={number},{signature}")), "malformed", "{number:?}");
    }
    for text in [
        signature.clone(),
        format!("t={NOW},t={NOW},{signature}"),
        format!("t={NOW}, {signature}"),
        format!(" {good}"),
        format!("t={NOW},{}", signature.replace("v1=", "v0=")),
        format!("t={NOW},{}", signature.replace("v1=", "V1=")),
    ] {
        assert_eq!(with(&text), "malformed", "{text}");
    }
    for text in [format!("{good},"), format!("{signature},t={NOW}"), format!("x=1,{good},v2=abc,v1=short,v0=0,,t2")] {
        assert_eq!(with(&text), "valid", "{text}");
    }
    assert_eq!(with(&format!("t=9223372036854775807,{signature}")), "mismatch");
}

#[test]
fn c031_the_text_of_a_timestamp_is_signed_not_its_number() {
    let request = Request::signed(&Scheme::standard(), BODY);
    assert_eq!(request.set("webhook-timestamp", &format!("0{NOW}")).reason(), "mismatch");
}

#[test]
fn c032_two_headers_of_one_name_are_refused_in_either_order() {
    let request = Request::signed(&Scheme::standard(), BODY);
    let good = request.value("webhook-signature");
    let bad = format!("v1,{}=", "A".repeat(43));
    for values in [[bad.as_str(), &good], [&good, bad.as_str()]] {
        let refused = request.clone().set_all("webhook-signature", &values).verify().err();
        let name = HeaderName::from_static("webhook-signature");
        assert_eq!(refused, Some(VerifyError::DuplicateHeader(name)));
    }
    assert_eq!(request.clone().set_all("webhook-id", &["msg_1", "msg_2"]).reason(), "duplicate_header");
    let times = [NOW.to_string(), (NOW + 1).to_string()];
    assert_eq!(request.set_all("webhook-timestamp", &[&times[0], &times[1]]).reason(), "duplicate_header");
    let github = Request::signed(&Scheme::github(), BODY);
    assert_eq!(github.set_all("x-github-delivery", &["a", "b"]).reason(), "duplicate_header");
    let envelope = Request::signed(&Scheme::envelope(), BODY);
    for name in ["webhook-type", "content-type"] {
        assert_eq!(envelope.clone().set_all(name, &["a", "b"]).reason(), "duplicate_header", "{name}");
    }
}

#[test]
fn c035_header_families_are_never_mixed() {
    let scheme = Scheme::svix();
    let svix = Request::signed(&scheme, BODY);
    let renamed = |names: &[&str]| {
        names.iter().fold(svix.clone(), |request, name| {
            let value = request.value(&format!("svix-{name}"));
            request.without(&format!("svix-{name}")).set(&format!("webhook-{name}"), &value)
        })
    };
    assert_eq!(renamed(&["id", "timestamp", "signature"]).reason(), "valid");
    for names in [&["id"][..], &["timestamp"], &["signature"], &["id", "timestamp"], &["timestamp", "signature"]] {
        assert_eq!(renamed(names).reason(), "missing_header", "{names:?}");
    }
    let both = svix.clone().set("webhook-id", "msg_other").set("webhook-timestamp", "1").verify().expect("a signature");
    assert_eq!(both.event_id().map(|id| id.as_str()), Some("msg_1"));
    let standard = Request { scheme: Scheme::standard(), ..svix };
    assert_eq!(standard.reason(), "missing_header");
}

#[test]
fn c046_the_edges_of_the_window_are_inside() {
    for scheme in schemes().into_iter().filter(Scheme::signs_timestamp) {
        let request = Request::signed(&scheme, BODY);
        let name = scheme.name();
        for (seconds, expected) in [
            (300, "valid"),
            (301, "too_old"),
            (-300, "valid"),
            (-301, "too_new"),
            (-315_576_000, "too_new"),
            (299, "valid"),
        ] {
            let outcome = request.clone().verify_at(at(NOW + seconds));
            assert_eq!(reason(&outcome), expected, "{name} {seconds}");
        }
        let wrong = request.with_body(b"other").verify_at(at(NOW + 1_000));
        assert_eq!(reason(&wrong), "mismatch", "{name}: the time is judged last");
    }
}

#[test]
fn c046_the_window_can_be_narrowed_on_each_side() {
    let scheme = Scheme::standard();
    let window = ReplayWindow::new(Duration::from_secs(60), Duration::from_secs(5));
    let clock = Arc::new(ManualClock::new(at(NOW)));
    let verifier = verifier(&scheme).with_window(window).with_clock(Arc::clone(&clock));
    let request = Request::signed(&scheme, BODY);
    for (seconds, expected) in [(60, "valid"), (61, "too_old"), (-5, "valid"), (-6, "too_new")] {
        clock.set(at(NOW + seconds));
        assert_eq!(reason(&verifier.verify(request.head(), BODY)), expected, "{seconds}");
    }
    assert_eq!(verifier.window(), Some(window));
}

#[test]
fn c047_milliseconds_in_a_scheme_of_seconds_are_refused_not_divided() {
    let scheme = Scheme::standard();
    let sent = Timestamp::from_unix_seconds(NOW * 1_000).expect("a moment");
    let request = Request::signed_message(&scheme, Message { timestamp: sent, ..message(BODY) });
    assert_eq!(request.value("webhook-timestamp"), "1700000000000");
    assert_eq!(request.reason(), "too_new");
}

#[test]
fn c049_a_timestamp_is_required_where_it_is_signed_and_ignored_where_there_is_none() {
    let github = Request::signed(&Scheme::github(), BODY).set("x-timestamp", "1");
    assert!(github.clone().set("x-timestamp", "2").verify().is_ok());
    assert_eq!(verifier(&Scheme::github()).with_window(ReplayWindow::default()).window(), None);
    assert!(github.verify_at(at(NOW + 1_000_000)).is_ok(), "the table of seen events alone stops a replay");
    let unsigned = Scheme::hmac([("header", "x-sig"), ("timestamp", "x-time")]).expect_err("decoration");
    assert!(unsigned.to_string().contains("protects nothing"));
}

#[test]
fn c064_c065_an_event_without_a_signed_id_is_known_by_its_signed_bytes() {
    let body = Digest::of(BODY);
    let github = Request::signed(&Scheme::github(), BODY);
    let verified = github.verify().expect("a signature");
    assert_eq!(verified.dedup_key(&body), DedupKey::from_digest(&body));
    let bare = github.without("x-github-delivery").verify().expect("a signature");
    assert_eq!((bare.id_origin(), bare.event_id()), (IdOrigin::None, None));
    assert_eq!(bare.dedup_key(&body), verified.dedup_key(&body), "leaving the id out changes nothing");

    let stripe = Request::signed(&Scheme::stripe(), BODY).verify().expect("a signature");
    assert_eq!(stripe.dedup_key(&body).as_str(), "evt_1");

    let slash_command = Request::signed(&Scheme::slack(), b"command=%2Fx").verify().expect("a signature");
    let later = Message { timestamp: at(NOW + 1), ..message(b"command=%2Fx") };
    let later = Request::signed_message(&Scheme::slack(), later).verify().expect("a signature");
    let body = Digest::of(b"command=%2Fx");
    assert_ne!(slash_command.dedup_key(&body), later.dedup_key(&body), "the timestamp is signed too");
    assert_ne!(slash_command.signed_digest(&body), body);
}

#[test]
fn c067_c068_an_id_that_cannot_be_kept_is_passed_over_and_the_event_is_known_by_its_bytes() {
    let scheme = Scheme::hmac([("header", "x-sig"), ("id", "body:id")]).expect("a scheme");
    // Our signer would not sign such an id; one that does not look for it signs the same bytes.
    let blind = Scheme::hmac([("header", "x-sig")]).expect("a scheme");
    for id in ["x".repeat(256), "a\\u0000b".into(), "a\\nb".into()] {
        let body = format!(r#"{{"id":"{id}"}}"#);
        let request = Request { scheme: scheme.clone(), ..Request::signed(&blind, body.as_bytes()) };
        let verified = request.verify().expect("a right signature");
        assert_eq!((verified.event_id(), verified.id_origin()), (None, IdOrigin::None), "{id}");
        let digest = Digest::of(body.as_bytes());
        assert_eq!(verified.dedup_key(&digest), DedupKey::from_digest(&digest));
        assert_eq!(request.with_body(b"{}").reason(), "mismatch", "the signature is judged first");
    }
    for label in [&*"x".repeat(300), "a\tb", ""] {
        let github = Request::signed(&Scheme::github(), BODY).set("x-github-delivery", label);
        let verified = github.verify().expect("a label that nobody signed is no reason to refuse an event");
        assert_eq!((verified.event_id(), verified.id_origin()), (None, IdOrigin::None), "{label:?}");
    }
}

#[test]
fn an_id_beside_a_token_is_as_good_as_its_body_and_the_key() {
    let okta = Request::signed(&Scheme::named("okta").expect("a scheme"), br#"{"eventId":"evt_1"}"#);
    let verified = okta.verify().expect("the token");
    assert_eq!((verified.id_origin(), okta.scheme.id_origin()), (IdOrigin::SignedBody, IdOrigin::SignedBody));
    let id = EventId::new("evt_1").expect("an id");
    assert_eq!(verified.dedup_key(&Digest::of(b"")), DedupKey::from_id(&id));
    assert!(verified.is_known_by_id());
}

#[test]
fn the_dot_of_the_signed_text_cannot_move_from_one_part_to_another() {
    let request = Request::signed(&Scheme::standard(), format!("{NOW}.{{}}").as_bytes());
    let shifted = request.clone().set("webhook-id", &format!("msg_1.{NOW}")).with_body(b"{}");
    assert_eq!(shifted.reason(), "malformed");
    let signer = Signer::new(Scheme::standard(), Keyring::new(secret(&Scheme::standard()))).expect("a signer");
    assert_eq!(signer.sign(&message(BODY).with_id("msg.1")), Err(SignError::SeparatorInId('.')));
    assert!(request.verify().is_ok());
}

#[test]
fn an_id_that_touches_the_url_or_the_method_is_refused_since_a_body_may_hold_these() {
    for signed in [
        "{id}{url}{body}",
        "{body}{method}{id}",
        "{method}{id}.{body}",
        "{body}.{id}{url}",
        "{method}.{id}.{body}",
        "{url} {id} {body}",
    ] {
        let refused = Scheme::hmac([("header", "x-sig"), ("signed", signed), ("id", "x-id")]).err();
        assert!(matches!(refused, Some(ConfigError::SchemeOption { .. })), "{signed}");
    }
    let apart = Scheme::hmac([("header", "x-sig"), ("signed", "{id} {method}{url} {body}"), ("id", "x-id")]);
    assert!(apart.is_ok());
}

#[test]
fn a_signer_refuses_a_body_whose_id_a_receiver_would_refuse() {
    let scheme = Scheme::stripe();
    let signer = Signer::new(scheme.clone(), Keyring::new(secret(&scheme))).expect("a signer");
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
    for body in [r#"{"id":"a\nb"}"#, &long] {
        let refused = signer.sign(&message(body.as_bytes())).err();
        assert!(matches!(refused, Some(SignError::InvalidId(_))), "{body}");
    }
    assert!(signer.sign(&message(br#"{"id":"evt_1"}"#)).is_ok());
}

#[test]
fn a_signer_refuses_what_a_receiver_would_refuse() {
    let sign = |scheme: Scheme, message: Message<'_>| {
        Signer::new(scheme.clone(), Keyring::new(secret(&scheme))).expect("a signer").sign(&message).err()
    };
    let plain = message(BODY);
    assert_eq!(sign(Scheme::standard(), Message { id: None, ..plain }), Some(SignError::MissingId));
    assert!(matches!(sign(Scheme::standard(), plain.with_id("")), Some(SignError::InvalidId(_))));
    let long = "x".repeat(256);
    assert!(matches!(sign(Scheme::standard(), plain.with_id(&long)), Some(SignError::InvalidId(_))));
    assert_eq!(sign(Scheme::standard(), plain.with_id(" a")), Some(SignError::IdNotForHeader));
    assert_eq!(sign(Scheme::github(), plain.with_id("é")), Some(SignError::IdNotForHeader));
    let ancient = Message { timestamp: at(-1), ..plain };
    assert_eq!(sign(Scheme::stripe(), ancient), Some(SignError::NegativeTimestamp));
    let name = HeaderName::from_static("webhook-type");
    assert_eq!(sign(Scheme::envelope(), plain.with_event_type("a\nb")), Some(SignError::InvalidHeader(name)));
    let url = Scheme::hmac([("header", "x-sig"), ("signed", "{url}{body}")]).expect("a scheme");
    assert_eq!(sign(url.clone(), Message { url: "", ..plain }), Some(SignError::MissingUrl));
    assert_eq!(sign(url, plain), None);
}

#[test]
fn a_signer_uses_every_live_secret_where_the_header_holds_a_list() {
    let scheme = Scheme::standard();
    let keyring = Keyring::new(secret(&scheme))
        .with_previous_until(scheme.parse_secret(OLD_WHSEC).expect("a secret"), at(NOW + 10));
    let signer = Signer::new(scheme.clone(), keyring).expect("a signer");
    let count = |seconds| {
        let headers = signer.sign(&Message { timestamp: at(seconds), ..message(BODY) }).expect("headers");
        headers["webhook-signature"].to_str().expect("text").split(' ').count()
    };
    assert_eq!((count(NOW + 9), count(NOW + 10)), (2, 1));
}

#[test]
fn the_secret_that_matched_is_reported() {
    let scheme = Scheme::standard();
    let old = scheme.parse_secret(OLD_WHSEC).expect("a secret");
    let signer = Signer::new(scheme.clone(), Keyring::new(old.clone())).expect("a signer");
    let headers = signer.sign(&message(BODY)).expect("headers");
    let keyring = Keyring::new(secret(&scheme)).with_previous(old);
    let verifier = Verifier::new(scheme, keyring).expect("a verifier");
    let verified = verifier.verify_at(Head::new(&Method::POST, URL, &headers), BODY, at(NOW)).expect("a signature");
    assert_eq!(verified.secret(), 1);
}

#[test]
fn a_body_shorter_than_what_was_fed_is_refused() {
    let scheme = Scheme::github();
    let request = Request::signed(&scheme, BODY);
    let mut check = verifier(&scheme).begin(request.head()).expect("good headers");
    check.update(BODY);
    assert_eq!(check.finish(&BODY[..3]).err().map(|error| error.reason()), Some("unsupported"));
}

#[test]
fn presets_are_found_by_their_names_and_hmac_needs_options() {
    let names: Vec<_> = Scheme::all().map(|scheme| scheme.name()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "no name stands for two");
    for name in names {
        assert_eq!(Scheme::named(name).map(|scheme| scheme.name()), Some(name));
    }
    assert!(Scheme::named("hmac").is_none() && Scheme::named("").is_none());
    assert!("github".parse::<Scheme>().is_ok());
    let unknown = "githup".parse::<Scheme>().expect_err("no scheme");
    assert!(unknown.to_string().contains("no scheme of that name"), "{unknown}");
}

#[test]
fn a_conflict_is_reported_only_for_senders_that_promise_identical_bytes() {
    for scheme in schemes() {
        let promised = ["standard", "envelope", "hmac"].contains(&scheme.name());
        let expected = if promised { RepeatedId::Conflict } else { RepeatedId::Replay };
        assert_eq!(scheme.repeated_id(), expected, "{}", scheme.name());
        assert_eq!(scheme.in_flight_status(), 409, "{}", scheme.name());
    }
}

#[test]
fn github_never_falls_back_to_sha1() {
    let request = Request { scheme: Scheme::github(), ..Request::signed(&Scheme::github_sha1(), BODY) };
    assert_eq!(request.reason(), "missing_header");
}

const URL: &str = "https://hooks.example.com/in";

/// One scheme of each shape; `providers.rs` goes through all.
const FULLY_TRIED: [&str; 8] = ["standard", "envelope", "github", "github-sha1", "stripe", "slack", "shopify", "svix"];

const ODD_NUMBERS: [&str; 12] = [
    "-1",
    "+1700000000",
    "1700000000.0",
    "1.7e9",
    " 1700000000",
    "1700000000 ",
    "0x6553F100",
    "9223372036854775808",
    "99999999999999999999",
    "",
    "NaN",
    "١٧٠٠",
];

/// Every preset, and some of options.
fn schemes() -> Vec<Scheme> {
    let timed = Scheme::hmac([
        ("header", "x-sig"),
        ("signed", "{id}:{timestamp}:{body}"),
        ("timestamp", "x-time"),
        ("id", "x-id"),
        ("algorithm", "sha512"),
    ]);
    let behind = Scheme::hmac([("header", "x-sig"), ("signed", "{body}\n{timestamp}"), ("timestamp", "x-time:ms")]);
    FULLY_TRIED
        .into_iter()
        .filter_map(Scheme::named)
        .chain([timed.expect("a scheme"), behind.expect("a scheme")])
        .collect()
}

/// The headers without which a request of this scheme is nothing.
fn required(scheme: &Scheme) -> Vec<HeaderName> {
    let optional = ["x-github-delivery", "x-shopify-webhook-id", "webhook-type", "content-type"];
    let foreign = |name: &HeaderName| scheme.name() == "svix" && name.as_str().starts_with("webhook-");
    scheme.headers().filter(|name| !optional.contains(&name.as_str()) && !foreign(name)).cloned().collect()
}

fn secret(scheme: &Scheme) -> Secret {
    scheme.parse_secret(WHSEC).expect("a secret")
}

fn verifier(scheme: &Scheme) -> Verifier {
    Verifier::new(scheme.clone(), Keyring::new(secret(scheme))).expect("a verifier")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(seconds).expect("a moment")
}

fn message(body: &[u8]) -> Message<'_> {
    Message::new(at(NOW), body)
        .with_id("msg_1")
        .with_event_type("order.paid")
        .with_content_type("application/json")
        .with_target(&Method::POST, URL)
}

fn reason(outcome: &Result<Verified, VerifyError>) -> &'static str {
    outcome.as_ref().map_or_else(VerifyError::reason, |_| "valid")
}

/// A request, at first a good one.
#[derive(Clone)]
struct Request {
    scheme: Scheme,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn signed(scheme: &Scheme, body: &[u8]) -> Self {
        Self::signed_message(scheme, message(body))
    }

    fn signed_message(scheme: &Scheme, message: Message<'_>) -> Self {
        let signer = Signer::new(scheme.clone(), Keyring::new(secret(scheme))).expect("a signer");
        let headers = signer.sign(&message).expect("headers");
        Self { scheme: scheme.clone(), headers, body: message.body.to_vec() }
    }

    fn value(&self, name: &str) -> String {
        self.headers[name].to_str().expect("text").to_owned()
    }

    fn set(self, name: &str, value: &str) -> Self {
        self.set_bytes(name, value.as_bytes())
    }

    fn set_bytes(mut self, name: &str, value: &[u8]) -> Self {
        let value = HeaderValue::from_bytes(value).expect("a header's value");
        self.headers.insert(name.parse::<HeaderName>().expect("a header's name"), value);
        self
    }

    fn set_all(self, name: &str, values: &[&str]) -> Self {
        values.iter().fold(self.without(name), |mut request, value| {
            let value = HeaderValue::from_str(value).expect("a header's value");
            request.headers.append(name.parse::<HeaderName>().expect("a header's name"), value);
            request
        })
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    fn with_body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn head(&self) -> Head<'_> {
        Head::new(&Method::POST, URL, &self.headers)
    }

    fn begins(&self) -> Result<(), VerifyError> {
        verifier(&self.scheme).begin(self.head()).map(drop)
    }

    fn verify(&self) -> Result<Verified, VerifyError> {
        self.verify_with(&verifier(&self.scheme))
    }

    fn verify_with(&self, verifier: &Verifier) -> Result<Verified, VerifyError> {
        verifier.verify_at(self.head(), &self.body, at(NOW))
    }

    fn verify_at(&self, now: Timestamp) -> Result<Verified, VerifyError> {
        verifier(&self.scheme).verify_at(self.head(), &self.body, now)
    }

    fn reason(&self) -> &'static str {
        reason(&self.verify())
    }
}
