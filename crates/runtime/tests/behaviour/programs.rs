//! Loading and running whole files: what is refused, with which words, and what program-level instructions do.

use crate::pte::{File, Method, f32s, i64s};
use pteron_format::Limits;
use pteron_format::pte::EValue;
use pteron_runtime::{Argument, ArgumentKind, Bound, Error, Options, Value};
use pteron_tensor::{DType, HostTensor};

const DOUBLE: &str = r#"
graph "forward"
  symbol T in 2..=8
  input %0 "x": f32[T, 2]
{
  %1: f32[T, 2] = add(a=%0, b=%0)
}
output %1 "y": f32[T, 2]
"#;

fn double() -> File {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, y) = (method.dynamic(DType::F32, &[8, 2]), method.dynamic(DType::F32, &[8, 2]));
    method.input(x);
    method.delegate(&mut file, DOUBLE, &[x, y]);
    method.output(y);
    file.add(method);
    file
}

#[test]
fn inputs_are_listed_with_their_bounds() {
    let program = double().load().unwrap();
    let method = program.method("forward").unwrap();
    let dims = vec![Bound { min: 2, max: Some(8) }, Bound::exactly(2)];
    let kind = ArgumentKind::Tensor { dtype: DType::F32, dims };
    assert_eq!(method.inputs, [Argument { name: "x".into(), kind: kind.clone() }]);
    assert_eq!(method.outputs[0].kind, kind);
    assert_eq!(method.delegates[0].ops.get("Add"), Some(&1));
    assert_eq!(program.run_bytes("forward").unwrap(), Some(4 * 8 * 2 * 4));
    assert!(matches!(program.method("other"), Err(Error::UnknownMethod { .. })));
}

#[test]
fn dynamic_sizes_are_held_to_their_most_but_not_their_least() {
    let program = double().load().unwrap();
    let mut session = program.session().unwrap();
    let mut run =
        |tensor: HostTensor| session.run("forward", &[tensor.into()]).map_err(|error| error.to_string());
    let one = run(f32s(&[1, 2], &[1.0, 2.0])).unwrap();
    assert_eq!(one[0].to_tensor().unwrap().unwrap(), f32s(&[1, 2], &[2.0, 4.0]));
    let cases = [
        (f32s(&[9, 2], &[0.0; 18]), "wanted f32 [2..8, 2], given f32 [9, 2]"),
        (f32s(&[2, 3], &[0.0; 6]), "wanted f32 [2..8, 2], given f32 [2, 3]"),
        (f32s(&[2], &[0.0; 2]), "wanted f32 [2..8, 2], given f32 [2]"),
        (i64s(&[2, 2], &[0; 4]), "wanted f32 [2..8, 2], given i64 [2, 2]"),
    ];
    for (tensor, want) in cases {
        assert_eq!(run(tensor).unwrap_err(), format!("input 0 (`x`) of method `forward`: {want}"));
    }
    let error = program.session().unwrap().run("forward", &[]).unwrap_err().to_string();
    assert_eq!(error, "method `forward` takes 1 inputs, 0 were given");
}

#[test]
fn delegates_of_others_are_named() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[1]);
    method.input(x);
    method.foreign_delegate(&mut file, "CoreMLBackend", &[0; 32], &[x]);
    method.output(x);
    file.add(method);
    let error = file.load().unwrap_err().to_string();
    assert!(error.contains("CoreMLBackend") && error.contains("test.pte"), "{error}");
}

#[test]
fn unknown_operators_are_named_at_load() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[1]);
    method.input(x);
    method.kernel("aten::fly", "out", &[x, x, x]);
    method.output(x);
    file.add(method);
    let error = file.load().unwrap_err().to_string();
    assert_eq!(error, "test.pte: method `forward` calls operator `aten::fly.out`, which is not implemented");
}

#[test]
fn unknown_kernels_are_named_when_the_program_is_planned() {
    let graph = r#"
graph "forward"
  input %0 "x": f32[4]
{
  %1: f32[4] = metal_kernel(name="mine", source="...", inputs=[%0], grid=[4, 1, 1], threadgroup=[4, 1, 1],
    output_shapes_flat=[4], output_shape_lengths=[1], output_dtypes=[f32])
}
output %1 "y": f32[4]
"#;
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, y) = (method.tensor(DType::F32, &[4]), method.tensor(DType::F32, &[4]));
    method.input(x);
    method.delegate(&mut file, graph, &[x, y]);
    method.output(y);
    file.add(method);
    let error = file.load().unwrap_err().to_string();
    assert!(error.contains("`mine`") && error.contains("chain") && error.contains("forward"), "{error}");
}

const SCALED: &str = r#"
graph "forward"
  input %0 "x": f32[2]
  constant %1 "scale": f32[2]
{
  %2: f32[2] = multiply(a=%0, b=%1)
}
output %2 "y": f32[2]
"#;

fn scaled(weight: Option<&HostTensor>) -> File {
    let mut file = File::default();
    if let Some(weight) = weight {
        file.name("scale", weight);
    }
    let mut method = Method::new("forward");
    let (x, y) = (method.tensor(DType::F32, &[2]), method.tensor(DType::F32, &[2]));
    method.input(x);
    method.delegate(&mut file, SCALED, &[x, y]);
    method.output(y);
    file.add(method);
    file
}

#[test]
fn constants_are_found_by_key_and_must_fit() {
    let program = scaled(Some(&f32s(&[2], &[2.0, 3.0]))).load().unwrap();
    let outputs = program.session().unwrap().run("forward", &[f32s(&[2], &[5.0, 5.0]).into()]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[2], &[10.0, 15.0]));
    let totals = program.weights().totals();
    assert_eq!((totals[&DType::F32].count, totals[&DType::F32].bytes), (1, 8));
    let missing = scaled(None).load().unwrap_err().to_string();
    assert!(missing.contains("`scale`") && missing.contains("no such key"), "{missing}");
    let short = scaled(Some(&f32s(&[1], &[2.0]))).load().unwrap_err().to_string();
    assert!(short.contains("`scale`") && short.contains("needs 8 bytes, not 4"), "{short}");
}

#[test]
fn init_graphs_run_once_and_their_results_are_constants() {
    let module = r#"
init graph "forward.init"
  constant %0 "scale": f32[2]
  constant %1 "bias": f32[]
{
  %2: f32[2] = multiply(a=%0, b=%0)
}
output %2 "bias": f32[2]
graph "forward"
  input %0 "x": f32[2]
  constant %1 "scale": f32[2]
  constant %2 "bias": f32[2]
{
  %3: f32[2] = multiply(a=%0, b=%1)
  %4: f32[2] = add(a=%3, b=%2)
}
output %4 "y": f32[2]
"#;
    let mut file = File::default();
    file.name("scale", &f32s(&[2], &[2.0, 3.0]));
    file.name("bias", &f32s(&[], &[0.0]));
    let mut method = Method::new("forward");
    let (x, y) = (method.tensor(DType::F32, &[2]), method.tensor(DType::F32, &[2]));
    method.input(x);
    method.delegate(&mut file, module, &[x, y]);
    method.output(y);
    file.add(method);
    let program = file.load().unwrap();
    let outputs = program.session().unwrap().run("forward", &[f32s(&[2], &[1.0, 1.0]).into()]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[2], &[6.0, 12.0]));
    // A backend may hold copies of stored constants too.
    assert!(program.memory().packed_bytes >= 8);
}

/// Counts down from the input: a loop of prim operators and a jump.
#[test]
fn jumps_make_loops_and_loops_end() {
    let build = |step: i64| {
        let mut file = File::default();
        let mut method = Method::new("forward");
        let left = method.int(5);
        method.input(left);
        let (by, zero, done) = (method.int(step), method.int(0), method.value(EValue::Bool(false)));
        let rounds = method.int(0);
        let one = method.int(1);
        method.kernel("executorch_prim::add", "Scalar", &[left, by, left]);
        method.kernel("executorch_prim::add", "Scalar", &[rounds, one, rounds]);
        method.kernel("executorch_prim::eq", "Scalar", &[left, zero, done]);
        method.jump_false(done, 0);
        method.output(rounds);
        file.add(method);
        let limits = Limits { executed_instructions: 1000, ..Limits::default() };
        file.load_with(&[], &Options { limits, ..Options::default() }).unwrap()
    };
    let mut session = build(-1).session().unwrap();
    let outputs = session.run("forward", &[Value::Int(7)]).unwrap();
    assert_eq!(outputs[0].as_int(), Some(7));
    assert_eq!(session.run("forward", &[Value::Int(2)]).unwrap()[0].as_int(), Some(2));
    let error = build(0).session().unwrap().run("forward", &[Value::Int(7)]).unwrap_err().to_string();
    assert!(error.contains("executed_instructions"), "{error}");
}

#[test]
fn numbers_that_were_fixed_must_be_given_as_they_were() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[1]);
    let (flag, factor) = (method.value(EValue::Bool(true)), method.value(EValue::Double(0.5)));
    let unused = method.int(3);
    for value in [x, flag, factor, unused] {
        method.input(value);
    }
    method.output(x);
    file.add(method);
    let program = file.load().unwrap();
    let mut session = program.session().unwrap();
    let x: Value = f32s(&[1], &[1.0]).into();
    session.run("forward", &[x.clone(), Value::Bool(true), Value::Float(0.5), Value::Int(3)]).unwrap();
    let given = [x, Value::Bool(true), Value::Float(0.25), Value::Int(3)];
    let error = session.run("forward", &given).unwrap_err().to_string();
    assert!(error.contains("input 2") && error.contains("exactly float 0.5"), "{error}");
}

#[test]
fn constants_in_another_order_of_dims_are_read_row_major() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    // [2, 3] stored column by column.
    let columns = f32s(&[2, 3], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let constant = method.constant(&mut file, &columns, &[1, 0]);
    let (x, one, y) = (method.tensor(DType::F32, &[3]), method.int(1), method.tensor(DType::F32, &[2, 3]));
    method.input(x);
    method.kernel("aten::add", "out", &[constant, x, one, y, y]);
    method.output(y);
    file.add(method);
    let outputs =
        file.load().unwrap().session().unwrap().run("forward", &[f32s(&[3], &[0.0; 3]).into()]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
}

#[test]
fn constants_are_never_written() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let constant = method.constant(&mut file, &f32s(&[1], &[1.0]), &[0]);
    let (x, blocking) = (method.tensor(DType::F32, &[1]), method.value(EValue::Bool(false)));
    method.input(x);
    method.kernel("aten::copy_", "", &[constant, x, blocking, constant]);
    method.output(constant);
    file.add(method);
    let error = file.load().unwrap_err().to_string();
    assert!(error.contains("which is a constant"), "{error}");
}

#[test]
fn metadata_are_values_and_no_methods() {
    let mut file = double();
    file.metadata("get_max_ctx_len", EValue::Int(32));
    file.metadata("use_kv_cache", EValue::Bool(true));
    let program = file.load().unwrap();
    assert_eq!(program.methods().len(), 1);
    assert_eq!(program.metadata_value("get_max_ctx_len").and_then(Value::as_int), Some(32));
    assert!(matches!(program.metadata_value("use_kv_cache"), Some(Value::Bool(true))));
}

#[test]
fn an_unknown_backend_is_refused_with_what_exists() {
    let options = Options { backend: Some("abacus".into()), ..Options::default() };
    let error = double().load_with(&[], &options).unwrap_err().to_string();
    assert!(error.starts_with("no backend is called `abacus`; there are: "), "{error}");
}

#[test]
fn moves_copy_and_errors_name_the_instruction() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, y) = (method.dynamic(DType::F32, &[4]), method.dynamic(DType::F32, &[4]));
    let z = method.dynamic(DType::F32, &[4]);
    method.input(x);
    method.input(y);
    method.kernel("aten::mul", "out", &[x, y, z, z]);
    method.move_value(z, x);
    method.output(x);
    file.add(method);
    let program = file.load().unwrap();
    let mut session = program.session().unwrap();
    let outputs =
        session.run("forward", &[f32s(&[2], &[1.0, 2.0]).into(), f32s(&[1], &[3.0]).into()]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[2], &[3.0, 6.0]));
    let given = [f32s(&[2], &[1.0, 2.0]).into(), f32s(&[3], &[3.0; 3]).into()];
    let error = session.run("forward", &given).unwrap_err().to_string();
    assert_eq!(
        error,
        "method `forward`, instruction 0 (aten::mul.out): shapes [2] and [3] do not broadcast; \
         arguments: f32 [2], f32 [3]"
    );
}

/// The exporter leaves static views out: the view is a second tensor at the place of the first.
#[test]
fn tensors_at_one_place_are_views_of_each_other() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let offset = method.take(DType::F32, &[2, 3]);
    let (x, view) =
        (method.placed(DType::F32, &[2, 3], 1, offset), method.placed(DType::F32, &[3, 2], 1, offset));
    let (y, one) = (method.tensor(DType::F32, &[3, 2]), method.int(1));
    method.input(x);
    method.kernel("aten::add", "out", &[view, view, one, y, y]);
    method.output(y);
    file.add(method);
    let program = file.load().unwrap();
    assert!(program.buffers().is_empty());
    let input = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let outputs = program.session().unwrap().run("forward", &[input.into()]).unwrap();
    assert_eq!(outputs[0].to_tensor().unwrap().unwrap(), f32s(&[3, 2], &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0]));
}
