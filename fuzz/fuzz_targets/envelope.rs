#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/envelope.rs"]
mod envelope;

libfuzzer_sys::fuzz_target!(|data: &[u8]| envelope::run(data));
