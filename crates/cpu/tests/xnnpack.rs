//! Programs that ExecuTorch exported for XNNPACK give what its own runtime gives, on the reference backend and here, as they
//! are and with MLX bytecode or portable operators in place of XNNPACK's payloads.

#![allow(clippy::unwrap_used)] // helpers fail their test
#![cfg(not(miri))] // it would unpack the cases for an hour

mod packed;

use packed::{cases, check_all, with_mlx, with_portable};
use pteron_cpu::Cpu;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program};
use pteron_tensor::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

const SET: &str = "xnnpack.zip";

#[test]
fn programs_for_xnnpack_give_what_its_own_runtime_gives() {
    check_all(SET, |program| Ok(program.to_vec()));
}

#[test]
fn with_mlx_bytecode_they_give_the_same() {
    check_all(SET, with_mlx);
}

#[test]
fn with_portable_operators_they_give_the_same() {
    check_all(SET, with_portable);
}

/// What ExecuTorch's exporter cuts into dozens of delegates runs as one graph, which keeps the caches itself.
#[test]
fn a_language_model_becomes_one_graph() {
    let cases = cases(SET);
    for name in ["llama_f32", "llama_8bit", "llama_qc4", "llama_8da4w", "llama_8da4w_one_token"] {
        let mut registry = Registry::default();
        registry.add(Arc::new(Cpu::new(1, None).unwrap()));
        let options = Options { registry, backend: Some("cpu".into()), ..Options::default() };
        let bytes = Bytes::copy_of(&cases[name]["model.pte"]);
        let program = Program::load(name, bytes, &[], &options).unwrap();
        let delegates = &program.method("forward").unwrap().delegates;
        let parts: BTreeSet<Option<usize>> = delegates.iter().map(|delegate| delegate.joined).collect();
        assert!(delegates.len() > 20 && parts == BTreeSet::from([Some(0)]), "{name}: {parts:?}");
        assert_eq!(program.buffers().len(), 4, "{name}");
        assert!(program.buffers().iter().all(|buffer| program.keeper(&buffer.id).is_some()), "{name}");
    }
}
