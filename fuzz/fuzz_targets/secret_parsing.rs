#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/secret_parsing.rs"]
mod secret_parsing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| secret_parsing::run(data));
