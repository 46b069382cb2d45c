#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/retry_schedule.rs"]
mod retry_schedule;

libfuzzer_sys::fuzz_target!(|data: &[u8]| retry_schedule::run(data));
