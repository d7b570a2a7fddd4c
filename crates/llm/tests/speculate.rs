//! Answers with guesses are those without: token by token where the same tokens are likeliest or drawn with the same numbers,
//! and in their distribution; and what the caches hold afterwards is the same.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::constrain::Constraint;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{
    Answer, Decoder, FinishReason, GenerateOptions, LanguageModel, LlmError, NoSpeculation, Speculator,
    generate,
};
use pteron_models::{KvCache, Logits};
use pteron_runtime::RunControl;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{ALL, BORDER, CONTEXT, Caches, asked, decoder, longrope, model_with, read, text, tokenizer};

/// Who guesses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Nobody,
    Auto,
    Lookup,
    /// A model with other weights.
    Draft,
    /// The model itself, which is right wherever its numbers are the same.
    Itself,
}

const GUESSERS: [Who; 4] = [Who::Auto, Who::Lookup, Who::Draft, Who::Itself];

fn guessing(model: &LanguageModel, who: Who) -> Decoder {
    let mut one = decoder(model);
    let draft = |model: &LanguageModel| Speculator::draft(decoder(model), None).unwrap();
    one.set_speculator(match who {
        Who::Nobody => None,
        Who::Auto => Some(Speculator::auto()),
        Who::Lookup => Some(Speculator::lookup()),
        Who::Draft => Some(draft(&asked(Caches::Plain, "cpu", 8))),
        Who::Itself => Some(draft(model)),
    });
    one
}

fn greedy(max_new: usize) -> GenerateOptions {
    GenerateOptions {
        max_new: Some(max_new),
        sampling: SamplerSettings::greedy(),
        seed: 3,
        stop: Vec::new(),
        end_tokens: Vec::new(),
    }
}

fn drawn(max_new: usize, seed: u64) -> GenerateOptions {
    let sampling = SamplerSettings { temperature: 0.8, top_k: 12, ..SamplerSettings::default() };
    GenerateOptions { sampling, seed, ..greedy(max_new) }
}

/// An answer with what was shown of it, piece by piece.
fn answer(
    decoder: &mut Decoder,
    prompt: &[u32],
    options: &GenerateOptions,
    constraint: Option<&mut Constraint>,
) -> (Answer, Vec<String>) {
    let mut pieces = Vec::new();
    let mut show = |piece: &str| {
        pieces.push(piece.to_owned());
        ControlFlow::Continue(())
    };
    let (tokenizer, control) = (tokenizer(), RunControl::default());
    let answer =
        generate(decoder, Some(&tokenizer), prompt, options, constraint, &mut show, &control).unwrap();
    (answer, pieces)
}

/// A text in which the same words come again and again.
fn repeating(tokens: usize) -> Vec<u32> {
    text(11, 4).into_iter().cycle().take(tokens).collect()
}

/// Holds the answers of all who guess against the one without guesses; how many guesses held of those of each.
fn alike(
    model: &LanguageModel,
    prompt: &[u32],
    options: &GenerateOptions,
    what: &str,
) -> Vec<(usize, usize)> {
    let mut plain = guessing(model, Who::Nobody);
    let (wanted, shown) = answer(&mut plain, prompt, options, None);
    let each = GUESSERS.into_iter().map(|who| {
        let mut one = guessing(model, who);
        let (found, pieces) = answer(&mut one, prompt, options, None);
        let what = format!("{what}, {who:?}");
        assert_eq!(found.tokens, wanted.tokens, "{what}");
        assert_eq!((&found.text, found.finish_reason), (&wanted.text, wanted.finish_reason), "{what}");
        assert_eq!((pieces, &found.stop), (shown.clone(), &wanted.stop), "{what}");
        assert_eq!(one.tokens(), plain.tokens(), "{what}");
        // What the caches hold: the same text goes on in the same way.
        if plain.room() >= 2 {
            let (a, b) = (read(&mut one, &[5, 9]), read(&mut plain.fork().unwrap(), &[5, 9]));
            let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-4, "{what}: {apart} apart");
        }
        (found.stats.accepted_tokens, found.stats.guessed_tokens)
    });
    each.collect()
}

#[test]
fn greedy_answers_are_the_same_over_all_caches_and_backends() {
    let mut held = [0; GUESSERS.len()];
    for (backend, tokens) in [("reference", 30), ("cpu", 90)] {
        // What is made of all tokens so far cannot be taken back, so that nothing is guessed there.
        for caches in ALL.into_iter().filter(|caches| !matches!(caches, Caches::States | Caches::Delta)) {
            let model = asked(caches, backend, 7);
            for prompt in [text(20, 1), repeating(40)] {
                let what = format!("{caches:?} on {backend}");
                let counts = alike(&model, &prompt, &greedy(tokens), &what);
                held.iter_mut().zip(counts).for_each(|(sum, (right, _))| *sum += right);
            }
        }
    }
    // Each of them was right at times, or nothing was shown here.
    assert!(held.iter().all(|&right| right > 0), "{held:?}");
    assert!(held[3] > 400, "{held:?}");
}

#[test]
fn drawn_answers_are_the_same_with_the_same_seed() {
    let model = asked(Caches::Plain, "cpu", 7);
    let (mut right, mut guessed) = (0, 0);
    for seed in 0..6 {
        for settings in [
            SamplerSettings { temperature: 0.6, ..SamplerSettings::default() },
            SamplerSettings { temperature: 0.9, top_p: 0.8, min_p: 0.02, ..SamplerSettings::default() },
            SamplerSettings { temperature: 0.7, repetition_penalty: 1.3, ..SamplerSettings::default() },
            SamplerSettings { frequency_penalty: 0.4, presence_penalty: 0.3, ..SamplerSettings::greedy() },
        ] {
            let options = GenerateOptions { sampling: settings, seed, ..greedy(60) };
            for counts in alike(&model, &repeating(40), &options, &format!("{:?}", options.sampling)) {
                right += counts.0;
                guessed += counts.1;
            }
        }
    }
    assert!(0 < right && right < guessed, "{right} of {guessed}");
}

#[test]
fn what_ends_an_answer_ends_it_in_the_middle_of_a_call() {
    let model = asked(Caches::PlainOffGraph, "cpu", 7);
    let prompt = repeating(40);
    for most in 0..30 {
        alike(&model, &prompt, &greedy(most), &format!("{most} tokens"));
    }
    let (whole, _) = answer(&mut guessing(&model, Who::Nobody), &prompt, &greedy(40), None);
    let letters: Vec<char> = whole.text.chars().collect();
    for at in 0..24 {
        let stop: String = letters[at..at + 3].iter().collect();
        let stopped = GenerateOptions { stop: vec![stop.clone()], ..greedy(40) };
        alike(&model, &prompt, &stopped, &format!("stop {stop:?}"));
        let ended = GenerateOptions { end_tokens: vec![whole.tokens[at]], ..greedy(40) };
        alike(&model, &prompt, &ended, &format!("end token {at}"));
    }
    // The context is full.
    let long = repeating(CONTEXT - 9);
    let open = GenerateOptions { max_new: None, ..greedy(0) };
    alike(&model, &long, &open, "to the end of the context");
}

#[test]
fn an_answer_that_is_stopped_holds_what_was_shown_until_then() {
    let model = asked(Caches::Plain, "cpu", 7);
    let prompt = repeating(40);
    for after in 1..12 {
        for by_flag in [false, true] {
            let stopped = |who| {
                let mut one = guessing(&model, who);
                let flag = Arc::new(AtomicBool::new(false));
                let control = RunControl { cancel: Some(flag.clone()), ..RunControl::default() };
                let mut pieces = 0;
                let mut show = |_: &str| {
                    pieces += 1;
                    match pieces < after {
                        true => ControlFlow::Continue(()),
                        false if by_flag => {
                            flag.store(true, Ordering::Relaxed);
                            ControlFlow::Continue(())
                        }
                        false => ControlFlow::Break(()),
                    }
                };
                let tokenizer = tokenizer();
                let options = greedy(60);
                let said = generate(&mut one, Some(&tokenizer), &prompt, &options, None, &mut show, &control)
                    .unwrap();
                assert_eq!(said.finish_reason, FinishReason::Cancelled);
                (said.tokens, said.text, one.tokens().to_vec())
            };
            let wanted = stopped(Who::Nobody);
            for who in GUESSERS {
                assert_eq!(stopped(who), wanted, "{who:?} after {after}, {by_flag}");
            }
        }
    }
}

#[test]
fn a_schema_is_kept_and_the_answer_is_the_same() {
    let model = asked(Caches::Plain, "cpu", 7);
    let schema = serde_json::json!({
        "type": "array", "items": {"enum": ["abcabcabc", "abcabcabd"]}, "minItems": 4, "maxItems": 6
    });
    for options in [greedy(120), drawn(120, 1), drawn(120, 2)] {
        let said = |who| {
            let mut constraint = Constraint::json_schema(&quoting(), &schema).unwrap();
            let mut one = guessing(&model, who);
            let said = answer(&mut one, &repeating(30), &options, Some(&mut constraint)).0;
            (said.tokens, said.finish_reason, constraint.is_done(), said.stats.accepted_tokens)
        };
        let (wanted, finish, done, _) = said(Who::Nobody);
        for who in [Who::Lookup, Who::Draft, Who::Itself] {
            let (tokens, reason, complete, right) = said(who);
            assert_eq!((tokens, reason, complete), (wanted.clone(), finish, done), "{who:?}");
            assert!(who != Who::Lookup || right > 10, "{right} of the guesses were right");
        }
    }
}

/// The letters of the vocabulary as they are, and the marks that JSON needs in the place of others.
fn quoting() -> pteron_llm::tokenizer::Tokenizer {
    use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFormat};
    let mut vocabulary = serde_json::Map::new();
    for (id, letter) in ('a'..='z').chain('A'..='Z').chain("\"[],: 0123".chars()).enumerate() {
        let spelled = if letter == ' ' { "\u{120}".to_owned() } else { letter.to_string() };
        vocabulary.insert(spelled, id.into());
    }
    let level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false
    });
    let end = serde_json::json!({
        "id": 67, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    });
    let file = serde_json::json!({
        "version": "1.0", "added_tokens": [end], "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}
    });
    let tokens = [("eos_token".to_owned(), "<|end|>".to_owned())].into();
    let config = TokenizerConfig { tokens, ..TokenizerConfig::default() };
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

#[test]
fn the_distribution_of_drawn_answers_is_that_without_guesses() {
    const ANSWERS: u64 = 800;
    const TOKENS: usize = 5;
    let model = asked(Caches::Plain, "cpu", 7);
    // What the model says to itself goes round, so that there is something to guess from.
    let prompt = repeating(30);
    let said = answer(&mut guessing(&model, Who::Nobody), &prompt, &greedy(100), None).0.tokens;
    let prompt = [prompt, said].concat();
    // Other seeds for each, so that answers are not the same one by one. Counts of each place's tokens.
    let counts = |who, seeds: std::ops::Range<u64>| {
        let mut one = guessing(&model, who);
        let mut counts = vec![[0u32; support::VOCAB]; TOKENS];
        let mut guessed = 0;
        for seed in seeds {
            let sampling = SamplerSettings { temperature: 0.5, top_k: 5, ..SamplerSettings::default() };
            let said =
                answer(&mut one, &prompt, &GenerateOptions { sampling, seed, ..greedy(TOKENS) }, None).0;
            said.tokens.iter().enumerate().for_each(|(at, &token)| counts[at][token as usize] += 1);
            guessed += said.stats.guessed_tokens;
        }
        assert!(who == Who::Nobody || guessed as u64 > ANSWERS / 2, "{who:?}: {guessed} guesses");
        counts
    };
    let plain = counts(Who::Nobody, 0..ANSWERS);
    for (number, who) in (1..).zip([Who::Lookup, Who::Draft]) {
        let found = counts(who, number * ANSWERS..(number + 1) * ANSWERS);
        for (at, (a, b)) in plain.iter().zip(&found).enumerate() {
            // Tokens that are rare are counted together.
            let (mut cells, mut rest) = (Vec::new(), (0.0, 0.0));
            for (&a, &b) in a.iter().zip(b) {
                let (a, b) = (f64::from(a), f64::from(b));
                if a + b >= 10.0 { cells.push((a, b)) } else { rest = (rest.0 + a, rest.1 + b) }
            }
            if rest.0 + rest.1 >= 10.0 {
                cells.push(rest);
            }
            let chi: f64 = cells.iter().map(|(a, b)| (a - b) * (a - b) / (a + b)).sum();
            let freedom = cells.len() as f64 - 1.0;
            // Beyond four standard deviations of the distribution's own.
            assert!(
                chi <= freedom + 4.0 * (2.0 * freedom).sqrt() + 4.0,
                "{who:?}, token {at}: {chi} of {freedom}"
            );
            assert!(cells.len() > 1, "token {at} is always the same");
        }
    }
}

#[test]
fn no_guess_is_read_across_the_border_of_longrope() {
    for kv in [KvCache::InGraph, KvCache::OffGraph] {
        let model = longrope("cpu", kv, 8);
        assert_eq!(model.can_speculate(), Err(NoSpeculation::LastLogits));
        let model = support::longrope_asked("cpu", kv, 8);
        let prompt = repeating(BORDER - 6);
        let counts = alike(&model, &prompt, &greedy(30), &format!("{kv:?}"));
        assert!(counts.iter().any(|&(right, _)| right > 0), "{counts:?}");
    }
}

#[test]
fn a_program_with_the_last_logits_only_says_why_nothing_is_guessed() {
    let model = model_with(Caches::Plain, Logits::Last, CONTEXT);
    let mut one = decoder(&model);
    one.set_speculator(Some(Speculator::lookup()));
    assert_eq!(one.no_speculation(), Some(NoSpeculation::LastLogits));
    let (said, _) = answer(&mut one, &repeating(40), &greedy(20), None);
    let (wanted, _) = answer(&mut decoder(&model), &repeating(40), &greedy(20), None);
    assert_eq!((said.tokens, said.stats.guessed_tokens), (wanted.tokens, 0));
    let line = said.stats.observer_line();
    assert!(
        line.contains("\"speculation_off\":\"the program gives the logits of the last token only"),
        "{line}"
    );
    assert_eq!(wanted.stats.no_speculation, None);
    // Nothing was asked for, and nothing is told.
    one.set_speculator(None);
    assert_eq!(one.no_speculation(), None);
}

#[test]
fn a_state_of_all_tokens_guesses_for_nobody() {
    for caches in [Caches::States, Caches::Delta] {
        let model = asked(caches, "cpu", 7);
        assert!(Speculator::draft(decoder(&model), None).is_err(), "{caches:?}");
        assert!(model.can_speculate().is_err(), "{caches:?}");
    }
}

#[test]
fn a_draft_with_other_tokens_is_refused_by_the_first_that_differs() {
    let model = asked(Caches::Plain, "cpu", 7);
    let (ours, theirs) = (tokenizer(), quoting());
    assert!(Speculator::draft(decoder(&model), Some((&ours, &ours))).is_ok());
    let refused = Speculator::draft(decoder(&model), Some((&theirs, &ours))).unwrap_err();
    assert!(matches!(refused, LlmError::Draft { .. }), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "tiny.pte cannot guess for this model: it has another tokenizer: token 52 is `\\\"` there and `0` here; take a \
         smaller model of the same family"
    );
}

#[test]
fn auto_gives_up_where_nothing_holds() {
    let model = asked(Caches::Plain, "cpu", 7);
    // Nearly all tokens are alike likely, so that what came before says nothing.
    let sampling = SamplerSettings { temperature: 50.0, ..SamplerSettings::default() };
    let options = GenerateOptions { sampling, ..greedy(200) };
    let prompt = repeating(40);
    let mut one = guessing(&model, Who::Auto);
    let said = answer(&mut one, &prompt, &options, None).0;
    assert!(said.stats.guessed_tokens <= 20, "{}", said.stats.guessed_tokens);
    assert_eq!(said.tokens, answer(&mut decoder(&model), &prompt, &options, None).0.tokens);
}

#[test]
fn a_fork_guesses_for_itself() {
    let model = asked(Caches::Ring, "cpu", 7);
    for who in GUESSERS {
        let mut one = guessing(&model, who);
        let first = answer(&mut one, &repeating(40), &greedy(20), None).0;
        let longer = [repeating(40), first.tokens.clone(), text(5, 2)].concat();
        let mut fork = one.fork().unwrap();
        let wanted = answer(&mut decoder(&model), &longer, &greedy(30), None).0.tokens;
        assert_eq!(answer(&mut fork, &longer, &greedy(30), None).0.tokens, wanted, "{who:?}");
        assert_eq!(answer(&mut one, &longer, &greedy(30), None).0.tokens, wanted, "{who:?}");
    }
}
