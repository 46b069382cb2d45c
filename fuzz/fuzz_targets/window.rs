#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/window.rs"]
mod window;

libfuzzer_sys::fuzz_target!(|data: &[u8]| window::run(data));
