//! Flat batches: one run over the tokens of several sessions gives each what it gives alone, for every packing, precision
//! and vector path, with texts of different lengths; and it fails as a whole, saying whose fault it was.

#![cfg_attr(miri, allow(unused))]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

mod how;

use how::{How, apart, load, paths};
use pteron_cpu::{Path, RunMemory};
use pteron_format::WriteOptions;
use pteron_models::architectures::{Gemma3, Llama};
use pteron_models::shapes::tiny;
use pteron_models::{
    Architecture, KvCache, Logits, Model, ModelOptions, Position, Quantization, RandomWeights,
};
use pteron_runtime::backend::{Step, Trace};
use pteron_runtime::{Error, Options, Precision, Program, RunControl, Session, Span, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Miri takes a minute for a layer of the others' size.
const VOCAB: usize = if cfg!(miri) { 16 } else { 48 };
const CONTEXT: usize = 64;

/// What a program is like.
#[derive(Clone, Copy, Debug)]
struct What {
    packing: Option<&'static str>,
    activations: DType,
    slides: bool,
    logits: Logits,
    position: Position,
}

const LLAMA: What = What {
    packing: Some("4w"),
    activations: DType::F32,
    slides: false,
    logits: Logits::Selected,
    position: Position::Each,
};

fn file(what: What) -> Bytes {
    let (hidden_size, intermediate_size, head_dim) = if cfg!(miri) { (32, 32, 16) } else { (128, 512, 32) };
    let architecture: Box<dyn Architecture> = match what.slides {
        true => Box::new(Gemma3 {
            vocab_size: VOCAB,
            hidden_size,
            intermediate_size,
            head_dim,
            sliding_window: 4,
            ..tiny::gemma3()
        }),
        false => Box::new(Llama {
            vocab_size: VOCAB,
            hidden_size,
            intermediate_size,
            head_dim,
            num_hidden_layers: if cfg!(miri) { 1 } else { 2 },
            ..tiny::llama()
        }),
    };
    let quantization =
        what.packing.map_or_else(Quantization::default, |packing| Quantization::of(packing.parse().unwrap()));
    let options = ModelOptions {
        activations: what.activations,
        context: CONTEXT,
        chunk: 8,
        beside: if what.position == Position::Each { 56 } else { 0 },
        quantization,
        kv: KvCache::OffGraph,
        logits: what.logits,
        position: what.position,
        ..ModelOptions::default()
    };
    let model = Model::build(architecture.as_ref(), Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    Bytes::copy_of(&bytes)
}

fn reference(file: &Bytes) -> Program {
    let options = Options { backend: Some("reference".into()), ..Options::default() };
    Program::load("tiny.pte", file.clone(), &[], &options).unwrap()
}

fn numbers(shape: Vec<usize>, numbers: &[i64]) -> Value {
    HostTensor::from_slice(shape, numbers).unwrap().into()
}

/// The token of a session's text at a position.
fn token(session: usize, at: usize) -> i64 {
    ((at * at * 7 + at * 13 + session * 29 + 5) % VOCAB) as i64
}

/// What each session reads in a round: where it begins, and how many tokens.
type Round = Vec<(usize, usize)>;

/// Prompts of different lengths, then single tokens, with longer pieces among them.
fn rounds(sessions: usize, longest: usize) -> Vec<Round> {
    let mut at = vec![0; sessions];
    (0..4)
        .map(|round| {
            let each = at.iter_mut().enumerate().map(|(session, at)| {
                let length = match round {
                    0 => 1 + session % longest,
                    _ if (session + round) % 4 == 0 => longest,
                    _ => 1,
                };
                *at += length;
                (*at - length, length)
            });
            each.collect()
        })
        .collect()
}

/// The inputs of a call with parts of these sessions: by number, with where they begin and how long they are. The logits of
/// the last token of each are wanted.
fn inputs(parts: &[(usize, usize, usize)], selects: bool) -> Vec<Value> {
    let each =
        || parts.iter().flat_map(|&(session, at, length)| (at..at + length).map(move |at| (session, at)));
    let tokens: Vec<i64> = each().map(|(session, at)| token(session, at)).collect();
    let positions: Vec<i64> = each().map(|(_, at)| at as i64).collect();
    let mut inputs =
        vec![numbers(vec![1, tokens.len()], &tokens), numbers(vec![positions.len()], &positions)];
    if selects {
        let rows = ends(parts);
        inputs.push(numbers(vec![rows.len()], &rows));
    }
    inputs
}

/// The last row of each part.
fn ends(parts: &[(usize, usize, usize)]) -> Vec<i64> {
    let mut end = -1;
    let each = parts.iter().map(|&(.., length)| {
        end += length as i64;
        end
    });
    each.collect()
}

/// Rows of logits, as bytes.
fn rows(outputs: &[Value]) -> Vec<Vec<u8>> {
    let tensor = outputs[0].as_tensor().unwrap();
    let row = tensor.shape().last().unwrap() * tensor.dtype().size();
    tensor.bytes().chunks_exact(row).map(<[u8]>::to_vec).collect()
}

/// What each round gives a session alone.
fn alone(program: &Program, session: usize, rounds: &[Round]) -> Vec<Vec<u8>> {
    let mut own = program.session().unwrap();
    let given = rounds.iter().map(|round| {
        let (at, length) = round[session];
        let outputs = own.run("forward", &inputs(&[(session, at, length)], true)).unwrap();
        rows(&outputs).pop().unwrap()
    });
    given.collect()
}

/// Runs a part of each session in one call; the logits of the last token of each.
fn flat(
    sessions: &mut [Session],
    parts: &[(usize, usize, usize)],
    controls: &[&RunControl],
) -> Result<Vec<Vec<u8>>, Error> {
    let each = sessions.iter_mut().zip(parts).zip(controls.iter().cycle());
    let mut spans: Vec<Span<'_>> =
        each.map(|((session, &(.., length)), control)| Span::new(session, length, control)).collect();
    let mut outputs = Vec::new();
    Session::run_flat("forward", &mut spans, &inputs(parts, true), &mut outputs)?;
    Ok(rows(&outputs))
}

/// What each session is given in every round, by session.
fn together(program: &Program, rounds: &[Round]) -> Vec<Vec<Vec<u8>>> {
    let mut sessions: Vec<Session> = rounds[0].iter().map(|_| program.session().unwrap()).collect();
    let mut all = vec![Vec::new(); sessions.len()];
    let control = RunControl::default();
    for round in rounds {
        let parts: Vec<_> =
            round.iter().enumerate().map(|(session, &(at, length))| (session, at, length)).collect();
        let given = flat(&mut sessions, &parts, &[&control]).unwrap();
        all.iter_mut().zip(given).for_each(|(all, given)| all.push(given));
    }
    all
}

#[track_caller]
fn check(program: &Program, rounds: &[Round], what: &str) {
    for (session, given) in together(program, rounds).iter().enumerate() {
        assert!(
            *given == alone(program, session, rounds),
            "{what}: session {session} of {}",
            rounds[0].len()
        );
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn few_tokens_give_what_each_gives_alone_to_the_last_bit() {
    for (packing, activations, slides) in [
        (Some("4w"), DType::BF16, false),
        (Some("8w"), DType::F32, true),
        (None, DType::F32, false),
        (None, DType::BF16, true),
    ] {
        let file = file(What { packing, activations, slides, ..LLAMA });
        for path in paths() {
            for precision in [Precision::Exact, Precision::Fast] {
                let program = load(&file, &How { precision, ..How::on(path) });
                for sessions in [1, 2, 3] {
                    check(&program, &rounds(sessions, 2), &format!("{packing:?} {path} {precision:?}"));
                }
            }
        }
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn many_tokens_give_what_each_gives_alone_where_that_is_asked_for() {
    for (packing, activations, slides) in
        [(Some("4w"), DType::BF16, false), (Some("8w"), DType::F32, true), (None, DType::BF16, false)]
    {
        let file = file(What { packing, activations, slides, ..LLAMA });
        for path in paths() {
            for precision in [Precision::Exact, Precision::Fast] {
                let program = load(&file, &How { precision, invariant: true, ..How::on(path) });
                for sessions in [3, 16] {
                    check(&program, &rounds(sessions, 6), &format!("{packing:?} {path} {precision:?}"));
                }
            }
        }
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn many_tokens_differ_from_each_alone_by_no_more_than_rounding_does() {
    const SESSIONS: usize = 19;
    let file = file(LLAMA);
    let rounds = rounds(SESSIONS, 5);
    for path in paths() {
        let exact = load(&file, &How::on(path));
        let fast = load(&file, &How { precision: Precision::Fast, ..How::on(path) });
        let alone = |program: &Program| -> Vec<_> {
            (0..SESSIONS).map(|session| alone(program, session, &rounds)).collect()
        };
        let (of_exact, of_fast) = (alone(&exact), alone(&fast));
        let bound = of_exact.iter().zip(&of_fast).map(|(a, b)| apart(a, b)).fold(0.0, f32::max);
        let largest = |program: &Program, alone: &[Vec<Vec<u8>>]| {
            let given = together(program, &rounds);
            given.iter().zip(alone).map(|(given, alone)| apart(given, alone)).fold(0.0, f32::max)
        };
        let tiles = largest(&exact, &of_exact);
        assert!(tiles <= bound, "{path}: {tiles} where rounding changes {bound}");
        // Tiles round otherwise than each alone is rounded, but no further away from what is exact; in sums of another order
        // the same rounding shows within a thousandth.
        let both = largest(&fast, &of_exact);
        assert!(both <= 1.001 * bound, "{path}: {both} away from exact, alone {bound}");
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn the_reference_gives_the_same_bytes_flat_and_what_the_cpu_gives() {
    for slides in [false, true] {
        let file = file(What { packing: None, slides, ..LLAMA });
        let (program, rounds) = (reference(&file), rounds(5, 4));
        check(&program, &rounds, "reference");
        let given = together(&load(&file, &How::on(Path::best())), &rounds);
        for (session, (cpu, reference)) in given.iter().zip(together(&program, &rounds)).enumerate() {
            assert!(apart(cpu, &reference) < 1e-3, "session {session}: {}", apart(cpu, &reference));
        }
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn a_position_for_each_token_gives_what_the_first_ones_position_gives() {
    for slides in [false, true] {
        let each = load(&file(What { slides, ..LLAMA }), &How::on(Path::best()));
        let plain = What { slides, logits: Logits::Last, position: Position::Tensor, ..LLAMA };
        let plain = load(&file(plain), &How::on(Path::best()));
        let rounds = rounds(4, 6);
        for session in 0..4 {
            let mut own = plain.session().unwrap();
            let given: Vec<_> = rounds
                .iter()
                .map(|round| {
                    let (at, length) = round[session];
                    let mut inputs = inputs(&[(session, at, length)], false);
                    inputs[1] = numbers(vec![1], &[at as i64]);
                    rows(&own.run("forward", &inputs).unwrap()).pop().unwrap()
                })
                .collect();
            assert!(given == alone(&each, session, &rounds), "session {session}, sliding: {slides}");
        }
    }
}

#[test]
#[cfg(not(miri))] // too long there
fn logits_of_all_tokens_are_those_of_each_part() {
    let what = What { logits: Logits::All, ..LLAMA };
    let program = load(&file(what), &How { invariant: true, ..How::on(Path::best()) });
    let parts = [(0, 0, 3), (1, 0, 1), (2, 0, 2)];
    let mut sessions: Vec<Session> = parts.iter().map(|_| program.session().unwrap()).collect();
    let control = RunControl::default();
    let each = sessions.iter_mut().zip(&parts);
    let mut spans: Vec<Span<'_>> =
        each.map(|(session, &(.., length))| Span::new(session, length, &control)).collect();
    let mut outputs = Vec::new();
    Session::run_flat("forward", &mut spans, &inputs(&parts, false), &mut outputs).unwrap();
    let alone = parts
        .iter()
        .flat_map(|part| rows(&program.session().unwrap().run("forward", &inputs(&[*part], false)).unwrap()));
    assert!(rows(&outputs) == alone.collect::<Vec<_>>());
}

#[test]
fn flat_runs_with_memory_for_every_value_give_what_each_gives_alone() {
    for &slides in if cfg!(miri) { [false].as_slice() } else { &[false, true] } {
        let file = file(What { activations: DType::BF16, slides, ..LLAMA });
        let how = How { memory: RunMemory::Separate, ..How::on(Path::best()) };
        check(&load(&file, &how), &rounds(3, 2), "separate");
    }
}

/// Listens to nothing.
struct Deaf;

impl Trace for Deaf {
    fn step(&self, _: &Step<'_>) {}
}

/// Sessions that have read two tokens each.
fn begun(program: &Program, count: usize) -> Vec<Session> {
    let mut sessions: Vec<Session> = (0..count).map(|_| program.session().unwrap()).collect();
    let parts: Vec<_> = (0..count).map(|session| (session, 0, 2)).collect();
    flat(&mut sessions, &parts, &[&RunControl::default()]).unwrap();
    sessions
}

#[test]
fn a_batch_that_fails_leaves_every_session_as_it_was_and_says_whose_fault_it_was() {
    let file = file(LLAMA);
    for program in [load(&file, &How { invariant: true, ..How::on(Path::best()) }), reference(&file)] {
        let mut sessions = begun(&program, 4);
        let next: Vec<_> = (0..4).map(|session| (session, 2, 1 + session % 2)).collect();
        let plain = RunControl::default();
        let stopped = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
        let late = RunControl { deadline: Some(std::time::Instant::now()), ..RunControl::default() };
        let listens = RunControl { trace: Some(Arc::new(Deaf)), ..RunControl::default() };

        // Beyond the context, in the last of four.
        let mut beyond = next.clone();
        beyond[3].1 = CONTEXT - 1;
        let error = flat(&mut sessions, &beyond, &[&plain]).unwrap_err();
        assert!(error.to_string().contains("session 3 of a flat batch"), "{error}");
        assert!(error.to_string().contains("capacity"), "{error}");
        assert!(matches!(error.into_span(), Ok((3, _))));

        for (control, number) in [(&stopped, 1), (&late, 2)] {
            let mut controls = [&plain; 4];
            controls[number] = control;
            let (span, error) = flat(&mut sessions, &next, &controls).unwrap_err().into_span().unwrap();
            assert_eq!(span, number);
            assert!(matches!(error, Error::Cancelled | Error::Deadline), "{error}");
        }
        let error = flat(&mut sessions, &next, &[&plain, &plain, &listens, &plain]).unwrap_err();
        assert!(error.to_string().contains("listened to runs alone"), "{error}");

        let mut none = next.clone();
        none[2].2 = 0;
        let error = flat(&mut sessions, &none, &[&plain]).unwrap_err();
        assert!(matches!(error.into_span(), Ok((2, _))));

        let mut foreign = reference(&file).session().unwrap();
        let mut spans = vec![Span::new(&mut sessions[0], 1, &plain), Span::new(&mut foreign, 1, &plain)];
        let parts = inputs(&[(0, 2, 1), (1, 2, 1)], true);
        let error = Session::run_flat("forward", &mut spans, &parts, &mut Vec::new()).unwrap_err();
        assert!(matches!(error.into_span(), Ok((1, _))));

        // All of them go on as if nothing had been.
        let given = flat(&mut sessions, &next, &[&plain]).unwrap();
        let mut fresh = begun(&program, 4);
        assert!(given == flat(&mut fresh, &next, &[&plain]).unwrap());
        assert!(sessions.iter().zip(&fresh).all(|(a, b)| a.cached_tokens() == b.cached_tokens()));
    }
}

#[test]
fn batches_that_do_not_add_up_are_refused() {
    let file = file(LLAMA);
    for program in [load(&file, &How::on(Path::best())), reference(&file)] {
        let mut sessions = begun(&program, 2);
        let control = RunControl::default();
        let mut run = |given: Vec<Value>, lengths: [usize; 2]| {
            let each = sessions.iter_mut().zip(lengths);
            let mut spans: Vec<Span<'_>> =
                each.map(|(session, length)| Span::new(session, length, &control)).collect();
            Session::run_flat("forward", &mut spans, &given, &mut Vec::new()).unwrap_err().to_string()
        };
        let good = || inputs(&[(0, 2, 2), (1, 2, 1)], true);
        let error = run(good(), [2, 2]);
        assert!(error.contains("3 tokens, the sessions of the batch have 4"), "{error}");
        let error = run(good(), [2, usize::MAX]);
        assert!(error.contains("the sessions of the batch have"), "{error}");
        // Where each part is right in number and wrong in place.
        let error = run(good(), [1, 2]);
        assert!(error.contains("positions of a call follow each other"), "{error}");
        let mut short = good();
        short[1] = numbers(vec![2], &[2, 3]);
        let error = run(short, [2, 1]);
        assert!(error.contains("2 tokens, the sessions of the batch have 3"), "{error}");
        let mut negative = good();
        negative[1] = numbers(vec![3], &[2, 3, -1]);
        let error = run(negative, [2, 1]);
        assert!(error.contains("session 1 of a flat batch"), "{error}");
        let mut beyond = good();
        beyond[2] = numbers(vec![1], &[3]);
        run(beyond, [2, 1]);
        let mut odd = good();
        odd[0] = numbers(vec![1, 3], &[1, VOCAB as i64, 1]);
        run(odd, [2, 1]);
        let error = Session::run_flat("forward", &mut [], &good(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no sessions"), "{error}");
        assert_eq!(sessions[0].cached_tokens(), Some(2));
    }
}

#[test]
fn one_sessions_positions_follow_each_other() {
    let file = file(LLAMA);
    for program in [load(&file, &How::on(Path::best())), reference(&file)] {
        let mut session = program.session().unwrap();
        for positions in [[0, 2, 3], [0, 0, 1], [2, 1, 0], [i64::MAX, 0, 1]] {
            let mut given = inputs(&[(0, 0, 3)], true);
            given[1] = numbers(vec![3], &positions);
            let error = session.run("forward", &given).unwrap_err().to_string();
            assert!(error.contains("positions of a call follow each other"), "{error}");
        }
        session.run("forward", &inputs(&[(0, 0, 3)], true)).unwrap();
    }
}

#[test]
fn programs_that_are_told_one_position_say_that_they_read_no_batches() {
    for (position, logits) in [(Position::Tensor, Logits::Last), (Position::Number, Logits::All)] {
        let program = load(&file(What { position, logits, ..LLAMA }), &How::on(Path::best()));
        let error = program.reads_flat("forward").unwrap_err();
        assert!(matches!(error, Error::NotFlat { .. }), "{error}");
        assert!(error.to_string().contains("position of the first token"), "{error}");
    }
    let program = load(&file(LLAMA), &How::on(Path::best()));
    program.reads_flat("forward").unwrap();
    assert!(matches!(program.reads_flat("backward"), Err(Error::UnknownMethod { .. })));
}
