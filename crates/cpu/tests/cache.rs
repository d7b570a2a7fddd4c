//! The off-graph cache of this backend holds what that of the reference backend holds, whatever a session goes through.

#![allow(clippy::unwrap_used)] // helpers fail their test

#[path = "../../runtime/tests/pte/mod.rs"]
mod pte;

use proptest::prelude::*;
use pte::{File, Method, f32s, i64s};
use pteron_cpu::Cpu;
use pteron_runtime::backend::Rewind;
use pteron_runtime::registry::Registry;
use pteron_runtime::{CacheLayer, CacheSpec, Error, Options, Program, Session, SessionOptions, Value};
use pteron_tensor::DType;
use std::sync::Arc;

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add(Arc::new(Cpu::new(2, None).unwrap()));
    registry
}

/// Sessions that are tried. Miri has time for a few, with less in each of them.
const CASES: u32 = if cfg!(miri) { 2 } else { 100 };
/// What happens in one at most.
const EVENTS: usize = if cfg!(miri) { 6 } else { 40 };
const CAPACITY: usize = if cfg!(miri) { 20 } else { 150 };
const WINDOW: usize = 7;
const MAX_WRITE: usize = 6;
const FEATURES: usize = 16;

/// A layer that holds the whole text and one that slides, each at a position of its own.
const LAYERS: &str = r#"
graph "forward"
  symbol T in 1..=6
  input %0 "q": f32[1, 4, T, 16]
  input %1 "k": f32[1, 2, T, 16]
  input %2 "v": f32[1, 2, T, 16]
  input %3 "at": i64[1]
  input %4 "at_sliding": i64[1]
{
  %5: f32[1, 4, T, 16] = update_and_attend(q=%0, k=%1, v=%2, position=%3, layer_id=0, scale=0.25)
  %6: f32[1, 4, T, 16] = update_and_attend(q=%5, k=%1, v=%2, position=%4, layer_id=1, scale=0.25)
}
output %5 "whole": f32[1, 4, T, 16]
output %6 "sliding": f32[1, 4, T, 16]
"#;

fn program(backend: &str) -> Program {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let q = method.dynamic(DType::F32, &[1, 4, 6, 16]);
    let [k, v] = [(); 2].map(|()| method.dynamic(DType::F32, &[1, 2, 6, 16]));
    let positions = [(); 2].map(|()| method.tensor(DType::I64, &[1]));
    let outs = [(); 2].map(|()| method.dynamic(DType::F32, &[1, 4, 6, 16]));
    for input in [q, k, v].into_iter().chain(positions) {
        method.input(input);
    }
    outs.into_iter().for_each(|out| method.output(out));
    method.delegate(&mut file, LAYERS, &[q, k, v, positions[0], positions[1], outs[0], outs[1]]);
    file.add(method);
    file.load_with(&[], &Options { backend: Some(backend.to_owned()), ..Options::default() }).unwrap()
}

fn session(program: &Program, dtype: Option<DType>) -> Session {
    let layer = |window| CacheLayer { kv_heads: 2, head_dim: FEATURES, window };
    let cache = CacheSpec {
        capacity: CAPACITY,
        layers: vec![layer(None), layer(Some(WINDOW))],
        max_write: Some(MAX_WRITE),
        dtype,
    };
    program.session_with(&SessionOptions { cache: Some(cache), ..SessionOptions::default() }).unwrap()
}

/// What happens to a session.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Tokens follow those that are there.
    Read(usize),
    /// Tokens at any positions: a gap, the past, or beyond the end.
    ReadAt(usize, usize, usize),
    Rewind(usize),
    /// The session is remembered.
    Snapshot,
    /// It goes back to the last snapshot.
    Restore,
}

fn event() -> impl Strategy<Value = Event> {
    let tokens = 1..=MAX_WRITE;
    prop_oneof![
        8 => tokens.clone().prop_map(Event::Read),
        2 => (tokens, 0..CAPACITY + 5, 0..CAPACITY + 5).prop_map(|(n, a, b)| Event::ReadAt(n, a, b)),
        2 => (0..CAPACITY).prop_map(Event::Rewind),
        1 => Just(Event::Snapshot),
        1 => Just(Event::Restore),
    ]
}

fn read(session: &mut Session, tokens: usize, at: [usize; 2], seed: usize) -> Result<Vec<f32>, Error> {
    let numbers = |count: usize, salt: usize| -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + seed * 101 + salt * 53) % 97) as f32 / 48.0 - 1.0).collect()
    };
    let row = tokens * FEATURES;
    let inputs: [Value; 5] = [
        f32s(&[1, 4, tokens, FEATURES], &numbers(4 * row, 1)).into(),
        f32s(&[1, 2, tokens, FEATURES], &numbers(2 * row, 2)).into(),
        f32s(&[1, 2, tokens, FEATURES], &numbers(2 * row, 3)).into(),
        i64s(&[1], &[at[0] as i64]).into(),
        i64s(&[1], &[at[1] as i64]).into(),
    ];
    let outputs = session.run("forward", &inputs)?;
    let tensors = outputs.iter().flat_map(|output| output.as_tensor().unwrap().as_slice::<f32>().unwrap());
    Ok(tensors.copied().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn both_backends_hold_the_same(events in prop::collection::vec(event(), 1..EVENTS), rounded in any::<bool>()) {
        let dtype = rounded.then_some(DType::BF16);
        let mut sessions = ["reference", "cpu"].map(|backend| session(&program(backend), dtype));
        let mut snapshots = None;
        for (seed, &event) in events.iter().enumerate() {
            let [reference, cpu] = &mut sessions;
            let end = reference.cached_tokens().unwrap();
            // Where positions were left out, zeros stand for them; here they take the rows of what was there a round
            // before, so that going back behind them is a replay or an error where the reference still can.
            let has_gaps = events[..seed].iter().any(|event| matches!(event, Event::ReadAt(..)));
            match event {
                Event::Read(_) | Event::ReadAt(..) => {
                    let (tokens, at) = match event {
                        Event::ReadAt(tokens, a, b) => (tokens, [a, b]),
                        Event::Read(tokens) => (tokens, [end, end]),
                        _ => continue,
                    };
                    match (read(reference, tokens, at, seed), read(cpu, tokens, at, seed)) {
                        (Ok(want), Ok(got)) => {
                            let apart = want.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                            prop_assert!(want.len() == got.len() && apart < 1e-4, "{event:?}: {apart} apart");
                        }
                        (Err(_), Err(_)) => {}
                        (Ok(_), Err(error)) if has_gaps && error.to_string().contains("overwritten") => {
                            return Ok(());
                        }
                        (want, got) => prop_assert!(false, "{event:?}: {want:?} and {got:?}"),
                    }
                }
                Event::Rewind(to) => match (reference.rewind_to(to), cpu.rewind_to(to)) {
                    (Ok(want), Ok(got)) => {
                        let [want, got] = [want, got].map(|rewind| rewind == Rewind::Done);
                        if has_gaps && want && !got {
                            return Ok(());
                        }
                        prop_assert_eq!(want, got, "to {}", to);
                    }
                    (Err(_), Err(_)) => {}
                    (want, got) => prop_assert!(false, "{event:?}: {want:?} and {got:?}"),
                },
                Event::Snapshot => snapshots = Some([reference.snapshot().unwrap(), cpu.snapshot().unwrap()]),
                Event::Restore => {
                    if let Some([of_reference, of_cpu]) = &snapshots {
                        reference.restore(of_reference).unwrap();
                        cpu.restore(of_cpu).unwrap();
                    }
                }
            }
            prop_assert_eq!(sessions[0].cached_tokens(), sessions[1].cached_tokens());
        }
    }
}
