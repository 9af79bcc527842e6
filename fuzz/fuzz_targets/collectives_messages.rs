#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farwrite_fuzz::collectives::messages(data));
