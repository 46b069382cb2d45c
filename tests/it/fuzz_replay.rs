//! Runs the properties that are fuzzed as ordinary tests: over their corpora, over small changes to these, and over
//! random bytes that are the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/targets/dedup_key.rs"]
mod dedup_key;
#[path = "../../fuzz/targets/envelope.rs"]
mod envelope;
#[path = "../../fuzz/targets/hmac_options.rs"]
mod hmac_options;
#[path = "../../fuzz/input.rs"]
mod input;
#[path = "../../fuzz/targets/message_signature.rs"]
mod message_signature;
#[path = "../../fuzz/targets/problem_rendering.rs"]
mod problem_rendering;
#[path = "../../fuzz/targets/retry_after.rs"]
mod retry_after;
#[path = "../../fuzz/targets/retry_schedule.rs"]
mod retry_schedule;
#[path = "../../fuzz/targets/secret_parsing.rs"]
mod secret_parsing;
#[path = "../../fuzz/targets/sign_then_verify.rs"]
mod sign_then_verify;
#[path = "../../fuzz/targets/signature_headers.rs"]
mod signature_headers;
#[path = "../../fuzz/targets/target_url.rs"]
mod target_url;
#[path = "../../fuzz/targets/verify.rs"]
mod verify;
#[path = "../../fuzz/targets/window.rs"]
mod window;

/// The targets that have a test below.
const REPLAYED: &[&str] = &[
    "dedup_key",
    "envelope",
    "hmac_options",
    "message_signature",
    "problem_rendering",
    "retry_after",
    "retry_schedule",
    "secret_parsing",
    "sign_then_verify",
    "signature_headers",
    "target_url",
    "verify",
    "window",
];

#[test]
fn the_property_dedup_key_holds() {
    replay("dedup_key", dedup_key::run);
}

#[test]
fn the_property_envelope_holds() {
    replay("envelope", envelope::run);
}

#[test]
fn the_property_hmac_options_holds() {
    replay("hmac_options", hmac_options::run);
}

#[test]
fn the_property_message_signature_holds() {
    replay("message_signature", message_signature::run);
}

#[test]
fn the_property_problem_rendering_holds() {
    replay("problem_rendering", problem_rendering::run);
}

#[test]
fn the_property_retry_after_holds() {
    replay("retry_after", retry_after::run);
}

#[test]
fn the_property_retry_schedule_holds() {
    replay("retry_schedule", retry_schedule::run);
}

#[test]
fn the_property_secret_parsing_holds() {
    replay("secret_parsing", secret_parsing::run);
}

#[test]
fn the_property_sign_then_verify_holds() {
    replay("sign_then_verify", sign_then_verify::run);
}

#[test]
fn the_property_signature_headers_holds() {
    replay("signature_headers", signature_headers::run);
}

#[test]
fn the_property_target_url_holds() {
    replay("target_url", target_url::run);
}

#[test]
fn the_property_verify_holds() {
    replay("verify", verify::run);
}

#[test]
fn the_property_window_holds() {
    replay("window", window::run);
}

#[test]
fn every_fuzz_target_is_replayed_and_wrapped() {
    let root = fuzz();
    let mut targets: Vec<String> = names(&root.join("targets"));
    targets.sort();
    let mut wrapped: Vec<String> = names(&root.join("fuzz_targets"));
    wrapped.sort();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the manifest of the fuzz targets");

    assert_eq!(targets, REPLAYED, "in fuzz/targets, and in REPLAYED");
    assert_eq!(targets, wrapped, "in fuzz/targets, and in fuzz/fuzz_targets");
    for target in targets {
        assert!(manifest.contains(&format!("fuzz_targets/{target}.rs")), "{target} has no [[bin]] in fuzz/Cargo.toml");
    }
}

/// How many random inputs each property gets beside its corpus.
const RANDOM_INPUTS: u64 = 400;

/// How many changed copies of each file of the corpus it gets.
const CHANGES: u64 = 40;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = fuzz().join("corpus").join(target);
    let files = files(&folder);
    assert!(files.len() >= 2, "{} holds too little", folder.display());

    let mut random = Random(0x5eed);
    for file in files {
        // The harness shows this line with the failure, so that a bad input can be told by its name.
        println!("{}", file.display());
        let input = fs::read(&file).expect("a file of the corpus");
        run(&input);
        for _ in 0..CHANGES {
            run(&random.changed(&input));
        }
    }
    for _ in 0..RANDOM_INPUTS {
        let input = random.bytes();
        println!("{input:?}");
        run(&input);
    }
}

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).iter().filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect()
}

/// In a fixed order: the random changes depend on it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the fuzz package");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Marsaglia's xorshift: enough to vary inputs, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("less than a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Up to 600 bytes; half of the time printable ones, which get further into a parser.
    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(600);
        let printable = self.below(2) == 0;
        (0..length).map(|_| if printable { b' ' + self.byte() % 95 } else { self.byte() }).collect()
    }

    /// A copy with one to three bytes set, taken out, put in or cut off.
    fn changed(&mut self, input: &[u8]) -> Vec<u8> {
        let mut copy = input.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(copy.len());
            match self.below(4) {
                0 if !copy.is_empty() => copy[at] = self.byte(),
                1 if !copy.is_empty() => drop(copy.remove(at)),
                2 => copy.truncate(at),
                _ => copy.insert(at, self.byte()),
            }
        }
        copy
    }
}
