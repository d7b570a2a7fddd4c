//! The pages of off-graph caches: sessions share what they have in common, a write copies a page and no more, what is
//! taken back is given up, and answers are those of caches in the graph.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use proptest::prelude::*;
use pte::{File, Method, f32s, i64s};
use pteron_cpu::Cpu;
use pteron_format::{Limits, WriteOptions};
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model, ModelOptions, RandomWeights};
use pteron_runtime::backend::Rewind;
use pteron_runtime::registry::Registry;
use pteron_runtime::{
    CacheLayer, CacheSpec, Lane, Options, Program, RunControl, Session, SessionOptions, SessionSnapshot,
    Value,
};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::Arc;

const CAPACITY: usize = 1100;
const WINDOW: usize = 7;
const MAX_WRITE: usize = 50;
const FEATURES: usize = 16;
const HEADS: usize = 2;
/// Rows of a page.
const PAGE: usize = 64;
/// Bytes of a row of keys and values of all heads.
const ROW: usize = 2 * HEADS * FEATURES * 4;
/// Bytes of a page of the layer that holds the whole text, and of the only one of the layer that slides.
const WHOLE: u64 = (PAGE * ROW) as u64;
const RING: usize = WINDOW + MAX_WRITE - 1;
const SLIDING: u64 = (RING * ROW) as u64;

/// A layer that holds the whole text and one that slides, each at a position of its own.
const LAYERS: &str = r#"
graph "forward"
  symbol T in 1..=50
  input %0 "q": f32[1, 4, T, 16]
  input %1 "k": f32[1, 2, T, 16]
  input %2 "v": f32[1, 2, T, 16]
  input %3 "at": i64[1]
  input %4 "at_sliding": i64[1]
{
  %5: f32[1, 4, T, 16] = update_and_attend(q=%0, k=%1, v=%2, position=%3, layer_id=0, scale=0.25)
  %6: f32[1, 4, T, 16] = update_and_attend(q=%0, k=%1, v=%2, position=%4, layer_id=1, scale=0.25)
}
output %5 "whole": f32[1, 4, T, 16]
output %6 "sliding": f32[1, 4, T, 16]
"#;

/// A number of tokens or sessions; Miri has time for the second.
fn sized(all: usize, few: usize) -> usize {
    if cfg!(miri) { few } else { all }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, None).unwrap()));
    registry
}

fn program_within(limits: Limits) -> Program {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let most = MAX_WRITE as i32;
    let q = method.dynamic(DType::F32, &[1, 4, most, 16]);
    let [k, v] = [(); 2].map(|()| method.dynamic(DType::F32, &[1, 2, most, 16]));
    let positions = [(); 2].map(|()| method.tensor(DType::I64, &[1]));
    let outs = [(); 2].map(|()| method.dynamic(DType::F32, &[1, 4, most, 16]));
    for input in [q, k, v].into_iter().chain(positions) {
        method.input(input);
    }
    outs.into_iter().for_each(|out| method.output(out));
    method.delegate(&mut file, LAYERS, &[q, k, v, positions[0], positions[1], outs[0], outs[1]]);
    file.add(method);
    file.load_with(&[], &Options { limits, ..Options::default() }).unwrap()
}

fn program() -> Program {
    program_within(Limits::default())
}

fn session(program: &Program) -> Session {
    let layer = |window| CacheLayer { kv_heads: HEADS, head_dim: FEATURES, window };
    let cache = CacheSpec {
        capacity: CAPACITY,
        layers: vec![layer(None), layer(Some(WINDOW))],
        max_write: Some(MAX_WRITE),
        dtype: None,
    };
    program.session_with(&SessionOptions { cache: Some(cache), ..SessionOptions::default() }).unwrap()
}

/// The queries, keys and values of a text at some positions, [head, position, feature]; each text has its own.
fn rows(text: usize, salt: usize, heads: usize, at: usize, tokens: usize) -> Vec<f32> {
    let number = |head: usize, position: usize, feature: usize| {
        let seed = text * 1009 + salt * 53 + head * 7919 + position * 101 + feature * 37;
        (seed % 97) as f32 / 48.0 - 1.0
    };
    let places = (0..heads).flat_map(|head| (at..at + tokens).map(move |position| (head, position)));
    places.flat_map(|(head, at)| (0..FEATURES).map(move |feature| number(head, at, feature))).collect()
}

fn inputs(text: usize, tokens: usize, at: usize, at_sliding: usize) -> [Value; 5] {
    let tensor = |salt, heads| f32s(&[1, heads, tokens, FEATURES], &rows(text, salt, heads, at, tokens));
    [
        tensor(1, 4).into(),
        tensor(2, HEADS).into(),
        tensor(3, HEADS).into(),
        i64s(&[1], &[at as i64]).into(),
        i64s(&[1], &[at_sliding as i64]).into(),
    ]
}

fn floats(outputs: &[Value]) -> Vec<f32> {
    let tensors = outputs.iter().flat_map(|output| output.as_tensor().unwrap().as_slice::<f32>().unwrap());
    tensors.copied().collect()
}

/// Tokens of a text behind those that are there.
fn read(session: &mut Session, text: usize, tokens: usize) -> Vec<f32> {
    let at = session.cached_tokens().unwrap();
    floats(&session.run("forward", &inputs(text, tokens, at, at)).unwrap())
}

fn read_all(session: &mut Session, text: usize, tokens: usize) {
    let mut left = tokens;
    while left > 0 {
        let now = left.min(MAX_WRITE);
        read(session, text, now);
        left -= now;
    }
}

#[test]
fn forks_share_pages_until_they_are_written_and_a_write_copies_one() {
    let program = program();
    let mut first = session(&program);
    let tokens = sized(300, 70);
    read_all(&mut first, 1, tokens);
    let pages = tokens.div_ceil(PAGE) as u64;
    let held = pages * WHOLE + SLIDING;
    assert_eq!((program.memory().cache_bytes, first.state_bytes()), (held, held));

    let mut fork = first.fork().unwrap();
    let snapshot = fork.snapshot().unwrap();
    assert_eq!(program.memory().cache_bytes, held, "nothing is copied");
    assert_eq!(first.state_bytes(), pages * (WHOLE / 3) + SLIDING / 3, "each counts its part");

    read(&mut fork, 2, 1);
    assert_eq!(program.memory().cache_bytes, held + WHOLE + SLIDING, "one page of each layer");
    read(&mut fork, 2, 10);
    assert_eq!(program.memory().cache_bytes, held + WHOLE + SLIDING, "which is its own now");
    drop(snapshot);
    let (of_first, of_fork) = (first.state_bytes(), fork.state_bytes());
    assert_eq!(of_first + of_fork, program.memory().cache_bytes);

    // Each goes on as if it were alone.
    let mut alone = session(&program);
    read_all(&mut alone, 1, tokens);
    assert_eq!(read(&mut first, 1, 1), read(&mut alone, 1, 1));
}

#[test]
fn a_prefix_that_sessions_have_in_common_is_held_once() {
    let (tokens, number) = (sized(1000, 100), sized(16, 3));
    let program = program();
    let mut first = session(&program);
    read_all(&mut first, 1, tokens);
    let prefix = tokens.div_ceil(PAGE) as u64 * WHOLE + SLIDING;
    assert_eq!(program.memory().cache_bytes, prefix);
    let snapshot = first.snapshot().unwrap();
    let mut sessions: Vec<Session> = (0..number).map(|_| session(&program)).collect();
    for (text, session) in sessions.iter_mut().enumerate() {
        session.restore(&snapshot).unwrap();
        read(session, 10 + text, 10);
    }
    // The page that the prefix ends in, and the ring, are written by each.
    let (held, own) = (program.memory().cache_bytes, number as u64 * (WHOLE + SLIDING));
    assert_eq!(held, prefix + own);
    drop((first, snapshot));
    // A page that only the first had goes back to the program; what is left is told by the sessions together.
    let sum: u64 = sessions.iter().map(Session::state_bytes).sum();
    assert!(sum + 1000 > prefix + own - WHOLE - SLIDING && sum <= prefix + own - WHOLE - SLIDING, "{sum}");
}

#[test]
fn sessions_that_wait_hold_what_they_were_told() {
    let program = program();
    let number = sized(64, 3);
    let mut sessions: Vec<Session> = (0..number).map(|_| session(&program)).collect();
    assert_eq!(program.memory().cache_bytes, 0);
    for (text, session) in sessions.iter_mut().enumerate() {
        read_all(session, text, 1 + text);
        assert_eq!(session.state_bytes(), WHOLE + SLIDING);
    }
    assert_eq!(program.memory().cache_bytes, number as u64 * (WHOLE + SLIDING));
}

#[test]
fn a_run_that_fails_gives_its_pages_back() {
    let program = program();
    let mut told = session(&program);
    read_all(&mut told, 1, 60);
    let before = told.state_bytes();
    // The first layer is written, over the past and into a new page; the second refuses.
    assert!(told.run("forward", &inputs(2, 30, 50, CAPACITY)).is_err());
    assert_eq!(told.state_bytes(), before);
    let mut alone = session(&program);
    read_all(&mut alone, 1, 60);
    assert_eq!(read(&mut told, 1, 20), read(&mut alone, 1, 20));

    // Where the page was shared, the others see nothing of it either.
    let mut fork = told.fork().unwrap();
    assert!(fork.run("forward", &inputs(2, 30, 75, CAPACITY)).is_err());
    let want = read(&mut alone, 1, 9);
    assert_eq!(read(&mut fork, 1, 9), want);
    assert_eq!(read(&mut told, 1, 9), want);
}

#[test]
fn a_rewind_gives_pages_back_and_the_next_tokens_take_them() {
    let program = program();
    let mut told = session(&program);
    read_all(&mut told, 1, 20);
    let held = told.state_bytes();
    for text in 2..6 {
        read_all(&mut told, text, 30);
        let most = program.memory().cache_bytes;
        assert_eq!(told.rewind_to(20).unwrap(), Rewind::Done);
        assert_eq!((told.state_bytes(), program.memory().cache_bytes), (held, most));
        assert!(most <= 2 * WHOLE + SLIDING, "{most}");
    }
    // What comes after a gap sees zeros there, and nothing of what was taken back.
    let mut alone = session(&program);
    read_all(&mut alone, 1, 20);
    let [after, fresh] = [&mut told, &mut alone]
        .map(|session| floats(&session.run("forward", &inputs(1, 1, 70, 20)).unwrap()));
    assert_eq!(after, fresh);
}

#[test]
fn more_than_a_session_may_hold_is_its_own_error() {
    const PAGES: usize = 10;
    let program = program_within(Limits { live_bytes: PAGES as u64 * WHOLE + SLIDING, ..Limits::default() });
    let (mut told, mut other) = (session(&program), session(&program));
    // All pages that there may be, at once: zeros stand for what lies before.
    let at = PAGES * PAGE - 10;
    for session in [&mut told, &mut other] {
        session.run("forward", &inputs(1, 1, at - 1, 0)).unwrap();
    }
    let error = told.run("forward", &inputs(1, 11, at, 1)).unwrap_err();
    let message = format!("{error:?}");
    assert!(message.contains("what: \"the off-graph cache\", limit: \"live_bytes\""), "{message}");
    assert_eq!(told.cached_tokens(), Some(at));
    let next = inputs(1, 10, at, 1);
    let [told, other] =
        [&mut told, &mut other].map(|session| floats(&session.run("forward", &next).unwrap()));
    assert_eq!(told, other);
}

#[test]
fn forks_that_run_together_write_pages_of_their_own() {
    let program = program();
    let mut first = session(&program);
    read_all(&mut first, 1, 90);
    let mut forks: Vec<Session> = (0..5).map(|_| first.fork().unwrap()).collect();
    let control = RunControl::default();
    for at in 90..100 {
        let told: Vec<[Value; 5]> = (0..5).map(|text| inputs(text, 1, at, at)).collect();
        let mut outputs = vec![Vec::new(); 5];
        let each = forks.iter_mut().zip(&told).zip(&mut outputs);
        let mut lanes: Vec<Lane<'_>> =
            each.map(|((session, told), outputs)| Lane::new(session, told, &control, outputs)).collect();
        Session::run_together("forward", &mut lanes).unwrap();
        lanes.into_iter().for_each(|lane| lane.result.unwrap());
        // The first text is told to nobody else; its lane and the session that it came from agree.
        let want = floats(&first.run("forward", &told[1]).unwrap());
        assert_eq!(floats(&outputs[1]), want, "at {at}");
        assert!(floats(&outputs[2]) != want);
    }
}

#[test]
fn no_tokens_at_all_change_nothing() {
    let program = program();
    let mut told = session(&program);
    for at in [0, 70] {
        let outputs = told.run("forward", &inputs(1, 0, at, at)).unwrap();
        assert!(outputs.iter().all(|output| output.as_tensor().unwrap().is_empty()));
        assert_eq!(told.cached_tokens(), Some(at));
        read_all(&mut told, 1, 70 - at);
    }
}

fn decoder(kv: KvCache, slides: bool, threads: usize) -> Session {
    let (activations, cache) = (DType::F32, DType::F32);
    let options =
        ModelOptions { activations, cache, context: 800, chunk: 100, kv, ..ModelOptions::default() };
    let weights = Arc::new(RandomWeights::new(7));
    let model = match slides {
        true => Model::build(&tiny::gemma3(), weights, options).unwrap(),
        false => Model::build(&tiny::llama(), weights, options).unwrap(),
    };
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    let mut options = Options::default();
    options.registry.add(Arc::new(Cpu::new(threads, None).unwrap()));
    Program::load("tiny.pte", Bytes::copy_of(&bytes), &[], &options).unwrap().session().unwrap()
}

#[test]
fn answers_are_those_of_caches_in_the_graph() {
    let (kinds, lengths): (&[(bool, usize)], &[usize]) = match cfg!(miri) {
        true => (&[(false, 1)], &[40, 30, 1]),
        false => (&[(false, 1), (false, 3), (true, 2)], &[100, 100, 1, 63, 100, 100, 100, 100, 1, 1, 5, 1]),
    };
    for &(slides, threads) in kinds {
        let mut sessions = [KvCache::InGraph, KvCache::OffGraph].map(|kv| decoder(kv, slides, threads));
        let mut at = 0;
        for &tokens in lengths {
            let ids: Vec<i64> = (at..at + tokens).map(|at| (at * at * 7 % 31) as i64).collect();
            let told = [
                HostTensor::from_slice(vec![1, tokens], &ids).unwrap().into(),
                i64s(&[1], &[at as i64]).into(),
            ];
            let [inside, outside] = sessions.each_mut().map(|session| {
                let outputs = session.run("forward", &told).unwrap();
                floats(&outputs)
            });
            if slides {
                // Rings are read from another end.
                let apart = inside.iter().zip(&outside).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart < 1e-3, "{apart} apart at {at}");
            } else {
                assert_eq!(inside, outside, "at {at}, {threads} threads");
            }
            at += tokens;
        }
    }
}

/// A session as it must be: the text of every position, and which positions the ring holds.
#[derive(Clone)]
struct Plain {
    texts: Vec<usize>,
    ring: [Option<usize>; RING],
}

impl Plain {
    fn visible(window: Option<usize>, position: usize) -> std::ops::Range<usize> {
        window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1
    }

    fn write(&mut self, text: usize, tokens: usize) {
        for position in self.texts.len()..self.texts.len() + tokens {
            self.ring[position % RING] = Some(position);
        }
        self.texts.extend(vec![text; tokens]);
    }

    fn can_rewind(&self, len: usize) -> bool {
        let mut seen = Plain::visible(Some(WINDOW), len);
        seen.end = len;
        seen.into_iter().all(|position| self.ring[position % RING] <= Some(position))
    }

    /// What the last of the tokens just written gives, [layer, head, feature].
    fn attended(&self) -> Vec<f64> {
        let position = self.texts.len() - 1;
        let row = |salt, heads, at: usize| rows(self.texts[at], salt, heads, at, 1);
        let q = row(1, 4, position);
        let mut out = Vec::new();
        for window in [None, Some(WINDOW)] {
            for head in 0..4 {
                let of = |row: Vec<f32>, head: usize| row[head * FEATURES..][..FEATURES].to_vec();
                let q = &q[head * FEATURES..][..FEATURES];
                let (mut total, mut sums) = (0.0, vec![0.0; FEATURES]);
                for key in Plain::visible(window, position) {
                    let k = of(row(2, HEADS, key), head / 2);
                    let score: f64 = q.iter().zip(k).map(|(&a, b)| f64::from(a) * f64::from(b)).sum();
                    let weight = (score * 0.25).exp();
                    total += weight;
                    let v = of(row(3, HEADS, key), head / 2);
                    sums.iter_mut().zip(v).for_each(|(sum, v)| *sum += weight * f64::from(v));
                }
                out.extend(sums.iter().map(|sum| sum / total));
            }
        }
        out
    }
}

/// What happens to one of several sessions.
#[derive(Clone, Copy, Debug)]
enum Event {
    Read(usize),
    /// The first layer takes it, the second does not.
    Fail(usize),
    Rewind(usize),
    /// Another session becomes a fork of it.
    Fork(usize),
    Snapshot,
    Restore,
}

fn event() -> impl Strategy<Value = (usize, Event)> {
    let event = prop_oneof![
        6 => (1..=MAX_WRITE).prop_map(Event::Read),
        2 => (1..=MAX_WRITE).prop_map(Event::Fail),
        3 => (0..=100usize).prop_map(Event::Rewind),
        2 => (0..3usize).prop_map(Event::Fork),
        1 => Just(Event::Snapshot),
        1 => Just(Event::Restore),
    ];
    (0..3usize, event)
}

const CASES: u32 = if cfg!(miri) { 2 } else { 60 };
const EVENTS: usize = if cfg!(miri) { 8 } else { 40 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn sessions_are_what_plain_caches_would_be(events in prop::collection::vec(event(), 1..EVENTS)) {
        let program = program();
        let empty = Plain { texts: Vec::new(), ring: [None; RING] };
        let mut sessions: Vec<(Session, Plain)> = (0..3).map(|_| (session(&program), empty.clone())).collect();
        let mut kept: Option<(SessionSnapshot, Plain)> = None;
        for (text, &(who, event)) in events.iter().enumerate() {
            let (session, plain) = &mut sessions[who];
            let at = plain.texts.len();
            match event {
                Event::Read(tokens) if at + tokens <= CAPACITY => {
                    let got = read(session, text, tokens);
                    plain.write(text, tokens);
                    let last = |layer: usize, head: usize| ((layer * 4 + head) * tokens + tokens - 1) * FEATURES;
                    let got = (0..8).flat_map(|i| &got[last(i / 4, i % 4)..][..FEATURES]);
                    for (want, &got) in plain.attended().iter().zip(got) {
                        prop_assert!((want - f64::from(got)).abs() < 1e-4, "{event:?} at {at}: {want} and {got}");
                    }
                }
                Event::Read(_) => {}
                Event::Fail(tokens) => {
                    prop_assert!(session.run("forward", &inputs(text, tokens, at / 2, CAPACITY)).is_err());
                }
                Event::Rewind(share) => {
                    let len = at * share / 100;
                    let done = session.rewind_to(len).unwrap() == Rewind::Done;
                    prop_assert_eq!(done, plain.can_rewind(len), "from {} to {}", at, len);
                    if done {
                        plain.texts.truncate(len);
                    }
                }
                Event::Fork(to) => {
                    let fork = (session.fork().unwrap(), plain.clone());
                    sessions[to] = fork;
                }
                Event::Snapshot => kept = Some((session.snapshot().unwrap(), plain.clone())),
                Event::Restore => {
                    if let Some((snapshot, of_then)) = &kept {
                        session.restore(snapshot).unwrap();
                        *plain = of_then.clone();
                    }
                }
            }
            for (session, plain) in &sessions {
                prop_assert_eq!(session.cached_tokens(), Some(plain.texts.len()));
            }
        }
        // Nobody holds a page that nobody counts: what sessions say together is what is held, but for what snapshots
        // hold and what waits.
        drop(kept);
        let sum: u64 = sessions.iter().map(|(session, _)| session.state_bytes()).sum();
        prop_assert!(sum <= program.memory().cache_bytes);
    }
}
