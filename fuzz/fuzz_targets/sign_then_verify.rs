#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/sign_then_verify.rs"]
mod sign_then_verify;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sign_then_verify::run(data));
