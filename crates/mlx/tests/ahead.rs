//! Runs that are handed over to MLX and not waited for: what they give, who may read it, and when.

#![cfg(feature = "shim")]
#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use pte::{File, Method, f32s, i64s};
use pteron_mlx::{Compile, MlxBackend, MlxOptions};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Error, Options, Program, RunControl, Session, Value};
use pteron_tensor::{DType, HostTensor};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span;

fn registry() -> Registry {
    options(Compile::Never).registry
}

fn options(compile: Compile) -> Options {
    let mut options = Options { backend: Some("mlx:0".into()), ..Options::default() };
    options.registry.add(Arc::new(MlxBackend::open(&MlxOptions { shim: None, compile }).unwrap()));
    options
}

/// A language model in small: a token and a place in, scores out, a line of what was read. Ids of the scores are those of
/// the table.
const READER: &str = r#"
graph "forward"
  symbol s0 in i32
  input %0 "token": i64[1, 1]
  input %1 "position": i64[1]
  constant %2 "table": f32[5, 4]
  constant %3 "head": f32[4, 5]
  buffer %4 "line": f32[64, 4] -> %8
{
  %5: int(s0) = item_int(x=%1)
  %6: f32[1, 1, 4] = take(x=%2, index=%0, axis=0)
  %7: f32[1, 4] = reshape(x=%6, shape=[1, 4])
  %8: f32[64, 4] = index_copy(dst=%4, update=%7, indices=%1, axis=0)
  %9: f32[4] = sum(x=%8, axes=[0])
  %10: f32[1, 4] = expand_dims(x=%9, axis=0)
  %11: f32[1, 5] = addmm(mat1=%10, mat2=%3)
  %12: f32[1, 5] = sin(x=%11)
}
output %12 "scores": f32[1, 5]
"#;

fn reader(compile: Compile) -> Program {
    let mut file = File::default();
    let numbers =
        |count: usize, step: f32| -> Vec<f32> { (0..count).map(|at| (at as f32 * step).sin()).collect() };
    file.name("table", &f32s(&[5, 4], &numbers(20, 0.7)));
    file.name("head", &f32s(&[4, 5], &numbers(20, 1.3)));
    let mut method = Method::new("forward");
    let (token, position) = (method.tensor(DType::I64, &[1, 1]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 5]);
    method.input(token);
    method.input(position);
    method.output(out);
    method.delegate(&mut file, READER, &[token, position, out]);
    file.add(method);
    Program::load("reader.pte", file.bytes(), &[], &options(compile)).unwrap()
}

fn at(position: usize) -> Value {
    i64s(&[1], &[position as i64]).into()
}

fn token(number: i64) -> Value {
    i64s(&[1, 1], &[number]).into()
}

fn host(value: &Value) -> HostTensor {
    value.to_tensor().unwrap().unwrap()
}

/// The first of the greatest.
fn greatest(scores: &HostTensor) -> i64 {
    let scores = scores.as_slice::<f32>().unwrap();
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter().position(|score| *score == most).unwrap() as i64
}

/// Tokens of so many steps, each read before the next is run.
fn step_by_step(session: &mut Session, steps: usize) -> Vec<i64> {
    let mut next = 1;
    let each = (0..steps).map(|position| {
        let outputs = session.run("forward", &[token(next), at(position)]).unwrap();
        next = greatest(&host(&outputs[0]));
        next
    });
    each.collect()
}

/// The place of the greatest score, still on the device.
fn likeliest(outputs: &[Value]) -> Value {
    let Value::Device(scores) = &outputs[0] else { panic!("{outputs:?}") };
    Value::Device(scores.argmax_last(DType::I64, &[1, 1]).unwrap().unwrap())
}

/// What is told of steps, in order.
#[derive(Default)]
struct Told(Mutex<Vec<(String, u64)>>);

struct Listener(Arc<Told>);

#[derive(Default)]
struct Seen {
    what: String,
    step: u64,
}

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "step" {
            self.step = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.what = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("pteron_runtime")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        if ["submitted", "read"].contains(&seen.what.as_str()) {
            self.0.0.lock().unwrap().push((seen.what, seen.step));
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn every_step_is_handed_over_before_the_last_one_is_read() {
    const STEPS: usize = 24;
    for compile in [Compile::Never, Compile::Always] {
        let program = reader(compile);
        let wanted = step_by_step(&mut program.session().unwrap(), STEPS);
        let told = Arc::new(Told::default());
        let tokens = tracing::subscriber::with_default(Listener(told.clone()), || {
            let (mut session, control) = (program.session().unwrap(), RunControl::default());
            let mut outputs = Vec::new();
            let mut last =
                Some(session.submit("forward", &[token(1), at(0)], &control, &mut outputs).unwrap());
            let mut next = likeliest(&outputs);
            let mut tokens = Vec::new();
            for position in 1..=STEPS {
                let (seen, id) = (last.take().unwrap(), next.clone());
                let ahead = session.submit("forward", &[next, at(position)], &control, &mut outputs).unwrap();
                next = likeliest(&outputs);
                last = Some(ahead);
                seen.wait().unwrap();
                tokens.push(host(&id).as_slice::<i64>().unwrap()[0]);
            }
            last.unwrap().wait().unwrap();
            tokens
        });
        assert_eq!(tokens, wanted, "{compile:?}");
        let told = told.0.lock().unwrap();
        let place =
            |what: &str, step: u64| told.iter().position(|told| *told == (what.to_owned(), step)).unwrap();
        for step in 1..=STEPS as u64 {
            assert!(place("submitted", step + 1) < place("read", step), "{compile:?}, step {step}: {told:?}");
        }
    }
}

/// A session goes from thread to thread while its runs are under way, and others read what they gave.
#[test]
fn what_is_under_way_may_be_read_and_gone_on_with_on_any_thread() {
    let program = reader(Compile::Never);
    let wanted = step_by_step(&mut program.session().unwrap(), 12);
    let mut session = program.session().unwrap();
    let (mut next, mut ids) = (token(1), Vec::new());
    let mut kept: Option<(pteron_runtime::SessionSnapshot, Vec<Value>)> = None;
    for position in 0..12 {
        let control = RunControl::default();
        (session, next, kept) = std::thread::spawn(move || {
            let mut outputs = Vec::new();
            let pending = session.submit("forward", &[next, at(position)], &control, &mut outputs).unwrap();
            // Dropped before it was computed, like the copy of the step before: nobody waits on this thread.
            drop((pending, kept));
            let (next, copy) = (likeliest(&outputs), session.snapshot().unwrap());
            (session, next, Some((copy, outputs)))
        })
        .join()
        .unwrap();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| host(&next))).collect();
            let read: Vec<HostTensor> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            assert!(read.iter().all(|id| *id == read[0]));
        });
        ids.push(host(&next).as_slice::<i64>().unwrap()[0]);
    }
    assert_eq!(ids, wanted);
    assert!(kept.is_some());
}

/// The host cannot know an index that MLX has computed: it is looked at before anything is changed.
#[test]
fn an_index_that_was_computed_is_checked_before_the_state_is_touched() {
    let program = reader(Compile::Never);
    let (mut session, mut other) = (program.session().unwrap(), program.session().unwrap());
    let control = RunControl::default();
    let mut outputs = Vec::new();
    session.submit("forward", &[token(1), at(0)], &control, &mut outputs).unwrap().wait().unwrap();
    other.run("forward", &[token(1), at(0)]).unwrap();
    // An integer of the device that nothing is known of.
    let doubling = r#"
graph "forward"
  input %0 "x": i64[1, 1]
{
  %1: i64[1, 1] = add(a=%0, b=%0)
}
output %1 "y": i64[1, 1]
"#;
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, y) = (method.tensor(DType::I64, &[1, 1]), method.tensor(DType::I64, &[1, 1]));
    method.input(x);
    method.output(y);
    method.delegate(&mut file, doubling, &[x, y]);
    file.add(method);
    let doubler = Program::load("doubler.pte", file.bytes(), &[], &options(Compile::Never)).unwrap();
    let mut doubler = doubler.session().unwrap();
    for (number, is_inside) in [(2, true), (3, false), (-2, true)] {
        let id = doubler.run("forward", &[token(number)]).unwrap().remove(0);
        let position = 1;
        let result = session.submit("forward", &[id, at(position)], &control, &mut outputs);
        match is_inside {
            true => {
                result.unwrap().wait().unwrap();
                let wanted = other.run("forward", &[token(2 * number), at(position)]).unwrap();
                assert_eq!(host(&outputs[0]), host(&wanted[0]), "{number}");
            }
            false => {
                let error = result.unwrap_err();
                assert!(matches!(error, Error::Step { .. }), "{error}");
                assert!(error.to_string().contains("index 6 is outside an axis of size 5"), "{error}");
            }
        }
    }
}

#[test]
fn scores_without_a_greatest_say_so() {
    let program = {
        let mut file = File::default();
        let mut method = Method::new("forward");
        let (x, y) = (method.tensor(DType::F32, &[2, 3]), method.tensor(DType::F32, &[2, 3]));
        method.input(x);
        method.output(y);
        let text = "graph \"forward\"\n  input %0 \"x\": f32[2, 3]\n{\n  %1: f32[2, 3] = neg(x=%0)\n}\noutput %1 \"y\": f32[2, 3]\n";
        method.delegate(&mut file, text, &[x, y]);
        file.add(method);
        Program::load("negative.pte", file.bytes(), &[], &options(Compile::Never)).unwrap()
    };
    let mut session = program.session().unwrap();
    let far = f32::INFINITY;
    let cases = [
        ([9.0, 9.0, 9.0, 3.0, 1.0, 1.0], 1),
        ([9.0, 9.0, 9.0, far, 1.0, 2.0], 1),
        ([9.0, 9.0, f32::NAN, 1.0, 2.0, 0.5], 2),
        ([0.0, 0.0, 0.0, 1.0, f32::NAN, 2.0], -1),
        ([0.0, 0.0, 0.0, -far, 1.0, 2.0], -1),
        ([0.0, 0.0, 0.0, far, far, far], -1),
    ];
    for (negated, wanted) in cases {
        let outputs = session.run("forward", &[f32s(&[2, 3], &negated).into()]).unwrap();
        let found = host(&likeliest(&outputs));
        assert_eq!(found.as_slice::<i64>().unwrap(), [wanted], "{negated:?}");
    }
}
