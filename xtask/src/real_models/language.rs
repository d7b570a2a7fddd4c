//! One language model against its reference: logits of prompts, greedy continuations, perplexity, and how far a fast run
//! is from an exact one.

use std::path::Path;

use pteron_llm::tokenizer::Ends;
use pteron_llm::{Decoder, Draw, Next, Perplexity};
use pteron_runtime::{Precision, RunControl};
use serde::Serialize;

use super::reference::{Expected, Logits, Plan, Prompt, Reference};
use crate::error::{Error, Result};
use crate::language::{Language, export, said};

/// The least cosine of any token's logits with the reference's.
const LEAST_COSINE: f64 = 0.9999;

/// How far perplexity may be from the reference's, as a share.
const PERPLEXITY_SHARE: f64 = 0.005;

/// Tokens over which fast is compared with exact, and what may come of it.
const FAST_TOKENS: usize = 2000;
const FAST_DIVERGENCE: f64 = 0.005;
const FAST_SHARE: f64 = 0.01;

/// What was measured.
#[derive(Serialize)]
pub(super) struct Found {
    prompts: Vec<Compared>,
    reference_perplexity: f64,
    perplexity: f64,
    scored_tokens: usize,
    fast: Fast,
}

/// One prompt.
#[derive(Serialize)]
struct Compared {
    name: String,
    tokens: usize,
    /// Whether our tokenizer gives the reference's tokens.
    same_tokens: bool,
    least_cosine: f64,
    /// The largest difference of a logit.
    largest_difference: f64,
    /// Logits of a token that were compared.
    compared_logits: usize,
    /// Steps of the continuation at which the reference's two best are nearer than the largest difference.
    near_ties: Vec<usize>,
    /// Steps at which another token came that are no near ties.
    other_tokens: Vec<usize>,
}

/// A fast run beside an exact one, of the program that users get by default.
#[derive(Serialize)]
struct Fast {
    exact_perplexity: f64,
    perplexity: f64,
    mean_kl_divergence: f64,
    scored_tokens: usize,
}

pub(super) fn measure(
    pteron: &Path,
    name: &str,
    source: &Path,
    plan: &Plan,
    reference: &Reference,
) -> Result<Found> {
    let common = ["--all-logits", "--context", "2048", "--activations"];
    let program = export(pteron, source, &format!("{name}-f32"), &[&common[..], &["f32"]].concat())?;
    let exact = Language::open(&program, Precision::Exact)?;
    let mut decoder = exact.decoder()?;
    let mut prompts = Vec::new();
    for expected in &reference.figures.prompts {
        let ids = tokens_of(plan.prompt(&expected.name)?, &exact)?;
        let logits = reference.logits.get(&expected.name);
        let logits = logits.ok_or_else(|| Error::message(format!("no logits of {:?}", expected.name)))?;
        prompts.push(compare(&mut decoder, &ids, expected, logits)?);
    }
    let text = plan.text()?;
    let tokens = |language: &Language, most: usize| -> Result<Vec<Vec<u32>>> {
        let mut tokens = language.voice.tokenizer.encode(&text, Ends::None).map_err(said)?;
        tokens.truncate(most);
        let bos = language.voice.leading().map_err(said)?;
        let window = |window: &[u32]| bos.into_iter().chain(window.iter().copied()).collect();
        Ok(tokens.chunks(plan.window).map(window).collect())
    };
    let mut sum = Perplexity::default();
    for window in tokens(&exact, plan.text_tokens)? {
        sum.add(&mut decoder, None, &window, &RunControl::default()).map_err(said)?;
    }
    if sum.scored_tokens != reference.figures.scored_tokens {
        let wanted = reference.figures.scored_tokens;
        return Err(Error::message(format!("{} tokens of the text, not {wanted}", sum.scored_tokens)));
    }

    let program = export(pteron, source, name, &[&common[..], &["bf16"]].concat())?;
    let (exact, fast) =
        (Language::open(&program, Precision::Exact)?, Language::open(&program, Precision::Fast)?);
    let (mut decoder, mut other) = (exact.decoder()?, fast.decoder()?);
    let mut both = Perplexity::default();
    for window in tokens(&exact, FAST_TOKENS)? {
        both.add(&mut decoder, Some(&mut other), &window, &RunControl::default()).map_err(said)?;
    }
    Ok(Found {
        prompts,
        reference_perplexity: reference.figures.perplexity,
        perplexity: sum.perplexity(),
        scored_tokens: sum.scored_tokens,
        fast: Fast {
            exact_perplexity: both.perplexity(),
            perplexity: both.other_perplexity(),
            mean_kl_divergence: both.mean_divergence(),
            scored_tokens: both.scored_tokens,
        },
    })
}

/// A prompt as our tokenizer and template give it.
fn tokens_of(prompt: &Prompt, language: &Language) -> Result<Vec<u32>> {
    let voice = &language.voice;
    let mut tokens = match (&prompt.text, &prompt.messages) {
        (Some(text), _) => voice.raw(text).map_err(said)?.tokens,
        (None, Some(messages)) => voice.chat(messages).map_err(said)?.tokens,
        (None, None) => voice.tokenizer.bos().into_iter().collect(),
    };
    tokens.truncate(prompt.tokens.unwrap_or(usize::MAX));
    Ok(tokens)
}

/// Reads the reference's tokens, so that what follows is comparable even where ours differ.
fn compare(decoder: &mut Decoder, ids: &[u32], expected: &Expected, logits: &Logits) -> Result<Compared> {
    let control = RunControl::default();
    let (mut least_cosine, mut largest_difference) = (1.0f64, 0.0f64);
    let mut last = Vec::new();
    decoder.reset().map_err(said)?;
    let columns = logits.columns.len();
    let visit = |at: usize, scores: &[f32]| {
        let wanted = &logits.values[at * columns..(at + 1) * columns];
        // What is no number counts as the worst, also where a column is missing.
        let ours = logits.columns.iter().map(|&column| scores.get(column).copied().unwrap_or(f32::NAN));
        let pairs: Vec<(f64, f64)> =
            ours.zip(wanted).map(|(ours, &wanted)| (f64::from(ours), f64::from(wanted))).collect();
        let cosine = cosine(&pairs);
        least_cosine = if cosine.is_nan() { -1.0 } else { least_cosine.min(cosine) };
        largest_difference = pairs.iter().map(|(a, b)| (a - b).abs()).fold(largest_difference, f64::max);
        last = scores.to_vec();
        Ok(())
    };
    decoder.read_all(&expected.ids, &control, visit).map_err(said)?;

    let (mut near_ties, mut other_tokens) = (Vec::new(), Vec::new());
    for (number, step) in expected.continuation.iter().enumerate() {
        let near = step.logits[0] - step.logits[1] < largest_difference;
        near_ties.extend(near.then_some(number));
        let ours = best(&last);
        if ours != Some(step.token) && !(near && ours == Some(step.second)) {
            other_tokens.push(number);
        }
        let next = decoder.read(&[step.token], &Draw::default(), &control).map_err(said)?;
        match next {
            Next::Scores(scores) => last.clone_from(scores),
            Next::Token(_) => return Err(Error::message("the program gives no logits")),
        }
    }
    Ok(Compared {
        name: expected.name.clone(),
        tokens: expected.ids.len(),
        same_tokens: ids == expected.ids,
        least_cosine,
        largest_difference,
        compared_logits: columns,
        near_ties,
        other_tokens,
    })
}

fn cosine(pairs: &[(f64, f64)]) -> f64 {
    let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    sum(|(a, b)| a * b) / (sum(|(a, _)| a * a) * sum(|(_, b)| b * b)).sqrt()
}

fn best(scores: &[f32]) -> Option<u32> {
    // The first of the largest, as greedy sampling takes it.
    let best = scores.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    best.and_then(|(token, _)| u32::try_from(token).ok())
}

impl Compared {
    fn is_good(&self) -> bool {
        self.same_tokens && self.least_cosine >= LEAST_COSINE && self.other_tokens.is_empty()
    }
}

impl Found {
    pub(super) fn is_good(&self) -> bool {
        self.prompts.iter().all(Compared::is_good)
            && share(self.perplexity, self.reference_perplexity) <= PERPLEXITY_SHARE
            && self.fast.is_good()
    }

    pub(super) fn print(&self) {
        for prompt in &self.prompts {
            let Compared { name, tokens, least_cosine, largest_difference, compared_logits, .. } = prompt;
            println!(
                "  {name}: {tokens} tokens, least cosine {least_cosine:.8} over {compared_logits} logits of each, \
                 largest difference {largest_difference:.5}{}",
                if prompt.is_good() { "" } else { " FAIL" }
            );
            if !prompt.same_tokens {
                println!("    the tokenizer gives other tokens");
            }
            for (what, steps) in
                [("near ties at steps", &prompt.near_ties), ("other tokens at steps", &prompt.other_tokens)]
            {
                if !steps.is_empty() {
                    println!("    {what} {steps:?} of the continuation");
                }
            }
        }
        println!(
            "  perplexity {:.4} over {} tokens; transformers has {:.4}, {:.4} % away",
            self.perplexity,
            self.scored_tokens,
            self.reference_perplexity,
            100.0 * share(self.perplexity, self.reference_perplexity)
        );
        println!(
            "  fast over {} tokens: mean KL divergence {:.5}, perplexity {:.4} where exact has {:.4}",
            self.fast.scored_tokens,
            self.fast.mean_kl_divergence,
            self.fast.perplexity,
            self.fast.exact_perplexity
        );
    }
}

impl Fast {
    fn is_good(&self) -> bool {
        self.mean_kl_divergence <= FAST_DIVERGENCE
            && share(self.perplexity, self.exact_perplexity) <= FAST_SHARE
    }
}

fn share(found: f64, wanted: f64) -> f64 {
    (found / wanted - 1.0).abs()
}
