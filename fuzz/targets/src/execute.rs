//! Any bytes as a program: an error, or methods that run on zeros to an end, an error or the deadline, on the reference
//! backend and on the CPU backend.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use pteron_cpu::Cpu;
use pteron_format::Limits;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Argument, ArgumentKind, Options, Program, RunControl, Value};
use pteron_tensor::{Bytes, HostTensor};

/// Dims of inputs are cut to this; larger ones only take longer.
const LARGEST_DIM: usize = 64;

/// Element operations of one run: a deadline is looked at between ops, and one op can be hours of work by the default.
const WORK: u64 = 1 << 28;

static BACKENDS: LazyLock<[Options; 2]> = LazyLock::new(|| {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(1, None).expect("the best path is there")));
    let limits = Limits { work: WORK, ..Limits::untrusted() };
    [
        Options { limits: limits.clone(), ..Options::default() },
        Options { registry, limits, ..Options::default() },
    ]
});

/// One input.
pub fn run(data: &[u8]) {
    for options in BACKENDS.iter() {
        run_on(data, options);
    }
}

fn run_on(data: &[u8], options: &Options) {
    let Ok(program) = Program::load("fuzz.pte", Bytes::copy_of(data), &[], options) else { return };
    let Ok(mut session) = program.session() else { return };
    for method in program.methods() {
        let Some(inputs) = method.inputs.iter().map(zeros).collect::<Option<Vec<_>>>() else { continue };
        let deadline = Some(Instant::now() + Duration::from_secs(2));
        let _ = session.run_with(&method.name, &inputs, &RunControl { deadline, ..RunControl::default() });
    }
}

fn zeros(input: &Argument) -> Option<Value> {
    match &input.kind {
        ArgumentKind::Tensor { dtype, dims } => {
            let shape = dims.iter().map(|dim| dim.max.unwrap_or(dim.min).min(LARGEST_DIM)).collect();
            HostTensor::zeros(*dtype, shape).ok().map(Value::Tensor)
        }
        ArgumentKind::Int => Some(Value::Int(0)),
        ArgumentKind::Fixed(_) => Some(Value::None),
    }
}
