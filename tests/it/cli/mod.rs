//! The program `countersign`, run as its users run it: a process, its arguments, its files, its exit status.

mod copy;
mod doctor;
mod export;
mod first_steps;
mod inbox;
mod secrets;
mod sending;
mod signatures;
#[cfg(target_os = "linux")]
mod stuck_secrets;
mod usage;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Base64 of 24 bytes: a secret for `standard`, and as a text for every other scheme.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// The moment at which the tests sign.
const NOW: i64 = 1_700_000_000;

/// A call of the program, with `SECRET` and `OTHER_SECRET` in its environment and nothing else.
pub(crate) struct Program {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

pub(crate) fn countersign<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Program {
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    Program { args, env: Vec::new(), stdin: Vec::new() }.env("SECRET", SECRET).env("OTHER_SECRET", OTHER_SECRET)
}

impl Program {
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds these lines as headers.
    pub(crate) fn headers<H: AsRef<OsStr>>(self, lines: impl IntoIterator<Item = H>) -> Self {
        lines.into_iter().fold(self, |program, line| program.args([OsStr::new("-H"), line.as_ref()]))
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn stdin(mut self, body: &[u8]) -> Self {
        self.stdin = body.to_vec();
        self
    }

    pub(crate) fn run(self) -> Ended {
        let mut child = self.command().spawn().expect("to start the program");
        // A program that refuses its arguments does not read: that is no failure of the test.
        let _ = child.stdin.take().expect("a pipe").write_all(&self.stdin);
        let output = child.wait_with_output().expect("to end");
        Ended {
            code: output.status.code().expect("an exit status"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("messages in UTF-8"),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command.args(&self.args).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.text(), self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self.shows_nothing_of(SECRET).shows_nothing_of(OTHER_SECRET)
    }

    /// With any status but 0.
    #[track_caller]
    pub(crate) fn fails(self) -> Self {
        assert_ne!(self.code, 0, "stdout: {}\nstderr: {}", self.text(), self.stderr);
        let code = self.code;
        self.exits(code)
    }

    #[track_caller]
    fn shows_nothing_of(self, secret: &str) -> Self {
        let telling = secret.strip_prefix("whsec_").unwrap_or(secret);
        assert!(!self.text().contains(telling) && !self.stderr.contains(telling), "a secret was printed: {self:?}");
        self
    }

    /// One line on stderr, which holds this.
    #[track_caller]
    pub(crate) fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{}", self.stderr);
        self
    }

    /// Whether a line of stderr, logs among them, holds this.
    pub(crate) fn shows_on_stderr(&self, part: &str) -> bool {
        self.stderr.contains(part)
    }

    pub(crate) fn first_line_of_stderr(&self) -> String {
        self.stderr.lines().next().unwrap_or_default().to_owned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// The one document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).expect("one JSON document")
    }
}

/// What `sign` prints for this body, at [`NOW`].
fn signed(scheme: &[&str], body: &[u8]) -> Vec<String> {
    let now = NOW.to_string();
    let program = countersign(["sign", "--secret-env", "SECRET", "--body", "-", "--timestamp", &now]);
    program.args(scheme).stdin(body).run().exits(0).lines()
}

/// A call of `verify` for this body, at [`NOW`]; its headers are still to be added.
fn verify(scheme: &[&str], body: &[u8]) -> Program {
    let now = NOW.to_string();
    let program = countersign(["verify", "--secret-env", "SECRET", "--body", "-", "--json", "--at", &now]);
    program.args(scheme).stdin(body)
}

/// Why `verify` refused.
#[track_caller]
fn reason(ended: &Ended) -> String {
    let answer = ended.json();
    assert_eq!(answer["valid"], false);
    assert!(answer["detail"].is_string());
    answer["reason"].as_str().expect("a reason").to_owned()
}
