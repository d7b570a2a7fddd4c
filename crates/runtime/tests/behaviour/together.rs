//! Sessions side by side: what each gives and keeps is what it would have alone, whoever rides along and whatever becomes
//! of the others.

use crate::graphs::{Trial, buffer};
use crate::pte::{File, Method, f32s, i64s};
use pteron_format::pte::EValue;
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_runtime::backend::{
    Backend, Call, Detail, DeviceId, DeviceInfo, GraphId, Late, LoadOptions, Loaded, MemoryReport, State,
    StateOptions, Step, Support, Ticket, Trace,
};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Error, Lane, Options, Program, Result, RunControl, Session, Value, VerifiedProgram};
use pteron_tensor::{DType, HostTensor};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Rows that come in are added up in a buffer and looked up in a table; an index outside it fails after the update.
const SUMS: &str = r#"
graph "forward"
  symbol T in 1..=8
  input %0 "x": f32[T, 2]
  input %1 "index": i64[1]
  constant %2 "table": f32[3, 2]
  buffer %3 "sum": f32[2] -> %5
{
  %4: f32[2] = sum(x=%0, axes=[0])
  %5: f32[2] = add(a=%3, b=%4)
  %6: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %7: f32[1, 2] = multiply(a=%6, b=%5)
  %8: u32[2] = random_bits(shape=[2])
}
output %7 "out": f32[1, 2]
output %8 "bits": i64[2]
"#;

/// Sums, then a second delegate that some lanes jump over, and a buffer of the program itself.
fn file() -> File {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[1.0, 2.0, 0.5, 0.25, -1.5, 3.0]));
    let mut method = Method::new("forward");
    let (x, index) = (method.dynamic(DType::F32, &[8, 2]), method.tensor(DType::I64, &[1]));
    let twice = method.tensor(DType::Bool, &[1]);
    let (middle, bits) = (method.tensor(DType::F32, &[1, 2]), method.tensor(DType::I64, &[2]));
    let (state, total) = (method.tensor(DType::F32, &[1, 2]), method.tensor(DType::F32, &[1, 2]));
    let (one, blocking) = (method.int(1), method.value(EValue::Bool(false)));
    for input in [x, index, twice] {
        method.input(input);
    }
    method.delegate(&mut file, SUMS, &[x, index, middle, bits]);
    method.jump_false(twice, 3);
    method.delegate(&mut file, SUMS, &[x, index, middle, bits]);
    method.kernel("aten::add", "out", &[state, middle, one, total, total]);
    method.kernel("aten::copy_", "", &[state, total, blocking, state]);
    method.output(total);
    method.output(bits);
    file.add(method);
    file
}

fn program() -> Program {
    file().load().unwrap()
}

/// Inputs of a lane's step: as many rows as its number says, and every third lane takes the second delegate too.
fn inputs(lane: usize, step: usize) -> [Value; 3] {
    let rows = 1 + (lane + step) % 3;
    let data: Vec<f32> =
        (0..2 * rows).map(|at| (at as f32 + 1.0) * 0.25 + (lane * 7 + step) as f32).collect();
    let twice = HostTensor::from_bools(vec![1], &[(lane + step).is_multiple_of(3)]).unwrap();
    [f32s(&[rows, 2], &data).into(), i64s(&[1], &[((lane + step) % 3) as i64]).into(), twice.into()]
}

fn host(values: &[Value]) -> Vec<HostTensor> {
    values.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect()
}

fn contents(session: &Session) -> Vec<HostTensor> {
    let ids = session.program().buffers().iter().map(|buffer| &buffer.id);
    ids.map(|id| session.read(id).unwrap()).collect()
}

/// Runs one step of all sessions, each with its own inputs and control; outputs, or what went wrong.
fn step(
    sessions: &mut [Session],
    inputs: &[Vec<Value>],
    controls: &[RunControl],
) -> Vec<Result<Vec<HostTensor>>> {
    let mut outputs: Vec<Vec<Value>> = sessions.iter().map(|_| Vec::new()).collect();
    let each = sessions.iter_mut().zip(inputs).zip(controls).zip(&mut outputs);
    let mut lanes: Vec<Lane<'_>> = each
        .map(|(((session, inputs), control), outputs)| Lane::new(session, inputs, control, outputs))
        .collect();
    Session::run_together("forward", &mut lanes).unwrap();
    let results: Vec<Result<()>> = lanes.into_iter().map(|lane| lane.result).collect();
    results.into_iter().zip(outputs).map(|(result, outputs)| result.map(|()| host(&outputs))).collect()
}

#[test]
fn sessions_together_give_what_each_gives_alone() {
    let program = program();
    for count in [1, 2, 3, 5, if cfg!(miri) { 6 } else { 32 }] {
        let open = || (0..count).map(|_| program.session().unwrap()).collect::<Vec<Session>>();
        let (mut together, mut alone) = (open(), open());
        let controls = vec![RunControl::default(); count];
        for number in 0..4 {
            let given: Vec<Vec<Value>> = (0..count).map(|lane| inputs(lane, number).to_vec()).collect();
            let got = step(&mut together, &given, &controls);
            for (lane, (got, session)) in got.into_iter().zip(&mut alone).enumerate() {
                let wanted = host(&session.run("forward", &given[lane]).unwrap());
                assert_eq!(got.unwrap(), wanted, "lane {lane} of {count}, step {number}");
                assert_eq!(contents(&together[lane]), contents(session), "lane {lane} of {count}");
            }
        }
    }
    Session::run_together("forward", &mut []).unwrap();
}

/// An index outside the table, a cancelled lane, one that is late, too few inputs, inputs of another type, a session of
/// another program: each has its own error and its old state, and the others have what they have alone.
#[test]
fn a_lane_that_fails_leaves_the_others_alone() {
    let program = program();
    let mut sessions: Vec<Session> = (0..7).map(|_| program.session().unwrap()).collect();
    let mut alone: Vec<Session> = (0..7).map(|_| program.session().unwrap()).collect();
    sessions[6] = self::program().session().unwrap();
    for (lane, (session, other)) in sessions.iter_mut().zip(&mut alone).enumerate() {
        session.run("forward", &inputs(lane, 0)).unwrap();
        other.run("forward", &inputs(lane, 0)).unwrap();
    }
    let before: Vec<_> = sessions.iter().map(contents).collect();
    let mut given: Vec<Vec<Value>> = (0..7).map(|lane| inputs(lane, 1).to_vec()).collect();
    let mut controls = vec![RunControl::default(); 7];
    given[1][1] = i64s(&[1], &[3]).into();
    controls[2].cancel = Some(Arc::new(AtomicBool::new(true)));
    controls[3].deadline = Some(Instant::now());
    given[4].pop();
    given[5][0] = f32s(&[2, 3], &[0.0; 6]).into();
    let results = step(&mut sessions, &given, &controls);
    let failed = [1, 2, 3, 4, 5, 6];
    for (lane, result) in results.into_iter().enumerate() {
        let expected = match (&result, lane) {
            (Ok(_), 0) | (Err(Error::Cancelled), 2) | (Err(Error::Deadline), 3) => true,
            (Err(Error::Step { source, .. }), 1) => source.to_string().contains("index 3"),
            (Err(Error::InputCount { .. }), 4) | (Err(Error::Input { .. }), 5) => true,
            (Err(Error::ForeignState), 6) => true,
            _ => false,
        };
        assert!(expected, "lane {lane}: {result:?}");
        match failed.contains(&lane) {
            true => assert_eq!(contents(&sessions[lane]), before[lane], "lane {lane}"),
            false => assert_eq!(result.unwrap(), host(&alone[lane].run("forward", &given[lane]).unwrap())),
        }
    }
    // All of them go on as if nothing had been.
    for lane in failed {
        let next = inputs(lane, 2);
        let got = host(&sessions[lane].run("forward", &next).unwrap());
        assert_eq!(got, host(&alone[lane].run("forward", &next).unwrap()), "lane {lane}");
    }
    let mut none = Vec::new();
    let (control, inputs) = (RunControl::default(), inputs(0, 0));
    let mut lanes = [Lane::new(&mut sessions[0], &inputs, &control, &mut none)];
    assert!(matches!(Session::run_together("backward", &mut lanes), Err(Error::UnknownMethod { .. })));
}

/// Panics at its second step; nothing is printed.
struct Bomb(AtomicBool);

impl Trace for Bomb {
    fn step(&self, _: &Step<'_>) {
        if self.0.swap(true, Ordering::Relaxed) {
            resume_unwind(Box::new("a step panics"));
        }
    }

    fn detail(&self) -> Detail {
        Detail::Steps
    }
}

/// A backend that runs lanes one after the other passes the panic on and all sessions are as they were; one that runs them side by
/// side makes it the error of that lane, and the others have run.
#[test]
fn a_panic_in_one_lane_leaves_no_session_half_written() {
    let program = program();
    let open = || -> Vec<Session> {
        let mut sessions: Vec<Session> = (0..3).map(|_| program.session().unwrap()).collect();
        for (lane, session) in sessions.iter_mut().enumerate() {
            session.run("forward", &inputs(lane, 0)).unwrap();
        }
        sessions
    };
    let (mut sessions, mut alone) = (open(), open());
    let before: Vec<_> = sessions.iter().map(contents).collect();
    let mut controls = vec![RunControl::default(); 3];
    controls[1].trace = Some(Arc::new(Bomb(AtomicBool::new(false))));
    let given: Vec<Vec<Value>> = (0..3).map(|lane| inputs(lane, 1).to_vec()).collect();
    let outcome = catch_unwind(AssertUnwindSafe(|| step(&mut sessions, &given, &controls)));
    assert_eq!(contents(&sessions[1]), before[1], "the lane that panicked");
    for lane in [0, 2] {
        let wanted = match &outcome {
            Err(_) => before[lane].clone(),
            Ok(results) => {
                assert!(results[1].is_err());
                let given = host(&alone[lane].run("forward", &given[lane]).unwrap());
                assert_eq!(results[lane].as_ref().unwrap(), &given, "lane {lane}");
                contents(&alone[lane])
            }
        };
        assert_eq!(contents(&sessions[lane]), wanted, "lane {lane}");
    }
}

fn adds() -> &'static str {
    r#"graph "forward"
  input %0 "x": f32[2]
  buffer %1 "sum": f32[2] -> %2
{
  %2: f32[2] = add(a=%0, b=%1)
}
output %2 "y": f32[2]
"#
}

/// The contract itself: lanes by hand, one with a state of another program.
#[test]
fn a_foreign_state_is_an_error_of_its_lane() {
    let backend = crate::registry().resolve(None).unwrap().backend;
    let trial = Trial::of(&[adds()], &[], backend.as_ref());
    let mut other = Trial::of(&[adds()], &[], backend.as_ref());
    let options = StateOptions::default();
    let (mut first, mut last) =
        (trial.loaded.new_state(&options).unwrap(), trial.loaded.new_state(&options).unwrap());
    let (x, control) = ([Value::Tensor(f32s(&[2], &[1.0, 2.0]))], RunControl::default());
    let mut outputs = [Vec::new(), Vec::new(), Vec::new()];
    let states: [&mut dyn State; 3] = [first.as_mut(), other.state.as_mut(), last.as_mut()];
    let mut calls: Vec<Call<'_>> = states
        .into_iter()
        .zip(&mut outputs)
        .map(|(state, outputs)| Call { state, inputs: &x, outputs, control: &control, result: Ok(()) })
        .collect();
    let ticket = trial.loaded.submit(GraphId(0), &mut calls).unwrap();
    let results: Vec<Result<()>> = calls.into_iter().map(|call| call.result).collect();
    assert!(ticket.wait().is_empty());
    assert!(matches!(results[..], [Ok(()), Err(Error::ForeignState), Ok(())]), "{results:?}");
    for state in [&mut first, &mut last] {
        state.commit().unwrap();
        assert_eq!(state.read(&buffer(0, "sum")).unwrap(), f32s(&[2], &[1.0, 2.0]));
    }
    assert_eq!(other.buffer(0, "sum"), f32s(&[2], &[0.0, 0.0]));
}

/// A backend whose device goes away: one lane's results never come, and a commit finds nothing to keep.
struct Losing {
    inner: Arc<dyn Backend>,
    lost: Arc<AtomicBool>,
}

struct LosingLoaded {
    inner: Arc<dyn Loaded>,
    lost: Arc<AtomicBool>,
}

/// The lane whose work is lost.
struct Lost(usize);

impl Late for Lost {
    fn wait(self: Box<Self>) -> Vec<(usize, Error)> {
        vec![(self.0, Error::Invalid("the device is gone".into()))]
    }
}

impl Backend for Losing {
    fn name(&self) -> &'static str {
        "losing"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.inner.devices()
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        self.inner.supports(op, types)
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        let inner = self.inner.load(device, program, options)?;
        Ok(Arc::new(LosingLoaded { inner, lost: self.lost.clone() }))
    }
}

impl Loaded for LosingLoaded {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        self.inner.new_state(options)
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        self.inner.run(graph, state, inputs, control, outputs)
    }

    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        // What computes by itself would give up the old state only where nothing can be lost.
        let ticket = self.inner.submit(graph, calls)?;
        match self.lost.load(Ordering::Relaxed) && graph == GraphId(0) {
            true => Ok(Ticket::late(Box::new(Lost(calls.len() / 2)))),
            false => Ok(ticket),
        }
    }

    fn memory(&self) -> MemoryReport {
        self.inner.memory()
    }
}

#[test]
fn what_is_lost_late_is_an_error_of_its_lane_and_taken_back() {
    let lost = Arc::new(AtomicBool::new(false));
    let mut registry = Registry::default();
    // The reference keeps the old state until a commit, which is what a device that can be lost must do.
    let inner = registry.resolve(Some("reference")).unwrap().backend;
    registry.add(Arc::new(Losing { inner, lost: lost.clone() }));
    let options = Options { backend: Some("losing".into()), registry, ..Options::default() };
    let program = Program::load("lost.pte", file().bytes(), &[], &options).unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| program.session().unwrap()).collect();
    let controls = vec![RunControl::default(); 3];
    let given = vec![inputs(0, 0).to_vec(); 3];
    lost.store(true, Ordering::Relaxed);
    let results = step(&mut sessions, &given, &controls);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let error = results[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("the device is gone"), "{error}");
    assert_eq!(contents(&sessions[1]), contents(&program.session().unwrap()));
    assert!(sessions[1].run("forward", &given[1]).is_err());
    lost.store(false, Ordering::Relaxed);
    let again = host(&sessions[1].run("forward", &given[1]).unwrap());
    assert_eq!(&again, results[0].as_ref().unwrap());
    // Handed over, and lost before anybody looked.
    lost.store(true, Ordering::Relaxed);
    let mut outputs = Vec::new();
    let pending = sessions[0].submit("forward", &given[0], &controls[0], &mut outputs).unwrap();
    assert!(pending.wait().unwrap_err().to_string().contains("the device is gone"));
}

#[test]
fn what_is_submitted_is_what_a_run_gives() {
    let program = program();
    let (mut run, mut submitted) = (program.session().unwrap(), program.session().unwrap());
    let control = RunControl::default();
    let mut outputs = Vec::new();
    let steps: Vec<_> = (0..4)
        .map(|number| {
            let pending = submitted.submit("forward", &inputs(0, number), &control, &mut outputs).unwrap();
            (pending, std::mem::take(&mut outputs))
        })
        .collect();
    for (number, (pending, outputs)) in steps.into_iter().enumerate() {
        pending.wait().unwrap();
        assert_eq!(host(&outputs), host(&run.run("forward", &inputs(0, number)).unwrap()), "step {number}");
    }
    assert_eq!(contents(&run), contents(&submitted));
    let cancelled = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
    let refused = submitted.submit("forward", &inputs(0, 4), &cancelled, &mut outputs);
    assert!(matches!(refused, Err(Error::Cancelled)), "{refused:?}");
    assert_eq!(contents(&run), contents(&submitted));
    // Cancelled between the submission and the look at it.
    let flag = Arc::new(AtomicBool::new(false));
    let control = RunControl { cancel: Some(flag.clone()), ..RunControl::default() };
    let pending = submitted.submit("forward", &inputs(0, 4), &control, &mut outputs).unwrap();
    flag.store(true, Ordering::Relaxed);
    assert!(matches!(pending.wait(), Err(Error::Cancelled)));
    run.run("forward", &inputs(0, 4)).unwrap();
    assert_eq!(contents(&run), contents(&submitted));
}
