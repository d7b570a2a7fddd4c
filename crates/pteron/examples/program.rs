//! Any program, on tensors: what its method takes, a run on zeros, what it gives.
//!
//! `cargo run --release -p pteron --example program -- FILE.pte METHOD`

use pteron::{ArgumentKind, HostTensor, OpenOptions, Program, Value};
use std::error::Error;
use std::io::Write;
use std::path::Path;

pub(crate) fn run(file: &Path, method: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let program = Program::open(file, &[], &OpenOptions::default().runtime()?)?;
    let mut inputs = Vec::new();
    for input in &program.method(method)?.inputs {
        inputs.push(match &input.kind {
            ArgumentKind::Tensor { dtype, dims } => {
                let shape: Vec<usize> = dims.iter().map(|dim| dim.min.max(1)).collect();
                writeln!(out, "takes {dtype} {shape:?}")?;
                Value::Tensor(HostTensor::zeros(*dtype, shape)?)
            }
            _ => {
                writeln!(out, "takes a number")?;
                Value::Int(0)
            }
        });
    }
    // A session keeps state from run to run; sessions share the program and its weights.
    let mut session = program.session()?;
    for output in session.run(method, &inputs)? {
        if let Some(tensor) = output.to_tensor()? {
            writeln!(out, "gives {} {:?}", tensor.dtype(), tensor.shape())?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, method] = arguments.as_slice() else { return Err("usage: program FILE.pte METHOD".into()) };
    run(Path::new(file), method, &mut std::io::stdout())
}
