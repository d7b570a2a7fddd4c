//! Where weights live: as a load asks for it, with the same results, and no more of them than kernels read.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pte::{File, Method, f32s};
use pteron_cpu::Cpu;
use pteron_runtime::registry::Registry;
#[cfg(not(miri))]
use pteron_runtime::{LoadMode, Placement};
use pteron_runtime::{Options, Program};
use pteron_tensor::{DType, HostTensor};
#[cfg(not(miri))]
use std::io::Write;
use std::sync::Arc;

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, None).unwrap()));
    registry
}

const ROWS: usize = if cfg!(miri) { 64 } else { 4096 };
const GROUPS: usize = 4;

/// Codes that count from the middle: the biases are minus eight times the scales, made by an init graph.
const CENTRED: &str = r#"
init graph "forward.init"
  constant %0 "scales": f32[ROWS, 4]
  constant %1 "biases": f32[]
  constant %2 "middle": f32[]
{
  %3: f32[ROWS, 4] = multiply(a=%0, b=%2)
}
output %3 "biases": f32[ROWS, 4]
graph "forward"
  input %0 "x": f32[2, 128]
  constant %1 "w": u32[ROWS, 16]
  constant %2 "scales": f32[ROWS, 4]
  constant %3 "biases": f32[ROWS, 4]
{
  %4: f32[2, ROWS] = quantized_matmul(x=%0, w=%1, scales=%2, biases=%3, group_size=32, bits=4, mode="affine")
  SUM
}
output LAST "y": f32[2, ROWS]
"#;

fn centred(reads_biases: bool) -> File {
    let text = CENTRED.replace("ROWS", &ROWS.to_string());
    let module = match reads_biases {
        false => text.replace("SUM", "").replace("LAST", "%4"),
        true => {
            let sum =
                format!("%5: f32[{ROWS}] = sum(x=%3, axes=[1])\n  %6: f32[2, {ROWS}] = add(a=%4, b=%5)");
            text.replace("SUM", &sum).replace("LAST", "%6")
        }
    };
    let mut file = File::default();
    let codes: Vec<u32> = (0..ROWS * 16).map(|at| (at as u32).wrapping_mul(2_654_435_761)).collect();
    file.name("w", &HostTensor::from_slice(vec![ROWS, 16], &codes).unwrap());
    let scales: Vec<f32> = (0..ROWS * GROUPS).map(|at| 0.01 + at as f32 / 1e6).collect();
    file.name("scales", &f32s(&[ROWS, GROUPS], &scales));
    file.name("biases", &f32s(&[], &[0.0]));
    file.name("middle", &f32s(&[], &[-8.0]));
    // The file is large enough to be mapped, which Miri cannot.
    if cfg!(not(miri)) {
        file.name("unused", &f32s(&[1 << 18], &vec![1.0; 1 << 18]));
    }
    let mut method = Method::new("forward");
    let (x, y) = (method.tensor(DType::F32, &[2, 128]), method.tensor(DType::F32, &[2, ROWS as i32]));
    method.input(x);
    method.delegate(&mut file, &module, &[x, y]);
    method.output(y);
    file.add(method);
    file
}

fn run(program: &Program) -> HostTensor {
    let x: Vec<f32> = (0..256).map(|at| (at as f32 * 0.37).sin()).collect();
    let outputs = program.session().unwrap().run("forward", &[f32s(&[2, 128], &x).into()]).unwrap();
    outputs[0].to_tensor().unwrap().unwrap()
}

// Miri maps no files.
#[cfg(not(miri))]
#[test]
fn files_are_mapped_or_copied_with_equal_results() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&centred(false).bytes()).unwrap();
    let len = file.as_file().metadata().unwrap().len();
    let open = |placement| {
        let options = Options { registry: registry(), placement, ..Options::default() };
        Program::open(file.path(), &[], &options).unwrap()
    };
    let mapped = open(Placement::Fixed(LoadMode::Map));
    let wanted = run(&mapped);
    let cases = [
        (Placement::Fixed(LoadMode::Lock), LoadMode::Lock),
        (Placement::Fixed(LoadMode::Copy), LoadMode::Copy),
        (Placement::Fixed(LoadMode::Arrange), LoadMode::Arrange),
        (Placement::CopyUpTo(len), LoadMode::Copy),
        (Placement::ArrangeUpTo(len), LoadMode::Arrange),
        (Placement::ArrangeUpTo(len - 1), LoadMode::Map),
        (Placement::CopyUpTo(len - 1), LoadMode::Map),
    ];
    for (placement, mode) in cases {
        let program = open(placement);
        assert_eq!(program.load_mode(), mode);
        assert_eq!(run(&program), wanted, "{placement:?}");
        let memory = program.memory();
        assert_eq!(memory.mapped_bytes == 0, mode == LoadMode::Copy, "{memory:?}");
        assert!(memory.packed_bytes > 0 || mode != LoadMode::Arrange, "{memory:?}");
    }
}

// Miri maps no files.
#[cfg(not(miri))]
#[test]
fn a_copy_does_not_care_what_becomes_of_its_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&centred(false).bytes()).unwrap();
    let open = |mode| {
        let options =
            Options { registry: registry(), placement: Placement::Fixed(mode), ..Options::default() };
        Program::open(file.path(), &[], &options).unwrap()
    };
    let (copied, mapped) = (open(LoadMode::Copy), open(LoadMode::Map));
    let wanted = run(&copied);
    file.as_file().set_len(4096).unwrap();
    assert_eq!(run(&copied), wanted);
    let x = f32s(&[2, 128], &[0.0; 256]);
    let error = mapped.session().and_then(|mut session| session.run("forward", &[x.into()]));
    assert!(error.unwrap_err().to_string().contains("bytes, now 4096"));
}

#[test]
fn biases_that_are_multiples_of_the_scales_are_made_only_for_those_who_read_them() {
    let biases = (ROWS * GROUPS * 4) as u64;
    for (reads, held) in [(false, 0), (true, biases)] {
        let program = centred(reads).load().unwrap();
        let got = run(&program);
        assert_eq!(program.memory().packed_bytes, held, "read: {reads}");
        let reference = Options { backend: Some("reference".into()), ..Options::default() };
        let wanted = run(&centred(reads).load_with(&[], &reference).unwrap());
        let (got, wanted) = (got.as_slice::<f32>().unwrap(), wanted.as_slice::<f32>().unwrap());
        let off = got.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "{off}");
    }
}
