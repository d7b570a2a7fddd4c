//! Small exported programs (`make_pt2.py`) compiled, read back, and run on the reference backend against what their
//! models compute.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_format::pte::Pte;
use pteron_format::{Limits, WriteOptions};
use pteron_import::compile::{Compiled, Metadata, Options, Portable, Quantization, Report, Source, compile};
use pteron_import::pt2::{self, ExportedProgram};
use pteron_runtime::{Program, Session, Value};
use pteron_tensor::{Bytes, HostTensor};
use std::path::Path;

fn program(name: &str) -> ExportedProgram {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pt2"));
    let package = pt2::open(&path, &Limits::default()).unwrap();
    package.programs()[0].clone()
}

fn compiled(methods: &[(&str, &str)], options: &Options) -> Result<(Vec<u8>, Report), String> {
    let programs: Vec<ExportedProgram> = methods.iter().map(|(_, file)| program(file)).collect();
    let sources: Vec<Source<'_>> =
        methods.iter().zip(&programs).map(|((name, _), program)| Source { name, program }).collect();
    let Compiled { writer, report } = compile(&sources, options).map_err(|error| error.to_string())?;
    let mut file = Vec::new();
    writer.write(&WriteOptions::default(), &mut file).map_err(|error| error.to_string())?;
    Ok((file, report))
}

fn session(file: &[u8]) -> Session {
    let program = Program::load("compiled", Bytes::copy_of(file), &[], &pteron_runtime::Options::default());
    program.unwrap().session().unwrap()
}

fn tensor(shape: &[usize], values: &[f32]) -> Value {
    Value::Tensor(HostTensor::from_slice(shape.to_vec(), values).unwrap())
}

fn floats(value: &Value) -> Vec<f32> {
    let Value::Tensor(tensor) = value else { panic!("{value:?}") };
    tensor.as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn writes_through_views_reach_the_buffer_and_stale_views_are_taken_again() {
    let (file, report) = compiled(&[("forward", "windows")], &Options::default()).unwrap();
    assert_eq!((report.methods[0].delegates.len(), report.methods[0].portable.len()), (1, 0));
    let mut session = session(&file);
    // What the model gives for two calls in a row.
    let first = session.run("forward", &[tensor(&[4], &[1.0, 2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(floats(&first[0]), [7.0, 0.0, 1.0, 1.0, 7.0, 0.0, 1.0, 1.0, 7.0, 4.0, 2.0, 5.0]);
    assert_eq!(floats(&first[1]), [9.0, 9.0, 9.0, 9.0, 9.0, 18.0]);
    let second = session.run("forward", &[tensor(&[4], &[5.0, 6.0, 7.0, 8.0])]).unwrap();
    assert_eq!(floats(&second[0]), [7.0, 0.0, 8.0, 1.0, 7.0, 0.0, 8.0, 1.0, 7.0, 20.0, 13.0, 21.0]);
    assert_eq!(floats(&second[1]), [16.0, 16.0, 16.0, 16.0, 16.0, 61.0]);
}

#[test]
fn both_dialects_give_the_same_program() {
    for name in ["in_place", "mutated"] {
        let (file, _) = compiled(&[("forward", name)], &Options::default()).unwrap();
        let mut session = session(&file);
        for x in [[1.0, 2.0], [5.0, 7.0]] {
            let inputs = [tensor(&[1, 2], &x), tensor(&[2], &[1.0, 1.0])];
            assert_eq!(floats(&session.run("forward", &inputs).unwrap()[0]), x, "{name}");
        }
    }
}

#[test]
fn what_a_delegate_has_not_stays_outside_with_its_place_and_reason() {
    let (file, report) = compiled(&[("forward", "doubles")], &Options::default()).unwrap();
    let method = &report.methods[0];
    assert_eq!(method.delegates.len(), 2, "one before and one after");
    let outside: Vec<&str> = method.portable.iter().map(|outside| outside.kernel.as_str()).collect();
    assert_eq!(outside, ["aten::_to_copy.out", "aten::abs.out", "aten::add.out", "aten::_to_copy.out"]);
    assert!(method.portable[1].reason.contains("f64"), "{}", method.portable[1].reason);
    assert!(method.portable[1].place.contains("abs"), "{}", method.portable[1].place);
    let outputs = session(&file).run("forward", &[tensor(&[3], &[1.0, -2.0, 3.0])]).unwrap();
    assert_eq!(floats(&outputs[0]), [4.0, 0.0, 36.0]);

    let strict = Options { strict: true, ..Options::default() };
    let error = compiled(&[("forward", "doubles")], &strict).unwrap_err();
    assert!(error.contains("--strict") && error.contains("f64"), "{error}");
}

#[test]
fn without_a_delegate_there_is_none() {
    let options = Options { portable: Portable::All, ..Options::default() };
    let (file, report) = compiled(&[("forward", "doubles")], &options).unwrap();
    assert!(report.methods[0].delegates.is_empty());
    let outputs = session(&file).run("forward", &[tensor(&[3], &[1.0, -2.0, 3.0])]).unwrap();
    assert_eq!(floats(&outputs[0]), [4.0, 0.0, 36.0]);
}

#[test]
fn packed_weights_of_every_kind_compile() {
    for (name, columns, op) in [
        ("int4", 64, "QuantizedMatmul"),
        ("gguf", 256, "QuantizedMatmul"),
        ("nvfp4", 16, "QuantizedMatmul"),
        ("intx", 64, "Dequantize"),
    ] {
        let (file, report) = compiled(&[("forward", name)], &Options::default()).unwrap();
        assert!(report.methods[0].delegates[0].contains_key(op), "{name}: {:?}", report.methods[0].delegates);
        let outputs = session(&file).run("forward", &[tensor(&[1, columns], &vec![1.0; columns])]).unwrap();
        assert!(floats(&outputs[0]).iter().all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn a_condition_picks_between_branches() {
    let (file, report) = compiled(&[("forward", "branch")], &Options::default()).unwrap();
    assert_eq!((report.methods[0].delegates.len(), report.methods[0].portable.len()), (1, 0));
    let mut session = session(&file);
    for (x, function) in [([1.0, 2.0, 3.0], f32::sin as fn(f32) -> f32), ([-1.0, -2.0, 3.0], f32::cos)] {
        let outputs = session.run("forward", &[tensor(&[3], &x)]).unwrap();
        for (got, want) in floats(&outputs[0]).into_iter().zip(x.map(function)) {
            assert!((got - want).abs() < 1e-6, "{got}, not {want}");
        }
    }
}

/// What torch gives for the same inputs.
#[test]
fn elements_are_placed_by_indices_and_masks() {
    let (file, report) = compiled(&[("forward", "placed")], &Options::default()).unwrap();
    assert_eq!((report.methods[0].delegates.len(), report.methods[0].portable.len()), (1, 0));
    let ints = |shape: &[usize], values: &[i64]| {
        Value::Tensor(HostTensor::from_slice(shape.to_vec(), values).unwrap())
    };
    let x: Vec<f32> = (0..24u8).map(f32::from).collect();
    let inputs =
        [tensor(&[2, 3, 4], &x), ints(&[2], &[0, 1]), ints(&[2], &[-1, -2]), ints(&[1, 4], &[0, 2, 1, 0])];
    let outputs = session(&file).run("forward", &inputs).unwrap();
    let changed = |at: &[(usize, f32)]| {
        let mut wanted = x.clone();
        at.iter().for_each(|&(at, value)| wanted[at] = value);
        wanted
    };
    let several = [(3, -1.0), (7, -1.0), (11, -1.0), (14, -2.0), (18, -2.0), (22, -2.0)];
    assert_eq!(floats(&outputs[0]), changed(&several));
    let added = [(8, 8.0), (9, 10.0), (10, 12.0), (11, 14.0), (16, 20.0), (17, 22.0), (18, 24.0), (19, 26.0)];
    assert_eq!(floats(&outputs[1]), changed(&added));
    assert_eq!(floats(&outputs[2]), changed(&[(21, 0.0), (22, 0.0), (23, 0.0)]));
    assert_eq!(floats(&outputs[3]), [9.0, 14.0, 13.0, 9.0, 4.0, 5.0, 9.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(floats(&outputs[4]), [0.0, 1.0, 5.0, 5.0, 4.0, 5.0, 5.0, 5.0, 8.0, 9.0, 5.0, 5.0]);
}

/// Norm and attention become one op each; packed weights are near the plain ones.
#[test]
fn layers_are_fused_and_quantised() {
    let run = |quantize: Option<Quantization>| {
        let options = Options { quantize, ..Options::default() };
        let (file, report) = compiled(&[("forward", "layers")], &options).unwrap();
        let tokens = Value::Tensor(HostTensor::from_slice(vec![1, 3], &[3i64, 1, 7]).unwrap());
        let outputs = session(&file).run("forward", &[tokens, tensor(&[1, 20], &[1.0; 20])]).unwrap();
        (floats(&outputs[0])[0], floats(&outputs[1]), report.methods[0].clone())
    };
    let (sum, small, report) = run(None);
    assert!((sum - 11.299_887).abs() < 1e-4, "{sum}");
    assert!((small[0] - 0.19).abs() < 1e-5 && (small[1] - 2.084_737).abs() < 1e-5, "{small:?}");
    let ops = &report.delegates[0];
    assert_eq!(
        (ops.get("RMSNorm"), ops.get("Sdpa"), ops.get("Softmax")),
        (Some(&1), Some(&1), None),
        "{ops:?}"
    );
    assert!(report.taken().contains_key("rms-norm") && report.taken().contains_key("attention"));

    let eight = Quantization::of("8w".parse().unwrap());
    let (sum, same, report) = run(Some(eight.clone()));
    assert!((sum - 11.299_887).abs() < 0.1, "{sum}");
    assert_eq!(same, small, "rows that do not divide into groups stay as they are");
    let ops = &report.delegates[0];
    assert_eq!(
        (ops.get("QuantizedMatmul"), ops.get("Dequantize"), ops.get("Addmm")),
        (Some(&3), Some(&1), Some(&1))
    );

    let rules = vec!["q=none".parse().unwrap(), "embedding=none".parse().unwrap()];
    let (_, _, report) = run(Some(Quantization { rules, ..eight }));
    let ops = &report.delegates[0];
    assert_eq!((ops.get("QuantizedMatmul"), ops.get("Dequantize")), (Some(&2), None));
}

#[test]
fn methods_share_buffers_where_that_is_asked_for() {
    let methods = [("one", "windows"), ("two", "windows")];
    let run = |share_buffers: bool| {
        let options = Options { share_buffers, ..Options::default() };
        let (file, _) = compiled(&methods, &options).unwrap();
        let mut session = session(&file);
        session.run("one", &[tensor(&[4], &[1.0, 2.0, 3.0, 4.0])]).unwrap();
        floats(&session.run("two", &[tensor(&[4], &[5.0, 6.0, 7.0, 8.0])]).unwrap()[1])
    };
    assert_eq!(run(true), [16.0, 16.0, 16.0, 16.0, 16.0, 61.0], "as the second call of one method");
    assert_ne!(run(false), run(true));
}

#[test]
fn the_same_programs_give_the_same_bytes_and_equal_constants_once() {
    let options =
        Options { metadata: vec![("get_max_seq_len".into(), Metadata::Int(8))], ..Options::default() };
    let (first, _) = compiled(&[("a", "int4"), ("b", "int4")], &options).unwrap();
    let (second, _) = compiled(&[("a", "int4"), ("b", "int4")], &options).unwrap();
    assert_eq!(first, second);
    let pte = Pte::read(Bytes::copy_of(&first), &Limits::default()).unwrap();
    let mut segments: Vec<u32> = pte.program.named_data.iter().map(|named| named.segment_index).collect();
    let keys = segments.len();
    segments.sort_unstable();
    segments.dedup();
    assert_eq!(segments.len() * 2, keys, "two methods, one copy of each constant");
    assert!(pte.method("get_max_seq_len").is_some());
}

#[test]
fn what_cannot_be_compiled_says_why_and_what_to_do() {
    let cases = [("dynamic", "no upper bound", "max=")];
    for (name, problem, advice) in cases {
        let error = compiled(&[("forward", name)], &Options::default()).unwrap_err();
        assert!(error.contains(problem) && error.contains(advice), "{name}: {error}");
    }
    let error = compiled(&[("same", "raw"), ("same", "raw")], &Options::default()).unwrap_err();
    assert!(error.contains("two methods are called `same`"), "{error}");
}

#[test]
fn damaged_programs_never_panic() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut seed = 11u64;
    for name in ["windows.pt2", "int4.pt2", "doubles.pt2"] {
        let whole = std::fs::read(path.join(name)).unwrap();
        for _ in 0..300 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut damaged = whole.clone();
            let at = (seed >> 33) as usize % damaged.len();
            // Digits and letters make files that still parse.
            damaged[at] = b"0123456789-xyz\""[(seed >> 20) as usize % 15];
            let Ok(package) = pt2::read(Bytes::copy_of(&damaged), &Limits::default()) else { continue };
            for program in package.programs() {
                let source = Source { name: "forward", program };
                let _ = compile(&[source], &Options::default());
            }
        }
    }
}
