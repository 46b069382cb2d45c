//! Signatures exchanged with the vendors' own libraries: what they sign the program accepts, what it signs they accept, and
//! neither accepts a body that was changed on the way.
//!
//! `tests/run.sh sdk` installs them, in the versions of `tests/sdk`, and says where by environment variables. Without them
//! these tests are left out, except where `CI` is `true`.

mod deliveries;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::cli::countersign;
use crate::support::unix_now;

/// A library, and the scheme that it speaks.
struct Vendor {
    sdk: &'static str,
    scheme: &'static [&'static str],
    secret: &'static str,
    /// For key pairs: what the receiver has.
    public: Option<&'static str>,
    direction: Direction,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    /// The library can check only.
    Verifies,
    Both,
}
use Direction::{Both, Verifies};

const STANDARD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TEXT: &str = "a-text-secret-of-more-than-16-bytes";
const HEX: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
const BASE64: &str = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==";

/// Pairs of keys: that of Discord in hex, that of SendGrid in base64, and that of RFC 9421, appendix B.1.4.
const DISCORD_PRIVATE: &str = "0707070707070707070707070707070707070707070707070707070707070707\
                               ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";
const DISCORD_PUBLIC: &str = "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c";
const SENDGRID_PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyChRANCAARRXD1uueOWuQTT/sp/VP3NDMHpl783XcpRWtCmw7QDX0U2vjpQ8xj7+aVHWQKiIVAr7w1X4IxTsswKVvF9n5NU";
const SENDGRID_PUBLIC: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEUVw9brnjlrkE0/7Kf1T9zQzB6Ze/N13KUVrQpsO0A19FNr46UPMY+/mlR1kCoiFQK+8NV+CMU7LMClbxfZ+TVA==";
const ED25519_PRIVATE: &str = "whsk_n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=";
const ED25519_PUBLIC: &str = "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";

const fn vendor(
    sdk: &'static str,
    scheme: &'static [&'static str],
    secret: &'static str,
    direction: Direction,
) -> Vendor {
    Vendor { sdk, scheme, secret, public: None, direction }
}

/// Each signs in the way of its language's library, and they differ: what one forgets the other may have.
const NODE: &[Vendor] = &[
    vendor("standardwebhooks", &["standard"], STANDARD, Both),
    vendor("svix", &["svix"], STANDARD, Both),
    vendor("stripe", &["stripe"], TEXT, Both),
    vendor("octokit", &["github"], TEXT, Both),
    vendor("slack", &["slack"], TEXT, Verifies),
    vendor("twilio", &["twilio"], TEXT, Both),
    vendor("shopify", &["shopify"], TEXT, Verifies),
    vendor("square", &["square"], TEXT, Verifies),
    vendor("paddle", &["paddle"], TEXT, Verifies),
    vendor("razorpay", &["razorpay"], TEXT, Verifies),
    vendor("line", &["line"], TEXT, Verifies),
    vendor("linear", &["linear"], TEXT, Verifies),
    vendor("hubspot", &["hubspot-v3"], TEXT, Both),
    vendor("adyen", &["adyen-payload"], HEX, Both),
    Vendor { public: Some(DISCORD_PUBLIC), ..vendor("discord", &["discord"], DISCORD_PRIVATE, Verifies) },
    Vendor { public: Some(SENDGRID_PUBLIC), ..vendor("sendgrid", &["sendgrid"], SENDGRID_PRIVATE, Verifies) },
    vendor("workos", &["workos"], TEXT, Both),
    vendor("openai", &["openai"], STANDARD, Verifies),
    vendor("mux", &["mux"], TEXT, Verifies),
    vendor("coinbase", &["coinbase"], TEXT, Both),
    vendor("rfc9421", &["rfc9421", "id=nonce", "keyid=key-1"], BASE64, Both),
    Vendor {
        public: Some(ED25519_PUBLIC),
        ..vendor("rfc9421-ed25519", &["rfc9421", "algorithm=ed25519", "id=nonce", "keyid=key-1"], ED25519_PRIVATE, Both)
    },
];

const PYTHON: &[Vendor] = &[
    vendor("standardwebhooks", &["standard"], STANDARD, Both),
    vendor("svix", &["svix"], STANDARD, Both),
    vendor("stripe", &["stripe"], TEXT, Both),
    vendor("slack", &["slack"], TEXT, Both),
    vendor("twilio", &["twilio"], TEXT, Both),
    vendor("workos", &["workos"], TEXT, Verifies),
    vendor("hubspot", &["hubspot-v3"], TEXT, Both),
    vendor("adyen", &["adyen-payload"], HEX, Both),
    vendor("razorpay", &["razorpay"], TEXT, Verifies),
    Vendor { public: Some(SENDGRID_PUBLIC), ..vendor("sendgrid", &["sendgrid"], SENDGRID_PRIVATE, Verifies) },
    vendor("square", &["square"], TEXT, Verifies),
    vendor("openai", &["openai"], STANDARD, Verifies),
    vendor("resend", &["resend"], STANDARD, Verifies),
    vendor("paddle", &["paddle"], TEXT, Verifies),
];

#[test]
fn the_libraries_for_node_accept_what_we_sign_and_we_accept_what_they_sign() {
    let Some(folder) = installed("COUNTERSIGN_TEST_SDK_NODE") else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdk/vendors.mjs");
    exchange(Libraries::start(Command::new("node").arg(script).arg(folder)), NODE);
}

#[test]
fn the_libraries_for_python_accept_what_we_sign_and_we_accept_what_they_sign() {
    let Some(python) = installed("COUNTERSIGN_TEST_SDK_PYTHON") else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdk/vendors.py");
    exchange(Libraries::start(Command::new(python).arg(script)), PYTHON);
}

fn installed(variable: &str) -> Option<PathBuf> {
    let found = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    if found.is_none() {
        assert!(
            env::var("CI").as_deref() != Ok("true"),
            "{variable} is not set: install the libraries with tests/run.sh sdk"
        );
        eprintln!(
            "LEFT OUT: {variable} is not set, so there is no library to try this on; tests/run.sh sdk installs them"
        );
    }
    found
}

fn exchange(mut libraries: Libraries, vendors: &[Vendor]) {
    let mut faults = Vec::new();
    for vendor in vendors {
        faults.extend(vendor.faults(&mut libraries).into_iter().map(|fault| format!("{}: {fault}", vendor.sdk)));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

impl Vendor {
    /// What went otherwise than it should.
    fn faults(&self, libraries: &mut Libraries) -> Vec<String> {
        let mut faults = Vec::new();
        let now = unix_now();
        let body = self.body(now);
        // Another body of the same form and length.
        let changed = body.replacen("evt", "etv", 1);
        assert_ne!(body, changed);

        let ours = self.sign(now, &body);
        for (body, expected) in [(&body, true), (&changed, false)] {
            let answer = libraries.ask(&self.request("verify", now, body, &ours));
            if answer["valid"] != expected {
                faults.push(format!("it should answer {expected} to what we signed, body {body}: {answer}"));
            }
        }
        if self.direction == Both {
            let answer = libraries.ask(&self.request("sign", now, &body, &BTreeMap::new()));
            let Ok(theirs) = serde_json::from_value::<BTreeMap<String, String>>(answer["headers"].clone()) else {
                return vec![format!("it signed nothing: {answer}")];
            };
            for (body, expected) in [(&body, true), (&changed, false)] {
                let (valid, detail) = self.verify(body, &theirs);
                if valid != expected {
                    faults.push(format!("we should answer {expected} to what it signed, body {body}: {detail}"));
                }
            }
        }
        faults
    }

    fn request(&self, what: &str, now: u64, body: &str, headers: &BTreeMap<String, String>) -> Value {
        json!({
            "sdk": self.sdk, "do": what, "secret": self.secret, "public": self.public, "id": "msg_1", "timestamp": now,
            "method": "POST", "url": URL, "headers": headers, "body": body,
        })
    }

    fn body(&self, now: u64) -> String {
        match self.sdk {
            "twilio" => "CallSid=evt_1&From=%2B15551234567&Body=caf%C3%A9".to_owned(),
            _ => json!({
                "id": "evt_1", "event_id": "evt_1", "type": "order.paid", "name": "é", "webhookTimestamp": now * 1000,
            })
            .to_string(),
        }
    }

    fn sign(&self, now: u64, body: &str) -> BTreeMap<String, String> {
        let now = now.to_string();
        let program = countersign(["sign", "--secret-env", "SDK_SECRET", "--body", "-", "--json", "--timestamp", &now]);
        let program = program.args(["--id", "msg_1", "--url", URL]).args(self.scheme()).env("SDK_SECRET", self.secret);
        let signed = program.stdin(body.as_bytes()).run().exits(0).json();
        serde_json::from_value(signed["headers"].clone()).expect("headers")
    }

    fn verify(&self, body: &str, headers: &BTreeMap<String, String>) -> (bool, String) {
        let program = countersign(["verify", "--secret-env", "SDK_SECRET", "--body", "-", "--json", "--url", URL]);
        let program = program.args(self.scheme()).env("SDK_SECRET", self.public.unwrap_or(self.secret));
        let program = program.headers(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        let answer = program.stdin(body.as_bytes()).run().json();
        (answer["valid"] == true, answer.to_string())
    }

    fn scheme(&self) -> Vec<&'static str> {
        let (name, options) = self.scheme.split_first().expect("a scheme");
        ["--scheme", name].into_iter().chain(options.iter().flat_map(|option| ["--option", option])).collect()
    }
}

const URL: &str = "https://hooks.example.com/in?a=1";

/// A process that has the libraries of one language.
struct Libraries {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Libraries {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the libraries start");
        let requests = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, requests, answers }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let answer: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert_eq!(answer["unusable"], Value::Null, "the library cannot be used");
        answer
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        // It has no state of its own to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
