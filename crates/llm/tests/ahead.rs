//! Greedy answers where the backend finds the likeliest token: the call that reads it is handed over before the token is
//! seen here, and the answer is the one that is found token by token.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_ir::{Op, Ssa, TypeSource};
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{FinishReason, GenerateOptions, LanguageModel, LlmError, Next, generate};
use pteron_models::Logits;
use pteron_runtime::backend::{
    Backend, Call, DeviceId, DeviceInfo, GraphId, Late, LoadOptions, Loaded, MemoryReport, State,
    StateOptions, Support, Ticket,
};
use pteron_runtime::registry::Registry;
use pteron_runtime::{DeviceTensor, Error, Options, Program, Result, RunControl, Value, VerifiedProgram};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::{ALL, CONTEXT, Caches, decoder, file, model, read, text};

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A graph was handed over, by its number.
    Submitted(usize),
    /// The likeliest token of that one was brought to the host.
    Read(usize),
}

#[derive(Default)]
struct Log {
    events: Mutex<Vec<Event>>,
    /// Whether scores are spoiled.
    spoils: AtomicBool,
}

impl Log {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn submitted(&self) -> usize {
        self.events.lock().unwrap().iter().filter(|event| matches!(event, Event::Submitted(_))).count()
    }
}

/// The reference backend behind a wall: its outputs are shown only to those who ask.
struct Wall {
    inner: Arc<dyn Backend>,
    log: Arc<Log>,
}

struct LoadedWall {
    inner: Arc<dyn Loaded>,
    log: Arc<Log>,
}

struct Hidden {
    tensor: HostTensor,
    /// The graph that gave the scores that it was found in; 0 for scores.
    of: usize,
    step: usize,
    log: Arc<Log>,
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.tensor.shape())
    }
}

impl DeviceTensor for Hidden {
    fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    fn to_host(&self) -> Result<HostTensor> {
        if self.of > 0 {
            self.log.note(Event::Read(self.of));
        }
        Ok(self.tensor.clone())
    }

    fn argmax_last(&self, dtype: DType, shape: &[usize]) -> Result<Option<Arc<dyn DeviceTensor>>> {
        let row = self.tensor.shape().last().copied().unwrap();
        let scores = self.tensor.as_slice::<f32>().unwrap();
        let scores = &scores[scores.len() - row..];
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let is_found = most < f32::INFINITY && !scores.iter().any(|score| score.is_nan());
        let at = scores.iter().position(|score| *score == most && is_found).map_or(-1, |at| at as i64);
        assert_eq!(dtype, DType::I64);
        let tensor = HostTensor::from_slice(shape.to_vec(), &[at])?;
        Ok(Some(Arc::new(Hidden { tensor, of: self.step, step: 0, log: self.log.clone() })))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Backend for Wall {
    fn name(&self) -> &'static str {
        "wall"
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
        Ok(Arc::new(LoadedWall { inner: self.inner.load(device, program, options)?, log: self.log.clone() }))
    }
}

/// Nothing, though it takes its time.
struct Slow;

impl Late for Slow {
    fn wait(self: Box<Self>) -> Vec<(usize, Error)> {
        Vec::new()
    }
}

impl Loaded for LoadedWall {
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
        let step = self.log.submitted() + 1;
        self.log.note(Event::Submitted(step));
        // Inside the wall nobody notes what is read.
        let inside = inputs.iter().map(|value| match value {
            Value::Device(tensor) => tensor.as_any().downcast_ref::<Hidden>().unwrap().tensor.clone().into(),
            other => other.clone(),
        });
        self.inner.run(graph, state, &inside.collect::<Vec<Value>>(), control, outputs)?;
        for output in outputs {
            if let Value::Tensor(tensor) = output {
                if self.log.spoils.load(Ordering::Relaxed) {
                    tensor.as_mut_slice::<f32>().unwrap()[3] = f32::NAN;
                }
                let hidden = Hidden { tensor: tensor.clone(), of: 0, step, log: self.log.clone() };
                *output = Value::Device(Arc::new(hidden));
            }
        }
        Ok(())
    }

    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        for call in calls {
            call.result = self.run(graph, call.state, call.inputs, call.control, call.outputs);
        }
        Ok(Ticket::late(Box::new(Slow)))
    }

    fn memory(&self) -> MemoryReport {
        self.inner.memory()
    }
}

fn behind_a_wall(caches: Caches) -> (LanguageModel, Arc<Log>) {
    let (mut registry, log) = (Registry::default(), Arc::new(Log::default()));
    let inner = registry.resolve(Some("reference")).unwrap().backend;
    registry.add(Arc::new(Wall { inner, log: log.clone() }));
    let options = Options { backend: Some("wall".into()), registry, ..Options::default() };
    let program = Program::load("tiny.pte", file(caches, Logits::Last, CONTEXT), &[], &options).unwrap();
    (LanguageModel::new(program).unwrap(), log)
}

fn greedy(max_new: usize) -> GenerateOptions {
    GenerateOptions {
        max_new: Some(max_new),
        sampling: SamplerSettings::greedy(),
        seed: 0,
        stop: Vec::new(),
        end_tokens: Vec::new(),
    }
}

fn answer(
    decoder: &mut pteron_llm::Decoder,
    prompt: &[u32],
    options: &GenerateOptions,
) -> pteron_llm::Answer {
    let mut show = |_: &str| ControlFlow::Continue(());
    generate(decoder, None, prompt, options, None, &mut show, &RunControl::default()).unwrap()
}

#[test]
fn answers_are_those_that_are_found_token_by_token() {
    for caches in ALL {
        let (ahead, log) = behind_a_wall(caches);
        let plain = model(caches);
        let (mut a, mut b) = (decoder(&ahead), decoder(&plain));
        // One prompt after the other in the same caches; a budget, an end token, and the end of the context.
        let first = answer(&mut b, &text(20, 1), &greedy(30)).tokens;
        let ended = GenerateOptions { end_tokens: vec![first[7]], ..greedy(30) };
        let cases = [(text(20, 1), greedy(30)), (text(20, 1), ended), (text(CONTEXT - 3, 2), greedy(30))];
        for (number, (prompt, options)) in cases.iter().enumerate() {
            let (got, wanted) = (answer(&mut a, prompt, options), answer(&mut b, prompt, options));
            assert_eq!(got.tokens, wanted.tokens, "{caches:?}, case {number}");
            assert_eq!(got.finish_reason, wanted.finish_reason, "{caches:?}, case {number}");
            assert_eq!(a.tokens(), b.tokens(), "{caches:?}, case {number}");
        }
        // What was read ahead in vain has left no trace.
        let other = text(40, 5);
        let (kept, kept_too) = (a.begin(&other).unwrap().kept, b.begin(&other).unwrap().kept);
        assert_eq!(kept, kept_too, "{caches:?}");
        assert_eq!(read(&mut a, &other[kept..]), read(&mut b, &other[kept..]), "{caches:?}");
        let events = log.events.lock().unwrap();
        let runs_ahead = matches!(caches, Caches::Plain | Caches::PlainOffGraph);
        let early = events.windows(2).filter(
            |pair| matches!(pair, [Event::Submitted(later), Event::Read(step)] if *later == step + 1),
        );
        assert_eq!(early.count() > 20, runs_ahead, "{caches:?}: {events:?}");
    }
}

#[test]
fn a_fork_in_mid_answer_does_not_see_what_was_read_ahead() {
    for caches in [Caches::Plain, Caches::PlainOffGraph] {
        let (ahead, _) = behind_a_wall(caches);
        let (mut a, mut b) = (decoder(&ahead), decoder(&model(caches)));
        let control = RunControl::default();
        let Next::Token(token) = a.read_greedily(&text(12, 3), true, &control).unwrap() else { panic!() };
        read(&mut b, &text(12, 3));
        let mut fork = a.fork().unwrap();
        let other = (token + 1) % 64;
        let wanted = read(&mut b, &[other, 5]);
        assert_eq!(read(&mut fork, &[other, 5]), wanted, "{caches:?}");
        // The first decoder takes back what it read ahead, and reads another token than it had found.
        assert_eq!(read(&mut a, &[other, 5]), wanted, "{caches:?}");
        assert_eq!(a.tokens(), b.tokens());
    }
}

#[test]
fn scores_that_are_no_numbers_are_an_error_as_ever() {
    let (ahead, log) = behind_a_wall(Caches::Plain);
    let mut decoder = decoder(&ahead);
    answer(&mut decoder, &text(10, 1), &greedy(4));
    log.spoils.store(true, Ordering::Relaxed);
    let mut show = |_: &str| ControlFlow::Continue(());
    let result =
        generate(&mut decoder, None, &text(10, 2), &greedy(4), None, &mut show, &RunControl::default());
    let error = result.unwrap_err();
    assert!(error.to_string().contains("the logit of token 3 is NaN"), "{error}");
    assert!(matches!(error, LlmError::Sampler(_)), "{error:?}");
}

#[test]
fn an_answer_that_is_cancelled_leaves_its_caches_in_order() {
    let (ahead, log) = behind_a_wall(Caches::Plain);
    let (mut a, mut b) = (decoder(&ahead), decoder(&model(Caches::Plain)));
    let flag = Arc::new(AtomicBool::new(false));
    let control = RunControl { cancel: Some(flag.clone()), ..RunControl::default() };
    let Next::Token(token) = a.read_greedily(&text(12, 3), true, &control).unwrap() else { panic!() };
    let before = log.submitted();
    flag.store(true, Ordering::Relaxed);
    assert!(matches!(a.read_greedily(&[token], true, &control), Err(LlmError::Run(Error::Cancelled))));
    assert_eq!(log.submitted(), before);
    read(&mut b, &text(12, 3));
    read(&mut b, &[token]);
    assert_eq!(a.tokens(), b.tokens());
    assert_eq!(read(&mut a, &[7, 9]), read(&mut b, &[7, 9]));
    let finish = answer(&mut a, &text(9, 4), &greedy(3)).finish_reason;
    assert_eq!(finish, FinishReason::Length);
}
