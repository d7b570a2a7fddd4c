//! What runs in the step of a convolution or a product gives what it gives in steps of its own: the same bytes. A value that is an output
//! too lies in memory, so that the same graph with all values as outputs has a step for each.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pte::{File, Method};
use pteron_cpu::{Cpu, Path};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Program, Value};
use pteron_tensor::{DType, HostTensor};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The path of the programs that a test loads.
    static PATH: Cell<Option<Path>> = const { Cell::new(None) };
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, PATH.get()).unwrap()));
    registry
}

/// A tensor of a graph: its name and its sizes.
type Tensor<'a> = (&'a str, &'a [usize]);

/// A graph in parts: an input, constants, and nodes whose operands are numbered from the input on.
struct Case {
    name: &'static str,
    inputs: &'static [Tensor<'static>],
    constants: &'static [Tensor<'static>],
    nodes: &'static [(&'static [usize], &'static str)],
}

const CASES: &[Case] = &[
    Case {
        name: "a bias and ReLU6",
        inputs: &[("x", &[1, 9, 7, 20])],
        constants: &[("w", &[37, 3, 3, 20]), ("bias", &[37]), ("low", &[]), ("high", &[1])],
        nodes: &[
            (&[1, 5, 4, 37], "conv2d(x=%0, w=%1, stride_h=2, stride_w=2, padding_h=1, padding_w=1)"),
            (&[1, 5, 4, 37], "add(a=%5, b=%2)"),
            (&[1, 5, 4, 37], "clip(x=%6, a_min=%3, a_max=%4)"),
        ],
    },
    Case {
        name: "a residual sum between bias and ReLU, depthwise",
        inputs: &[("x", &[2, 6, 5, 48])],
        constants: &[("w", &[48, 3, 3, 1]), ("bias", &[1, 1, 1, 48]), ("low", &[])],
        nodes: &[
            (&[2, 6, 5, 48], "conv2d(x=%0, w=%1, padding_h=1, padding_w=1, groups=48)"),
            (&[2, 6, 5, 48], "add(a=%4, b=%2)"),
            (&[2, 6, 5, 48], "add(a=%0, b=%5)"),
            (&[2, 6, 5, 48], "maximum(a=%6, b=%3)"),
        ],
    },
    Case {
        name: "two convolutions and their sum",
        inputs: &[("x", &[1, 8, 8, 16])],
        constants: &[("w", &[24, 1, 1, 16]), ("v", &[24, 3, 3, 16]), ("low", &[])],
        nodes: &[
            (&[1, 8, 8, 24], "conv2d(x=%0, w=%1)"),
            (&[1, 8, 8, 24], "conv2d(x=%0, w=%2, padding_h=1, padding_w=1)"),
            (&[1, 8, 8, 24], "add(a=%4, b=%5)"),
            (&[1, 8, 8, 24], "maximum(a=%6, b=%3)"),
        ],
    },
    Case {
        name: "a hard swish",
        inputs: &[("x", &[1, 30, 12])],
        constants: &[("w", &[21, 3, 4]), ("three", &[]), ("low", &[]), ("high", &[1])],
        nodes: &[
            (&[1, 28, 21], "conv1d(x=%0, w=%1, groups=3)"),
            (&[1, 28, 21], "add(a=%5, b=%2)"),
            (&[1, 28, 21], "clip(x=%6, a_min=%3, a_max=%4)"),
            (&[1, 28, 21], "multiply(a=%6, b=%7)"),
        ],
    },
    Case {
        name: "a linear layer and GELU",
        inputs: &[("x", &[1, 50, 33])],
        constants: &[("w", &[70, 33]), ("bias", &[70])],
        nodes: &[
            (&[33, 70], "transpose(x=%1, perm=[1, 0])"),
            (&[1, 50, 70], "addmm(mat1=%0, mat2=%3, bias=%2)"),
            (&[1, 50, 70], "gelu(x=%4, approximate=\"none\")"),
        ],
    },
    Case {
        name: "a linear layer and a residual sum that lies otherwise",
        inputs: &[("x", &[50, 33]), ("y", &[70, 50])],
        constants: &[("w", &[33, 70])],
        nodes: &[
            (&[50, 70], "transpose(x=%1, perm=[1, 0])"),
            (&[50, 70], "addmm(mat1=%0, mat2=%2)"),
            (&[50, 70], "add(a=%3, b=%4)"),
            (&[50, 70], "multiply(a=%5, b=%3)"),
        ],
    },
];

/// Numbers in -1..1 that follow from a seed.
fn tensor(seed: u32, shape: &[usize]) -> HostTensor {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    HostTensor::from_slice(shape.to_vec(), &numbers).unwrap()
}

/// The program of a case whose outputs are its last values, so many of them.
fn program(case: &Case, outputs: usize) -> Program {
    let of = |shape: &[usize]| format!("f32{shape:?}");
    let mut text = "graph \"forward\"\n".to_owned();
    let mut file = File::default();
    let mut method = Method::new("forward");
    let mut arguments = Vec::new();
    let sizes = |shape: &[usize]| shape.iter().map(|&size| size as i32).collect::<Vec<_>>();
    for (at, (name, shape)) in case.inputs.iter().enumerate() {
        text += &format!("  input %{at} \"{name}\": {}\n", of(shape));
        let argument = method.tensor(DType::F32, &sizes(shape));
        method.input(argument);
        arguments.push(argument);
    }
    for (at, (name, shape)) in (case.inputs.len()..).zip(case.constants) {
        text += &format!("  constant %{at} \"{name}\": {}\n", of(shape));
        let data = match *name {
            "low" => HostTensor::from_slice(shape.to_vec(), &[-0.25f32]).unwrap(),
            "high" => HostTensor::from_slice(shape.to_vec(), &[0.5f32]).unwrap(),
            _ => tensor(at as u32 + 7, shape),
        };
        file.name(name, &data);
    }
    text += "{\n";
    let first = case.inputs.len() + case.constants.len();
    for (at, (shape, op)) in (first..).zip(case.nodes) {
        text += &format!("  %{at}: {} = {op}\n", of(shape));
    }
    text += "}\n";
    for (at, (shape, _)) in (first..).zip(case.nodes).skip(case.nodes.len() - outputs) {
        text += &format!("output %{at} \"out{at}\": {}\n", of(shape));
        let argument = method.tensor(DType::F32, &sizes(shape));
        method.output(argument);
        arguments.push(argument);
    }
    method.delegate(&mut file, &text, &arguments);
    file.add(method);
    file.load().unwrap()
}

#[test]
fn what_runs_in_one_step_gives_what_steps_of_their_own_give() {
    for path in Path::ALL {
        if !path.is_available() {
            println!("{path}: not run, this machine lacks it");
            continue;
        }
        PATH.set(Some(path));
        for case in CASES {
            let inputs = (1..).zip(case.inputs).map(|(seed, (_, shape))| tensor(seed, shape).into());
            let inputs: Vec<Value> = inputs.collect();
            let last = |program: &Program| {
                let outputs = program.session().unwrap().run("forward", &inputs).unwrap();
                outputs.last().unwrap().to_tensor().unwrap().unwrap()
            };
            let (alone, apart) = (program(case, 1), program(case, case.nodes.len()));
            let (together, apart) = (last(&alone), last(&apart));
            assert_eq!(together.shape(), apart.shape());
            assert!(together.bytes()[..] == apart.bytes()[..], "{}, {path}", case.name);
            // Weights are packed once, and counted.
            assert!(alone.memory().packed_bytes > 0, "{}", case.name);
        }
    }
}
