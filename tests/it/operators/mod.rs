//! What operators are told, by the real program: by a signed webhook, and by a command.

mod inbox;
mod store;
mod walks;

use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::SECRET;

/// The program, running.
pub(crate) struct Started {
    process: Child,
    /// Each address that it said it listens on.
    pub(crate) addresses: Vec<String>,
}

impl Started {
    /// Starts it, and waits until it listens on so many addresses.
    pub(crate) async fn new(args: &[&str], listens: usize) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_countersign"))
            .args(args)
            .env("TEST_SECRET", SECRET)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut addresses = Vec::new();
        while addresses.len() < listens {
            let line = lines.next_line().await.expect("its stdout is read").expect("it says that it listens");
            addresses.push(line.strip_prefix("listening on ").expect("the promised line").to_owned());
        }
        Self { process, addresses }
    }

    /// Ends it as a power cut does.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.expect("it is killed");
    }

    pub(crate) async fn stop(&mut self) -> ExitStatus {
        let id = self.process.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        let ended = tokio::time::timeout(Duration::from_secs(60), self.process.wait()).await;
        ended.expect("it ends").expect("its status")
    }
}

/// A command that writes each notice on a line of a file.
pub(crate) struct Noting {
    pub(crate) script: PathBuf,
    told: PathBuf,
}

impl Noting {
    pub(crate) fn new(folder: &Path) -> Self {
        let told = folder.join("told.jsonl");
        let lines = format!("cat >> '{0}'; echo >> '{0}'", told.display());
        Self { script: script(folder, "note", &lines), told }
    }

    pub(crate) fn path(&self) -> &str {
        self.script.to_str().expect("UTF-8")
    }

    /// The notices of this kind that it was run with.
    pub(crate) fn of(&self, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.told).unwrap_or_default();
        // The last line may be half written.
        let notices = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        notices.filter(|notice| notice["notice"] == kind).collect()
    }
}

pub(crate) fn script(folder: &Path, name: &str, lines: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("its mode");
    path
}

/// Waits until something holds that must come to hold; fails the test after a minute: what goes on is told after seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "waited in vain: {what}");
}
