#![no_main]

#[path = "../targets/hmac_options.rs"]
mod hmac_options;
#[path = "../input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hmac_options::run(data));
