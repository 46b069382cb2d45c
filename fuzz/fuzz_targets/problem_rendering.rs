#![no_main]

#[path = "../input.rs"]
mod input;
#[path = "../targets/problem_rendering.rs"]
mod problem_rendering;

libfuzzer_sys::fuzz_target!(|data: &[u8]| problem_rendering::run(data));
