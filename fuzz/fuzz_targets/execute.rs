#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pteron_fuzz_targets::execute::run(data));
