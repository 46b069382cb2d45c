#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/verify.rs"]
mod verify;

libfuzzer_sys::fuzz_target!(|data: &[u8]| verify::run(data));
