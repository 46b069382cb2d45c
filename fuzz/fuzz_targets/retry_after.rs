#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/retry_after.rs"]
mod retry_after;

libfuzzer_sys::fuzz_target!(|data: &[u8]| retry_after::run(data));
