//! Delegates that stand side by side run as one graph, and give what they give apart.

use crate::pte::{File, Method, f32s, i64s};
use pteron_format::pte::EValue;
use pteron_runtime::{BufferId, Error, Options, Program, Scope, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};

/// Scales rows and adds them up.
const SCALES: &str = r#"
graph "forward"
  symbol T in 1..=8
  input %0 "x": f32[T, 2]
  constant %1 "weight": f32[2]
  buffer %2 "sum": f32[2] -> %5
{
  %3: f32[T, 2] = multiply(a=%0, b=%1)
  %4: f32[2] = sum(x=%3, axes=[0])
  %5: f32[2] = add(a=%2, b=%4)
}
output %3 "y": f32[T, 2]
output %5 "sum": f32[2]
"#;

/// Takes what another gave and an input of the method, and draws.
const ADDS: &str = r#"
graph "forward"
  symbol n in 1..=8
  input %0 "y": f32[n, 2]
  input %1 "x": f32[n, 2]
  constant %2 "weight": f32[2]
  buffer %3 "sum": f32[2] -> %6
{
  %4: f32[n, 2] = add(a=%0, b=%1)
  %5: f32[2] = sum(x=%4, axes=[0])
  %6: f32[2] = add(a=%3, b=%5)
  %7: f32[n, 2] = add(a=%4, b=%2)
  %8: u32[2] = random_bits(shape=[2])
}
output %7 "z": f32[n, 2]
output %8 "bits": i64[2]
"#;

/// A lookup, which fails where the index is outside.
const LOOKS: &str = r#"
graph "forward"
  symbol k in 1..=8
  input %0 "z": f32[k, 2]
  input %1 "sum": f32[2]
  input %2 "index": i64[1]
{
  %3: f32[1, 2] = take(x=%0, index=%2, axis=0)
  %4: f32[1, 2] = add(a=%3, b=%1)
}
output %4 "out": f32[1, 2]
"#;

/// Where the three stand, and what stands between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Something jumps to the second.
    Jump,
    /// The second's input lies where the first one's other output does.
    OverlappingPlaces,
    /// The first is called once more.
    SecondCall,
    /// What flows is declared smaller than it can be.
    SmallDeclaration,
}

fn bytes(between: Between) -> Bytes {
    let mut file = File::default();
    file.name("weight", &f32s(&[2], &[0.5, -1.5]));
    let mut method = Method::new("forward");
    let (x, index) = (method.dynamic(DType::F32, &[8, 2]), method.tensor(DType::I64, &[1]));
    let room = if between == Between::SmallDeclaration { 4 } else { 8 };
    let y = method.dynamic(DType::F32, &[room, 2]);
    let sum = method.placed(DType::F32, &[2], 1, 1 << 20);
    let other = match between {
        Between::OverlappingPlaces => method.placed(DType::F32, &[2], 1, (1 << 20) + 4),
        _ => sum,
    };
    let (z, bits) = (method.dynamic(DType::F32, &[8, 2]), method.tensor(DType::I64, &[2]));
    let (out, total) = (method.tensor(DType::F32, &[1, 2]), method.tensor(DType::F32, &[1, 2]));
    let (one, truth) = (method.int(1), method.value(EValue::Bool(true)));
    method.input(x);
    method.input(index);
    if between == Between::OverlappingPlaces {
        method.input(other);
    }
    if between == Between::Jump {
        method.jump_false(truth, 2);
    }
    method.delegate(&mut file, SCALES, &[x, y, sum]);
    method.delegate(&mut file, ADDS, &[y, x, z, bits]);
    method.delegate(&mut file, LOOKS, &[z, other, index, out]);
    if between == Between::SecondCall {
        method.call_again(0, &[x, y, sum]);
    }
    method.kernel("aten::add", "out", &[out, out, one, total, total]);
    method.output(total);
    method.output(bits);
    file.add(method);
    file.bytes()
}

fn load(between: Between, keeps_delegates: bool) -> Program {
    let registry = crate::registry();
    let options = Options { registry, keeps_delegates, ..Options::default() };
    Program::load("joined.pte", bytes(between), &[], &options).unwrap()
}

fn joined(program: &Program) -> Vec<Option<usize>> {
    program.method("forward").unwrap().delegates.iter().map(|delegate| delegate.joined).collect()
}

fn inputs(rows: usize, index: i64) -> Vec<Value> {
    let data: Vec<f32> = (0..2 * rows).map(|at| at as f32 * 0.75 - 1.0).collect();
    vec![f32s(&[rows, 2], &data).into(), i64s(&[1], &[index]).into()]
}

fn run(session: &mut Session, inputs: &[Value]) -> Result<Vec<HostTensor>, Error> {
    let outputs = session.run("forward", inputs)?;
    Ok(outputs.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect())
}

fn contents(session: &Session) -> Vec<HostTensor> {
    session.program().buffers().iter().map(|buffer| session.read(&buffer.id).unwrap()).collect()
}

#[test]
fn delegates_side_by_side_give_what_they_give_apart() {
    let (together, apart) = (load(Between::Nothing, false), load(Between::Nothing, true));
    assert_eq!(joined(&together), [Some(0), Some(0), Some(0)]);
    assert_eq!(joined(&apart), [None, None, None]);
    assert_eq!(together.buffers(), apart.buffers());
    assert_eq!(together.memory().state_bytes, apart.memory().state_bytes);
    let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
    for (rows, index) in [(1, 0), (8, 7), (3, -1), (3, 2)] {
        let inputs = inputs(rows, index);
        assert_eq!(run(&mut a, &inputs).unwrap(), run(&mut b, &inputs).unwrap(), "{rows} rows");
        assert_eq!(contents(&a), contents(&b), "{rows} rows");
    }
    // An error of the last takes back what the first ones wrote.
    let before = contents(&a);
    for session in [&mut a, &mut b] {
        let error = run(session, &inputs(2, 2)).unwrap_err().to_string();
        assert!(error.contains("index 2") && error.contains("take("), "{error}");
    }
    assert_eq!((contents(&a), contents(&b)), (before.clone(), before));
    let error = run(&mut a, &inputs(9, 0)).unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    // Two buffers of one name are two.
    for (delegate, numbers) in [(0, [1.0, 2.0]), (1, [3.0, 4.0])] {
        let scope = Scope::Method("forward".into());
        let id = BufferId { scope, delegate: Some(delegate), name: "sum".into() };
        for session in [&mut a, &mut b] {
            session.write(&id, &f32s(&[2], &numbers)).unwrap();
            assert_eq!(session.read(&id).unwrap(), f32s(&[2], &numbers));
        }
    }
    let none = BufferId { scope: Scope::Method("forward".into()), delegate: Some(2), name: "sum".into() };
    assert!(matches!(a.read(&none), Err(Error::UnknownBuffer(_))));
    assert_eq!(contents(&a), contents(&b));
    assert_eq!(run(&mut a, &inputs(2, 1)).unwrap(), run(&mut b, &inputs(2, 1)).unwrap());
}

#[test]
fn what_would_change_its_meaning_stays_apart() {
    let cases = [
        (Between::Jump, vec![None, Some(1), Some(1)]),
        (Between::OverlappingPlaces, vec![Some(0), Some(0), None]),
        (Between::SecondCall, vec![None, Some(1), Some(1)]),
        (Between::SmallDeclaration, vec![None, Some(1), Some(1)]),
    ];
    for (between, wanted) in cases {
        let (together, apart) = (load(between, false), load(between, true));
        assert_eq!(joined(&together), wanted);
        let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
        for rows in [2, 6] {
            let mut inputs = inputs(rows, 1);
            if between == Between::OverlappingPlaces {
                inputs.push(f32s(&[2], &[5.0, 6.0]).into());
            }
            let results = [run(&mut a, &inputs), run(&mut b, &inputs)].map(|result| {
                // The place in the chain is another one.
                result.map_err(|error| {
                    error.to_string().split("instruction").last().map(|end| end[2..].to_owned())
                })
            });
            assert_eq!(results[0], results[1], "{wanted:?}, {rows} rows");
            assert_eq!(contents(&a), contents(&b), "{wanted:?}, {rows} rows");
        }
    }
}

const HALVES: &str = r#"
graph "forward"
  input %0 "x": f32[2, 3]
  constant %1 "half": f32[1]
{
  %2: f32[2, 3] = multiply(a=%0, b=%1)
}
output %2 "y": f32[2, 3]
"#;

const NEGATES: &str = r#"
graph "forward"
  input %0 "v": f32[6]
  buffer %1 "last": f32[6] -> %2
{
  %2: f32[6] = neg(x=%0)
  %3: f32[6] = add(a=%2, b=%1)
}
output %3 "z": f32[6]
"#;

/// Two delegates with a sum, a permutation and a view between them, and operators behind.
fn with_operators(alpha: i64) -> Bytes {
    let mut file = File::default();
    file.name("half", &f32s(&[1], &[0.5]));
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[2, 3]);
    let (y, sum) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::F32, &[2, 3]));
    let (permuted, flat) = (method.tensor(DType::F32, &[3, 2]), method.tensor(DType::F32, &[6]));
    let (z, product, total) =
        (method.tensor(DType::F32, &[6]), method.tensor(DType::F32, &[6]), method.tensor(DType::F32, &[6]));
    let (zero, one, six, alpha) = (method.int(0), method.int(1), method.int(6), method.int(alpha));
    let mut list = |items: &[i32]| {
        let items: Vec<i64> = items.iter().map(|&item| item.into()).collect();
        method.value(EValue::IntList(items.into()))
    };
    let (axes, sizes) = (list(&[one, zero]), list(&[six]));
    method.input(x);
    method.delegate(&mut file, HALVES, &[x, y]);
    method.kernel("aten::add", "out", &[y, x, alpha, sum, sum]);
    method.kernel("aten::permute_copy", "out", &[sum, axes, permuted, permuted]);
    method.kernel("aten::view_copy", "out", &[permuted, sizes, flat, flat]);
    method.delegate(&mut file, NEGATES, &[flat, z]);
    method.kernel("aten::mul", "out", &[z, flat, product, product]);
    method.kernel("aten::sub", "out", &[product, z, one, total, total]);
    method.output(total);
    method.output(z);
    file.add(method);
    file.bytes()
}

#[test]
fn plain_operators_between_delegates_become_part_of_the_graph() {
    // A sum of multiples has no node, and stays an operator.
    for (alpha, wanted) in [(1, [Some(0), Some(0)]), (2, [None, None])] {
        let [together, apart] = [false, true].map(|keeps_delegates| {
            let options = Options { registry: crate::registry(), keeps_delegates, ..Options::default() };
            Program::load("operators.pte", with_operators(alpha), &[], &options).unwrap()
        });
        assert_eq!(joined(&together), wanted);
        let (mut a, mut b) = (together.session().unwrap(), apart.session().unwrap());
        for step in 0..3 {
            let data: Vec<f32> = (0..6).map(|at| (at * at) as f32 * 0.3 - step as f32).collect();
            let inputs = [f32s(&[2, 3], &data).into()];
            let outputs = run(&mut a, &inputs).unwrap();
            assert_eq!(outputs, run(&mut b, &inputs).unwrap(), "alpha {alpha}, step {step}");
            assert_eq!(contents(&a), contents(&b), "alpha {alpha}, step {step}");
        }
    }
}
