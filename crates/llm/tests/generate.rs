//! What ends an answer, what is shown of it, and what is counted.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{Answer, FinishReason, GenerateOptions, LlmError, generate};
use pteron_runtime::RunControl;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use support::{CONTEXT, Caches, decoder, model, text, tokenizer};

fn options() -> GenerateOptions {
    GenerateOptions {
        max_new: None,
        sampling: SamplerSettings { temperature: 1.0, ..SamplerSettings::default() },
        seed: 3,
        stop: Vec::new(),
        end_tokens: Vec::new(),
    }
}

/// The answer to a prompt of ten tokens, with the pieces that were shown.
fn answer(options: &GenerateOptions) -> (Answer, Vec<String>) {
    let (model, mut pieces) = (model(Caches::Plain), Vec::new());
    let mut show = |piece: &str| {
        pieces.push(piece.to_owned());
        ControlFlow::Continue(())
    };
    let mut decoder = decoder(&model);
    let control = RunControl::default();
    let answer =
        generate(&mut decoder, Some(&tokenizer()), &text(10, 1), options, None, &mut show, &control).unwrap();
    assert_eq!(answer.text, pieces.concat());
    assert_eq!(answer.stats.generated_tokens, answer.tokens.len());
    (answer, pieces)
}

#[test]
fn without_a_bound_the_context_is_the_bound() {
    let (all, _) = answer(&options());
    assert_eq!((all.tokens.len(), all.finish_reason), (CONTEXT - 10, FinishReason::Length));
    let (some, _) = answer(&GenerateOptions { max_new: Some(9), ..options() });
    assert_eq!((some.tokens.as_slice(), some.finish_reason), (&all.tokens[..9], FinishReason::Length));
    let (none, pieces) = answer(&GenerateOptions { max_new: Some(0), ..options() });
    assert_eq!((none.tokens.len(), none.finish_reason, pieces.len()), (0, FinishReason::Length, 0));
}

#[test]
fn an_end_token_is_no_part_of_the_answer_even_if_it_comes_first() {
    let (all, _) = answer(&GenerateOptions { max_new: Some(20), ..options() });
    let first = all.tokens[0];
    let (empty, _) = answer(&GenerateOptions { end_tokens: vec![first], ..options() });
    assert_eq!((empty.tokens.len(), empty.finish_reason), (0, FinishReason::Stop));
    assert_eq!(empty.text, "");
    let other = *all.tokens.iter().find(|&&token| token != first).unwrap();
    let at = all.tokens.iter().position(|&token| token == other).unwrap();
    let (cut, _) = answer(&GenerateOptions { end_tokens: vec![other], ..options() });
    assert_eq!((cut.tokens.as_slice(), cut.finish_reason), (&all.tokens[..at], FinishReason::Stop));
}

#[test]
fn a_stop_string_is_never_shown_in_part() {
    let (all, _) = answer(&GenerateOptions { max_new: Some(30), ..options() });
    let plain: String = all.text.chars().take(12).collect();
    let stop: String = plain.chars().skip(6).take(3).collect();
    let (cut, pieces) = answer(&GenerateOptions { stop: vec![stop.clone()], ..options() });
    assert_eq!(cut.finish_reason, FinishReason::Stop);
    assert_eq!(cut.text, all.text[..all.text.find(&stop).unwrap()]);
    assert!(!pieces.concat().contains(&stop));
}

#[test]
fn the_same_seed_gives_the_same_answer_and_zero_the_most_likely() {
    let bounded = GenerateOptions { max_new: Some(20), ..options() };
    assert_eq!(answer(&bounded).0.tokens, answer(&bounded).0.tokens);
    assert_ne!(answer(&bounded).0.tokens, answer(&GenerateOptions { seed: 4, ..bounded.clone() }).0.tokens);
    let greedy =
        |seed| answer(&GenerateOptions { sampling: SamplerSettings::greedy(), seed, ..bounded.clone() }).0;
    assert_eq!(greedy(1).tokens, greedy(2).tokens);
}

#[test]
fn a_cancelled_run_keeps_what_was_said() {
    let model = model(Caches::Plain);
    let cancel = Arc::new(AtomicBool::new(false));
    let control = RunControl { cancel: Some(cancel.clone()), ..RunControl::default() };
    let mut show = |_: &str| {
        cancel.store(true, std::sync::atomic::Ordering::SeqCst);
        ControlFlow::Continue(())
    };
    let mut decoder = decoder(&model);
    let answer =
        generate(&mut decoder, Some(&tokenizer()), &text(10, 1), &options(), None, &mut show, &control)
            .unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert!((1..CONTEXT - 10).contains(&answer.tokens.len()));
}

#[test]
fn prompts_that_leave_no_room_are_refused() {
    let model = model(Caches::Plain);
    let mut show = |_: &str| ControlFlow::Continue(());
    let mut ask = |prompt: &[u32]| {
        generate(&mut decoder(&model), None, prompt, &options(), None, &mut show, &RunControl::default())
    };
    assert!(matches!(ask(&text(CONTEXT, 1)), Err(LlmError::PromptTooLong { tokens: CONTEXT, .. })));
    assert!(matches!(ask(&[]), Err(LlmError::EmptyPrompt)));
    assert_eq!(ask(&text(CONTEXT - 1, 1)).unwrap().tokens.len(), 1);
}

#[test]
fn a_prompt_that_is_interrupted_counts_only_what_was_read() {
    let model = model(Caches::Plain);
    let cancel = Arc::new(AtomicBool::new(true));
    let control = RunControl { cancel: Some(cancel), ..RunControl::default() };
    let mut show = |_: &str| ControlFlow::Continue(());
    let mut decoder = decoder(&model);
    let answer =
        generate(&mut decoder, Some(&tokenizer()), &text(100, 1), &options(), None, &mut show, &control)
            .unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert_eq!(answer.stats.prefilled_tokens(), decoder.tokens().len());
    assert!(answer.stats.prefilled_tokens() < 100, "{:?}", answer.stats);
    assert!(answer.stats.summary().contains(" of 100 tokens read"), "{}", answer.stats.summary());
}

#[test]
fn frequency_and_presence_count_the_answer_and_repetition_the_prompt_too() {
    let model = model(Caches::Plain);
    let first = |prompt: &[u32], sampling: SamplerSettings| {
        let options = GenerateOptions { max_new: Some(1), sampling, ..options() };
        let mut show = |_: &str| ControlFlow::Continue(());
        let control = RunControl::default();
        generate(&mut decoder(&model), None, prompt, &options, None, &mut show, &control).unwrap().tokens
    };
    let greedy = SamplerSettings::greedy();
    // A prompt that holds what follows it, and few of all tokens: were it counted, another token would follow.
    let mut prompts = (0..100).map(|seed| text(12, seed));
    let prompt = prompts.find(|prompt| prompt.contains(&first(prompt, greedy.clone())[0])).unwrap();
    let plain = first(&prompt, greedy.clone());
    let said = SamplerSettings { frequency_penalty: 50.0, presence_penalty: 50.0, ..greedy.clone() };
    assert_eq!(first(&prompt, said.clone()), plain);
    assert_ne!(first(&prompt, SamplerSettings { repetition_penalty: 1e4, ..greedy }), plain);
    // Once said, a token is penalised.
    let options = GenerateOptions { max_new: Some(20), sampling: said, ..options() };
    let mut show = |_: &str| ControlFlow::Continue(());
    let control = RunControl::default();
    let prompt: Vec<u32> = (0..70).collect();
    let answer = generate(&mut decoder(&model), None, &prompt, &options, None, &mut show, &control).unwrap();
    let different: std::collections::BTreeSet<u32> = answer.tokens.iter().copied().collect();
    assert_eq!(different.len(), 20, "{:?}", answer.tokens);
}
