#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pteron_fuzz_targets::container::run(data));
