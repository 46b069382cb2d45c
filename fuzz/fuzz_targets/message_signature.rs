#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/message_signature.rs"]
mod message_signature;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message_signature::run(data));
