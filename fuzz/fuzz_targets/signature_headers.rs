#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/signature_headers.rs"]
mod signature_headers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| signature_headers::run(data));
