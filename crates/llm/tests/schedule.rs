//! Many answers at once: each is what it is alone, nobody waits without end, and what is given up is free at once.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{
    Answer, Event, FinishReason, GenerateOptions, Generation, Handle, LanguageModel, LlmError, Next, Refused,
    Request, Round, ScheduleOptions, Scheduler, Step, Ticket, generate,
};
use pteron_runtime::RunControl;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::{CHUNK, CONTEXT, Caches, decoder, model, models, read, text, tokenizer};

fn options(max_new: usize, seed: u64) -> GenerateOptions {
    GenerateOptions {
        max_new: Some(max_new),
        sampling: SamplerSettings { temperature: 1.0, ..SamplerSettings::default() },
        seed,
        stop: Vec::new(),
        end_tokens: Vec::new(),
    }
}

fn schedule(change: impl FnOnce(&mut ScheduleOptions)) -> ScheduleOptions {
    let mut options = ScheduleOptions::default();
    change(&mut options);
    options
}

fn scheduler(model: &LanguageModel, options: ScheduleOptions) -> (Scheduler, Handle) {
    Scheduler::new(model, Some(&tokenizer()), options).unwrap()
}

/// A request with all that is heard of it.
fn submit(handle: &Handle, request: Request) -> (Ticket, Receiver<Event>) {
    let (sender, receiver) = channel();
    let listener = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    (handle.submit(request, Box::new(listener)).unwrap(), receiver)
}

fn run(scheduler: &mut Scheduler) -> usize {
    let mut rounds = 0;
    while scheduler.run_round() == Round::Worked {
        rounds += 1;
        assert!(rounds < 100_000, "it does not come to an end");
    }
    rounds
}

/// The answers of a request, whose pieces make up their texts, and the tokens that were in the caches.
fn answers(receiver: &Receiver<Event>) -> (Vec<Answer>, usize) {
    let (mut all, mut texts, mut reused) = (Vec::new(), vec![String::new(); 8], 0);
    for event in receiver.try_iter() {
        match event {
            Event::Began { cached } => reused = cached,
            Event::Token { answer, text, .. } => texts[answer] += &text,
            Event::Ended { answer, rest, outcome } => {
                texts[answer] += &rest;
                all.push((answer, outcome.unwrap()));
            }
        }
    }
    all.sort_by_key(|(number, _)| *number);
    for (number, answer) in &all {
        assert_eq!(texts[*number], answer.text);
    }
    (all.into_iter().map(|(_, answer)| answer).collect(), reused)
}

fn alone(model: &LanguageModel, prompt: &[u32], options: &GenerateOptions) -> Answer {
    let mut show = |_: &str| ControlFlow::Continue(());
    let control = RunControl::default();
    let tokenizer = tokenizer();
    generate(&mut decoder(model), Some(&tokenizer), prompt, options, None, &mut show, &control).unwrap()
}

#[test]
fn each_of_many_gets_what_it_gets_alone() {
    for (name, model) in models() {
        let (mut scheduler, handle) = scheduler(&model, schedule(|options| options.parallel = 3));
        // More than there are lanes, prompts of one call and of many, answers of all lengths.
        let asked: Vec<_> = (0..7).map(|at| (text(1 + 7 * at, at), options(3 + 5 * at, at as u64))).collect();
        let heard: Vec<_> = asked
            .iter()
            .map(|(prompt, options)| submit(&handle, Request::new(prompt.clone(), options.clone())))
            .collect();
        run(&mut scheduler);
        for ((_, receiver), (prompt, options)) in heard.iter().zip(&asked) {
            let (found, _) = answers(receiver);
            let wanted = alone(&model, prompt, options);
            assert_eq!(found[0].tokens, wanted.tokens, "{name}");
            assert_eq!((&found[0].text, found[0].finish_reason), (&wanted.text, wanted.finish_reason));
            assert_eq!(found[0].stats.prompt_tokens, prompt.len());
        }
        let counts = handle.counts();
        assert_eq!((counts.running, counts.waiting, counts.requests), (0, 0, 7), "{name}");
    }
}

#[test]
fn several_answers_to_one_prompt_read_it_once() {
    for (name, model) in models() {
        let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
        let prompt = text(5 * CHUNK, 3);
        let request = Request { answers: 4, ..Request::new(prompt.clone(), options(6, 11)) };
        let (_, receiver) = submit(&handle, request);
        let rounds = run(&mut scheduler);
        // Five calls for the prompt, the last of which gives each answer its first token.
        assert_eq!(rounds, 5 + 5, "{name}");
        let (found, _) = answers(&receiver);
        let wanted: Vec<_> = (11..15).map(|seed| alone(&model, &prompt, &options(6, seed)).tokens).collect();
        assert_eq!(found.into_iter().map(|answer| answer.tokens).collect::<Vec<_>>(), wanted, "{name}");
        assert_eq!(handle.counts().prompt_tokens, prompt.len() as u64);
    }
}

#[test]
fn what_an_earlier_prompt_left_in_the_caches_is_not_read_again() {
    for (name, model) in models() {
        let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
        let system = text(6 * CHUNK, 1);
        let prompts = [text(9, 2), text(9, 5), text(9, 2)].map(|rest| [system.clone(), rest].concat());
        let mut cached = Vec::new();
        for prompt in &prompts {
            let (_, receiver) = submit(&handle, Request::new(prompt.clone(), options(4, 1)));
            run(&mut scheduler);
            let (found, reused) = answers(&receiver);
            assert_eq!(found[0].tokens, alone(&model, prompt, &options(4, 1)).tokens, "{name}");
            assert_eq!(found[0].stats.reused_tokens, reused, "{name}");
            cached.push(reused);
        }
        // Rings lose what lies before their window; where they do not, the second prompt takes nothing from the first.
        if name.starts_with("Plain") {
            assert_eq!(cached, [0, system.len(), system.len() + CHUNK], "{name}");
        }
        assert_eq!(handle.counts().cached_tokens, cached.iter().sum::<usize>() as u64);
    }
}

#[test]
fn a_prompt_that_others_are_answered_from_is_shared_while_they_are() {
    let model = model(Caches::PlainOffGraph);
    let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
    let system = text(6 * CHUNK, 1);
    let (_, first) = submit(&handle, Request::new([&system[..], &text(9, 2)].concat(), options(50, 1)));
    (0..10).for_each(|_| assert_eq!(scheduler.run_round(), Round::Worked));
    let (_, second) = submit(&handle, Request::new([&system[..], &text(9, 5)].concat(), options(5, 1)));
    run(&mut scheduler);
    assert_eq!((answers(&first).1, answers(&second).1), (0, system.len()));
}

#[test]
fn a_long_prompt_holds_nobody_up() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
    let (_, first) = submit(&handle, Request::new(text(3, 1), options(60, 1)));
    scheduler.run_round();
    first.try_iter().for_each(drop);
    let (_, second) = submit(&handle, Request::new(text(20 * CHUNK, 2), options(1, 1)));
    for round in 0..20 {
        assert!(second.try_iter().all(|event| matches!(event, Event::Began { .. })), "round {round}");
        scheduler.run_round();
        let tokens = first.try_iter().filter(|event| matches!(event, Event::Token { .. })).count();
        assert_eq!(tokens, 1, "round {round}");
    }
    assert!(second.try_iter().any(|event| matches!(event, Event::Ended { .. })));
}

#[test]
fn prompts_take_turns_so_that_none_starves() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, schedule(|options| options.parallel = 4));
    let (_, long) = submit(&handle, Request::new(text(20 * CHUNK, 1), options(1, 1)));
    // Short ones without end: one more in every round.
    let mut others = Vec::new();
    for round in 0..100 {
        others.push(submit(&handle, Request::new(text(5, 2 + round % 7), options(1, 1))));
        scheduler.run_round();
        if long.try_iter().any(|event| matches!(event, Event::Ended { .. })) {
            assert!(round < 20 * 4, "after {round} rounds");
            return;
        }
    }
    panic!("the long prompt has not been read");
}

#[test]
fn what_is_given_up_is_free_within_a_round() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, schedule(|options| options.parallel = 2));
    let endless = |seed| Request::new(text(3 * CHUNK, seed), options(200, 1));
    let (by_ticket, first) = submit(&handle, endless(1));
    let (_, by_silence) = submit(&handle, endless(2));
    let (in_queue, third) = submit(&handle, endless(3));
    let (_, fourth) = submit(&handle, endless(4));
    scheduler.run_round();
    assert_eq!((handle.counts().running, handle.counts().waiting), (2, 2));
    by_ticket.cancel();
    in_queue.cancel();
    scheduler.run_round();
    // The one whose prompt is being read is gone, and the one that waited too; the last one took the place.
    assert_eq!((handle.counts().running, handle.counts().waiting), (2, 0));
    let ended = |receiver: &Receiver<Event>| {
        receiver.try_iter().any(|event| match event {
            Event::Ended { outcome, .. } => outcome.unwrap().finish_reason == FinishReason::Cancelled,
            _ => false,
        })
    };
    assert!(ended(&first) && ended(&third) && !ended(&fourth));
    // Who does not listen any more is found out with the next token.
    drop(by_silence);
    (0..8).for_each(|_| assert_eq!(scheduler.run_round(), Round::Worked));
    assert_eq!(handle.counts().running, 1);
    assert_eq!(handle.counts().cancelled, 3);
}

#[test]
fn time_that_is_up_ends_an_answer() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
    let request = Request { deadline: Some(past), ..Request::new(text(3, 1), options(9, 1)) };
    let (_, receiver) = submit(&handle, request);
    run(&mut scheduler);
    let (found, _) = answers(&receiver);
    assert_eq!((found[0].finish_reason, found[0].tokens.len()), (FinishReason::Cancelled, 0));
    assert_eq!(found[0].stats.prefilled_tokens(), 0);
}

#[test]
fn an_answer_that_fails_leaves_the_others_alone() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, ScheduleOptions::default());
    let (_, good) = submit(&handle, Request::new(text(9, 1), options(9, 1)));
    let broken = Request { bias: vec![(3, f32::NAN)], answers: 2, ..Request::new(text(9, 2), options(9, 1)) };
    let (_, bad) = submit(&handle, broken);
    run(&mut scheduler);
    assert_eq!(answers(&good).0[0].tokens, alone(&model, &text(9, 1), &options(9, 1)).tokens);
    let failed = bad.try_iter().filter(|event| {
        matches!(event, Event::Ended { outcome: Err(error), .. } if error.to_string().contains("token 3"))
    });
    assert_eq!(failed.count(), 2);
    assert_eq!((handle.counts().failed, handle.counts().running), (2, 0));
}

#[test]
fn memory_is_set_aside_before_an_answer_begins() {
    let model = model(Caches::Plain);
    let bytes = model.program().state_bytes();
    let (mut one_at_once, handle) = scheduler(&model, schedule(|options| options.memory = bytes * 3 / 2));
    let heard: Vec<_> =
        (0..3).map(|seed| submit(&handle, Request::new(text(9, seed), options(5, 1)))).collect();
    while one_at_once.run_round() == Round::Worked {
        let counts = handle.counts();
        assert!(counts.running <= 1 && counts.reserved_bytes <= bytes, "{counts:?}");
    }
    for (seed, (_, receiver)) in heard.iter().enumerate() {
        assert_eq!(answers(receiver).0[0].tokens, alone(&model, &text(9, seed), &options(5, 1)).tokens);
    }
    let (_too_small, handle) = scheduler(&model, schedule(|options| options.memory = bytes / 2));
    let refused = handle.submit(Request::new(text(9, 1), options(5, 1)), deaf());
    assert!(matches!(refused, Err(Refused::Request(LlmError::TooLarge { .. }))), "{refused:?}");
}

fn deaf() -> Box<dyn FnMut(Event) -> ControlFlow<()> + Send> {
    Box::new(|_| ControlFlow::Continue(()))
}

#[test]
fn what_cannot_be_answered_is_refused_at_the_door() {
    let model = model(Caches::Plain);
    let (mut scheduler, handle) = scheduler(&model, schedule(|options| options.queue = 2));
    let request = || Request::new(text(9, 1), options(5, 1));
    let refused = |request: Request| match handle.submit(request, deaf()) {
        Err(Refused::Request(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let long = refused(Request { prompt: text(CONTEXT, 1), ..request() });
    assert!(long.contains("leaves no room"), "{long}");
    assert!(refused(Request { prompt: Vec::new(), ..request() }).contains("empty"));
    assert!(refused(Request { prompt: vec![1 << 20], ..request() }).contains("vocabulary"));
    assert!(refused(Request { answers: 9, ..request() }).contains("9 answers"));
    let hot = GenerateOptions {
        sampling: SamplerSettings { temperature: -1.0, ..SamplerSettings::default() },
        ..options(5, 1)
    };
    assert!(refused(Request { options: hot, ..request() }).contains("temperature"));
    let (_, first) = submit(&handle, request());
    let (_, second) = submit(&handle, request());
    let full = handle.submit(request(), deaf());
    assert!(matches!(full, Err(Refused::Full { waiting: 2 })), "{full:?}");
    // What is there is answered, and nothing else.
    handle.drain();
    assert!(matches!(handle.submit(request(), deaf()), Err(Refused::Closed)));
    run(&mut scheduler);
    assert_eq!(scheduler.run_round(), Round::Drained);
    assert_eq!(answers(&first).0[0].tokens, answers(&second).0[0].tokens);
    drop(scheduler);
    assert!(matches!(handle.submit(request(), deaf()), Err(Refused::Closed)));
}

#[test]
fn a_thread_of_its_own_answers_and_ends_when_it_is_drained() {
    let model = model(Caches::OffGraph);
    let (scheduler, handle) = scheduler(&model, ScheduleOptions::default());
    let thread = scheduler.spawn().unwrap();
    let (_, receiver) = submit(&handle, Request::new(text(9, 1), options(5, 1)));
    let ended = receiver.iter().find_map(|event| match event {
        Event::Ended { outcome, .. } => Some(outcome.unwrap()),
        _ => None,
    });
    assert_eq!(ended.unwrap().tokens, alone(&model, &text(9, 1), &options(5, 1)).tokens);
    handle.drain();
    thread.join().unwrap();
}

#[test]
fn likelihoods_are_the_models_own_and_biases_choose() {
    let model = model(Caches::Plain);
    let prompt = text(9, 1);
    let scores = read(&mut decoder(&model), &prompt);
    let sum: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
    let log = |token: u32| f64::from(scores[token as usize]) - sum.ln();
    let greedy = GenerateOptions { sampling: SamplerSettings::greedy(), ..options(1, 1) };
    let first = |bias: Vec<(u32, f32)>| {
        let generation = Generation::new(&model, None, &prompt, Some(CONTEXT), &greedy).unwrap();
        let mut generation = generation.biased(bias).unwrap().told_likelihoods(Some(5)).unwrap();
        let step = generation.take(Next::Scores(&mut scores.clone())).unwrap();
        assert_eq!(step, Step::End(FinishReason::Length));
        generation.likelihood().unwrap()
    };
    let plain = first(Vec::new());
    assert_eq!(plain.token, plain.likeliest[0].0);
    let pushed = first(vec![(7, 100.0)]);
    assert_eq!((pushed.token, &pushed.likeliest), (7, &plain.likeliest));
    for told in [plain, pushed] {
        assert!((f64::from(told.log_probability) - log(told.token)).abs() < 1e-5);
    }
}
