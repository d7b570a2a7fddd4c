//! A decoder that goes back holds what a new one holds that has read the same text, whatever its caches are like.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::{DecoderOptions, LanguageModel, LlmError, Reuse};
use pteron_models::{KvCache, Logits, Position};
use pteron_runtime::RunControl;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use support::{
    ALL, BORDER, CHUNK, CONTEXT, Caches, WINDOW, decoder, longrope, model, model_told, model_with, read, text,
};

/// How far scores may be apart that were computed in other chunks.
const CLOSE: f32 = 1e-4;

fn assert_close(a: &[f32], b: &[f32], what: &str) {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(a.len() == b.len() && apart <= CLOSE, "{what}: {apart} apart");
}

/// Reads `texts` one after the other, each after going back to what it shares with the one before, and holds the
/// scores against those of a new decoder. `marks` remembers the place before every text. However a program is told the
/// position, the same is kept.
fn follow(caches: Caches, texts: &[Vec<u32>], marks: bool) -> Vec<Reuse> {
    let [tensor, number] = [Position::Tensor, Position::Number]
        .map(|position| follow_in(&model_told(caches, position), caches, texts, marks));
    assert_eq!(tensor, number, "{caches:?}");
    number
}

fn follow_in(model: &LanguageModel, caches: Caches, texts: &[Vec<u32>], marks: bool) -> Vec<Reuse> {
    let mut one = decoder(model);
    let mut reuses = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let reuse = one.begin(text).unwrap();
        assert_eq!(one.tokens().len(), reuse.kept);
        if marks {
            one.mark().unwrap();
        }
        let scores = read(&mut one, &text[reuse.kept..]);
        let fresh = read(&mut decoder(model), text);
        assert_close(&scores, &fresh, &format!("{caches:?}, text {number}"));
        assert_eq!(one.tokens(), text);
        reuses.push(reuse);
    }
    reuses
}

/// A text that shares its beginning with another.
fn branch(of: &[u32], at: usize, tokens: usize, seed: usize) -> Vec<u32> {
    let mut text = of[..at].to_vec();
    text.extend(support::text(tokens, seed).iter().map(|token| (token + 1) % 64));
    text
}

#[test]
fn going_on_reads_only_what_is_new() {
    for caches in ALL {
        let first = text(30, 1);
        let longer = [first.clone(), text(5, 2)].concat();
        let reuses = follow(caches, &[first.clone(), longer, first], true);
        assert_eq!((reuses[0].kept, reuses[1].kept), (0, 30), "{caches:?}");
        // The same text again leaves one token to read.
        assert_eq!(reuses[2].common, 29, "{caches:?}");
    }
}

#[test]
fn plain_caches_go_back_anywhere() {
    for caches in [Caches::Plain, Caches::PlainOffGraph] {
        let long = text(120, 1);
        let texts = [long.clone(), branch(&long, 3, 40, 2), branch(&long, 1, 70, 3), long.clone()];
        let reuses = follow(caches, &texts, false);
        assert_eq!(reuses.iter().map(|reuse| reuse.kept).collect::<Vec<_>>(), [0, 3, 1, 1], "{caches:?}");
    }
}

#[test]
fn rings_go_back_as_far_as_they_hold() {
    // Slots of a ring: the window and the largest input less one.
    let slots = WINDOW + CHUNK - 1;
    let short = text(slots, 1);
    // Not yet round: anywhere.
    let reuses = follow(Caches::Ring, &[short.clone(), branch(&short, 2, 9, 2)], false);
    assert_eq!(reuses[1].kept, 2);
    let long = text(60, 1);
    // As many tokens as one call may write; one more is lost.
    let reuses = follow(Caches::Ring, &[long.clone(), branch(&long, 60 - CHUNK, 20, 2)], false);
    assert_eq!(reuses[1].kept, 60 - CHUNK);
    let reuses = follow(Caches::Ring, &[long.clone(), branch(&long, 60 - CHUNK - 1, 20, 2)], false);
    assert_eq!((reuses[1].common, reuses[1].kept), (60 - CHUNK - 1, 0));
}

#[test]
fn a_ring_remembers_how_far_it_was_written() {
    let long = text(60, 1);
    // Back by half of what it holds, one token on, then back by as much again: too far, although each step alone is not.
    let second = branch(&long, 60 - CHUNK + 2, 1, 2);
    let third = branch(&long, 60 - CHUNK - 2, 6, 3);
    let reuses = follow(Caches::Ring, &[long, second, third], false);
    assert_eq!(reuses[1].kept, 60 - CHUNK + 2);
    assert_eq!(reuses[2].kept, 0);
}

#[test]
fn marks_save_the_second_reading() {
    for caches in [Caches::Ring, Caches::OffGraph, Caches::States, Caches::Delta] {
        let first = text(40, 1);
        let second = [first.clone(), text(40, 2)].concat();
        let third = [second.clone(), text(40, 3)].concat();
        let texts =
            [first, second.clone(), third.clone(), branch(&second, 80, 30, 4), branch(&second, 45, 30, 5)];
        let reuses = follow(caches, &texts, true);
        assert_eq!((reuses[3].kept, reuses[3].restored), (80, true), "{caches:?}");
        assert_eq!((reuses[4].common, reuses[4].kept, reuses[4].restored), (45, 40, true), "{caches:?}");
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    for caches in ALL {
        let model = model(caches);
        let mut one = decoder(&model);
        let start = text(50, 1);
        read(&mut one, &start);
        let mut other = one.fork().unwrap();
        let (left, right) = (text(20, 2), text(17, 3));
        let (a, b) = (read(&mut one, &left), read(&mut other, &right));
        let fresh = |rest: &[u32]| read(&mut decoder(&model), &[start.as_slice(), rest].concat());
        assert_close(&a, &fresh(&left), &format!("{caches:?}, left"));
        assert_close(&b, &fresh(&right), &format!("{caches:?}, right"));
    }
}

#[test]
fn all_scores_are_those_of_every_beginning() {
    let tokens = text(21, 1);
    for caches in ALL {
        for logits in [Logits::Last, Logits::All, Logits::Selected] {
            let model = model_with(caches, logits, CONTEXT);
            assert_eq!(model.all_logits().is_some(), logits != Logits::Last);
            let mut seen = Vec::new();
            let mut one = decoder(&model);
            let visit = |at: usize, scores: &[f32]| {
                assert_eq!(at, seen.len());
                seen.push(scores.to_vec());
                Ok(())
            };
            one.read_all(&tokens, &RunControl::default(), visit).unwrap();
            assert_eq!(seen.len(), tokens.len());
            for at in [0, 7, 8, 20] {
                let alone = read(&mut decoder(&model), &tokens[..=at]);
                assert_close(&seen[at], &alone, &format!("{caches:?}, {logits:?}, token {at}"));
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_and_nothing_is_lost() {
    for caches in ALL {
        let model = model(caches);
        let mut one = decoder(&model);
        read(&mut one, &text(10, 1));
        let control = RunControl::default();
        let too_long = one.read(&text(CONTEXT, 2), &Default::default(), &control);
        assert!(
            matches!(too_long, Err(LlmError::PromptTooLong { tokens: 266, context: CONTEXT })),
            "{caches:?}"
        );
        let unknown = one.read(&[70], &Default::default(), &control);
        assert!(matches!(unknown, Err(LlmError::UnknownToken { token: 70, vocab: 70 })), "{caches:?}");
        let stopped = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
        assert!(matches!(one.read(&text(3, 2), &Default::default(), &stopped), Err(LlmError::Run(_))));
        assert_eq!(one.tokens().len(), 10);
        let scores = read(&mut one, &text(3, 2));
        let fresh = read(&mut decoder(&model), &[text(10, 1), text(3, 2)].concat());
        assert_close(&scores, &fresh, &format!("{caches:?}"));
    }
}

#[test]
fn a_context_is_chosen_where_caches_grow() {
    let open = |caches, context| {
        pteron_llm::Decoder::new(&model(caches), &DecoderOptions { context: Some(context), seed: 0 })
    };
    assert_eq!(open(Caches::Plain, 100).unwrap().context(), Some(100));
    assert!(matches!(open(Caches::Plain, CONTEXT + 1), Err(LlmError::Context { has: CONTEXT, .. })));
    assert_eq!(open(Caches::PlainOffGraph, 1000).unwrap().context(), Some(1000));
    // Up to what the model was made for, where the file says it.
    let model = support::growing(100);
    let open =
        |context| pteron_llm::Decoder::new(&model, &DecoderOptions { context, seed: 0 }).map(|d| d.context());
    assert_eq!(open(None).unwrap(), Some(100));
    assert_eq!(open(Some(CONTEXT)).unwrap(), Some(CONTEXT));
    assert!(matches!(open(Some(CONTEXT + 1)), Err(LlmError::LongContext { longest: CONTEXT, .. })));
}

#[test]
fn a_text_beyond_the_border_of_longrope_is_read_alike_in_one_call_and_in_many() {
    for (backend, kv) in
        [("reference", KvCache::InGraph), ("cpu", KvCache::InGraph), ("cpu", KvCache::OffGraph)]
    {
        let (whole, parts) = (longrope(backend, kv, CONTEXT), longrope(backend, kv, 7));
        let long = text(2 * BORDER, 1);
        let what = |case: &str| format!("{backend}, {kv:?}: {case}");
        let (mut one, mut many) = (decoder(&whole), decoder(&parts));
        assert_close(&read(&mut one, &long), &read(&mut many, &long), &what("a long text"));
        let other = [long.clone(), text(9, 2)].concat();
        assert_eq!(many.begin(&other).unwrap().kept, long.len(), "{}", what("both are long"));
        let fresh = read(&mut decoder(&whole), &other);
        assert_close(&read(&mut many, &other[long.len()..]), &fresh, &what("it goes on"));

        // A short beginning of a long text has other keys than it has alone, and the other way round.
        let short = &long[..BORDER - 2];
        assert_eq!(many.begin(short).unwrap().kept, 0, "{}", what("back to a short text"));
        let fresh = read(&mut decoder(&whole), short);
        assert_close(&read(&mut many, short), &fresh, &what("a short text"));
        assert_eq!(many.begin_at_call(&long).unwrap().kept, 0, "{}", what("on to a long text"));
        let fresh = read(&mut decoder(&whole), &long);
        assert_close(&read(&mut many, &long), &fresh, &what("a text that grew"));

        // What is generated across the border leaves what was read before as it is.
        let (mut one, mut many) = (decoder(&whole), decoder(&parts));
        read(&mut one, short);
        read(&mut many, short);
        for token in text(6, 3) {
            assert_close(&read(&mut one, &[token]), &read(&mut many, &[token]), &what("an answer"));
        }
        assert_eq!(many.begin(short).unwrap().kept, short.len() - 1, "{}", what("the same question"));
    }
}
