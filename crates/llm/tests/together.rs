//! Decoders that read together give what each gives alone, for every kind of cache.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod support;

use pteron_llm::{Decoder, Draw, LlmError, Next, Reading};
use pteron_models::KvCache;
use pteron_runtime::RunControl;
use support::{BORDER, decoder, longrope, models, read, text};

/// Reads with all of them, each its own text; scores, or why there are none.
fn read_all(decoders: &mut [Decoder], texts: &[Vec<u32>]) -> Vec<Result<Vec<f32>, LlmError>> {
    let (draw, control) = (Draw::default(), RunControl::default());
    let each = decoders.iter_mut().zip(texts);
    let mut readings: Vec<_> =
        each.map(|(decoder, tokens)| Reading::new(decoder, tokens, &draw, &control)).collect();
    Decoder::read_together(&mut readings);
    let scores = readings.into_iter().map(|reading| {
        reading.finish().map(|next| match next {
            Next::Scores(scores) => scores.clone(),
            Next::Token(token) => panic!("token {token} where scores were wanted"),
        })
    });
    scores.collect()
}

#[test]
fn decoders_together_give_what_each_gives_alone() {
    const LANES: usize = 5;
    for (name, model) in models() {
        let mut together: Vec<Decoder> = (0..LANES).map(|_| decoder(&model)).collect();
        let mut alone: Vec<Decoder> = (0..LANES).map(|_| decoder(&model)).collect();
        // Texts of several calls and of none, then tokens one by one.
        for round in 0..4 {
            let length = |lane: usize| if round == 0 { 1 + 5 * lane } else { 1 + usize::from(lane == round) };
            let texts: Vec<Vec<u32>> = (0..LANES).map(|lane| text(length(lane), lane + round)).collect();
            let scores = read_all(&mut together, &texts);
            for (lane, scores) in scores.into_iter().enumerate() {
                assert_eq!(scores.unwrap(), read(&mut alone[lane], &texts[lane]), "{name}: lane {lane}");
                assert_eq!(together[lane].tokens(), alone[lane].tokens(), "{name}: lane {lane}");
            }
        }
        // One that asks for what there is not leaves the others alone.
        let mut texts: Vec<Vec<u32>> = (0..LANES).map(|lane| text(1, lane)).collect();
        texts[1] = vec![1 << 20];
        texts[2] = Vec::new();
        let scores = read_all(&mut together, &texts);
        assert!(matches!(scores[1], Err(LlmError::UnknownToken { .. })), "{name}: {:?}", scores[1]);
        assert!(matches!(scores[2], Err(LlmError::EmptyPrompt)), "{name}: {:?}", scores[2]);
        for lane in [0, 3, 4] {
            let scores = scores[lane].as_ref().unwrap();
            assert_eq!(*scores, read(&mut alone[lane], &texts[lane]), "{name}: lane {lane}");
        }
        assert_eq!(together[1].tokens(), alone[1].tokens(), "{name}");
    }
}

/// A model with longrope is told how long a text is before it reads the first part of it, together with others too.
#[test]
fn texts_of_many_calls_are_told_their_length_together() {
    for kv in [KvCache::InGraph, KvCache::OffGraph] {
        let model = longrope("cpu", kv, 7);
        let texts = [text(BORDER + 6, 1), text(BORDER - 1, 2), text(BORDER + 2, 3)];
        let mut together: Vec<Decoder> = texts.iter().map(|_| decoder(&model)).collect();
        for ((scores, tokens), lane) in read_all(&mut together, &texts).into_iter().zip(&texts).zip(0..) {
            assert_eq!(scores.unwrap(), read(&mut decoder(&model), tokens), "{kv:?}, lane {lane}");
        }
    }
}
