//! Operators between delegates become nodes of the joined graph where these mean the same, and stay operators where they
//! do not: either way a program gives what it gives with every delegate apart.

use crate::pte::{File, Method, f32s, i64s};
use pteron_format::pte::EValue;
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};

/// What stands before the operators: it gives `y` and a number as a tensor.
const BEFORE: &str = r#"
graph "forward"
  input %0 "x": f32[2, 3]
  input %1 "k": i64[1]
  constant %2 "half": f32[1]
{
  %3: f32[2, 3] = multiply(a=%0, b=%2)
  %4: i64[1] = add(a=%1, b=%1)
}
output %3 "y": f32[2, 3]
output %4 "n": i64[1]
"#;

/// What stands behind them, for an input of any shape.
fn behind(shape: &[i32]) -> String {
    let ty = format!("f32{shape:?}");
    format!(
        "graph \"forward\"\n  input %0 \"z\": {ty}\n  buffer %1 \"sum\": {ty} -> %2\n{{\n  %2: {ty} = add(a=%0, b=%1)\n}}\n\
         output %2 \"w\": {ty}\n"
    )
}

/// A method in the making, and what its first delegate gives.
struct Between<'m> {
    method: &'m mut Method,
    file: &'m mut File,
    x: i32,
    y: i32,
    n: i32,
}

impl Between<'_> {
    fn f32(&mut self, shape: &[i32]) -> i32 {
        self.method.tensor(DType::F32, shape)
    }

    /// Calls an operator that gives a tensor.
    fn call(&mut self, name: &str, overload: &str, args: &[i32], shape: &[i32]) -> i32 {
        let out = self.f32(shape);
        self.method.kernel(name, overload, &[args, &[out, out]].concat());
        out
    }

    /// Calls one that gives a number.
    fn number(&mut self, name: &str, overload: &str, args: &[i32]) -> i32 {
        let out = self.method.int(0);
        self.method.kernel(name, overload, &[args, &[out]].concat());
        out
    }

    fn none(&mut self) -> i32 {
        self.method.value(EValue::Null)
    }

    fn truth(&mut self, truth: bool) -> i32 {
        self.method.value(EValue::Bool(truth))
    }

    fn float(&mut self, number: f64) -> i32 {
        self.method.value(EValue::Double(number))
    }

    fn slice(&mut self, x: i32, axis: i64, [start, stop]: [i32; 2], step: i64, shape: &[i32]) -> i32 {
        let (axis, step) = (self.method.int(axis), self.method.int(step));
        self.call("aten::slice_copy", "Tensor_out", &[x, axis, start, stop, step], shape)
    }
}

/// One case: its name, the shape of what the operators give, whether they become nodes, and the operators.
type Case = (&'static str, &'static [i32], bool, fn(&mut Between<'_>) -> i32);

const CASES: &[Case] = &[
    ("a slice from the end", &[2, 2], true, |on| {
        let bounds = [on.method.int(-2), on.method.int(i64::MAX)];
        on.slice(on.y, -1, bounds, 1, &[2, 2])
    }),
    ("a slice with steps and without bounds", &[2, 2], true, |on| {
        let bounds = [on.none(), on.none()];
        on.slice(on.y, 1, bounds, 2, &[2, 2])
    }),
    ("a slice up to a number that is read from data", &[2, 3], false, |on| {
        // It may be shorter than what is declared, which the program would refuse.
        let (start, stop) = (on.method.int(0), on.number("aten::_local_scalar_dense", "", &[on.n]));
        on.slice(on.y, 0, [start, stop], 1, &[2, 3])
    }),
    ("a list of tensors", &[4, 3], true, |on| {
        let (list, axis) = (on.method.tensors(&[on.y, on.x]), on.method.int(-2));
        on.call("aten::cat", "out", &[list, axis], &[4, 3])
    }),
    ("one row", &[3], true, |on| {
        let (axis, index) = (on.method.int(0), on.method.int(-1));
        on.call("aten::select_copy", "int_out", &[on.y, axis, index], &[3])
    }),
    ("axes put in and taken out", &[2, 3], true, |on| {
        let axis = on.method.int(-1);
        let lifted = on.call("aten::unsqueeze_copy", "out", &[on.y, axis], &[2, 3, 1]);
        let axes = on.method.ints(&[0, 2]);
        on.call("aten::squeeze_copy", "dims_out", &[lifted, axes], &[2, 3])
    }),
    ("no axis to take out", &[2, 3], true, |on| {
        let axis = on.method.int(1);
        on.call("aten::squeeze_copy", "dim_out", &[on.y, axis], &[2, 3])
    }),
    ("rows repeated", &[4, 2, 3], true, |on| {
        let (sizes, implicit) = (on.method.ints(&[4, -1, 3]), on.truth(false));
        on.call("aten::expand_copy", "out", &[on.y, sizes, implicit], &[4, 2, 3])
    }),
    ("axes that change places", &[6], true, |on| {
        let (a, b) = (on.method.int(0), on.method.int(-1));
        let turned = on.call("aten::transpose_copy", "int_out", &[on.y, a, b], &[3, 2]);
        let sizes = on.method.ints(&[-1]);
        on.call("executorch_prim::et_view", "default", &[turned, sizes], &[6])
    }),
    ("axes permuted and counted from the end", &[3, 2], true, |on| {
        let axes = on.method.ints(&[-1, 0]);
        on.call("aten::permute_copy", "out", &[on.y, axes], &[3, 2])
    }),
    ("a mean", &[2, 1], true, |on| {
        let (axes, keeps, dtype) = (on.method.ints(&[-1]), on.truth(true), on.none());
        on.call("aten::mean", "out", &[on.y, axes, keeps, dtype], &[2, 1])
    }),
    ("numbers of the file that f32 holds", &[2, 3], true, |on| {
        let (number, one) = (on.float(0.375), on.method.int(1));
        let sum = on.call("aten::add", "Scalar_out", &[on.y, number, one], &[2, 3]);
        let eight = on.method.int(8);
        let quotient = on.call("aten::div", "Scalar_out", &[sum, eight], &[2, 3]);
        on.call("aten::mul", "Scalar_out", &[quotient, eight], &[2, 3])
    }),
    ("a number of the file that f32 does not hold", &[2, 3], false, |on| {
        let number = on.float(0.1);
        on.call("aten::mul", "Scalar_out", &[on.y, number], &[2, 3])
    }),
    ("a quotient by a constant of the program", &[2, 3], true, |on| {
        let by = on.method.constant(on.file, &f32s(&[2, 3], &[3.0, 7.0, 0.5, -1.0, 9.0, 11.0]), &[0, 1]);
        let quotient = on.call("aten::div", "out", &[on.y, by], &[2, 3]);
        on.call("aten::mul", "out", &[quotient, by], &[2, 3])
    }),
    ("copies", &[2, 3], true, |on| {
        let (none, no) = (on.none(), on.truth(false));
        let copy = on.call("aten::clone", "out", &[on.y, none], &[2, 3]);
        let axes = on.method.ints(&[0, 1]);
        on.call("dim_order_ops::_to_dim_order_copy", "out", &[copy, no, axes], &[2, 3])
    }),
    ("a copy in another dtype", &[2, 3], false, |on| {
        let none = on.none();
        let copy = on.method.tensor(DType::F16, &[2, 3]);
        on.method.kernel("aten::clone", "out", &[on.y, none, copy, copy]);
        on.call("aten::clone", "out", &[copy, none], &[2, 3])
    }),
    ("sizes that are computed", &[3, 2], true, |on| {
        let (zero, one, two) = (on.method.int(0), on.method.int(1), on.method.int(2));
        let rows = on.number("aten::sym_size", "int", &[on.y, zero]);
        let twice = on.number("executorch_prim::mul", "Scalar", &[rows, two]);
        let less = on.number("executorch_prim::sub", "Scalar", &[twice, one]);
        let half = on.number("executorch_prim::floordiv", "Scalar", &[less, two]);
        let columns = on.number("executorch_prim::add", "Scalar", &[half, one]);
        let sizes = on.method.value(EValue::IntList(vec![i64::from(less), i64::from(columns)].into()));
        on.call("aten::view_copy", "out", &[on.y, sizes], &[3, 2])
    }),
    ("a tensor that is dropped", &[2, 3], true, |on| {
        let (none, axis) = (on.none(), on.method.int(0));
        let copy = on.call("aten::clone", "out", &[on.y, none], &[2, 3]);
        let lifted = on.call("aten::unsqueeze_copy", "out", &[copy, axis], &[1, 2, 3]);
        on.method.free(copy);
        let sizes = on.method.ints(&[2, 3]);
        on.call("aten::view_copy", "out", &[lifted, sizes], &[2, 3])
    }),
    ("an operator that has no node", &[2, 3], false, |on| on.call("aten::exp", "out", &[on.y], &[2, 3])),
];

fn bytes((_, shape, _, operators): &Case) -> Bytes {
    let mut file = File::default();
    file.name("half", &f32s(&[1], &[0.5]));
    let mut method = Method::new("forward");
    let (x, k) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::I64, &[1]));
    let (y, n) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::I64, &[1]));
    method.input(x);
    method.input(k);
    method.delegate(&mut file, BEFORE, &[x, k, y, n]);
    let z = operators(&mut Between { method: &mut method, file: &mut file, x, y, n });
    let w = method.tensor(DType::F32, shape);
    method.delegate(&mut file, &behind(shape), &[z, w]);
    [w, n].into_iter().for_each(|value| method.output(value));
    file.add(method);
    file.bytes()
}

fn load(bytes: Bytes, keeps_delegates: bool) -> Program {
    let options = Options { registry: crate::registry(), keeps_delegates, ..Options::default() };
    Program::load("operators.pte", bytes, &[], &options).unwrap()
}

fn is_joined(program: &Program) -> bool {
    program.method("forward").unwrap().delegates.iter().all(|delegate| delegate.joined == Some(0))
}

fn host(values: &[Value]) -> Vec<HostTensor> {
    values.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect()
}

/// Whole numbers, so that means are the same however they are summed.
fn inputs(step: usize) -> [Value; 2] {
    let data: Vec<f32> = (0..6).map(|at| ((at * at + 3 * step) % 7 * 6) as f32 - 12.0).collect();
    [f32s(&[2, 3], &data).into(), i64s(&[1], &[1]).into()]
}

#[test]
fn operators_between_delegates_keep_their_meaning() {
    for case @ (name, _, wanted, _) in CASES {
        let [together, apart] = [false, true].map(|apart| load(bytes(case), apart));
        assert_eq!(is_joined(&together), *wanted, "{name}");
        let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
        for step in 0..3 {
            let results = [&mut a, &mut b].map(|session| session.run("forward", &inputs(step)));
            let [got, wanted] = results.map(|values| host(&values.unwrap()));
            assert_eq!(got, wanted, "{name}, step {step}");
        }
    }
}

/// A branch and a loop in either delegate.
#[test]
fn delegates_with_bodies_are_joined() {
    const LOOPS: &str = r#"
graph "forward"
  symbol C in 0..=1
  input %0 "x": f32[2, 3]
  input %1 "c": int(C)
  buffer %2 "last": f32[3] -> %9
{
  %3: f32[2, 3] = if(cond=%1) then {
    %4: f32[2, 3] = add(a=%0, b=%2)
    yield %4
  } else {
    %5: f32[2, 3] = neg(x=%0)
    yield %5
  }
  %8: f32[2, 3], %9: f32[3] = scan(originals=[%3], carry=[%2], scan_axis=0) body (%6: f32[3], %7: f32[3]) {
    %10: f32[3] = add(a=%6, b=%7)
    yield %10, %10
  }
}
output %8 "y": f32[2, 3]
"#;
    let mut file = File::default();
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[2, 3]);
    let (y, turned) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::F32, &[2, 3]));
    let (z, none) = (method.tensor(DType::F32, &[2, 3]), method.value(EValue::Null));
    let (yes, no) = (method.int(1), method.int(0));
    method.input(x);
    method.delegate(&mut file, LOOPS, &[x, yes, y]);
    method.kernel("aten::clone", "out", &[y, none, turned, turned]);
    method.delegate(&mut file, LOOPS, &[turned, no, z]);
    method.output(z);
    file.add(method);
    let bytes = file.bytes();
    let [together, apart] = [false, true].map(|apart| load(bytes.clone(), apart));
    assert!(is_joined(&together));
    let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
    for step in 0..3 {
        let results = [&mut a, &mut b].map(|session| session.run("forward", &inputs(step)[..1]));
        let [got, wanted] = results.map(|values| host(&values.unwrap()));
        assert_eq!(got, wanted, "step {step}");
        for buffer in together.buffers() {
            assert_eq!(a.read(&buffer.id).unwrap(), b.read(&buffer.id).unwrap(), "step {step}");
        }
    }
}

/// Bounds that are read from data, from the end and beyond it too; how long the slice is only the run knows.
#[test]
fn a_slice_by_numbers_of_the_run_is_a_node() {
    const DOUBLES: &str = r#"
graph "forward"
  symbol T in 0..=2
  input %0 "z": f32[T, 3]
{
  %1: f32[T, 3] = add(a=%0, b=%0)
}
output %1 "w": f32[T, 3]
"#;
    let mut file = File::default();
    file.name("half", &f32s(&[1], &[0.5]));
    let mut method = Method::new("forward");
    let (x, k) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::I64, &[1]));
    let (y, n) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::I64, &[1]));
    let (z, w) = (method.dynamic(DType::F32, &[2, 3]), method.dynamic(DType::F32, &[2, 3]));
    let (zero, one, start, stop) = (method.int(0), method.int(1), method.int(0), method.int(0));
    method.input(x);
    method.input(k);
    method.delegate(&mut file, BEFORE, &[x, k, y, n]);
    method.kernel("aten::_local_scalar_dense", "", &[n, start]);
    method.kernel("executorch_prim::add", "Scalar", &[start, one, stop]);
    method.kernel("aten::slice_copy", "Tensor_out", &[y, zero, start, stop, one, z, z]);
    method.delegate(&mut file, DOUBLES, &[z, w]);
    [w, start].into_iter().for_each(|value| method.output(value));
    file.add(method);
    let bytes = file.bytes();
    let [together, apart] = [false, true].map(|apart| load(bytes.clone(), apart));
    assert!(is_joined(&together));
    let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
    for k in [0, 1, 9, -1, -9] {
        let given = [inputs(2)[0].clone(), i64s(&[1], &[k]).into()];
        let results = [&mut a, &mut b].map(|session| session.run("forward", &given).unwrap());
        let [got, wanted] = results.each_ref().map(|values| host(&values[..1]));
        assert_eq!(got, wanted, "{k}");
        assert_eq!(results[0][1].as_int(), results[1][1].as_int(), "{k}");
    }
}

/// As exporters place them: an `et_view` needs no memory of its own.
#[test]
fn views_at_one_place_can_all_be_read() {
    const GIVES: &str = r#"
graph "forward"
  symbol T in 0..=2
  input %0 "x": f32[T, 3]
{
  %1: f32[T, 3] = neg(x=%0)
  %2: f32[T, 1, 3] = expand_dims(x=%1, axis=1)
  %3: f32[1, T, 3] = expand_dims(x=%1, axis=0)
}
output %1 "a": f32[T, 3]
output %2 "b": f32[T, 1, 3]
output %3 "c": f32[1, T, 3]
"#;
    const TAKES: &str = r#"
graph "forward"
  symbol T in 0..=2
  input %0 "a": f32[T, 3]
  input %1 "b": f32[T, 1, 3]
  input %2 "c": f32[1, T, 3]
{
  %3: f32[T, T, 3] = multiply(a=%1, b=%2)
  %4: f32[T, T, 3] = add(a=%3, b=%0)
}
output %4 "y": f32[T, T, 3]
"#;
    let (mut file, mut method) = (File::default(), Method::new("forward"));
    let x = method.dynamic(DType::F32, &[2, 3]);
    let place = method.take(DType::F32, &[2, 3]);
    let [a, b, c] =
        [&[2, 3][..], &[2, 1, 3], &[1, 2, 3]].map(|sizes| method.dynamic_at(DType::F32, sizes, place));
    let y = method.dynamic(DType::F32, &[2, 2, 3]);
    method.input(x);
    method.delegate(&mut file, GIVES, &[x, a, b, c]);
    method.delegate(&mut file, TAKES, &[a, b, c, y]);
    method.output(y);
    file.add(method);
    let program = load(file.bytes(), true);
    let given = [Value::from(f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))];
    let got = host(&program.session().unwrap().run("forward", &given).unwrap());
    let want = [0.0, 2.0, 6.0, 0.0, 5.0, 12.0, 3.0, 8.0, 15.0, 12.0, 20.0, 30.0];
    assert_eq!(got, [f32s(&[2, 2, 3], &want)]);
}

/// Queries, keys and a position, all of them computed.
const PROJECTS: &str = r#"
graph "forward"
  input %0 "x": f32[1, 2, 2, 4]
  input %1 "k": i64[1]
{
  %2: f32[1, 2, 2, 4] = neg(x=%0)
  %3: f32[1, 2, 1, 4] = mean(x=%0, axes=[2], keepdims=true)
  %4: i64[1] = add(a=%1, b=%1)
}
output %2 "q": f32[1, 2, 2, 4]
output %3 "k": f32[1, 2, 1, 4]
output %4 "n": i64[1]
"#;

/// A program with a cache of its own between two delegates; where `is_seen`, an operator behind them reads it too.
fn cached(is_seen: bool) -> Bytes {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, k) = (method.tensor(DType::F32, &[1, 2, 2, 4]), method.tensor(DType::I64, &[1]));
    let (q, keys) = (method.tensor(DType::F32, &[1, 2, 2, 4]), method.tensor(DType::F32, &[1, 2, 1, 4]));
    let (n, start) = (method.tensor(DType::I64, &[1]), method.int(0));
    let cache = method.placed(DType::F32, &[1, 6, 1, 4], 1, 1 << 20);
    let (nobody, found) = (method.tensor(DType::F32, &[1]), method.tensor(DType::F32, &[1, 2, 2, 4]));
    let (none, zero, yes) =
        (method.value(EValue::Null), method.value(EValue::Double(0.0)), method.value(EValue::Bool(true)));
    let w = method.tensor(DType::F32, &[1, 2, 2, 4]);
    method.input(x);
    method.input(k);
    method.delegate(&mut file, PROJECTS, &[x, k, q, keys, n]);
    method.kernel("aten::_local_scalar_dense", "", &[n, start]);
    method.kernel("llama::update_cache", "out", &[keys, cache, start, nobody, nobody]);
    method.kernel(
        "llama::custom_sdpa",
        "out",
        &[q, cache, cache, start, none, zero, yes, none, found, found],
    );
    method.delegate(&mut file, &behind(&[1, 2, 2, 4]), &[found, w]);
    method.output(w);
    if is_seen {
        let seen = method.tensor(DType::F32, &[1, 6, 1, 4]);
        method.kernel("aten::clone", "out", &[cache, none, seen, seen]);
        method.output(seen);
    }
    file.add(method);
    file.bytes()
}

/// A cache that nobody else touches is written in place by whoever runs the graph; it is read, kept and taken back as before.
#[test]
fn caches_between_delegates_are_the_graphs_own() {
    for is_seen in [false, true] {
        let bytes = cached(is_seen);
        let [together, apart] = [false, true].map(|apart| load(bytes.clone(), apart));
        // A backend that lacks some ops may leave what stands between delegates there; `cpu/tests/xnnpack.rs` holds others to it.
        let joined = is_joined(&together);
        let id = together.buffers().iter().find(|buffer| buffer.id.delegate.is_none()).unwrap().id.clone();
        assert_eq!(
            (together.keeper(&id).is_some(), apart.keeper(&id).is_some()),
            (joined && !is_seen, false)
        );
        let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
        let given = |k: i64| {
            let data: Vec<f32> = (0..16).map(|at| ((at * 5 + 3 * k) % 7) as f32 / 4.0).collect();
            [f32s(&[1, 2, 2, 4], &data).into(), i64s(&[1], &[k]).into()]
        };
        let before = a.snapshot().unwrap();
        for k in [0, 1, 2, 0] {
            let results = [&mut a, &mut b].map(|session| session.run("forward", &given(k)));
            let [got, wanted] = results.map(|values| host(&values.unwrap()));
            for (got, wanted) in got.iter().zip(&wanted) {
                let pairs = got.as_slice::<f32>().unwrap().iter().zip(wanted.as_slice::<f32>().unwrap());
                assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-5), "step {k}: {got:?}, {wanted:?}");
            }
            assert_eq!(a.read(&id).unwrap(), b.read(&id).unwrap(), "step {k}");
        }
        assert_ne!(a.read(&id).unwrap(), together.session().unwrap().read(&id).unwrap());
        a.restore(&before).unwrap();
        assert_eq!(a.read(&id).unwrap(), together.session().unwrap().read(&id).unwrap());
        let written = b.read(&id).unwrap();
        a.write(&id, &written).unwrap();
        assert_eq!(a.read(&id).unwrap(), written);
    }
}
