//! Programs and sessions on a backend that lacks some ops, with another one behind it: what both do together is what one
//! does, and what is said of a program tells who runs what.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod behaviour;
mod graphs;
mod patchy;
mod pte;

use patchy::{Lacks, Patchy, in_pieces};
use pte::{File, Method, f32s, i64s};
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_runtime::backend::{
    Backend, Call, DeviceId, DeviceInfo, GraphId, LoadOptions, Loaded, MemoryReport, RunControl, Snapshot,
    State, StateOptions, Step, Support, Ticket, Trace,
};
use pteron_runtime::reference::Reference;
use pteron_runtime::registry::Registry;
use pteron_runtime::{
    BufferId, Error, Lane, Options, Pieces, Program, Result, Scope, Session, Value, VerifiedProgram,
};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The backend under test, by the name that is chosen first.
fn registry() -> Registry {
    let lacks = Lacks::Named(&["Sum", "Neg", "RandomBits", "SliceUpdate"]);
    let (mut registry, reference): (_, Arc<dyn Backend>) =
        (Registry::default(), Arc::new(Reference::default()));
    registry.add(Arc::new(in_pieces("mlx", (&reference, &reference), lacks).0));
    registry
}

/// Two buffers: `own` is updated where it is read, `far` is made by one op of each kind in turn.
const STEPS: &str = r#"
graph "forward"
  symbol T in 1..=8
  input %0 "x": f32[T, 2]
  input %1 "index": i64[1]
  constant %2 "table": f32[3, 2]
  buffer %3 "own": f32[2] -> %8
  buffer %4 "far": f32[2] -> %12
{
  %5: f32[T, 2] = multiply(a=%0, b=%4)
  %6: f32[T, 2] = add(a=%5, b=%4)
  %7: f32[2] = sum(x=%6, axes=[0])
  %8: f32[2] = add(a=%3, b=%7)
  %9: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %10: f32[1, 2] = multiply(a=%9, b=%8)
  %11: f32[2] = sum(x=%10, axes=[0])
  %12: f32[2] = add(a=%11, b=%3)
}
output %10 "out": f32[1, 2]
output %0 "x": f32[T, 2]
output %2 "table": f32[3, 2]
output %9 "row": f64[1, 2]
"#;

fn file() -> File {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[1.0, 2.0, 0.5, 0.25, -1.5, 3.0]));
    let mut method = Method::new("forward");
    let (x, index) = (method.dynamic(DType::F32, &[8, 2]), method.tensor(DType::I64, &[1]));
    let (out, same) = (method.tensor(DType::F32, &[1, 2]), method.dynamic(DType::F32, &[8, 2]));
    let (table, row) = (method.tensor(DType::F32, &[3, 2]), method.tensor(DType::F64, &[1, 2]));
    method.input(x);
    method.input(index);
    method.delegate(&mut file, STEPS, &[x, index, out, same, table, row]);
    [out, same, table, row].into_iter().for_each(|value| method.output(value));
    file.add(method);
    file
}

/// The program on a backend of that name, which lacks what it is said to.
fn program(backend: Arc<dyn Backend>) -> Result<Program> {
    let (mut registry, name) = (Registry::default(), backend.name());
    registry.add(backend);
    let options = Options { backend: Some(name.into()), registry, ..Options::default() };
    Program::load("pieces.pte", file().bytes(), &[], &options)
}

fn lacking(names: &'static [&'static str]) -> Arc<dyn Backend> {
    Arc::new(Patchy::new("patchy", Arc::new(Reference::default()), Lacks::Named(names)))
}

fn inputs(step: usize) -> [Value; 2] {
    let rows = 1 + step % 3;
    let data: Vec<f32> = (0..2 * rows).map(|at| (at + step) as f32 * 0.5 - 1.0).collect();
    [f32s(&[rows, 2], &data).into(), i64s(&[1], &[(step % 3) as i64]).into()]
}

fn buffer(name: &str) -> BufferId {
    BufferId { scope: Scope::Method("forward".into()), delegate: Some(0), name: name.into() }
}

fn contents(session: &Session) -> [HostTensor; 2] {
    ["own", "far"].map(|name| session.read(&buffer(name)).unwrap())
}

fn host(values: &[Value]) -> Vec<HostTensor> {
    values.iter().map(|value| value.to_tensor().unwrap().unwrap()).collect()
}

#[test]
fn an_op_that_is_lacking_runs_elsewhere_and_the_program_says_so() {
    let whole = program(Arc::new(Reference::default())).unwrap();
    assert_eq!(whole.method("forward").unwrap().delegates[0].pieces, None);
    let program = program(lacking(&["Sum"])).unwrap();
    assert_eq!(program.backend().0, "patchy");
    let delegate = &program.method("forward").unwrap().delegates[0];
    let sum = &delegate.fallbacks["Sum"];
    assert_eq!((sum.backend, sum.nodes), ("reference", 2));
    assert_eq!(sum.lack.to_string(), "nobody has written it");
    // The lookup reads a constant, and nothing is worth a way back but what does.
    let Some(Pieces { list, values, bytes }) = &delegate.pieces else { panic!("not cut") };
    assert_eq!(list.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["patchy", "reference"], "{list:?}");
    // Rows of which sums are made, and the row of the table.
    assert_eq!((*values, *bytes), (2, Some(64 + 8)));
    let (mut cut, mut one) = (program.session().unwrap(), whole.session().unwrap());
    for step in 0..6 {
        let given = inputs(step);
        assert_eq!(host(&cut.run("forward", &given).unwrap()), host(&one.run("forward", &given).unwrap()));
        assert_eq!(contents(&cut), contents(&one), "step {step}");
    }
    // Snapshots, forks and writes reach all of it.
    let snapshot = cut.snapshot().unwrap();
    let before = contents(&cut);
    cut.run("forward", &inputs(1)).unwrap();
    let mut fork = cut.fork().unwrap();
    assert_eq!(contents(&fork), contents(&cut));
    cut.restore(&snapshot).unwrap();
    assert_eq!(contents(&cut), before);
    for name in ["own", "far"] {
        fork.write(&buffer(name), &f32s(&[2], &[7.0, 8.0])).unwrap();
        one.write(&buffer(name), &f32s(&[2], &[7.0, 8.0])).unwrap();
        let wrong = fork.write(&buffer(name), &f32s(&[3], &[0.0; 3]));
        assert!(matches!(wrong, Err(Error::BufferType { .. })), "{wrong:?}");
    }
    assert_eq!(
        host(&fork.run("forward", &inputs(2)).unwrap()),
        host(&one.run("forward", &inputs(2)).unwrap())
    );
    assert_eq!(contents(&fork), contents(&one));
}

/// A lookup outside the table fails in the second piece, when the first has written.
#[test]
fn a_piece_that_fails_takes_back_what_the_others_wrote() {
    for lacks in [&["Sum"][..], &["Take"], &["Add"], &["Multiply", "Take"]] {
        let program =
            program(Arc::new(Patchy::new("patchy", Arc::new(Reference::default()), Lacks::Named(lacks))))
                .unwrap();
        let mut session = program.session().unwrap();
        session.run("forward", &inputs(1)).unwrap();
        let before = contents(&session);
        let [x, _] = inputs(2);
        let error = session.run("forward", &[x, i64s(&[1], &[3]).into()]).unwrap_err();
        assert!(error.to_string().contains("index 3"), "{lacks:?}: {error}");
        assert_eq!(contents(&session), before, "{lacks:?}");
        let cancelled = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
        assert!(matches!(session.run_with("forward", &inputs(2), &cancelled), Err(Error::Cancelled)));
        assert_eq!(contents(&session), before, "{lacks:?}");
        session.run("forward", &inputs(2)).unwrap();
    }
}

#[test]
fn an_op_that_nobody_runs_is_refused_when_the_program_is_loaded() {
    let (mut registry, both) = (Registry::default(), Lacks::Named(&["Sum"]));
    registry.add(Arc::new(Patchy::new("patchy", Arc::new(Reference::default()), both)));
    registry.add(Arc::new(Patchy::new("cpu", Arc::new(Reference::default()), both)));
    for name in ["patchy", "cpu"] {
        let options =
            Options { backend: Some(name.into()), registry: registry.clone(), ..Options::default() };
        let error = Program::load("pieces.pte", file().bytes(), &[], &options).err().unwrap().to_string();
        assert!(error.contains(&format!("backend `{name}` cannot run `%7: f32[2] = sum(")), "{error}");
        assert!(error.contains("nobody has written it"), "{error}");
    }
}

/// Hears which graphs the steps are of, and what they give.
#[derive(Default)]
struct Listener(Mutex<Vec<(GraphId, &'static str)>>);

impl Trace for Listener {
    fn step(&self, step: &Step<'_>) {
        assert_eq!(step.results.len(), 1, "{:?}", step.op);
        self.0.lock().unwrap().push((step.graph, step.op.spec().name));
    }
}

#[test]
fn who_listens_hears_of_the_graph_that_the_file_has() {
    let program = program(lacking(&["Sum", "Multiply"])).unwrap();
    let listener = Arc::new(Listener::default());
    let control = RunControl { trace: Some(listener.clone()), ..RunControl::default() };
    program.session().unwrap().run_with("forward", &inputs(0), &control).unwrap();
    let mut heard = listener.0.lock().unwrap().clone();
    heard.sort();
    let names = ["Add", "Add", "Add", "Multiply", "Multiply", "Sum", "Sum", "Take"];
    assert_eq!(heard, names.map(|name| (GraphId(0), name)));
}

/// The first draw waits for a sum that is lacking, the second for nothing: it still comes second.
#[test]
fn draws_keep_their_order() {
    const DRAWS: &str = r#"
graph "forward"
  symbol s0 in i32
  input %0 "x": i64[2]
  constant %7 "more": i64[2]
{
  %8: i64[2] = add(a=%0, b=%7)
  %1: i64[] = sum(x=%8, axes=[0])
  %2: int(s0) = item_int(x=%1)
  %3: u32[2] = if(cond=%2) then {
    %4: u32[2] = random_bits(shape=[2])
    yield %4
  } else {
    %5: u32[2] = random_bits(shape=[2])
    yield %5
  }
  %6: u32[2] = random_bits(shape=[2])
}
output %3 "first": i64[2]
output %6 "second": i64[2]
"#;
    let reference: Arc<dyn Backend> = Arc::new(Reference::default());
    let (backend, patchy) = in_pieces("patchy", (&reference, &reference), Lacks::Named(&["Sum"]));
    let constants = [("more", i64s(&[2], &[3, 4]))];
    let mut cut = graphs::Trial::of(&[DRAWS], &constants, &backend);
    let mut whole = graphs::Trial::of(&[DRAWS], &constants, reference.as_ref());
    assert_eq!(patchy.graphs.load(Ordering::Relaxed), 2);
    for _ in 0..3 {
        let x = [Value::Tensor(i64s(&[2], &[1, 2]))];
        assert_eq!(host(&cut.run(0, &x).unwrap()), host(&whole.run(0, &x).unwrap()));
    }
}

/// What becomes of a device.
#[derive(Default)]
struct Fate {
    /// What was computed is not there when it shall be kept.
    loses: AtomicBool,
    /// Nothing is taken any more.
    refuses: AtomicBool,
}

/// A backend whose device may go away.
struct Fragile(Patchy, Arc<Fate>);

struct FragileLoaded(Arc<dyn Loaded>, Arc<Fate>);

struct FragileState(Box<dyn State>, Arc<Fate>);

impl Backend for Fragile {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.0.devices()
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        self.0.supports(op, types)
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        Ok(Arc::new(FragileLoaded(self.0.load(device, program, options)?, self.1.clone())))
    }
}

impl Loaded for FragileLoaded {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        Ok(Box::new(FragileState(self.0.new_state(options)?, self.1.clone())))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let state = state.as_any_mut().downcast_mut::<FragileState>().ok_or(Error::ForeignState)?;
        self.0.run(graph, state.0.as_mut(), inputs, control, outputs)
    }

    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        if self.1.refuses.load(Ordering::Relaxed) {
            return Err(Error::Invalid("the device is gone".into()));
        }
        for call in calls {
            call.result = self.run(graph, call.state, call.inputs, call.control, call.outputs);
        }
        Ok(Ticket::done())
    }

    fn memory(&self) -> MemoryReport {
        self.0.memory()
    }
}

impl State for FragileState {
    fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        self.0.read(buffer)
    }

    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        self.0.write(buffer, value)
    }

    fn commit(&mut self) -> Result<()> {
        if self.1.loses.load(Ordering::Relaxed) {
            self.0.rollback();
            return Err(Error::Invalid("the device is gone".into()));
        }
        self.0.commit()
    }

    fn rollback(&mut self) {
        self.0.rollback();
    }

    fn rewind_to(&mut self, tokens: usize) -> Result<pteron_runtime::backend::Rewind> {
        self.0.rewind_to(tokens)
    }

    fn cached_tokens(&self) -> Option<usize> {
        self.0.cached_tokens()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.0.snapshot()
    }

    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()> {
        self.0.restore(snapshot)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Whichever half cannot be kept, the other is not kept either, or the session says that it is gone and can be restored.
#[test]
fn what_one_backend_cannot_keep_the_other_does_not_keep() {
    let fate = Arc::new(Fate::default());
    let reference: Arc<dyn Backend> = Arc::new(Reference::default());
    let patchy = |name, lacks| Patchy::new(name, reference.clone(), Lacks::Named(lacks));
    let fragile = |name, lacks| Fragile(patchy(name, lacks), fate.clone());
    for is_first in [true, false] {
        let mut registry = Registry::default();
        match is_first {
            true => registry.add(Arc::new(fragile("patchy", &["Take", "Add"]))),
            false => {
                registry.add(Arc::new(patchy("patchy", &["Take", "Add"])));
                registry.add(Arc::new(fragile("cpu", &[])));
            }
        }
        let options = Options { backend: Some("patchy".into()), registry, ..Options::default() };
        let program = Program::load("pieces.pte", file().bytes(), &[], &options).unwrap();
        let mut session = program.session().unwrap();
        session.run("forward", &inputs(1)).unwrap();
        let (before, snapshot) = (contents(&session), session.snapshot().unwrap());
        fate.loses.store(true, Ordering::Relaxed);
        let error = session.run("forward", &inputs(2)).unwrap_err().to_string();
        assert!(error.contains("the device is gone"), "{error}");
        fate.loses.store(false, Ordering::Relaxed);
        if !is_first {
            let error = session.run("forward", &inputs(2)).unwrap_err().to_string();
            assert!(error.contains("the session is gone: the device is gone"), "{error}");
            assert!(session.read(&buffer("own")).is_err());
            session.restore(&snapshot).unwrap();
        }
        assert_eq!(contents(&session), before);
        session.run("forward", &inputs(2)).unwrap();
    }
}

/// The second piece is refused for all lanes, when the first has run in all of them.
#[test]
fn a_device_that_takes_nothing_more_leaves_all_lanes_as_they_were() {
    let fate = Arc::new(Fate::default());
    let reference: Arc<dyn Backend> = Arc::new(Reference::default());
    let behind = Patchy::new("cpu", reference.clone(), Lacks::Named(&[]));
    let mut registry = Registry::default();
    registry.add(Arc::new(Patchy::new("patchy", reference, Lacks::Named(&["Sum"]))));
    registry.add(Arc::new(Fragile(behind, fate.clone())));
    let options = Options { backend: Some("patchy".into()), registry, ..Options::default() };
    let program = Program::load("pieces.pte", file().bytes(), &[], &options).unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| program.session().unwrap()).collect();
    let (given, control) = (inputs(1), RunControl::default());
    let together = |sessions: &mut [Session]| -> Vec<Result<()>> {
        let mut outputs = vec![Vec::new(); sessions.len()];
        let mut lanes: Vec<Lane<'_>> = sessions
            .iter_mut()
            .zip(&mut outputs)
            .map(|(session, outputs)| Lane::new(session, &given, &control, outputs))
            .collect();
        Session::run_together("forward", &mut lanes).unwrap();
        lanes.into_iter().map(|lane| lane.result).collect()
    };
    assert!(together(&mut sessions).iter().all(Result::is_ok));
    let before: Vec<_> = sessions.iter().map(contents).collect();
    fate.refuses.store(true, Ordering::Relaxed);
    for result in together(&mut sessions) {
        assert!(result.unwrap_err().to_string().contains("the device is gone"));
    }
    let alone = sessions[0].run("forward", &given).unwrap_err().to_string();
    assert!(alone.contains("the device is gone"), "{alone}");
    assert_eq!(sessions.iter().map(contents).collect::<Vec<_>>(), before);
    fate.refuses.store(false, Ordering::Relaxed);
    assert!(together(&mut sessions).iter().all(Result::is_ok));
}
