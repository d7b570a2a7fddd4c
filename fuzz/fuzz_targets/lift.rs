//! Any payload as a module: an error, or graphs that verify, print, and go through emit and lift again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pteron_format::payload::Payload;
use pteron_format::{Limits, emit, lift};
use pteron_ir::verify::verify_module;

fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    let Ok(payload) = Payload::decode(data, &limits) else { return };
    let Ok(module) = lift(&payload, "fuzz", &limits) else { return };
    if let Err(errors) = verify_module(&module) {
        panic!("what was lifted does not verify: {errors:?}\n{module}");
    }
    let Ok(emitted) = emit(&module) else { return };
    let again = lift(&emitted, "fuzz", &limits).expect("what was emitted lifts");
    assert_eq!(again.main.outputs.len(), module.main.outputs.len());
    assert_eq!(again.main.buffers.len(), module.main.buffers.len());
});
