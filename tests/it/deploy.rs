//! `examples/deploy`: that systemd can read the units, and that the program takes what they give it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{SECRET, TEXT_SECRET};

const PROGRAM: &str = env!("CARGO_BIN_EXE_countersign");

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/deploy")
}

fn unit(name: &str) -> String {
    fs::read_to_string(deploy().join(name)).expect("a unit")
}

/// The words of a line of a unit, as systemd would start it with these folders.
fn command(unit: &str, key: &str, folder: &Path) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect("the line is there");
    let line = line.trim_start_matches('-').replace("%d", "%S").replace("%S", folder.to_str().expect("a path"));
    let mut words = line.split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("/usr/local/bin/countersign"));
    // Any free port will do.
    words.map(|word| if word.starts_with("127.0.0.1:80") { "127.0.0.1:0".to_owned() } else { word }).collect()
}

/// Starts it, waits until it listens, and ends it as systemd does.
async fn runs_until_it_is_stopped(args: &[String], env: &[(&str, &str)]) {
    let mut process = tokio::process::Command::new(PROGRAM)
        .args(args)
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let listens = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.expect("it says so in time");
    let Some(line) = listens.expect("its stdout is read") else {
        let output = process.wait_with_output().await.expect("it ended");
        panic!("{args:?} ended: {}", String::from_utf8_lossy(&output.stderr));
    };
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    let id = process.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    let ended = tokio::time::timeout(Duration::from_secs(60), process.wait()).await.expect("it ends in time");
    assert_eq!(ended.expect("its status").code(), Some(0));
}

#[tokio::test]
async fn the_receivers_unit_starts_the_program_and_stops_it() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("stripe"), TEXT_SECRET).expect("a file");
    fs::create_dir(folder.path().join("countersign")).expect("a folder");
    let args = command(&unit("countersign-receive.service"), "ExecStart=", folder.path());
    runs_until_it_is_stopped(&args, &[]).await;
    assert!(folder.path().join("countersign/events.db").is_file());
}

#[tokio::test]
async fn the_dispatchers_unit_starts_the_program_and_stops_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let unit = unit("countersign-dispatch.service");
    let store = format!("sqlite:{}", folder.path().join("events.db").display());
    let env = [("COUNTERSIGN_STORE", store.as_str()), ("SECRET", SECRET)];
    runs_until_it_is_stopped(&command(&unit, "ExecStart=", folder.path()), &env).await;
    let examined = Command::new(PROGRAM)
        .args(command(&unit, "ExecStartPre=", folder.path()))
        .envs(env)
        .output()
        .expect("the program runs");
    assert!(examined.status.success(), "{}", String::from_utf8_lossy(&examined.stderr));
}

#[test]
fn systemd_can_read_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("left out: there is no systemd-analyze");
        return;
    }
    for name in ["countersign-receive.service", "countersign-dispatch.service"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        // It looks whether the program is there.
        fs::write(&path, unit(name).replace("/usr/local/bin/countersign", PROGRAM)).expect("a file");
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&path)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&verified.stderr);
        // What it says about itself and other units is not about this one.
        let about: Vec<_> = said.lines().filter(|line| line.contains(name)).collect();
        assert!(verified.status.success() && about.is_empty(), "{name}: {said}");
    }
}

#[test]
fn the_container_is_built_from_what_the_build_needs() {
    let file = unit("Containerfile");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copied = tempfile::tempdir().expect("a folder");
    for line in file.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let mut words: Vec<_> = line.split(' ').skip(1).collect();
        let to = copied.path().join(words.pop().expect("where to"));
        for from in words {
            let from = root.join(from);
            let copy = if from.is_dir() { from.join(".") } else { from };
            fs::create_dir_all(&to).expect("a folder");
            assert!(Command::new("cp").arg("-r").args([&copy, &to]).status().expect("cp runs").success(), "{line}");
        }
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let read = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"])
        .current_dir(&copied)
        .output()
        .expect("cargo runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    for line in ["USER 65534:65534", "STOPSIGNAL SIGTERM", "ENTRYPOINT [\"/usr/local/bin/countersign\"]"] {
        assert!(file.lines().any(|found| found == line), "{line}");
    }
    assert!(
        file.contains(&format!("rust:{}", env!("CARGO_PKG_RUST_VERSION"))),
        "the toolchain is the oldest that is promised"
    );
}
