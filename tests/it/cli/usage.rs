//! Exit status, help, and what goes to stdout and stderr.

use std::fs;
use std::process::Stdio;

use super::{countersign, signed, verify};

#[test]
fn c155_the_exit_status_follows_the_outcome() {
    let headers = signed(&["--scheme", "standard"], b"{}");
    let check = |body: &[u8]| verify(&["--scheme", "standard"], body).headers(&headers);
    check(b"{}").run().exits(0);
    check(b"{} ").run().exits(1).says("mismatch");
    check(b"{}").args(["--tolerance", "soon"]).run().exits(2);
    check(b"{}").args(["-H", "no colon"]).run().exits(2).says("-H number 4");
    check(b"{}").args(["--at", "99999999999999999"]).run().exits(2);
    check(b"{}").args(["--option", "header=x"]).run().exits(2).says("hmac");
    verify(&["--scheme", "strpe"], b"").run().exits(2).says("did you mean `stripe`");
    verify(&["--scheme", "hmac", "--option", "header"], b"").run().exits(2).says("KEY=VALUE");
    verify(&["--scheme", "hmac"], b"").run().exits(2).says("header");
    countersign(["verify"]).run().exits(2);
    countersign(["frobnicate"]).run().exits(2);
    countersign::<&str>([]).run().exits(2);
    let absent = ["sign", "--scheme", "standard", "--secret-env", "SECRET", "--body", "/absent/body"];
    countersign(absent).run().exits(3).says("/absent/body");
}

#[test]
fn every_help_has_an_example_and_is_no_failure() {
    let commands: [&[&str]; 11] = [
        &[],
        &["sign"],
        &["verify"],
        &["schemes"],
        &["inbox"],
        &["inbox", "list"],
        &["inbox", "show"],
        &["inbox", "retry"],
        &["inbox", "forget"],
        &["migrate"],
        &["purge"],
    ];
    for command in commands {
        let help = countersign(command).args(["--help"]).run().exits(0);
        assert!(help.text().contains("Example") && help.stderr.is_empty(), "{command:?}");
    }
    assert!(countersign(["--version"]).run().exits(0).text().starts_with("countersign "));
}

#[test]
fn a_body_in_a_file_is_signed_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("body");
    let body = b"\xef\xbb\xbf{\"a\":1}\r\n\0\xff\n";
    fs::write(&path, body).expect("to write");
    let flags = ["sign", "--scheme", "github", "--id", "1", "--secret-env", "SECRET", "--body"];
    let from_file = countersign(flags).args([&path]).run().exits(0).lines();
    assert_eq!(from_file, signed(&["--scheme", "github", "--id", "1"], body));
}

#[test]
fn a_reader_that_goes_away_changes_nothing_about_the_answer() {
    for (args, code) in [
        (vec!["schemes", "--json"], 0),
        (vec!["--help"], 0),
        (vec!["verify", "--scheme", "github", "--secret-env", "SECRET", "--body", "-"], 1),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = countersign(&args).command();
        let ended = command.stdin(Stdio::null()).stdout(writer).output().expect("to run");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{args:?} {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn logs_are_json_if_asked_for_and_follow_rust_log() {
    let args = ["--log-format", "json", "sign", "--scheme", "github", "--body", "-", "--secret-env", "SHORT"];
    let logged = countersign(args).env("SHORT", "hush").run().exits(0);
    let line: serde_json::Value = serde_json::from_str(logged.stderr.trim()).expect("one JSON document on the line");
    assert_eq!(line["level"], "WARN");
    let quiet = countersign(args).env("SHORT", "hush").env("RUST_LOG", "error").run().exits(0);
    assert!(quiet.stderr.is_empty(), "{}", quiet.stderr);
}
