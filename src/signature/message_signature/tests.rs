use http::{HeaderMap, HeaderValue, Method};

use super::input::SIGNATURE;
use super::*;
use crate::Timestamp;
use crate::signature::{Message, SignError};

const BODY: &[u8] = br#"{"hello": "world"}"#;
const URL: &str = "https://example.com/foo?param=Value&Pet=dog";
const DIGEST: &str =
    "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:";

fn policy(options: &[(&str, &str)]) -> MessageSignature {
    MessageSignature::from_options(options.iter().copied()).expect("a policy")
}

/// The request of RFC 9421, appendix B.2.
fn request(input: &str, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("host", "example.com"),
        ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
        ("content-type", "application/json"),
        ("content-digest", DIGEST),
        ("content-length", "18"),
        ("signature-input", input),
        ("signature", signature),
    ] {
        headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    headers
}

fn read(policy: &MessageSignature, input: &str) -> Result<Claim, VerifyError> {
    let label = input.split('=').next().unwrap_or_default();
    let headers = request(input, &format!("{label}=:AAAA:"));
    policy.read(&Head::new(&Method::POST, URL, &headers))
}

#[test]
fn the_signature_bases_of_the_rfc_are_built_to_the_letter() {
    let hmac = policy(&[("components", "date @authority content-type")]);
    let claim =
        read(&hmac, r#"sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#);
    assert_eq!(
        String::from_utf8(claim.expect("a claim").base).expect("text"),
        "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\
         \"@authority\": example.com\n\
         \"content-type\": application/json\n\
         \"@signature-params\": (\"date\" \"@authority\" \"content-type\");created=1618884473;keyid=\"test-shared-secret\""
    );
    let ed25519 = policy(&[("components", "@method @path")]);
    let claim = read(
        &ed25519,
        r#"sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#,
    );
    let claim = claim.expect("a claim");
    assert!(claim.base.starts_with(b"\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@method\": POST\n\"@path\": /foo\n"));
    assert_eq!((claim.created, claim.covers(b"anything")), (1_618_884_473, true));
}

#[test]
fn parameters_are_written_again_in_the_order_in_which_they_came() {
    let input =
        r#"a=( "@method"   "@target-uri" "content-digest" ); keyid="k\"\\";created=1;nonce="n";x=?1;y=tok;z=1.50"#;
    let claim = read(&policy(&[]), input).expect("a claim");
    let expected = r#"("@method" "@target-uri" "content-digest");keyid="k\"\\";created=1;nonce="n";x;y=tok;z=1.5"#;
    assert!(String::from_utf8(claim.base).expect("text").ends_with(&format!("\"@signature-params\": {expected}")));
}

#[test]
fn what_is_required_has_to_be_covered_and_the_target_may_be_covered_in_parts() {
    let default = policy(&[]);
    for (covered, is_enough) in [
        (r#""@method" "@target-uri" "content-digest""#, true),
        (r#""@method" "@path" "@query" "content-digest""#, true),
        (r#""@method" "@request-target" "content-digest""#, true),
        (r#""date" "content-digest" "@target-uri" "@method""#, true),
        (r#""@method" "@path" "content-digest""#, false),
        (r#""@method" "@target-uri""#, false),
        (r#""@target-uri" "content-digest""#, false),
        ("", false),
    ] {
        assert_eq!(read(&default, &format!("a=({covered});created=1")).is_ok(), is_enough, "{covered}");
    }
    let strict = policy(&[("components", "@target-uri")]);
    assert!(read(&strict, r#"a=("@path" "@query");created=1"#).is_err());
}

#[test]
fn an_input_that_leaves_room_for_doubt_is_refused() {
    let policy = policy(&[("components", "@method")]);
    for input in [
        r#"a=("@method")"#,
        r#"a=("@method");created="1""#,
        r#"a=("@method");created=-1"#,
        r#"a=("@method");created=1;expires=-1"#,
        r#"a=("@method");created=1;expires=1.0"#,
        r#"a=("@method");created=1;alg="hmac-sha512""#,
        r#"a=("@method");created=1;alg=hmac-sha256"#,
        r#"a=("@method");created=1;keyid=1"#,
        r#"a=("@method" "@method");created=1"#,
        r#"a=("@method" "Date");created=1"#,
        r#"a=("@method" "@status");created=1"#,
        r#"a=("@method" "@unheard");created=1"#,
        r#"a=("@method" "@query-param";name="x");created=1"#,
        r#"a=("@method";req);created=1"#,
        r#"a=("@method" "date";bs);created=1"#,
        r#"a=("@method" date);created=1"#,
        r#"a=("@method" "x-absent");created=1"#,
        r#"a=("@method");created=1, b=("@method");created=1"#,
        r#"a="@method";created=1"#,
        "a",
        "",
    ] {
        assert!(read(&policy, input).is_err(), "{input}");
    }
    assert!(read(&policy, r#"a=("@method");created=1;alg="hmac-sha256";tag="x""#).is_ok());
    let many: String = (0..70).map(|n| format!(" \"x-{n}\"")).collect();
    assert!(read(&policy, &format!("a=(\"@method\"{many});created=1")).is_err());
}

#[test]
fn of_several_signatures_the_agreed_one_counts() {
    let headers = request(r#"a=("@method");created=1, b=("@path");created=2"#, "b=:AAAA:, a=:BBBB:");
    let head = Head::new(&Method::POST, URL, &headers);
    let created = |label| policy(&[("components", "@method"), ("label", label)]).read(&head).map(|claim| claim.created);
    assert_eq!(created("a"), Ok(1));
    assert!(created("b").is_err() && created("c").is_err());

    for (input, signature) in [
        (r#"a=("@method");created=1"#, "b=:AAAA:"),
        (r#"a=("@method");created=1"#, "a=(1)"),
        (r#"a=("@method");created=1"#, "a=x"),
    ] {
        let headers = request(input, signature);
        assert!(
            policy(&[("components", "@method")]).read(&Head::new(&Method::POST, URL, &headers)).is_err(),
            "{signature}"
        );
    }
    let mut headers = request(r#"a=("@method");created=1"#, "a=:AAAA:");
    headers.append("signature", HeaderValue::from_static("a=:BBBB:"));
    let twice = policy(&[("components", "@method")]).read(&Head::new(&Method::POST, URL, &headers));
    assert!(
        matches!(twice, Err(VerifyError::Malformed { header, fault }) if header == SIGNATURE && fault.contains("twice"))
    );
    assert!(
        read(&policy(&[("components", "@method")]), r#"a=("@method");created=1, a=("@method");created=2"#).is_err()
    );
}

#[test]
fn a_request_that_names_another_key_is_refused() {
    let policy = policy(&[("components", "@method"), ("keyid", "k1")]);
    assert!(read(&policy, r#"a=("@method");created=1;keyid="k1""#).is_ok());
    assert!(read(&policy, r#"a=("@method");created=1"#).is_ok());
    assert!(read(&policy, r#"a=("@method");created=1;keyid="k2""#).is_err());
    assert!(!policy.covers_body());
}

#[test]
fn several_lines_are_read_as_one_so_that_a_proxy_may_add_a_signature() {
    let mut headers = request(r#"a=("@method");created=1"#, "a=:AAAA:");
    headers.append("signature-input", HeaderValue::from_static(r#"proxy=("@path");created=2"#));
    headers.append("signature", HeaderValue::from_static("proxy=:BBBB:"));
    let policy = policy(&[("components", "@method"), ("label", "a")]);
    let claim = policy.read(&Head::new(&Method::POST, URL, &headers)).expect("a claim");
    assert_eq!((claim.created, claim.signature), (1, vec![0; 3]));
}

#[test]
fn a_digest_counts_only_where_it_is_covered() {
    let with = read(&policy(&[]), r#"a=("@method" "@target-uri" "content-digest");created=1"#).expect("a claim");
    assert!(with.covers(BODY) && !with.covers(b"{}"));
    let without = policy(&[("components", "@method")]);
    assert!(read(&without, r#"a=("@method");created=1"#).expect("a claim").covers(b"{}"));
    // Not required, and covered all the same.
    assert!(!read(&without, r#"a=("@method" "content-digest");created=1"#).expect("a claim").covers(b"{}"));
}

#[test]
fn the_id_is_the_nonce_or_a_covered_header() {
    let nonce = policy(&[("components", "@method"), ("id", "nonce")]);
    assert_eq!(read(&nonce, r#"a=("@method");created=1;nonce="n-1""#).expect("a claim").id.as_deref(), Some("n-1"));
    assert!(read(&nonce, r#"a=("@method");created=1"#).is_err());
    let header = policy(&[("components", "@method"), ("id", "date")]);
    assert!(read(&header, r#"a=("@method");created=1"#).is_err(), "it is not covered");
    let id = read(&header, r#"a=("@method" "date");created=1"#).expect("a claim").id;
    assert_eq!(id.as_deref(), Some("Tue, 20 Apr 2021 02:07:55 GMT"));
}

#[test]
fn what_is_sent_can_be_read() {
    let policy = policy(&[
        ("components", "@method,@authority,@path,@query,content-digest,content-type"),
        ("id", "x-event-id"),
        ("keyid", "key \"1\""),
        ("label", "hook"),
        ("expires", "60"),
        ("digest", "sha-512"),
    ]);
    let message = Message::new(Timestamp::from_unix_seconds(1_700_000_000).expect("a moment"), BODY)
        .with_id("evt_1")
        .with_content_type("application/json")
        .with_target(&Method::PUT, URL);
    let unsigned = policy.prepare(&message).expect("a message");
    let base = unsigned.base.clone();
    let headers = unsigned.signed(b"signature").expect("headers");
    assert_eq!(
        headers["signature-input"],
        "hook=(\"@method\" \"@authority\" \"@path\" \"@query\" \"content-digest\" \"content-type\" \"x-event-id\")\
         ;created=1700000000;expires=1700000060;keyid=\"key \\\"1\\\"\";alg=\"hmac-sha256\""
    );
    let claim = policy.read(&Head::new(&Method::PUT, URL, &headers)).expect("a claim");
    assert_eq!((claim.base, claim.signature.as_slice()), (base, b"signature".as_slice()));
    assert_eq!((claim.id.as_deref(), claim.expires), (Some("evt_1"), Some(1_700_000_060)));
    assert!(claim.digest.is_some_and(|digest| digest.fits(BODY)));

    let no_url = Message::new(Timestamp::default(), BODY).with_id("evt_1").with_content_type("text/plain");
    assert_eq!(policy.prepare(&no_url).err(), Some(SignError::MissingUrl));
    assert_eq!(policy.prepare(&Message { id: None, ..message }).err(), Some(SignError::MissingId));
}

#[test]
fn options_that_cannot_work_are_refused_by_name() {
    for (option, value) in [
        ("components", ""),
        ("components", "@status"),
        ("components", "date date"),
        ("algorithm", "rsa-v1_5-sha256"),
        ("algorithm", "none"),
        ("label", "Upper"),
        ("label", ""),
        ("keyid", "é"),
        ("id", "a b"),
        ("digest", "md5"),
        ("expires", "0"),
        ("expires", "-1"),
        ("unheard", "x"),
    ] {
        let refused = MessageSignature::from_options([(option, value)]).expect_err("to be refused");
        assert!(refused.to_string().contains(&format!("`{option}`")), "{option}={value}: {refused}");
    }
    assert!(MessageSignature::from_options([("label", "a"), ("label", "b")]).is_err());
}
