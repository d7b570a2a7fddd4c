//! Any XNNPACK payload: an error, or tables that are written as they were read, and graphs that are sound and can be written
//! as MLX bytecode.

use pteron_format::xnnpack::{Payload, lift};
use pteron_format::{Argument, Limits, emit};
use pteron_ir::verify::verify_module;
use pteron_tensor::{Bytes, DType};

/// What the arguments of a call are taken for: the first byte says whether their sizes vary.
fn arguments(count: usize, is_dynamic: bool) -> Vec<Argument> {
    let argument = Argument { dtype: Some(DType::F32), sizes: vec![1, 8, 32], is_dynamic };
    vec![argument; count]
}

/// One input.
pub fn run(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let limits = Limits::untrusted();
    let Ok(payload) = Payload::decode(&Bytes::copy_of(data), &limits) else { return };
    let written = payload.encode().expect("what was read can be written");
    let again = Payload::decode(&Bytes::copy_of(&written), &limits).expect("what was written can be read");
    // Bytes, not tables: a number that is none equals nothing.
    assert_eq!(again.encode().expect("what was read can be written"), written);
    let externs = payload.graph.num_externs as usize;
    for arguments in [Vec::new(), arguments(externs, first % 2 == 1)] {
        let Ok(lifted) = lift(&payload, "fuzz", &arguments, &limits) else { continue };
        if let Err(errors) = verify_module(&lifted.module) {
            panic!("lift made an unsound graph: {}\n{}", errors[0], lifted.module);
        }
        emit(&lifted.module).expect("what was lifted can be emitted");
    }
}
