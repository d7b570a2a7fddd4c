//! Any text as a module: an error, or a module that prints to a text that parses to the same module.

use pteron_ir::text::parse_module;

/// One input; what is no text any more is left out.
pub fn run(data: &[u8]) {
    let text = match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&data[..error.valid_up_to()]).unwrap_or_default(),
    };
    let Ok(module) = parse_module(text) else { return };
    let printed = module.to_string();
    let again = parse_module(&printed).expect("what was printed parses");
    // NaN differs from itself, so the comparison is of what is printed.
    assert_eq!(again.to_string(), printed);
}
