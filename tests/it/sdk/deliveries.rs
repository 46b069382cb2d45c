//! What the dispatcher sends over HTTP, verified by the vendors' own libraries on the other side: the first attempt of each
//! message, its retry, and what is signed with two secrets while one takes the place of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use countersign::store::MessageState;
use serde_json::{Value, json};

use super::installed;
use crate::dispatch::{Running, Sender};
use crate::support::{OTHER_SECRET, SECRET, TEXT_SECRET, client, request, send};

/// A library, the scheme that it speaks, and the secret that comes with the one that goes.
struct Receiver {
    sdk: &'static str,
    scheme: &'static str,
    new: &'static str,
    old: &'static str,
    /// Whether the header of the scheme holds a signature for each secret.
    takes_both: bool,
}

const OTHER_TEXT: &str = "another-text-secret-of-more-than-16-bytes";

const STANDARD: Receiver =
    Receiver { sdk: "standardwebhooks", scheme: "standard", new: OTHER_SECRET, old: SECRET, takes_both: true };
const SVIX: Receiver = Receiver { sdk: "svix", scheme: "svix", ..STANDARD };
const STRIPE: Receiver =
    Receiver { sdk: "stripe", scheme: "stripe", new: OTHER_TEXT, old: TEXT_SECRET, takes_both: true };
const OCTOKIT: Receiver = Receiver { sdk: "octokit", scheme: "github", takes_both: false, ..STRIPE };

#[tokio::test]
async fn what_we_deliver_verifies_with_the_libraries_for_node_on_every_attempt_and_while_secrets_change() {
    let Some(folder) = installed("COUNTERSIGN_TEST_SDK_NODE") else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdk/vendors.mjs");
    delivers(Command::new("node").arg(script).arg(folder), &[STANDARD, SVIX, STRIPE, OCTOKIT]).await;
}

#[tokio::test]
async fn what_we_deliver_verifies_with_the_libraries_for_python_on_every_attempt_and_while_secrets_change() {
    let Some(python) = installed("COUNTERSIGN_TEST_SDK_PYTHON") else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdk/vendors.py");
    delivers(Command::new(python).arg(script), &[STANDARD, SVIX, STRIPE]).await;
}

/// One receiver has the new secret already, and one has the old one still. Each turns the first attempt down.
async fn delivers(command: &mut Command, receivers: &[Receiver]) {
    const MESSAGES: usize = 3;
    let mut secrets = BTreeMap::new();
    for Receiver { sdk, new, old, takes_both, .. } in receivers {
        secrets.insert(format!("{sdk}-new"), json!({ "sdk": sdk, "secret": new }));
        if *takes_both {
            secrets.insert(format!("{sdk}-old"), json!({ "sdk": sdk, "secret": old }));
        }
    }
    let sink = Sink::start(command.arg("serve").env("RECEIVERS", json!(secrets).to_string()));

    let sender = Sender::in_memory();
    for Receiver { sdk, scheme, new, old, .. } in receivers {
        let both = vec![sender.secret_file(&format!("{sdk}-new"), new), sender.secret_file(&format!("{sdk}-old"), old)];
        for name in secrets.keys().filter(|name| name.starts_with(&format!("{sdk}-"))) {
            sender
                .endpoint_with(name, format!("{}/{name}", sink.url), |endpoint| {
                    endpoint.scheme = (*scheme).to_owned();
                    endpoint.secrets.clone_from(&both);
                })
                .await;
            for number in 0..MESSAGES {
                let id = format!("msg_{number}");
                sender.enqueue(name, &id, json!({ "id": id, "name": "é", "price": 1.50 }).to_string()).await;
            }
        }
    }
    let running = Running::start(sender.dispatcher());
    sender.until_done().await;
    running.stop().await;

    let arrived = sink.arrived().await;
    let all: BTreeSet<(&str, &str)> = arrived.iter().map(|one| (text(one, "name"), text(one, "id"))).collect();
    assert_eq!(all.len(), secrets.len() * MESSAGES);
    for one in &arrived {
        assert_eq!(one["valid"], true, "{one}");
    }
    for (name, id) in all {
        let attempts = arrived.iter().filter(|one| (text(one, "name"), text(one, "id")) == (name, id)).count();
        let entry = sender.entry(name, id).await;
        assert_eq!((attempts, entry.attempts, entry.state), (2, 2, MessageState::Succeeded), "{name} {id}");
    }
}

fn text<'a>(one: &'a Value, field: &str) -> &'a str {
    one[field].as_str().expect("a text")
}

/// A server that verifies with the libraries of one language.
struct Sink {
    process: Child,
    url: String,
}

impl Sink {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the libraries start");
        let mut port = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { process, url: format!("http://127.0.0.1:{}", port.trim()) }
    }

    async fn arrived(&self) -> Vec<Value> {
        let mut asked = request(&format!("{}/arrived", self.url), http::HeaderMap::new(), "");
        *asked.method_mut() = http::Method::GET;
        let answer = send(&client(false), asked).await;
        serde_json::from_slice(&answer.body).expect("JSON")
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It has no state of its own to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
