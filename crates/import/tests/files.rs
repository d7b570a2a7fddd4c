//! Small archives that torch wrote (`make_pt2.py`), read and held against what their models were.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_format::Limits;
use pteron_import::pt2::argument::{Argument, OrName, SymInt};
use pteron_import::pt2::json::Float;
use pteron_import::pt2::schema::{ConstantValue, InputSpec, OutputSpec};
use pteron_import::pt2::{self, Attribute, ExportedProgram, Package, Subclass, SubclassKind, Weight};
use std::path::Path;

fn package(name: &str) -> Package {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pt2"));
    pt2::open(&path, &Limits::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn only(name: &str) -> ExportedProgram {
    let package = package(name);
    assert_eq!(package.programs().len(), 1);
    package.program("model").unwrap().clone()
}

fn floats(program: &ExportedProgram, name: &str) -> Vec<f32> {
    let Some(Weight::Tensor(tensor)) = program.weight(name) else { panic!("no tensor {name}") };
    let tensor = tensor.to_host().unwrap();
    match tensor.as_slice::<f32>() {
        Ok(values) => values.to_vec(),
        Err(_) => panic!("{name} is {}", tensor.dtype()),
    }
}

#[test]
fn raw_weights_are_found_by_offset_and_stride() {
    let program = only("raw");
    assert_eq!(floats(&program, "plain"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(floats(&program, "tied"), floats(&program, "plain"));
    assert_eq!(floats(&program, "transposed"), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    assert_eq!(floats(&program, "cut"), [2.0, 3.0, 4.0]);
    assert_eq!(floats(&program, "expanded"), [1.0; 6]);
    let shape = |name: &str| program.weight(name).unwrap().sizes().unwrap().to_vec();
    assert_eq!((shape("scalar"), shape("empty")), (vec![], vec![0, 3]));
    assert!(program.weights().get("fleeting").is_none(), "a buffer that is not persistent is a constant");
    assert_eq!(shape("fleeting"), [3]);
    let memory = |name: &str| program.weight(name).unwrap().parts()[0].storage().as_ptr();
    assert_eq!(memory("plain"), memory("tied"), "tied weights share their storage");
    assert_eq!(program.torch_version().split('+').next(), Some("2.15.0"));
    assert_eq!(program.dialects(), ["TRAINING"]);
    assert_eq!(program.opset_version().get("aten"), Some(&10));
}

#[test]
fn python_values_were_fixed_at_export() {
    let program = only("raw");
    let fixed = program.signature().input_specs.iter().filter_map(|spec| match spec {
        InputSpec::ConstantInput { name, value } => Some((name.as_str(), value.clone())),
        _ => None,
    });
    let fixed: Vec<_> = fixed.collect();
    assert_eq!(fixed, [("n", ConstantValue::Int(4)), ("flag", ConstantValue::Bool(true))]);
    let full =
        program.graph().nodes.iter().find(|node| node.target.starts_with("torch.ops.aten.full.")).unwrap();
    assert_eq!(full.inputs[1].arg, Argument::Float(Float(f64::INFINITY)));
    assert_eq!(full.module().unwrap().path, "");
    assert!(full.place().contains("(torch.ops.aten.full.default)"), "{}", full.place());
}

#[test]
fn sizes_stay_symbolic_and_bounded() {
    let program = only("dynamic");
    let outputs = program.signature().output_specs.iter().filter_map(|spec| match spec {
        OutputSpec::UserOutput { arg: Argument::Tensor(tensor) } => {
            Some(&program.graph().tensor_values[&tensor.name])
        }
        _ => None,
    });
    let bounds = outputs.map(|meta| program.interval(&meta.sizes[0])).collect::<Vec<_>>();
    // n is 8 to 128 in steps of two: joined 2n + 1, halved n / 2, reshaped 2n, found unknown.
    assert_eq!(bounds[..3], [(Some(17), Some(257)), (Some(4), Some(64)), (Some(16), Some(256))]);
    assert_eq!(bounds[3].0, Some(0));
    assert!(matches!(
        program.signature().output_specs.last(),
        Some(OutputSpec::UserOutput { arg: Argument::SymInt(OrName::Name(_)) })
    ));
    let mut symbols = pteron_ir::Symbols::default();
    let known: Vec<_> =
        program.ranges().iter().map(|(name, range)| (name, symbols.add(name, 0, range.max_val))).collect();
    let find = |name: &str| known.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
    let expressions = program.graph().tensor_values.values().flat_map(|meta| &meta.sizes);
    let affine =
        expressions.filter(|size| matches!(size, SymInt::Expr(size) if size.expr.to_dim(&find).is_some()));
    assert!(affine.count() > 3);
}

#[test]
fn what_is_mutated_is_said_after_decomposition_only() {
    let mutations = |program: &ExportedProgram| {
        let specs = program.signature().output_specs.iter().filter_map(|spec| match spec {
            OutputSpec::BufferMutation { buffer_name, .. } => Some(buffer_name.clone()),
            OutputSpec::UserInputMutation { user_input_name, .. } => Some(user_input_name.clone()),
            _ => None,
        });
        specs.collect::<Vec<_>>()
    };
    let program = only("mutated");
    let mut mutated = mutations(&program);
    mutated.sort();
    assert_eq!(mutated, ["cache", "out", "steps"]);
    assert!(program.graph().nodes.iter().all(|node| !node.target.contains("add_.")));
    let program = only("in_place");
    assert!(mutations(&program).is_empty());
    assert!(program.graph().nodes.iter().any(|node| node.target == "torch.ops.aten.add_.Tensor"));
}

#[test]
fn graphs_inside_nodes_and_several_programs_are_read() {
    let package = package("two");
    let names: Vec<_> = package.programs().iter().map(ExportedProgram::name).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(floats(&package.programs()[0], "cache"), [0.0; 8]);
    for program in [&package.programs()[1], &only("branch")] {
        let mut inner = Vec::new();
        for argument in program.graph().nodes.iter().flat_map(|node| &node.inputs) {
            argument.arg.graphs(&mut |subgraph| inner.push(subgraph.graph.nodes[0].target.clone()));
        }
        assert_eq!(inner, ["torch.ops.aten.sin.default", "torch.ops.aten.cos.default"]);
    }
}

#[test]
fn tensor_subclasses_are_unpickled() {
    let subclass = |name: &str| -> Subclass {
        match only(name).weight("weight") {
            Some(Weight::Subclass(subclass)) => subclass.clone(),
            other => panic!("{name}: {other:?}"),
        }
    };
    let bytes = |subclass: &Subclass, part: &str| subclass.tensors[part].to_bytes().to_vec();

    let intx = subclass("intx");
    assert_eq!((intx.kind, &intx.sizes[..]), (SubclassKind::Intx, &[2, 64][..]));
    assert_eq!(intx.attributes["target_dtype"], Attribute::Type("int4"));
    assert_eq!(intx.attributes["block_size"], Attribute::Ints(vec![1, 32]));
    assert!(bytes(&intx, "qdata").iter().all(|&byte| (-8..8).contains(&(byte as i8))));

    let int4 = subclass("int4");
    let packed = |pair: &[u8]| (pair[0].wrapping_add(8)) | (pair[1].wrapping_add(8) << 4);
    let expected: Vec<u8> = bytes(&intx, "qdata").chunks_exact(2).map(packed).collect();
    assert_eq!(bytes(&int4, "qdata"), expected);
    assert_eq!(int4.attributes["group_size"], Attribute::Int(32));

    let gguf = subclass("gguf");
    assert_eq!(bytes(&gguf, "raw"), (0..144).collect::<Vec<u8>>());
    assert_eq!(
        (&gguf.sizes[..], &gguf.attributes["ggml_type"]),
        (&[1, 256][..], &Attribute::Text("q4_k".into()))
    );

    let nvfp4 = subclass("nvfp4");
    assert_eq!(bytes(&nvfp4, "qdata"), [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes(&nvfp4, "per_tensor_scale"), 0.5f32.to_le_bytes());
    assert_eq!(nvfp4.attributes["orig_dtype"], Attribute::Type("float32"));
}
