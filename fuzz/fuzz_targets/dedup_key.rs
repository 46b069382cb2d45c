#![no_main]

#[path = "../targets/dedup_key.rs"]
mod dedup_key;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dedup_key::run(data));
