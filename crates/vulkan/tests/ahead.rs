//! Runs that are handed over and not waited for: what they give, who may read it, and where the greatest of scores is, which the
//! device finds itself.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;

use pteron_format::WriteOptions;
use pteron_gpu::Features;
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model, ModelOptions, Position, Quantization, RandomWeights};
use pteron_runtime::backend::{GraphId, StateOptions};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program, RunControl, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::{VulkanBackend, VulkanOptions};
use std::sync::Arc;

const VOCAB: usize = 1536;
const STEPS: usize = 24;

fn decoder(activations: DType, kv: KvCache) -> Vec<u8> {
    let llama = Llama {
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: 2,
        vocab_size: VOCAB,
        max_position_embeddings: 512,
        ..tiny::llama()
    };
    let options = ModelOptions {
        activations,
        cache: activations,
        kv,
        position: if kv == KvCache::OffGraph { Position::Number } else { Position::Tensor },
        context: 512,
        chunk: 64,
        quantization: Quantization::of("4w".parse().unwrap()),
        ..ModelOptions::default()
    };
    let model = Model::build(&llama, Arc::new(RandomWeights::new(3)), options).unwrap();
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
    file
}

fn program(file: &[u8], vulkan: Arc<VulkanBackend>) -> Program {
    let mut registry = Registry::default();
    registry.add(vulkan);
    let options = Options { backend: Some("vulkan".into()), registry, ..Options::default() };
    Program::load("decoder", Bytes::copy_of(file), &[], &options).unwrap()
}

fn open(options: &VulkanOptions) -> Option<Arc<VulkanBackend>> {
    // Says so where there is no device.
    device::open_with(options)?;
    Some(Arc::new(VulkanBackend::open(options).unwrap()))
}

fn at(session: &Session, position: usize) -> Value {
    match session.cached_tokens() {
        Some(_) => Value::Int(position as i64),
        None => HostTensor::from_slice(vec![1], &[position as i64]).unwrap().into(),
    }
}

fn token(number: i64) -> Value {
    HostTensor::from_slice(vec![1, 1], &[number]).unwrap().into()
}

fn host(value: &Value) -> HostTensor {
    value.to_tensor().unwrap().unwrap()
}

/// The first of the greatest.
fn greatest(scores: &HostTensor) -> i64 {
    let scores = pteron_runtime::reference::cast(scores, DType::F32).unwrap();
    let scores = scores.as_slice::<f32>().unwrap();
    let scores = &scores[scores.len() - VOCAB..];
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter().position(|score| *score == most).unwrap() as i64
}

/// Tokens of so many steps, each read before the next is run.
fn step_by_step(session: &mut Session, steps: usize) -> Vec<i64> {
    let mut next = 1;
    let each = (0..steps).map(|position| {
        let position = at(session, position);
        let outputs = session.run("forward", &[token(next), position]).unwrap();
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

/// The same with each step handed over before the last is read.
fn ahead(session: &mut Session, steps: usize) -> Vec<i64> {
    let (control, mut outputs, mut tokens) = (RunControl::default(), Vec::new(), Vec::new());
    let first = [token(1), at(session, 0)];
    let mut last = session.submit("forward", &first, &control, &mut outputs).unwrap();
    let mut next = likeliest(&outputs);
    for position in 1..=steps {
        let (id, inputs) = (next.clone(), [next, at(session, position)]);
        let mut following = Vec::new();
        let pending = session.submit("forward", &inputs, &control, &mut following).unwrap();
        next = likeliest(&following);
        std::mem::replace(&mut last, pending).wait().unwrap();
        tokens.push(host(&id).as_slice::<i64>().unwrap()[0]);
        assert_eq!(greatest(&host(&outputs[0])), *tokens.last().unwrap());
        outputs = following;
    }
    last.wait().unwrap();
    tokens
}

fn agrees(options: &VulkanOptions, activations: DType, kv: KvCache) {
    let Some(vulkan) = open(options) else { return };
    let program = program(&decoder(activations, kv), vulkan);
    let wanted = step_by_step(&mut program.session().unwrap(), STEPS);
    // Sessions have runs under way beside each other.
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..2).map(|_| scope.spawn(|| ahead(&mut program.session().unwrap(), STEPS))).collect();
        for tokens in all {
            assert_eq!(tokens.join().unwrap(), wanted, "{activations} {kv:?}");
        }
    });
}

#[test]
fn steps_that_are_handed_over_before_the_last_is_read_give_the_same_tokens() {
    agrees(&VulkanOptions::default(), DType::F32, KvCache::OffGraph);
    agrees(&VulkanOptions::default(), DType::BF16, KvCache::OffGraph);
    agrees(&VulkanOptions::default(), DType::F16, KvCache::InGraph);
    agrees(
        &VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() },
        DType::F32,
        KvCache::OffGraph,
    );
}

#[test]
fn they_record_nothing_once_each_slot_has_had_its_turn() {
    let Some(vulkan) = open(&VulkanOptions::default()) else { return };
    let program = program(&decoder(DType::BF16, KvCache::OffGraph), vulkan.clone());
    let mut session = program.session().unwrap();
    ahead(&mut session, STEPS);
    session.rewind_to(0).unwrap();
    let before = vulkan.counts();
    ahead(&mut session, STEPS);
    let after = vulkan.counts();
    assert_eq!((after.runs - before.runs, after.recorded - before.recorded), (STEPS as u64 + 1, 0));
}

/// A late error belongs to the session whose run it was.
#[test]
fn an_index_outside_its_axis_is_told_late_and_ends_the_session() {
    let Some(vulkan) = open(&VulkanOptions::default()) else { return };
    let program = program(&decoder(DType::F32, KvCache::OffGraph), vulkan);
    let (mut session, mut other) = (program.session().unwrap(), program.session().unwrap());
    let (control, mut outputs) = (RunControl::default(), Vec::new());
    let inputs = [token(VOCAB as i64), at(&session, 0)];
    let pending = session.submit("forward", &inputs, &control, &mut outputs).unwrap();
    let error = pending.wait().unwrap_err().to_string();
    assert!(error.contains("index 1536 is outside an axis of size 1536"), "{error}");
    assert!(outputs[0].to_tensor().is_err());
    let next = [token(1), at(&session, 1)];
    assert!(session.run("forward", &next).unwrap_err().to_string().contains("the session is gone"));
    assert_eq!(step_by_step(&mut other, 2).len(), 2);
}

#[test]
fn scores_without_a_greatest_say_so() {
    let Some(vulkan) = open(&VulkanOptions::default()) else { return };
    let text = "graph \"forward\"\n  input %0 \"x\": f32[2, 1024]\n{\n  %1: f32[2, 1024] = neg(x=%0)\n}\noutput %1 \"y\": f32[2, 1024]\n";
    let far = f32::INFINITY;
    // At some places of the last row what is negated; everything else is 9.
    let cases: [(&[(usize, f32)], i64); 8] = [
        (&[(700, 1.0), (900, 1.0)], 700),
        (&[(3, 2.0), (1023, 1.0)], 1023),
        (&[(0, far), (1, 1.0)], 1),
        (&[], 0),
        (&[(5, f32::NAN), (6, 1.0)], -1),
        (&[(5, -far), (6, 1.0)], -1),
        (&[(1000, f32::NAN)], -1),
        (&[(8, 0.0), (9, -0.0)], 8),
    ];
    for (places, wanted) in cases {
        let mut x = vec![9.0f32; 2048];
        x[10] = -50.0;
        places.iter().for_each(|&(place, number)| x[1024 + place] = number);
        let x = HostTensor::from_slice(vec![2, 1024], &x).unwrap();
        let graph = pteron_ir::parse_graph(text).unwrap();
        let mut trial = graphs::Trial::new(&[graph], &[], vulkan.as_ref(), &StateOptions::default()).unwrap();
        let (mut outputs, control) = (Vec::new(), RunControl::default());
        let (state, inputs) = (trial.state.as_mut(), [x.into()]);
        trial.loaded.run(GraphId(0), state, &inputs, &control, &mut outputs).unwrap();
        let Value::Device(scores) = &outputs[0] else { panic!("{outputs:?}") };
        let found = scores.argmax_last(DType::I32, &[1]).unwrap().unwrap().to_host().unwrap();
        assert_eq!(found.as_slice::<i32>().unwrap(), [wanted as i32], "{places:?}");
    }
}
