//! `countersign demo` plays the whole table, and finds that it holds.

use std::process::Command;

#[test]
fn every_situation_of_the_demo_is_as_in_the_table() {
    let output = Command::new(env!("CARGO_BIN_EXE_countersign")).args(["demo", "--json"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(output.status.success(), "{document:#}\n{said}");
    assert_eq!(document["differing"], 0);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 28);
    for row in rows {
        assert!(row["answered"].as_str().is_some_and(|answered| !answered.is_empty()), "{row}");
    }
}
