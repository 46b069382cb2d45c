//! Holds the guides to what there is: commands and flags, tests, columns, metrics and states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use countersign::store::{MessageState, ReceiptState};

use crate::cli::countersign;

const THREATS: &str = include_str!("../../src/guide/threats.md");
const OPERATIONS: &str = include_str!("../../src/guide/operations.md");
const SCHEMA: &str = include_str!("../../src/guide/schema.md");
const METRICS: &str = include_str!("../../src/guide/metrics.md");

#[test]
fn every_test_that_a_threat_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<String> = ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .map(|file| fs::read_to_string(file).expect("a source"))
        .collect();
    let mut named = 0;
    for row in THREATS.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| threat")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let tests: Vec<_> = cells.last().expect("a cell").split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "a threat that no test holds off: {row}");
        for test in tests {
            let function = format!("fn {test}(");
            assert!(sources.iter().any(|source| source.contains(&function)), "there is no test `{test}`: {row}");
            named += 1;
        }
    }
    assert!(named >= 40, "{named}");
}

#[test]
fn every_command_in_the_guides_exists_with_the_flags_that_are_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    pages.extend(files(&root.join("src/guide"), "md"));
    let mut checked = 0;
    let mut helps = BTreeMap::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        for command in commands(&text) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let depth = if matches!(words[1], "inbox" | "outbox" | "endpoint" | "config") { 3 } else { 2 };
            let path: Vec<String> = words[1..depth].iter().map(|&word| word.to_owned()).collect();
            let help = helps.entry(path.clone()).or_insert_with(|| {
                countersign(path.iter().map(String::as_str).chain(["--help"])).run().exits(0).text()
            });
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().expect("a flag");
                let is_there = help.split_whitespace().any(|word| word.trim_end_matches([',', '.']) == flag);
                assert!(is_there, "{}: `{command}`: {flag} is not in its help", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked >= 40, "{checked}");
}

#[test]
fn every_metric_and_every_state_has_its_line_in_operations() {
    let metrics = METRICS.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let metrics: Vec<_> = metrics.filter(|name| name.starts_with("countersign_")).collect();
    assert!(metrics.len() >= 18, "{metrics:?}");
    for metric in metrics {
        assert!(OPERATIONS.contains(&format!("| `{metric}`")), "{metric}");
    }
    let states =
        ReceiptState::ALL.map(ReceiptState::as_str).into_iter().chain(MessageState::ALL.map(MessageState::as_str));
    for state in states {
        assert!(OPERATIONS.contains(&format!("| `{state}`")), "{state}");
    }
}

#[test]
fn every_table_and_column_is_in_the_guide_and_no_other() {
    for (database, name) in [("sqlite", "SQLite"), ("postgres", "PostgreSQL"), ("mysql", "MySQL")] {
        let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/schema/{database}.sql"));
        let there = columns(&fs::read_to_string(dump).expect("a dump"));
        assert!(there.len() >= 6, "{there:?}");
        assert_eq!(there, columns_of_the_guide(name), "{database}");
    }
}

/// What begins with `countersign` in the blocks of shell, with lines that go on put together, without comments.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_shell = false;
    let text = page.replace("\\\n", " ");
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_shell = line == "```sh";
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim_end_matches(['&', ' ']);
        for part in line.split(" | ").map(str::trim).filter(|_| in_shell) {
            let part = part.split(" > ").next().unwrap_or_default();
            if part.starts_with("countersign ") {
                found.push(part.to_owned());
            }
        }
    }
    found
}

/// Below the heading of a table, a row for each column or for some, with the databases that have them.
fn columns_of_the_guide(database: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut table = None;
    for line in SCHEMA.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            table = Some(heading.trim_matches('`').to_owned());
        }
        let (Some(table), Some(row)) = (&table, line.strip_prefix("| `")) else { continue };
        let cells: Vec<_> = row.split(" | ").collect();
        if cells[1] == "all" || cells[1].split(", ").any(|name| name == database) {
            let names = cells[0].split('`').step_by(2).filter(|name| !name.is_empty());
            tables.entry(table.clone()).or_default().extend(names.map(str::to_owned));
        }
    }
    tables
}

/// The tables of a dump: each line within `CREATE TABLE … (` that begins with a name in lower case.
fn columns(dump: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut table = None;
    for line in dump.lines() {
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            let name =
                rest.split([' ', '(']).next().expect("a name").trim_matches(['`', '"']).trim_start_matches("public.");
            table = Some(name.to_owned()).filter(|name| name.starts_with("countersign_"));
            continue;
        }
        if line.starts_with(')') || line.trim_end().ends_with(';') {
            table = None;
        }
        let Some(table) = &table else { continue };
        let name = line.strip_prefix("    ").or_else(|| line.strip_prefix("  ")).unwrap_or_default();
        let name = name.trim_start_matches(['`', '"']).split([' ', '`', '"']).next().unwrap_or_default();
        if !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_') {
            tables.entry(table.clone()).or_default().insert(name.to_owned());
        }
    }
    tables
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, "rs")
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the source") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
    found
}
