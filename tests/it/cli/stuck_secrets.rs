//! Secrets in places that never answer: a pipe that nobody writes to, a file whose opening hangs.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use countersign::store::SqliteStore;
use serde_json::Value;

use super::{Ended, Program, SECRET, countersign};
use crate::dispatch::{Receiver, Sender};
use crate::support::until;

fn pipe(folder: &Path) -> PathBuf {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("to run mkfifo").success());
    path
}

/// Where the program hangs, the test fails instead of hanging too.
fn ends(program: Program) -> Ended {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || told.send(program.run()));
    heard.recv_timeout(Duration::from_secs(10)).expect("it ends")
}

#[test]
fn a_pipe_is_no_secret_file_for_any_command_and_none_hangs_at_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let pipe = pipe.to_str().expect("a path");
    let store = format!("sqlite:{}", folder.path().join("outbox.db").display());
    let call = |args: &[&str]| ends(countersign(args.iter().copied()));

    call(&["sign", "--scheme", "standard", "--secret-file", pipe, "--body", "-"]).exits(3).says("not a regular file");
    let added = ["endpoint", "add", "shop", "--url", "https://203.0.113.1/", "--types", "*", "--secret-file", pipe];
    let added = ends(countersign(added).args(["--store", &store]));
    assert!(added.exits(0).stderr.contains("not a regular file"));
    let tried = call(&["endpoint", "test", "shop", "--store", &store]);
    tried.exits(1).says("not a regular file");
    let examined =
        call(&["doctor", "--scheme", "standard", "--secret-file", pipe, "--json", "--store", &store]).fails().json();
    let checks = examined["checks"].as_array().expect("an array").iter();
    let secrets: Vec<&Value> = checks.filter(|check| check["check"] == "secrets").collect();
    let told = |check: &&Value| check["detail"].as_str().is_some_and(|detail| detail.contains("not a regular file"));
    assert!(secrets.len() == 2 && secrets.iter().all(told), "{examined}");
}

/// A regular file that hangs whoever opens it, for as long as this lives: somebody else has a lease on it, and takes the
/// system's time to give it up.
struct Hanging {
    path: PathBuf,
    holder: Child,
    _folder: tempfile::TempDir,
}

impl Hanging {
    fn new() -> Self {
        // Not every file system has leases; the one in memory does.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, SECRET).expect("a file");
        let script = "import fcntl, os, signal, sys, time\n\
            signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
            fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            print('held', flush=True)\n\
            time.sleep(600)\n";
        let mut command = Command::new("python3");
        let mut holder = command.args(["-c", script]).arg(&path).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "held\n");
        Self { path, holder, _folder: folder }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_file_that_hangs_is_given_up_by_sign_and_doctor() {
    let hanging = Hanging::new();
    let path = hanging.path.to_str().expect("a path");
    ends(countersign(["sign", "--scheme", "standard", "--secret-file", path, "--body", "-"]))
        .exits(3)
        .says("not read within");
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("outbox.db").display());
    countersign(["migrate", "--store", &store]).run().exits(0);
    let examined = ["doctor", "--scheme", "standard", "--secret-file", path, "--store", &store];
    assert!(ends(countersign(examined)).exits(3).text().contains("not read within"));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_hang_stop_no_other_endpoint_and_not_the_end_of_the_process() {
    const MANY: usize = 600;
    const FEW: usize = 20;
    let hanging = Hanging::new();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let path = folder.path().join("outbox.db");
    let sender = Sender::new(Arc::new(SqliteStore::open(&path).await.expect("a store")));
    let receiver = Receiver::with_statuses(&[200]).await;
    for (name, secret) in [
        ("hanging", format!("file:{}", hanging.path.display())),
        ("pipe", format!("file:{}", pipe.display())),
        ("env", "env:SECRET".to_owned()),
        ("file", sender.secret()),
    ] {
        sender.endpoint_with(name, receiver.url(), |endpoint| endpoint.secrets = vec![secret]).await;
    }
    for number in 0..MANY {
        sender.enqueue("hanging", &format!("msg_{number}"), "{}").await;
        sender.enqueue("pipe", &format!("msg_{number}"), "{}").await;
    }
    let store = format!("sqlite:{}", path.display());
    let mut process = countersign(["dispatch", "--store", &store, "--allow-http", "--allow", "127.0.0.1"])
        .args(["--concurrency", "3000", "--endpoint-concurrency", "1000", "--breaker", "0"])
        .args(["--retry-first", "60s", "--grace", "2s"])
        .env("RUST_LOG", "off")
        .command()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("to start the program");
    // As many have failed as there are threads to hang.
    until("all of the bad ones were tried", async || sender.all().await.iter().all(|entry| entry.attempts > 0)).await;
    for number in 0..FEW {
        sender.enqueue("env", &format!("msg_{number}"), "{}").await;
        sender.enqueue("file", &format!("msg_{number}"), "{}").await;
    }
    until("the others are delivered", async || receiver.seen().len() == 2 * FEW).await;
    let good = sender.all().await.into_iter().filter(|entry| ["env", "file"].contains(&entry.endpoint.as_str()));
    assert!(good.map(|entry| entry.attempts).all(|attempts| attempts <= 1), "at the first attempt");

    // The hanging thread is still there.
    let signalled = Instant::now();
    let signal = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(signal.expect("to run kill").success());
    let mut ended = None;
    while ended.is_none() && signalled.elapsed() < Duration::from_secs(7) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        ended = process.try_wait().expect("to look");
    }
    let _ = process.kill();
    let _ = process.wait();
    assert!(ended.expect("it ends within its grace and 5 s").success());
}
