#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farwrite_fuzz::http::exchange(data));
