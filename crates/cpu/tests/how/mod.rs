//! How tests load a tiny program: on which path, how precisely, in what memory; and how far apart two runs are.

use pteron_cpu::{Cpu, Path, RunMemory};
use pteron_format::Limits;
use pteron_runtime::{Options, Precision, Program};
use pteron_tensor::Bytes;
use std::sync::Arc;

pub(crate) struct How {
    pub(crate) path: Path,
    pub(crate) precision: Precision,
    pub(crate) memory: RunMemory,
    pub(crate) invariant: bool,
    pub(crate) limits: Limits,
}

impl How {
    pub(crate) fn on(path: Path) -> How {
        How {
            path,
            precision: Precision::Exact,
            memory: RunMemory::Planned,
            invariant: false,
            limits: Limits::default(),
        }
    }
}

pub(crate) fn load(file: &Bytes, how: &How) -> Program {
    let mut options = Options {
        precision: how.precision,
        batch_invariant: how.invariant,
        limits: how.limits.clone(),
        ..Options::default()
    };
    options.registry.add(Arc::new(Cpu::new(2, Some(how.path)).unwrap().with_memory(how.memory)));
    Program::load("tiny.pte", file.clone(), &[], &options).unwrap()
}

pub(crate) fn paths() -> impl Iterator<Item = Path> {
    Path::ALL.into_iter().filter(|path| {
        if !path.is_available() {
            println!("{path}: not run, this machine lacks it");
        }
        path.is_available()
    })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

pub(crate) fn apart(a: &[Vec<u8>], b: &[Vec<u8>]) -> f32 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| floats(a).into_iter().zip(floats(b)));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
