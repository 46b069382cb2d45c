//! What is said of a file before anything is bound or written.

use std::collections::BTreeSet;
use std::path::Path;

use super::{check, file};
use crate::cli::countersign;
use crate::support::{SECRET, TEXT_SECRET};

const SOUND: &str = r#"
[receive]
listen = "127.0.0.1:0"

[sources.a]
scheme = "standard"
secret-env = "SECRET"
upstream = "http://127.0.0.1:9"
"#;

/// What is found in this text, as the program prints it.
fn found(text: &str, without_secrets: bool) -> Vec<(u64, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = check(&file(folder.path(), text)).args(["--json"]);
    let program = if without_secrets { program.args(["--without-secrets"]) } else { program };
    let ended = program.run();
    let json = ended.json();
    let problems = json["problems"].as_array().expect("an array");
    assert_eq!(json["valid"], problems.is_empty());
    ended.exits(if problems.is_empty() { 0 } else { 2 });
    let one = |problem: &serde_json::Value| {
        let text = problem["problem"].as_str().expect("text").to_owned();
        (problem["line"].as_u64().unwrap_or(0), text)
    };
    problems.iter().map(one).collect()
}

#[test]
fn a_sound_file_is_sound_and_the_example_is() {
    assert_eq!(found(SOUND, false), []);
    let folder = tempfile::tempdir().expect("a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/deploy/countersign.toml");
    check(&example).args(["--without-secrets"]).run().exits(0);
    // With the secrets where it says that they are.
    let text = std::fs::read_to_string(&example).expect("the example");
    let text = text.replace("/run/credentials", folder.path().to_str().expect("UTF-8"));
    for name in ["stripe", "stripe-before"] {
        std::fs::write(folder.path().join(name), TEXT_SECRET).expect("a file");
    }
    let mut program = check(&file(folder.path(), &text));
    for name in ["GITHUB_SECRET", "PARTNER_SECRET", "SHOP_SECRET", "SHOP_SECRET_BEFORE", "OPS_SECRET"] {
        program = program.env(name, SECRET);
    }
    program.run().exits(0);
    let without = check(&example).run().exits(2);
    for told in ["3 problems", "line 28", "secret-file", "GITHUB_SECRET", "PARTNER_SECRET"] {
        assert!(without.shows_on_stderr(told), "{told}: {without:?}");
    }
}

#[test]
fn a_profile_that_there_is_not_is_refused_with_those_that_there_are() {
    for profile in ["standard", "strict", "relaxed"] {
        assert_eq!(found(&format!("{SOUND}profile = \"{profile}\"\n"), false), []);
    }
    let found = found(&format!("{SOUND}profile = \"paranoid\"\n"), false);
    let told =
        matches!(&found[..], [(9, text)] if text.contains("paranoid") && text.contains("standard, strict, relaxed"));
    assert!(told, "{found:?}");
}

#[test]
fn all_problems_are_told_at_once_each_with_its_line_and_what_to_write() {
    let text = r#"stor = "sqlite:a.db"
listen = "127.0.0.1:0"
[receive]
listen = "here"
grace = "soon"
[sources.a]
scheem = "standard"
scheme = "standrd"
secret-env = "SECRET"
upstream = "https://127.0.0.1:9"
max-body = 1.5
[sources.b]
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
public-url = "http://a.example"
exact-url = "http://a.example/b"
[dispatch]
concurrency = 0
drain = true
[endpoints.shop]
url = "ftp://shop.example"
secret-env = "SECRET"
header = "no colon"
max-in-flight = [1]
[endpoint.shop]
url = "https://shop.example"
"#;
    let problems = found(text, false);
    for (line, parts) in [
        (1, &["`stor`", "did you mean `store`"][..]),
        (2, &["`listen` stands in [receive]"]),
        (4, &["`listen`", "here"]),
        (5, &["`grace`", "soon"]),
        (7, &["[sources.a] has no key `scheem`", "`scheme`"]),
        (8, &["`a`: scheme", "did you mean `standard`"]),
        (10, &["`a`: upstream", "http://"]),
        (11, &["`max-body` is a string or a whole number"]),
        (12, &["[sources.b] has no `scheme`"]),
        (12, &["[sources.b] has no `upstream`"]),
        (13, &["a secret never stands in this file", "`secret-env` or `secret-file`"]),
        (14, &["`exact-url`", "`public-url`"]),
        (17, &["`concurrency`", "1..=10000"]),
        (18, &["[dispatch] has no key `drain`"]),
        (20, &["`shop`: url"]),
        (22, &["`shop`: header", "NAME: VALUE"]),
        (23, &["`max-in-flight` takes one value"]),
        (24, &["`endpoint`", "`endpoints`"]),
    ] {
        let is_told = |(at, problem): &(u64, String)| *at == line && parts.iter().all(|part| problem.contains(part));
        assert!(problems.iter().any(is_told), "line {line}: {parts:?}\n{problems:#?}");
    }
    assert_eq!(problems.len(), 18, "{problems:#?}");
    assert!(problems.is_sorted_by_key(|(line, _)| *line));
}

#[test]
fn what_each_setting_says_is_judged_and_one_beside_another() {
    let text = r#"
store = "postgres://app:hunter2@db/app"
[receive]
listen = "127.0.0.1:0"
keep-keys = "60s"
[sources.a]
scheme = "standrd"
secret-env = "SECRET"
upstream = "https://127.0.0.1:9"
path = "hooks"
[sources.b]
scheme = "standard"
secret-env = "SECRET"
upstream = "http://127.0.0.1:9"
path = "/b"
[sources.c]
scheme = "standard"
secret-env = "SECRET"
upstream = "http://127.0.0.1:9"
path = "/b/"
consumer = "b"
mode = "deferred"
[endpoints.shop]
url = "https://user:hunter2@shop.example"
secret-env = "SECRET"
header = "webhook-id: 7"
verdict = "404=perhaps"
"#;
    let problems = found(text, true);
    for (line, part) in [
        (2, "COUNTERSIGN_STORE"),
        (7, "did you mean `standard`"),
        (9, "http://"),
        (10, "must begin with /"),
        (20, "also that of `b`"),
        (21, "also that of `b`"),
        (24, "url:"),
        (26, "header:"),
        (27, "verdict:"),
    ] {
        assert!(problems.iter().any(|(at, text)| *at == line && text.contains(part)), "{line} {part}\n{problems:#?}");
    }
    assert_eq!(problems.len(), 9, "{problems:#?}");
    assert!(problems.iter().all(|(_, text)| !text.contains("hunter2")));
    // Seen with what it goes by, which the rest kept back.
    let too_short = SOUND.replace("[sources.a]", "keep-keys = \"60s\"\n[sources.a]");
    assert!(found(&too_short, false).iter().any(|(line, text)| *line == 5 && text.contains("keep-keys")));
    let no_secret = SOUND.replace("secret-env = \"SECRET\"", "");
    assert!(found(&no_secret, false).iter().any(|(line, text)| *line == 5 && text.contains("secret-env NAME")));
}

#[test]
fn what_is_no_toml_is_told_without_an_excerpt_and_a_name_twice_is_none() {
    let broken = format!("{SOUND}\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nb = 1\n");
    assert!(found(&broken, false).iter().any(|(line, text)| *line == 10 && text.contains("no TOML")));
    let twice = format!("{SOUND}\n[sources.a]\nscheme = \"github\"\n");
    assert!(
        found(&twice, false).iter().any(|(line, text)| *line == 10 && text.contains("duplicate")),
        "{:?}",
        found(&twice, false)
    );
}

#[test]
fn nothing_is_made_where_something_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("events.db");
    let text =
        format!("store = \"sqlite:{}\"\n{SOUND}\nbody-timeout = 0\n[dispatch]\nlease = \"1s\"\n", store.display());
    let path = file(folder.path(), &text);
    for command in ["receive", "dispatch"] {
        let ended = countersign([command, "--config"]).args([&path]).run().exits(2);
        assert_eq!(ended.text(), "", "it does not listen");
        ended.says("line 11").says("body-timeout");
    }
    assert!(!store.exists());
    countersign(["receive", "--config", "nowhere.toml"]).run().exits(3).says("nowhere.toml");
}

#[test]
fn flags_beside_a_file_are_refused_but_those_of_the_call_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), SOUND);
    let receive = countersign(["receive", "--max-body", "1", "--config"]).args([&path]);
    receive.run().exits(2).says("--max-body").says("in the file");
    let store = format!("sqlite:{}", folder.path().join("events.db").display());
    let dispatch = countersign(["dispatch", "--drain", "--json", "--config"]).args([&path]);
    dispatch.env("COUNTERSIGN_STORE", store).run().exits(0);
    countersign(["receive", "--listen", "127.0.0.1:0"]).run().exits(2).says("--upstream");
}

/// The flags that a command's help lists.
fn flags(command: &[&str]) -> BTreeSet<String> {
    let help = countersign(command.iter().copied()).args(["--help"]).run().exits(0).text();
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let long = lines.filter_map(|line| line.split_once("--").map(|(_, rest)| rest));
    long.map(|rest| rest.split([' ', '=', ',']).next().expect("a name").to_owned()).collect()
}

/// A key that a table does not know is answered with all that it may have: here, with its flags.
#[test]
fn each_flag_of_receive_dispatch_and_endpoint_add_has_its_key() {
    // Of the call, and not of what runs; `--source` is the name of a table.
    let of_call = ["config", "drain", "help", "json", "source"];
    let mut has: BTreeSet<String> = BTreeSet::new();
    for table in ["", "[receive]", "[sources.a]", "[dispatch]", "[endpoints.a]"] {
        let problems = found(&format!("{table}\nqqqqqqqqqq = 1\n"), true);
        let (_, told) = problems.iter().find(|(_, text)| text.contains("it may have: ")).expect("its keys");
        let keys = told.split_once("it may have: ").expect("its keys").1;
        has.extend(keys.split(", ").map(str::to_owned));
    }
    for command in [&["receive"][..], &["dispatch"], &["endpoint", "add"]] {
        let flags = flags(command);
        assert!(flags.len() > 10, "{flags:?}");
        for flag in flags.iter().filter(|flag| !of_call.contains(&flag.as_str())) {
            assert!(has.contains(flag), "{command:?} has --{flag}, and no table has it");
        }
    }
}
