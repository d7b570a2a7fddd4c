//! Any payload as a module: an error, or graphs that are sound, and that go through emit and lift again.

use pteron_format::payload::Payload;
use pteron_format::{Limits, emit, lift};
use pteron_ir::verify::{Fault, verify_module};

/// One input.
pub fn run(data: &[u8]) {
    let limits = Limits::untrusted();
    let Ok(payload) = Payload::decode(data, &limits) else { return };
    let Ok(module) = lift(&payload, "fuzz", &limits) else { return };
    for error in verify_module(&module).err().unwrap_or_default() {
        assert!(is_declared(&error.fault), "lift made an unsound graph: {error}\n{module}");
    }
    let Ok(emitted) = emit(&module) else { return };
    let again = lift(&emitted, "fuzz", &limits).expect("what was emitted lifts");
    assert_eq!(again.main.outputs.len(), module.main.outputs.len());
    assert_eq!(again.main.buffers.len(), module.main.buffers.len());
}

/// Whether a fault is in what the file declares (types, names, ranges), which lift hands on as it is.
fn is_declared(fault: &Fault) -> bool {
    !matches!(
        fault,
        Fault::NoSuchValue(_)
            | Fault::NoSuchSymbol(_)
            | Fault::DefinedTwice(_)
            | Fault::NeverDefined(_)
            | Fault::DefinedLater(_)
            | Fault::OutOfScope(_)
            | Fault::Rule(_)
            | Fault::ResultCount { .. }
            | Fault::ResultType { .. }
            | Fault::OuterBlock
    )
}
