#![no_main]

#[path = "../targets/target_url.rs"]
mod target_url;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target_url::run(data));
