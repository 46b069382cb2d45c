//! Holds the shape of the source: which module may lean on which, how long a file may be, and what must not be named.
//!
//! The source is read as text. That sees what a compiler would not mind, needs no dependency, and is exact enough: a
//! path that is spelled out by a macro would be missed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module at the top of the crate, and the others that it may use. `lib.rs` may use all of them.
///
/// `receive` and `send` are two walks that never meet; `admin` sits on top of both. `src/cli` is not among them: it is
/// the program, a crate of its own that sees what every user of the library sees.
const ARROWS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("event", &["clock"]),
    ("secret", &["clock"]),
    ("signature", &["clock", "event", "secret"]),
    ("telemetry", &["clock", "event"]),
    ("cause", &["event", "telemetry"]),
    ("envelope", &["clock", "event"]),
    ("notice", &["clock", "event", "telemetry"]),
    ("store", &["clock", "event", "telemetry"]),
    ("work", &["clock", "event", "notice", "store", "telemetry"]),
    (
        "receive",
        &["cause", "clock", "envelope", "event", "notice", "secret", "signature", "store", "telemetry", "work"],
    ),
    ("send", &["cause", "clock", "envelope", "event", "notice", "secret", "signature", "store", "telemetry", "work"]),
    ("saga", &["cause", "clock", "envelope", "event", "receive", "send", "store"]),
    ("admin", &["clock", "event", "notice", "secret", "signature", "store", "telemetry", "work", "receive", "send"]),
];

/// Modules that decide and never wait: the present moment is an argument, a row or a request is somebody else's.
const PURE: &[&str] = &["clock", "envelope", "event", "secret", "signature"];

/// What a pure module leaves alone.
const ASYNC_CRATES: &[&str] =
    &["axum", "axum_core", "futures_util", "hyper", "hyper_util", "sqlx", "tokio", "tokio_util", "tower_service"];

/// Modules that know requests and responses only as values to keep, and nothing of servers, clients and bodies.
const OFFLINE: &[&str] = &["store", "work"];

/// What an offline module leaves alone.
const HTTP_CRATES: &[&str] =
    &["axum", "axum_core", "http_body", "http_body_util", "hyper", "hyper_util", "tower_layer", "tower_service"];

/// The values of `http` that an offline module may keep.
const HTTP_VALUES: &[&str] = &["HeaderMap", "HeaderName", "HeaderValue", "Method", "StatusCode", "header"];

/// Over this a file has more than one idea.
const LONGEST_FILE: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "manager", "misc", "types", "util", "utils"];

/// Where somebody's copy of the repository lies is nobody else's business. Cut in two, so that this file may hold them.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt"),
    concat!("/tmp/", "briefs"),
    concat!("/tmp/", "t-"),
    concat!("/root", "/."),
    concat!("../", "shared"),
];

#[test]
fn every_module_uses_only_what_lies_below_it() {
    let map = Map::read(&read("src/lib.rs"));
    let faults: Vec<String> = sources().iter().flat_map(|(path, text)| map.faults(path, text)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn no_source_file_is_too_long_or_named_after_nothing() {
    let sources = sources();
    assert!(!sources.is_empty());
    for (path, text) in &sources {
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{path} has {lines} lines; {LONGEST_FILE} are allowed");
        for part in path.trim_end_matches(".rs").split('/') {
            assert!(!EMPTY_NAMES.contains(&part), "{path}: name it after what it does");
        }
    }
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let root = root();
    let files = files(&root);
    assert!(files.contains(&root.join("Cargo.toml")));
    for file in files {
        let bytes = fs::read(&file).expect("a file of the repository");
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in text.lines().enumerate() {
            assert_eq!(place_in(line), None, "{}, line {}", file.display(), number + 1);
        }
    }
}

#[test]
fn an_arrow_that_points_upwards_is_found() {
    let map = Map::read("pub mod clock;\npub use clock::Timestamp;\npub use receive::{Delivery, Reservation as Held};");
    let faults = |path: &str, text: &str| map.faults(path, text).len();

    for upwards in [
        "use crate::send::Dispatcher;",
        "fn f() { crate::send::now() }",
        "use crate::{\n    clock::{Clock, Timestamp},\n    send::{self, Message},\n};",
        "use super::super::send;",
        "pub(in crate::send) fn f() {}",
    ] {
        assert_eq!(faults("src/receive/dedup.rs", upwards), 1, "{upwards}");
        assert_eq!(faults("src/cli/mod.rs", &upwards.replace("super::super", "super")), 0, "{upwards}");
    }
    assert_eq!(faults("src/send/client.rs", "use crate::receive::Rejection;"), 1);
    assert_eq!(faults("src/store/inbox.rs", "use crate::Delivery;"), 1, "a name that lib.rs re-exports");
    assert_eq!(faults("src/store/inbox.rs", "use crate::Held;"), 1, "one that it renames");
    assert_eq!(faults("src/store/inbox.rs", "use crate::Unheard;"), 1, "one that it does not know");
    assert_eq!(faults("src/event.rs", "use super::store::Token;"), 1);
    assert_eq!(faults("src/unheard/mod.rs", ""), 1, "a module without a place");
}

#[test]
fn a_pure_module_that_waits_or_queries_is_found() {
    let map = Map::read("");
    let faults = |path: &str, text: &str| map.faults(path, text).len();

    for line in ["use tokio::sync::Mutex;", "pub async fn verify() {}", "x.await", "fn f(c: &mut sqlx::Any) {}"] {
        assert_eq!(faults("src/signature/verify.rs", line), 1, "{line}");
        assert_eq!(faults("src/receive/verify.rs", line), 0, "{line}");
    }
    for line in ["use http::{HeaderMap, Request};", "use http::request::Parts;", "use hyper::body::Body;"] {
        assert_eq!(faults("src/store/inbox.rs", line), 1, "{line}");
        assert_eq!(faults("src/send/client.rs", line), 0, "{line}");
    }
}

#[test]
fn what_points_downwards_or_only_speaks_is_let_be() {
    let map = Map::read("pub use clock::Timestamp;");
    for text in [
        "use crate::{Timestamp, clock::Clock, event::*};",
        "use super::StoreError;\nuse super::inbox::{Receipt, Token};",
        "use http::{HeaderMap, StatusCode, header::{HeaderName, HeaderValue}};",
        "macro_rules! promises { () => { $crate::promises! { @each } } }",
        "use std::sync::Arc;\nuse mycrate::send::X;",
        "//! See [`Message`](crate::send::Message).\n/// And [`crate::receive`]. // crate::cli",
        "#[cfg(test)]\nmod tests {\n    use crate::send::Message;\n}",
    ] {
        assert_eq!(map.faults("src/store/memory.rs", text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn a_place_is_told_from_a_folder_of_the_source() {
    for place in PLACES {
        assert_eq!(place_in(&format!("see {place}notes")), Some(*place));
        assert_eq!(place_in(place), Some(*place));
    }
    assert_eq!(place_in(concat!("the folder src/wo", "rk/ and `./wo", "rk/loop.rs`")), None);
}

/// Which module each name at the top of the crate belongs to.
struct Map(BTreeMap<String, String>);

impl Map {
    /// Reads `pub use module::{names};` of `lib.rs`.
    fn read(lib: &str) -> Self {
        let code = code(lib);
        let mut owners: BTreeMap<String, String> =
            ARROWS.iter().map(|(module, _)| ((*module).to_owned(), (*module).to_owned())).collect();
        for item in code.split(';') {
            let Some((_, path)) = item.split_once("pub use ") else { continue };
            let Some((module, names)) = path.trim().split_once("::") else { continue };
            for name in names.split(|c: char| !is_word(c)).filter(|name| !name.is_empty()) {
                owners.insert(name.to_owned(), module.to_owned());
            }
        }
        Self(owners)
    }

    /// What is wrong with the file, a line each.
    fn faults(&self, path: &str, text: &str) -> Vec<String> {
        if path.starts_with("src/cli/") {
            return Vec::new();
        }
        let Some(module) = module_of(path) else { return Vec::new() };
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            return vec![format!("{path}: say in ARROWS where the module `{module}` stands")];
        };
        let code = code(text);
        let mut faults = Vec::new();
        for name in top_names(path, &code) {
            match self.0.get(&name) {
                Some(owner) if owner == module || allowed.contains(&owner.as_str()) => {}
                Some(owner) => faults.push(format!("{path}: `{module}` must not use `{owner}` (it names `{name}`)")),
                None => faults.push(format!("{path}: `crate::{name}` is neither a module nor re-exported by lib.rs")),
            }
        }
        if PURE.contains(&module) {
            let krate = ASYNC_CRATES.iter().filter(|krate| !names_after(&code, krate).is_empty());
            faults.extend(krate.map(|krate| format!("{path}: `{module}` is pure and must not use `{krate}`")));
            if code.contains(".await") || code.contains("async fn") || code.contains("async move") {
                faults.push(format!("{path}: `{module}` is pure and must not wait"));
            }
        }
        if OFFLINE.contains(&module) {
            let krate = HTTP_CRATES.iter().filter(|krate| !names_after(&code, krate).is_empty());
            faults.extend(krate.map(|krate| format!("{path}: `{module}` must not use `{krate}`")));
            let value = names_after(&code, "http").into_iter().filter(|name| !HTTP_VALUES.contains(&name.as_str()));
            faults.extend(value.map(|value| format!("{path}: `{module}` must not use `http::{value}`")));
        }
        faults
    }
}

/// The module at the top of the crate that a file belongs to; none for `lib.rs`, and for a program's own root.
fn module_of(path: &str) -> Option<&str> {
    let (first, rest) = path.strip_prefix("src/")?.split_once('/').unzip();
    let first = first.unwrap_or(path.strip_prefix("src/")?);
    let module = first.trim_end_matches(".rs");
    let is_root = rest.is_none() && (module == "lib" || module == "main");
    // Documentation in Markdown, and programs, which use the library as others do.
    (!is_root && module != "bin" && module != "guide").then_some(module)
}

/// The code of a file: without comments, and without the tests at its end, which may use what they need.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        // `://` begins no comment but stands in an address.
        let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
        code.push_str(comment.map_or(line, |(at, _)| &line[..at]));
        code.push('\n');
    }
    code
}

/// The names that a file takes from the top of the crate, by `crate::` or by enough of `super::`.
fn top_names(path: &str, code: &str) -> Vec<String> {
    let mut names = names_after(code, "crate");
    let depth = path.matches('/').count() - usize::from(path.ends_with("/mod.rs"));
    let to_the_top = vec!["super"; depth].join("::");
    // A module within the file needs one `super` more, so only names of modules are taken for what they are.
    let modules = |name: &String| ARROWS.iter().any(|(module, _)| module == name);
    names.extend(names_after(code, &to_the_top).into_iter().filter(modules));
    names
}

/// What follows `root::`, wherever that stands: the first name of the path, or of each path within braces.
fn names_after(code: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(&format!("{root}::")) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':') {
            continue;
        }
        let rest = &code[at + root.len() + 2..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_members(group).iter().map(|member| first_word(member))),
            // An exported macro lies at the top of the crate, whichever module wrote it.
            None if rest.trim_start_matches(is_word).starts_with('!') => {}
            None => names.push(first_word(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The paths within the braces of a `use`, up to the closing one.
fn group_members(group: &str) -> Vec<&str> {
    let mut members = Vec::new();
    let (mut depth, mut from) = (0_u32, 0);
    for (at, c) in group.char_indices() {
        match (c, depth) {
            ('{', _) => depth += 1,
            ('}', 0) => {
                members.push(&group[from..at]);
                break;
            }
            ('}', _) => depth -= 1,
            (',', 0) => {
                members.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    members
}

fn first_word(path: &str) -> String {
    path.trim_start().chars().take_while(|c| is_word(*c)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The place that a line names from the root of a file system, or beside the repository.
fn place_in(line: &str) -> Option<&'static str> {
    let begins_there = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '*' | '/' | '}' | ')'))
    };
    PLACES.iter().copied().find(|place| line.match_indices(place).any(|(at, _)| begins_there(at)))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a file of the source")
}

/// The Rust files of the library, as `src/…` with their text.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let files = files(&root.join("src")).into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let paths = files.filter_map(|file| Some(file.strip_prefix(&root).ok()?.to_str()?.replace('\\', "/")));
    paths.map(|path| (path.clone(), read(&path))).collect()
}

/// Every file below a folder that is kept in the repository: not what Git, the compiler or the fuzzer put there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !matches!(name, ".git" | "target" | "artifacts" | "coverage" | "__pycache__") {
                found.extend(files(&path));
            }
        } else if name != ".git" {
            // A linked work tree has a file of that name, which says where the repository is.
            found.push(path);
        }
    }
    found
}
