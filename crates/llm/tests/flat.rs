//! Decoders of a program that takes tokens of several texts in one call read together what each reads alone: prompts beside
//! single tokens, after rewinds and forks, and whatever becomes of the others.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod support;

use pteron_cpu::Cpu;
use pteron_llm::{Decoder, Draw, LanguageModel, LlmError, Next, Reading};
use pteron_models::{Logits, Position};
use pteron_runtime::backend::{Step, Trace};
use pteron_runtime::{Error, Options, Program, RunControl};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::{CHUNK, CONTEXT, Caches, decoder, file_told, read, text};

/// Models that read flat batches, with whether they give the same bytes whatever they read beside it.
fn models() -> Vec<(String, LanguageModel, bool)> {
    let mut models = Vec::new();
    for caches in [Caches::PlainOffGraph, Caches::OffGraph] {
        for logits in [Logits::Selected, Logits::All] {
            for (backend, batch_invariant) in [("reference", false), ("cpu", false), ("cpu", true)] {
                let mut options =
                    Options { backend: Some(backend.to_owned()), batch_invariant, ..Options::default() };
                options.registry.add(Arc::new(Cpu::new(1, None).unwrap()));
                let file = file_told(caches, logits, CONTEXT, Position::Each);
                let model =
                    LanguageModel::new(Program::load("tiny.pte", file, &[], &options).unwrap()).unwrap();
                assert!(model.most_flat_tokens().is_some());
                let same_bytes = backend == "reference" || batch_invariant;
                models.push((format!("{caches:?} {logits:?} on {backend}"), model, same_bytes));
            }
        }
    }
    models
}

/// Reads with all of them; controls repeat.
fn read_all(
    decoders: &mut [Decoder],
    texts: &[Vec<u32>],
    controls: &[&RunControl],
) -> Vec<Result<Vec<f32>, LlmError>> {
    let draw = Draw::default();
    let each = decoders.iter_mut().zip(texts).zip(controls.iter().cycle());
    let mut readings: Vec<_> =
        each.map(|((decoder, tokens), control)| Reading::new(decoder, tokens, &draw, control)).collect();
    Decoder::read_together(&mut readings);
    let scores = readings.into_iter().map(|reading| {
        reading.finish().map(|next| match next {
            Next::Scores(scores) => scores.clone(),
            Next::Token(token) => panic!("token {token} where scores were wanted"),
        })
    });
    scores.collect()
}

#[track_caller]
fn check(given: &[f32], wanted: &[f32], same_bytes: bool, what: &str) {
    if same_bytes {
        assert_eq!(given, wanted, "{what}");
        return;
    }
    assert_eq!(given.len(), wanted.len(), "{what}");
    let apart = given.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-3, "{what}: {apart}");
}

/// The same of two decoders after the same life.
struct Pair {
    together: Decoder,
    alone: Decoder,
}

impl Pair {
    fn new(model: &LanguageModel) -> Pair {
        Pair { together: decoder(model), alone: decoder(model) }
    }

    fn fork(&self) -> Pair {
        Pair { together: self.together.fork().unwrap(), alone: self.alone.fork().unwrap() }
    }

    fn rewind(&mut self, to: usize) {
        assert_eq!(self.together.rewind(to).unwrap(), self.alone.rewind(to).unwrap());
    }
}

/// Reads with all pairs and compares.
#[track_caller]
fn round(pairs: &mut [Pair], texts: &[Vec<u32>], same_bytes: bool, what: &str) {
    let (mut together, mut alone): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    let control = RunControl::default();
    let draw = Draw::default();
    for Pair { together: one, alone: other } in &mut *pairs {
        together.push(one);
        alone.push(other);
    }
    let each = together.into_iter().zip(texts);
    let mut readings: Vec<_> =
        each.map(|(decoder, tokens)| Reading::new(decoder, tokens, &draw, &control)).collect();
    Decoder::read_together(&mut readings);
    for (number, ((reading, decoder), tokens)) in readings.into_iter().zip(alone).zip(texts).enumerate() {
        let Next::Scores(given) = reading.finish().unwrap() else { panic!("a token") };
        check(given, &read(decoder, tokens), same_bytes, &format!("{what}, decoder {number}"));
    }
    for Pair { together, alone } in pairs {
        assert_eq!(together.tokens(), alone.tokens(), "{what}");
    }
}

#[test]
fn prompts_and_single_tokens_are_read_in_one_call_as_each_alone() {
    for (name, model, same_bytes) in models() {
        for count in [1, 2, 5, 16] {
            let mut pairs: Vec<Pair> = (0..count).map(|_| Pair::new(&model)).collect();
            for turn in 0..4 {
                // Texts of several calls beside single tokens.
                let length = |number: usize| match (number + turn) % 4 {
                    0 => 1 + 2 * CHUNK + number % 3,
                    1 => 3,
                    _ => 1,
                };
                let texts: Vec<_> = (0..count).map(|number| text(length(number), number + turn)).collect();
                round(&mut pairs, &texts, same_bytes, &format!("{name}, {count}, turn {turn}"));
            }
        }
    }
}

#[test]
fn rewinds_and_forks_go_on_as_each_alone() {
    for (name, model, same_bytes) in models() {
        let mut pairs: Vec<Pair> = (0..3).map(|_| Pair::new(&model)).collect();
        let texts: Vec<_> = (0..3).map(|number| text(4 + 9 * number, number)).collect();
        round(&mut pairs, &texts, same_bytes, &name);
        pairs[1].rewind(11);
        pairs[2].rewind(0);
        let forked = pairs[0].fork();
        pairs.push(forked);
        let texts: Vec<_> = (0..4).map(|number| text(1 + 3 * number, number + 7)).collect();
        round(&mut pairs, &texts, same_bytes, &format!("{name}, after a rewind"));
        let forked = pairs[3].fork();
        pairs.push(forked);
        pairs[3].rewind(5);
        let texts: Vec<_> = (0..5).map(|number| text(1 + number % 2, number + 3)).collect();
        round(&mut pairs, &texts, same_bytes, &format!("{name}, after a fork"));
    }
}

#[test]
fn one_that_fails_leaves_the_others_alone() {
    for (name, model, same_bytes) in models() {
        let mut together: Vec<Decoder> = (0..5).map(|_| decoder(&model)).collect();
        let mut alone: Vec<Decoder> = (0..5).map(|_| decoder(&model)).collect();
        let plain = RunControl::default();
        let stopped = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
        let mut texts: Vec<_> = (0..5).map(|number| text(1 + 4 * number, number)).collect();
        texts[1] = vec![1 << 20];
        texts[2] = text(CONTEXT + 1, 3);
        let given = read_all(&mut together, &texts, &[&plain, &plain, &plain, &stopped, &plain]);
        assert!(matches!(given[1], Err(LlmError::UnknownToken { .. })), "{name}: {:?}", given[1]);
        assert!(matches!(given[2], Err(LlmError::PromptTooLong { .. })), "{name}: {:?}", given[2]);
        assert!(matches!(given[3], Err(LlmError::Run(Error::Cancelled))), "{name}: {:?}", given[3]);
        for number in [0, 4] {
            let wanted = read(&mut alone[number], &texts[number]);
            check(given[number].as_ref().unwrap(), &wanted, same_bytes, &name);
        }
        // And those go on from where they were.
        let texts: Vec<_> = (0..5).map(|number| text(2, number)).collect();
        for (number, given) in read_all(&mut together, &texts, &[&plain]).into_iter().enumerate() {
            let wanted = read(&mut alone[number], &texts[number]);
            check(&given.unwrap(), &wanted, same_bytes, &format!("{name}, decoder {number}"));
        }
    }
}

/// Counts steps.
struct Counts(AtomicUsize);

impl Trace for Counts {
    fn step(&self, _: &Step<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_listens_hears_of_its_own_run() {
    let (_, model, _) = models().remove(1);
    let mut decoders: Vec<Decoder> = (0..2).map(|_| decoder(&model)).collect();
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    let listens = RunControl { trace: Some(counts.clone()), ..RunControl::default() };
    let texts = [text(3, 1), text(3, 2)];
    for given in read_all(&mut decoders, &texts, &[&listens, &RunControl::default()]) {
        given.unwrap();
    }
    assert!(counts.0.load(Ordering::Relaxed) > 0);
}

#[test]
fn scores_of_every_token_are_asked_for_by_row() {
    for (name, model, _) in models() {
        let tokens = text(CHUNK + 3, 5);
        let mut rows = Vec::new();
        decoder(&model)
            .read_all(&tokens, &RunControl::default(), |number, scores| {
                assert_eq!(number, rows.len());
                rows.push(scores.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(rows.len(), tokens.len(), "{name}");
        let mut step = decoder(&model);
        for (token, scores) in tokens.iter().zip(&rows) {
            check(&read(&mut step, &[*token]), scores, false, &name);
        }
    }
}

#[test]
fn programs_that_read_one_text_at_a_time_say_so() {
    for position in [Position::Tensor, Position::Number] {
        let model = support::model_told(Caches::PlainOffGraph, position);
        assert_eq!(model.most_flat_tokens(), None);
    }
}
