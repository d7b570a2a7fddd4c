//! A panic in mid-run, wherever it comes up: the session is as it was before the call, and goes on from there.

use crate::pte::{File, Method, f32s, i64s};
use pteron_format::pte::EValue;
use pteron_runtime::backend::{Detail, Step, Trace};
use pteron_runtime::{Error, Program, RunControl, Session, SessionSnapshot, Value};
use pteron_tensor::{DType, HostTensor};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes a row of one buffer in place, adds to another one and draws.
const WRITES: &str = r#"
graph "forward"
  input %0 "x": f32[2]
  input %1 "place": i64[1]
  buffer %2 "rows": f32[4, 2] -> %5
  buffer %3 "sum": f32[2] -> %6
{
  %4: f32[1, 2] = reshape(x=%0, shape=[1, 2])
  %5: f32[4, 2] = index_copy(dst=%2, update=%4, indices=%1, axis=0)
  %6: f32[2] = add(a=%3, b=%0)
  %7: u32[2] = random_bits(shape=[2])
  %8: f32[2] = sum(x=%5, axes=[0])
  %9: f32[2] = add(a=%8, b=%6)
}
output %9 "out": f32[2]
output %7 "bits": i64[2]
"#;

/// Reads a table, which fails where the index is outside it, and writes a buffer of its own. It draws nothing.
const READS: &str = r#"
graph "forward"
  input %0 "x": f32[2]
  input %1 "index": i64[1]
  constant %2 "table": f32[3, 2]
  buffer %3 "last": f32[2] -> %0
{
  %4: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %5: f32[1, 2] = add(a=%4, b=%0)
  %6: f32[1, 2] = add(a=%5, b=%3)
}
output %6 "out": f32[1, 2]
"#;

/// A method with two delegates and a buffer of the program itself, and one that only reads.
fn program() -> Program {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[0.0, 0.0, 10.0, 10.0, 20.0, 20.0]));
    let mut method = Method::new("forward");
    let x = method.tensor(DType::F32, &[2]);
    let (place, index) = (method.tensor(DType::I64, &[1]), method.tensor(DType::I64, &[1]));
    let (middle, bits) = (method.tensor(DType::F32, &[2]), method.tensor(DType::I64, &[2]));
    let (state, out) = (method.tensor(DType::F32, &[1, 2]), method.tensor(DType::F32, &[1, 2]));
    let (one, blocking) = (method.int(1), method.value(EValue::Bool(false)));
    let total = method.tensor(DType::F32, &[1, 2]);
    for input in [x, place, index] {
        method.input(input);
    }
    method.delegate(&mut file, WRITES, &[x, place, middle, bits]);
    method.delegate(&mut file, READS, &[middle, index, out]);
    method.kernel("aten::add", "out", &[state, out, one, total, total]);
    method.kernel("aten::copy_", "", &[state, total, blocking, state]);
    method.output(total);
    method.output(bits);
    file.add(method);
    let mut peek = Method::new("peek");
    let (x, index) = (peek.tensor(DType::F32, &[2]), peek.tensor(DType::I64, &[1]));
    let out = peek.tensor(DType::F32, &[1, 2]);
    peek.input(x);
    peek.input(index);
    peek.delegate(&mut file, READS, &[x, index, out]);
    peek.output(out);
    file.add(peek);
    file.load().unwrap()
}

fn inputs(number: i64, index: i64) -> [Value; 3] {
    let x = f32s(&[2], &[number as f32 + 0.5, -2.0 * number as f32]);
    [x.into(), i64s(&[1], &[number.rem_euclid(4)]).into(), i64s(&[1], &[index]).into()]
}

fn run(session: &mut Session, number: i64) -> Vec<HostTensor> {
    let outputs = session.run("forward", &inputs(number, number.rem_euclid(3))).unwrap();
    outputs.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect()
}

fn buffers(session: &Session) -> Vec<HostTensor> {
    let ids = session.program().buffers().iter().map(|buffer| &buffer.id);
    ids.map(|id| session.read(id).unwrap()).collect()
}

/// Panics at a step; nothing is printed.
struct Bomb {
    left: AtomicUsize,
    detail: Detail,
}

impl Trace for Bomb {
    fn step(&self, _: &Step<'_>) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new("a step panics"));
        }
    }

    fn detail(&self) -> Detail {
        self.detail
    }
}

/// Runs a method with a panic at a step; whether there was such a step.
fn run_to(session: &mut Session, method: &str, inputs: &[Value], at: usize, detail: Detail) -> bool {
    let trace: Arc<dyn Trace> = Arc::new(Bomb { left: AtomicUsize::new(at), detail });
    let control = RunControl { trace: Some(trace), ..RunControl::default() };
    match catch_unwind(AssertUnwindSafe(|| session.run_with(method, inputs, &control))) {
        Ok(outputs) => {
            outputs.unwrap();
            false
        }
        Err(_) => true,
    }
}

/// Does something to a session after every step at which a run can panic; how many there are.
fn at_every_step(start: impl Fn() -> Session, method: &str, then: impl Fn(Session, String)) -> usize {
    let mut steps = 0;
    for detail in [Detail::Values, Detail::Steps] {
        for at in 0.. {
            let mut session = start();
            let [x, place, index] = inputs(7, 1);
            let inputs = if method == "peek" { vec![x, index] } else { vec![x, place, index] };
            if !run_to(&mut session, method, &inputs, at, detail) {
                break;
            }
            steps += 1;
            then(session, format!("{method}, {detail:?}, step {at}"));
        }
    }
    steps
}

/// A session in the middle of its life.
fn started(program: &Program) -> Session {
    let mut session = program.session().unwrap();
    run(&mut session, 1);
    run(&mut session, 2);
    session
}

#[test]
fn a_panic_in_mid_run_leaves_the_session_as_it_was() {
    let program = program();
    let mut straight = started(&program);
    let before = buffers(&straight);
    let after: Vec<_> = (3..6).map(|number| run(&mut straight, number)).collect();
    for (method, least) in [("forward", 8), ("peek", 3)] {
        let steps = at_every_step(
            || started(&program),
            method,
            |mut session, what| {
                assert_eq!(buffers(&session), before, "{what}");
                for (number, wanted) in (3..6).zip(&after) {
                    assert_eq!(&run(&mut session, number), wanted, "{what}: run {number}");
                }
                assert_eq!(buffers(&session), buffers(&straight), "{what}");
            },
        );
        assert!(steps >= least, "{method}: {steps} steps");
    }
}

#[test]
fn a_snapshot_after_a_panic_outlives_a_run_that_fails() {
    let program = program();
    let mut straight = started(&program);
    let before = buffers(&straight);
    let next = run(&mut straight, 3);
    let check = |mut session: Session, what: String| {
        let snapshot: SessionSnapshot = session.snapshot().unwrap();
        // The second delegate fails when the first has written.
        let failed = session.run("forward", &inputs(6, 3));
        assert!(matches!(failed, Err(Error::Step { .. })), "{what}: {failed:?}");
        assert_eq!(buffers(&session), before, "{what}: after the failed run");
        let mut other = program.session().unwrap();
        other.restore(&snapshot).unwrap();
        assert_eq!(buffers(&other), before, "{what}: the snapshot");
        assert_eq!(run(&mut session, 3), next, "{what}: the session goes on");
        assert_eq!(run(&mut other, 3), next, "{what}: the snapshot goes on");
        session.restore(&snapshot).unwrap();
        assert_eq!(run(&mut session, 3), next, "{what}: back to the snapshot");
    };
    for method in ["forward", "peek"] {
        assert!(at_every_step(|| started(&program), method, check) > 0);
    }
}

/// A panic right behind another one, and one in a session whose state a snapshot shares.
#[test]
fn panics_do_not_add_up() {
    let program = program();
    let mut straight = started(&program);
    let before = buffers(&straight);
    let next = run(&mut straight, 3);
    let start = || {
        let mut session = started(&program);
        assert!(run_to(&mut session, "forward", &inputs(5, 0), 4, Detail::Values));
        session
    };
    let steps = at_every_step(start, "forward", |mut session, what| {
        let kept = session.snapshot().unwrap();
        assert!(run_to(&mut session, "forward", &inputs(9, 2), 3, Detail::Values), "{what}");
        assert_eq!(buffers(&session), before, "{what}");
        drop(kept);
        assert_eq!(run(&mut session, 3), next, "{what}");
    });
    assert!(steps > 0);
}

const ATTEND: &str = r#"
graph "forward"
  input %0 "q": f32[1, 1, 1, 2]
  input %1 "position": i64[1]
{
  %2: f32[1, 1, 1, 2] = update_and_attend(q=%0, k=%0, v=%0, position=%1, layer_id=0, scale=1.0)
  %3: f32[1, 1, 1, 2] = add(a=%2, b=%0)
}
output %3 "out": f32[1, 1, 1, 2]
"#;

#[test]
fn a_panic_leaves_the_off_graph_cache_as_it_was() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (q, position) = (method.tensor(DType::F32, &[1, 1, 1, 2]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 1, 1, 2]);
    method.input(q);
    method.input(position);
    method.output(out);
    method.delegate(&mut file, ATTEND, &[q, position, out]);
    file.add(method);
    let caches = [
        ("get_n_caches", 1),
        ("get_kv_heads", 1),
        ("get_head_dims", 2),
        ("get_windows", 0),
        ("get_max_ctx_len", 8),
    ];
    for (name, value) in caches {
        file.metadata(name, EValue::Int(value));
    }
    let program = file.load().unwrap();
    let token = |number: f32, position: i64| -> [Value; 2] {
        [f32s(&[1, 1, 1, 2], &[number, 1.0]).into(), i64s(&[1], &[position]).into()]
    };
    let attend = |session: &mut Session, number: f32, position: i64| {
        let outputs = session.run("forward", &token(number, position)).unwrap();
        outputs[0].to_tensor().unwrap().unwrap()
    };
    let start = || {
        let mut session = program.session().unwrap();
        attend(&mut session, 1.0, 0);
        attend(&mut session, 2.0, 1);
        session
    };
    let wanted = attend(&mut start(), 3.0, 2);
    let mut steps = 0;
    for detail in [Detail::Values, Detail::Steps] {
        // Behind the end, and over what is there.
        for position in [2, 1] {
            for at in 0.. {
                let mut session = start();
                if !run_to(&mut session, "forward", &token(9.0, position), at, detail) {
                    break;
                }
                steps += 1;
                assert_eq!(session.cached_tokens(), Some(2), "{detail:?}, step {at} at {position}");
                assert_eq!(attend(&mut session, 3.0, 2), wanted, "{detail:?}, step {at} at {position}");
            }
        }
    }
    assert!(steps >= 4);
}
