#![no_main]

#[path = "../targets/envelope.rs"]
mod envelope;
#[path = "../input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| envelope::run(data));
