//! Sessions that run together give what each gives alone: for every kind of cache, packing, precision and vector path, at
//! different positions, with texts of different lengths, and whatever becomes of the others.

#![cfg_attr(miri, allow(unused))]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

mod how;

use how::{How, apart, load, paths};
use pteron_cpu::{Path, RunMemory};
use pteron_format::{Limits, WriteOptions};
use pteron_models::architectures::{Gemma3, Llama, family};
use pteron_models::shapes::tiny;
use pteron_models::{Architecture, Config, KvCache, Model, ModelOptions, Quantization, RandomWeights};
use pteron_runtime::backend::{Step, Trace};
use pteron_runtime::{Error, Lane, Precision, Program, RunControl, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Wide enough for matrices that are rounded and take matrix tiles; Miri, which has no tiles, takes seconds for such a token.
const HIDDEN: usize = if cfg!(miri) { 32 } else { 128 };
const WIDE: usize = if cfg!(miri) { 32 } else { 512 };
const VOCAB: usize = if cfg!(miri) { 16 } else { 48 };
const HEAD: usize = if cfg!(miri) { 16 } else { 32 };

fn llama() -> Llama {
    Llama {
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: WIDE,
        num_hidden_layers: if cfg!(miri) { 1 } else { 2 },
        head_dim: HEAD,
        ..tiny::llama()
    }
}

/// Rings in most layers.
fn gemma3() -> Gemma3 {
    let mut layer_types = tiny::gemma3().layer_types;
    layer_types.truncate(if cfg!(miri) { 1 } else { usize::MAX });
    Gemma3 {
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: WIDE,
        head_dim: HEAD,
        sliding_window: 4,
        layer_types,
        ..tiny::gemma3()
    }
}

/// Experts, of which a token meets some and lanes meet the same.
fn qwen3_moe() -> Box<dyn Architecture> {
    let config = serde_json::json!({
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": HEAD, "num_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": HIDDEN, "norm_topk_prob": true,
        "max_position_embeddings": 64, "tie_word_embeddings": true,
    });
    family("qwen3_moe").unwrap().read(&Config::new(config).unwrap()).unwrap()
}

/// Which tiny model.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Slides,
    Experts,
}

/// What kinds of caches and products there are, as programs.
const CACHES: [(&str, KvCache, Kind); 5] = [
    ("experts", KvCache::OffGraph, Kind::Experts),
    ("in the graph", KvCache::InGraph, Kind::Plain),
    ("rings", KvCache::InGraph, Kind::Slides),
    ("outside", KvCache::OffGraph, Kind::Plain),
    ("outside, sliding", KvCache::OffGraph, Kind::Slides),
];

/// All of them; one under Miri, for which to load a program takes a minute.
fn caches() -> impl Iterator<Item = (&'static str, KvCache, Kind)> {
    CACHES.into_iter().rev().take(if cfg!(miri) { 1 } else { CACHES.len() })
}

/// A program with so packed matrices.
fn file(packing: Option<&str>, activations: DType, kv: KvCache, kind: Kind) -> Bytes {
    let architecture: Box<dyn Architecture> = match kind {
        Kind::Plain => Box::new(llama()),
        Kind::Slides => Box::new(gemma3()),
        Kind::Experts => qwen3_moe(),
    };
    let quantization =
        packing.map_or_else(Quantization::default, |packing| Quantization::of(packing.parse().unwrap()));
    let options = ModelOptions {
        activations,
        cache: activations,
        context: 64,
        chunk: 8,
        quantization,
        kv,
        ..ModelOptions::default()
    };
    let model = Model::build(architecture.as_ref(), Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Bytes::copy_of(&bytes)
}

/// What a session is told in one round: tokens, and the position of the first.
fn inputs(tokens: &[i64], position: usize) -> Vec<Value> {
    let tokens = HostTensor::from_slice(vec![1, tokens.len()], tokens).unwrap();
    vec![tokens.into(), HostTensor::from_slice(vec![1], &[position as i64]).unwrap().into()]
}

/// The texts of a lane: one of a length of its own, then tokens one by one, with a longer piece in between.
fn rounds(lane: usize) -> Vec<Vec<Value>> {
    let token = |at: usize| ((at * at * 7 + at * 13 + lane * 29 + 5) % VOCAB) as i64;
    let mut position = 0;
    let lengths = [1 + lane % 3, 1, if lane % 4 == 1 { 3 } else { 1 }, 1, 1];
    let pieces = lengths.into_iter().take(if cfg!(miri) { 3 } else { 5 }).map(|length| {
        let tokens: Vec<i64> = (position..position + length).map(token).collect();
        position += length;
        inputs(&tokens, position - length)
    });
    pieces.collect()
}

fn logits(outputs: &[Value]) -> Vec<u8> {
    outputs[0].as_tensor().unwrap().bytes().to_vec()
}

/// What every round of a lane gives alone.
fn alone(program: &Program, lane: usize) -> Vec<Vec<u8>> {
    let mut session = program.session().unwrap();
    rounds(lane).iter().map(|inputs| logits(&session.run("forward", inputs).unwrap())).collect()
}

/// What every round of so many lanes gives together, by lane.
fn together(program: &Program, lanes: usize) -> Vec<Vec<Vec<u8>>> {
    let mut sessions: Vec<Session> = (0..lanes).map(|_| program.session().unwrap()).collect();
    let given: Vec<_> = (0..lanes).map(rounds).collect();
    let mut outputs = vec![Vec::new(); lanes];
    let mut all = vec![Vec::new(); lanes];
    let control = RunControl::default();
    for round in 0..given[0].len() {
        run(
            &mut sessions,
            &given.iter().map(|rounds| rounds[round].clone()).collect::<Vec<_>>(),
            &mut outputs,
            &[&control],
        )
        .into_iter()
        .for_each(|result| result.unwrap());
        all.iter_mut().zip(&outputs).for_each(|(all, outputs)| all.push(logits(outputs)));
    }
    all
}

/// One round; controls repeat.
fn run(
    sessions: &mut [Session],
    inputs: &[Vec<Value>],
    outputs: &mut [Vec<Value>],
    controls: &[&RunControl],
) -> Vec<Result<(), Error>> {
    let mut lanes: Vec<Lane<'_>> =
        (sessions.iter_mut().zip(inputs).zip(outputs).zip(controls.iter().cycle()))
            .map(|(((session, inputs), outputs), control)| Lane::new(session, inputs, control, outputs))
            .collect();
    Session::run_together("forward", &mut lanes).unwrap();
    lanes.into_iter().map(|lane| lane.result).collect()
}

/// Lanes at a time. More would go through matrix tiles on some paths, which sum in another order.
#[cfg(not(miri))]
const FEW: [usize; 3] = [2, 3, 5];
/// So many that a step takes them in parts, and tiles serve them where a path has some.
#[cfg(not(miri))]
const MANY: usize = 19;

#[test]
#[cfg(not(miri))] // a quarter of an hour there; the lanes below are compared with each alone too
fn few_lanes_give_what_each_gives_alone_to_the_last_bit() {
    let others = [
        (None, DType::F32),
        (Some("8w"), DType::F32),
        (Some("mxfp4"), DType::BF16),
        (None, DType::BF16),
        (Some("8w"), DType::BF16),
    ];
    for ((name, kv, kind), other) in caches().zip(others) {
        for (packing, activations) in [(Some("4w"), DType::BF16), other] {
            let file = file(packing, activations, kv, kind);
            for path in paths() {
                for precision in [Precision::Exact, Precision::Fast] {
                    let program = load(&file, &How { precision, ..How::on(path) });
                    let alone: Vec<_> = (0..FEW[2]).map(|lane| alone(&program, lane)).collect();
                    for lanes in FEW {
                        for (lane, given) in together(&program, lanes).iter().enumerate() {
                            let what = format!("{packing:?} {name} {path} {precision:?}: {lane} of {lanes}");
                            assert!(*given == alone[lane], "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
#[cfg(not(miri))] // a quarter of an hour there; the lanes below are compared with each alone too
fn many_lanes_give_what_each_gives_alone_where_that_is_asked_for() {
    for (packing, kv, kind) in [
        (Some("4w"), KvCache::InGraph, Kind::Plain),
        (Some("8w"), KvCache::OffGraph, Kind::Slides),
        (None, KvCache::OffGraph, Kind::Plain),
        (Some("4w"), KvCache::OffGraph, Kind::Experts),
    ] {
        let file = file(packing, DType::BF16, kv, kind);
        for path in paths() {
            for precision in [Precision::Exact, Precision::Fast] {
                let program = load(&file, &How { precision, invariant: true, ..How::on(path) });
                for (lane, given) in together(&program, MANY).iter().enumerate() {
                    assert!(*given == alone(&program, lane), "{packing:?} {path} {precision:?}: lane {lane}");
                }
            }
        }
    }
}

/// Without that, a lane's numbers differ by no more than rounding of activations changes them.
#[test]
#[cfg(not(miri))] // no tiles there
fn many_lanes_differ_from_each_alone_by_no_more_than_rounding_does() {
    let file = file(Some("4w"), DType::F32, KvCache::InGraph, Kind::Plain);
    for path in paths() {
        let exact = load(&file, &How::on(path));
        let fast = load(&file, &How { precision: Precision::Fast, ..How::on(path) });
        let bound =
            (0..MANY).map(|lane| apart(&alone(&exact, lane), &alone(&fast, lane))).fold(0.0, f32::max);
        for program in [&exact, &fast] {
            for (lane, given) in together(program, MANY).iter().enumerate() {
                let difference = apart(given, &alone(program, lane));
                assert!(
                    difference <= bound,
                    "{path}, lane {lane}: {difference} where rounding changes {bound}"
                );
            }
        }
    }
}

/// What is read after its life is spoiled there, and what a joint step leaves to a later one would be.
#[test]
fn lanes_with_memory_for_every_value_give_what_each_gives_alone() {
    for (name, kv, kind) in caches() {
        let file = file(Some("4w"), DType::BF16, kv, kind);
        let program = load(&file, &How { memory: RunMemory::Separate, ..How::on(Path::best()) });
        for (lane, given) in together(&program, if cfg!(miri) { 2 } else { 3 }).iter().enumerate() {
            assert!(*given == alone(&program, lane), "{name}: lane {lane}");
        }
    }
}

/// Panics when it is told of a step.
struct Panics;

impl Trace for Panics {
    fn step(&self, _: &Step<'_>) {
        panic!("as the test wants it");
    }
}

/// Stops the run of a lane while it is under way.
struct Stops(Arc<AtomicBool>);

impl Trace for Stops {
    fn step(&self, _: &Step<'_>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lanes_that_fail_are_as_before_and_the_others_go_on() {
    for (name, kv, kind) in caches() {
        let program = load(&file(Some("4w"), DType::F32, kv, kind), &How::on(Path::best()));
        let mut sessions: Vec<Session> = (0..6).map(|_| program.session().unwrap()).collect();
        let mut outputs = vec![Vec::new(); 6];
        let plain = RunControl::default();
        let first: Vec<_> = (0..6).map(|lane| inputs(&[lane], 0)).collect();
        run(&mut sessions, &first, &mut outputs, &[&plain]).into_iter().for_each(|result| result.unwrap());

        let stopped = Arc::new(AtomicBool::new(true));
        let under_way = Arc::new(AtomicBool::new(false));
        let cancelled = RunControl { cancel: Some(stopped), ..RunControl::default() };
        let late = RunControl { deadline: Some(std::time::Instant::now()), ..RunControl::default() };
        let panics = RunControl { trace: Some(Arc::new(Panics)), ..RunControl::default() };
        let stops = RunControl {
            cancel: Some(under_way.clone()),
            trace: Some(Arc::new(Stops(under_way))),
            ..RunControl::default()
        };
        let second: Vec<_> = (0..6).map(|lane| inputs(&[lane + 1], 1)).collect();
        // One operation less than it takes: attention, behind the first products, is charged when it runs.
        let work = Arc::new(AtomicU64::new(u64::MAX));
        let counted = RunControl { work: Some(work.clone()), ..RunControl::default() };
        let mut alone = program.session().unwrap();
        alone.run("forward", &first[5]).unwrap();
        alone.run_with("forward", &second[5], &counted).unwrap();
        work.store(u64::MAX - work.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        let controls = [&plain, &cancelled, &late, &panics, &stops, &counted];
        let results = run(&mut sessions, &second, &mut outputs, &controls);
        assert!(results[0].is_ok(), "{name}: {:?}", results[0]);
        assert!(matches!(results[1], Err(Error::Cancelled)), "{name}: {:?}", results[1]);
        assert!(matches!(results[2], Err(Error::Deadline)), "{name}: {:?}", results[2]);
        let text = results[3].as_ref().unwrap_err().to_string();
        assert!(text.contains("as the test wants it"), "{name}: {text}");
        assert!(matches!(results[4], Err(Error::Cancelled)), "{name}: {:?}", results[4]);
        let text = results[5].as_ref().unwrap_err().to_string();
        assert!(text.contains("`work`"), "{name}: {text}");
        let kept = logits(&outputs[0]);

        // Those that failed do it again; the one that did not goes on.
        let mut third = second.clone();
        third[0] = inputs(&[9], 2);
        run(&mut sessions, &third, &mut outputs, &[&plain]).into_iter().for_each(|result| result.unwrap());
        for lane in 0..6 {
            let mut session = program.session().unwrap();
            session.run("forward", &first[lane]).unwrap();
            let mut wanted = logits(&session.run("forward", &second[lane]).unwrap());
            if lane == 0 {
                assert!(kept == wanted, "{name}");
                wanted = logits(&session.run("forward", &third[0]).unwrap());
            }
            assert!(logits(&outputs[lane]) == wanted, "{name}: lane {lane}");
        }
    }
}

#[test]
fn lanes_beyond_what_memory_may_be_taken_are_refused_and_the_others_run() {
    let file = file(Some("4w"), DType::F32, KvCache::InGraph, Kind::Plain);
    let program = load(&file, &How::on(Path::best()));
    // What one run takes is what is kept of it.
    program.session().unwrap().run("forward", &inputs(&[1], 0)).unwrap();
    let one = program.memory().run_bytes;
    let state = program.session().unwrap().state_bytes();
    assert!(one > 0);
    let limits = Limits { live_bytes: (2 * one + one / 2).max(state), ..Limits::default() };
    let fit = (limits.live_bytes / one) as usize;
    let program = load(&file, &How { limits, ..How::on(Path::best()) });
    let count = fit + 2;
    let mut sessions: Vec<Session> = (0..count).map(|_| program.session().unwrap()).collect();
    let given: Vec<_> = (0..count).map(|lane| inputs(&[lane as i64 % VOCAB as i64], 0)).collect();
    let mut outputs = vec![Vec::new(); count];
    let results = run(&mut sessions, &given, &mut outputs, &[&RunControl::default()]);
    let refused = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(refused, 2, "{results:?}");
    let text = results.iter().find_map(|result| result.as_ref().err()).unwrap().to_string();
    assert!(text.contains("live_bytes"), "{text}");
    for (lane, result) in results.iter().enumerate().filter(|(_, result)| result.is_ok()) {
        let wanted = program.session().unwrap().run("forward", &given[lane]).unwrap();
        assert!(logits(&outputs[lane]) == logits(&wanted), "lane {lane}: {result:?}");
    }
}
