//! Any text as a module: an error, or a module that prints to a text that parses to the same module.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pteron_ir::text::parse_module;

fuzz_target!(|text: &str| {
    let Ok(module) = parse_module(text) else { return };
    let printed = module.to_string();
    let again = parse_module(&printed).expect("what was printed parses");
    // NaN differs from itself, so the comparison is of what is printed.
    assert_eq!(again.to_string(), printed);
});
