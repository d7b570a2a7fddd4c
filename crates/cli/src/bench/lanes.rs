//! Decoding in several sessions at once: tokens a second of all of them together.

use super::decoder::text;
use super::figures::Figures;
use super::measure::{Plan, WARM_UP};
use crate::failure::Failure;
use pteron_llm::{Decoder, DecoderOptions, Draw, LanguageModel, Next, Reading};
use pteron_runtime::RunControl;
use serde::Serialize;
use std::time::Instant;

/// Decoding with so many lanes from a depth on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lanes {
    /// Sessions at once.
    pub(crate) lanes: usize,
    /// Positions that were full in each when it began.
    pub(crate) context: usize,
    /// How many tokens each decodes.
    pub(crate) tokens: usize,
    /// Tokens a second, of all lanes together.
    pub(crate) tok_s: Figures,
    /// Bytes that all sessions hold.
    pub(crate) state_bytes: u64,
    /// Bytes that runs compute in.
    pub(crate) run_bytes: u64,
}

/// Measures every number of lanes at every depth.
pub(crate) fn measure(
    model: &LanguageModel,
    plan: &Plan,
    numbers: &[usize],
    mut done: impl FnMut(),
) -> Result<Vec<Lanes>, Failure> {
    let mut all = Vec::new();
    for &depth in plan.depths.iter().filter(|_| plan.new > 0) {
        let mut first = Decoder::new(model, &DecoderOptions::default())?;
        if depth > 0 {
            first.read(&text(model, depth), &Draw::default(), &RunControl::default())?;
        }
        for &lanes in numbers {
            let fresh = || (0..lanes).map(|_| first.fork()).collect::<Result<Vec<_>, _>>();
            let mut speeds = Vec::new();
            let warming = Instant::now();
            let mut decoders = fresh()?;
            decode(model, &mut decoders, plan.new)?;
            while warming.elapsed() < WARM_UP {
                decoders = fresh()?;
                decode(model, &mut decoders, plan.new)?;
            }
            for _ in 0..plan.repeats {
                decoders = fresh()?;
                // The first token copies what forks share, which sessions of their own would not have to.
                let copies = usize::from(plan.new > 1);
                decode(model, &mut decoders, copies)?;
                let start = Instant::now();
                decode(model, &mut decoders, plan.new - copies)?;
                let tokens = lanes * (plan.new - copies);
                speeds.push(tokens as f64 / start.elapsed().as_secs_f64());
                done();
            }
            let state_bytes = decoders.iter().map(Decoder::bytes).sum();
            let run_bytes = model.program().memory().run_bytes;
            all.extend(Figures::of(speeds).map(|tok_s| Lanes {
                lanes,
                context: depth,
                tokens: plan.new,
                tok_s,
                state_bytes,
                run_bytes,
            }));
        }
    }
    Ok(all)
}

/// Goes on with so many tokens in every lane.
fn decode(model: &LanguageModel, decoders: &mut [Decoder], count: usize) -> Result<(), Failure> {
    let (draw, control) = (Draw::default(), RunControl::default());
    let ids = model.vocab().map_or(32, |vocab| vocab.min(1000)).max(2) as u32;
    let mut tokens: Vec<[u32; 1]> = (0..decoders.len() as u32).map(|lane| [lane % ids]).collect();
    for _ in 0..count {
        let each = decoders.iter_mut().zip(&tokens);
        let mut readings: Vec<Reading<'_>> =
            each.map(|(decoder, token)| Reading::new(decoder, token, &draw, &control)).collect();
        Decoder::read_together(&mut readings);
        let next = readings.into_iter().map(|reading| match reading.finish()? {
            Next::Token(token) => Ok(token % ids),
            // Any token will do for timing, as on the peer's side.
            Next::Scores(scores) => {
                Ok((scores.first().map_or(0.0, |score| score.abs()) * 1000.0) as u32 % ids)
            }
        });
        let next = next.collect::<Result<Vec<u32>, Failure>>()?;
        tokens.iter_mut().zip(next).for_each(|(token, next)| token[0] = next);
    }
    Ok(())
}
