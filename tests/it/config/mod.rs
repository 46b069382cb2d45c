//! The configuration file, by the real program.

mod judged;
mod served;

use std::path::{Path, PathBuf};

use crate::cli::{Program, countersign};

/// A file with this text.
fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("countersign.toml");
    std::fs::write(&path, text).expect("a file");
    path
}

fn check(path: &Path) -> Program {
    countersign(["config", "check"]).args([path])
}
