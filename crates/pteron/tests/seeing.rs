//! Models that see through the facade: tiny Gemma 3s, Gemma 4s, Qwen2.5-VLs and Qwen3-VLs, held to what transformers says behind
//! images (`checkpoint/tests/make_gemma3.py`, `make_gemma4.py`, `make_qwen_vl.py`), and to themselves: what a chat has read, forgotten and read again is as
//! what a new one reads.

#![cfg(feature = "registry")]
#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pteron::{
    Cancel, Chat, ChatOptions, Error, GenerateOptions, Lack, Message, Messages, Model, OpenOptions, Prompt,
    SpecialTokens, Step, WhenFull,
};
use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{Event, Request, Round, ScheduleOptions, Scheduler};
use pteron_runtime::Precision;
use pteron_tensor::DType;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Names of models, and what they are asked: images and texts in turns.
const CASES: [(&str, &[&[&str]]); 8] = [
    ("gemma3", &[&["noise.png", "What is that?"], &["wide.png", "Both?", "grey.png"], &["Nothing to see."]]),
    ("gemma3_other", &[&["grey.png", "palette.png", "Compare."], &["Look:", "alpha.png"]]),
    ("gemma4", &[&["noise.png", "What is that?"], &["wide.png", "Both?", "grey.png"], &["Nothing to see."]]),
    (
        "gemma4_other",
        &[&["grey.png", "palette.png", "Compare."], &["Look:", "alpha.png"], &["thin.png", "Long?"]],
    ),
    (
        "qwen2_5_vl",
        &[&["noise.png", "What is that?"], &["wide.png", "Both?", "grey.png"], &["Nothing to see."]],
    ),
    ("qwen2_5_vl_other", &[&["grey.png", "palette.png", "Compare."], &["Look:", "alpha.png"]]),
    (
        "qwen3_vl",
        &[&["noise.png", "What is that?"], &["wide.png", "Both?", "grey.png"], &["Nothing to see."]],
    ),
    ("qwen3_vl_other", &[&["grey.png", "palette.png", "Compare."], &["Look:", "alpha.png"]]),
];
const EACH: [&str; 5] = ["gemma3", "gemma4", "gemma4_other", "qwen2_5_vl", "qwen3_vl"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data").join(name)
}

fn image(name: &str) -> Vec<u8> {
    std::fs::read(data("images").join(name)).unwrap()
}

/// A model as others compute it.
fn opened(name: &str, batched: bool, context: Option<usize>) -> (TempDir, Model) {
    let checkpoint = Checkpoint::open(&data(name)).unwrap();
    let usual = if batched { ExportOptions::batched() } else { ExportOptions::default() };
    let options = ExportOptions { activations: DType::F32, ..usual };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pte");
    let mut file = std::fs::File::create(&path).unwrap();
    Export::new(&checkpoint, &options).unwrap().write(&mut file, &mut |_| ()).unwrap();
    let options = OpenOptions::default().precision(Precision::Exact);
    let options = context.into_iter().fold(options, OpenOptions::context);
    (folder, Model::open(path.as_path(), options).unwrap())
}

fn expected(name: &str, key: &str) -> Vec<u32> {
    let file = std::fs::read(data(&format!("{name}_expected.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let numbers = file.tensor(key).unwrap().data().as_chunks::<8>().0.to_vec();
    numbers.into_iter().map(|bytes| i64::from_le_bytes(bytes) as u32).collect()
}

/// A question of images and texts in turns.
fn asked(parts: &[&str]) -> Prompt {
    let part = |part: &&str| match part.ends_with(".png") {
        true => {
            let url = format!("data:image/png;base64,{}", BASE64.encode(image(part)));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        false => json!({"type": "text", "text": part}),
    };
    let content: Value = parts.iter().map(part).collect();
    Messages::from_json(json!([{"role": "user", "content": content}])).unwrap().into()
}

fn greedy(tokens: usize) -> GenerateOptions {
    GenerateOptions::default().temperature(0.0).max_tokens(tokens).ignore_end(true)
}

fn chat(model: &Model) -> Chat {
    model.chat(ChatOptions::default().answering(greedy(6))).unwrap()
}

fn send(chat: &mut Chat, images: &[&str], text: &str) -> Vec<u32> {
    images.iter().for_each(|name| chat.show(image(name)).unwrap());
    chat.send(text, |_: &str| ()).unwrap().tokens
}

#[test]
fn answers_are_those_of_transformers() {
    for (name, prompts) in CASES {
        for batched in [false, true] {
            let (_folder, model) = opened(name, batched, None);
            if batched && name.starts_with("qwen") {
                // Positions behind images are shifted, which such programs are not told.
                assert!(!model.sees());
                continue;
            }
            assert!(model.sees());
            for (number, parts) in prompts.iter().enumerate() {
                let what = format!("{name}, {number}, batched: {batched}");
                let options = greedy(24);
                let prompt = model.tokens(asked(parts), &options).unwrap();
                assert_eq!(prompt.tokens, expected(name, &format!("{number}.prompt")), "{what}");
                let wanted = expected(name, &format!("{number}.tokens"));
                let streamed =
                    model.stream(prompt.clone(), &options, &Cancel::default(), |_: &str| ()).unwrap();
                assert_eq!(streamed.tokens, wanted, "{what}");
                // By the scheduler, several in one session and its copies.
                for answer in model.generate(asked(parts), &options.clone().answers(2)).unwrap() {
                    assert_eq!(answer.tokens, wanted, "{what}");
                }
                // A call at a time.
                let mut writing = model.begin(asked(parts), &options).unwrap();
                let stepped = loop {
                    match writing.step(&Cancel::default()).unwrap() {
                        Step::More { rest, .. } => writing = rest,
                        Step::Ended { answer, .. } => break answer,
                    }
                };
                assert_eq!(stepped.tokens, wanted, "{what}");
                // Guesses change nothing.
                let guessing = options.speculate(pteron::Speculate::Lookup);
                let guessed = model.stream(prompt, &guessing, &Cancel::default(), |_: &str| ()).unwrap();
                assert_eq!(guessed.tokens, wanted, "{what}, guessed");
            }
        }
    }
}

#[test]
fn many_at_once_are_each_as_alone() {
    for (name, prompts) in CASES {
        for (batched, chunk) in [(false, 64), (false, 3), (true, 64), (true, 3)] {
            let (_folder, model) = opened(name, batched, None);
            if !model.sees() {
                continue;
            }
            let options = pteron_llm::GenerateOptions {
                max_new: Some(24),
                sampling: SamplerSettings { temperature: 0.0, ..SamplerSettings::default() },
                seed: 0,
                stop: Vec::new(),
                end_tokens: Vec::new(),
            };
            let mut schedule = ScheduleOptions::default();
            schedule.chunk = chunk;
            let (mut scheduler, handle) = Scheduler::new(model.language(), None, schedule).unwrap();
            // All of them twice: the second time much of them is in somebody's caches.
            for _ in 0..2 {
                let (sender, ended) = std::sync::mpsc::channel();
                for (number, parts) in prompts.iter().enumerate() {
                    let prompt = model.tokens(asked(parts), &greedy(1)).unwrap();
                    let mut request = Request::new(prompt.tokens, options.clone());
                    request.images = prompt.images;
                    let sender = sender.clone();
                    let listener = move |event| {
                        if let Event::Ended { outcome, .. } = event {
                            sender.send((number, outcome.unwrap().tokens)).unwrap();
                        }
                        ControlFlow::Continue(())
                    };
                    handle.submit(request, Box::new(listener)).unwrap();
                }
                while scheduler.run_round() == Round::Worked {}
                for (number, tokens) in ended.try_iter() {
                    let wanted = expected(name, &format!("{number}.tokens"));
                    assert_eq!(tokens, wanted, "{name}, {number}, batched: {batched}, by {chunk}");
                }
            }
        }
    }
}

#[test]
fn what_a_chat_has_forgotten_and_read_again_is_as_new() {
    for name in EACH {
        let (_folder, model) = opened(name, false, None);
        let mut first = chat(&model);
        let seen = send(&mut first, &["noise.png"], "What?");
        let more = send(&mut first, &[], "And?");
        assert_eq!(first.history()[0].images().len(), 1);
        assert!(first.history()[2].images().is_empty(), "an image is shown once");

        // Back behind the image, and on with the same words.
        first.undo();
        assert_eq!(send(&mut first, &[], "And?"), more, "{name}");
        // Back before the image, and another one at its place: nothing of the first one is left.
        first.rewind(0);
        let mut fresh = chat(&model);
        let other = send(&mut fresh, &["grey.png"], "What?");
        assert_eq!(send(&mut first, &["grey.png"], "What?"), other, "{name}");
        assert_ne!(other, seen, "{name}");
        assert_eq!(send(&mut first, &[], "And?"), send(&mut fresh, &[], "And?"), "{name}");
        // Without any.
        first.rewind(0);
        assert_eq!(send(&mut first, &[], "What?"), send(&mut chat(&model), &[], "What?"), "{name}");
        // And the first again.
        first.rewind(0);
        assert_eq!(send(&mut first, &["noise.png"], "What?"), seen, "{name}");
        assert_eq!(send(&mut first, &[], "And?"), more, "{name}");

        // A copy goes its own way.
        let mut copy = first.fork().unwrap();
        let here = send(&mut first, &["wide.png"], "Now?");
        assert_eq!(send(&mut copy, &["wide.png"], "Now?"), here, "{name}");
        copy.undo();
        assert_ne!(send(&mut copy, &["alpha.png"], "Now?"), here, "{name}");
    }
}

#[test]
fn the_same_image_at_its_place_is_not_read_again() {
    for name in EACH {
        let (_folder, model) = opened(name, false, None);
        let mut talk = chat(&model);
        send(&mut talk, &["noise.png"], "What?");
        let answer = talk.send("And?", |_: &str| ()).unwrap();
        let image = model.tokens(asked(&["noise.png"]), &greedy(1)).unwrap().images[0].clone();
        assert!(answer.stats.reused_tokens >= image.end(), "{name}: {:?}", answer.stats);
        talk.rewind(0);
        talk.show(std::fs::read(data("images/noise.png")).unwrap()).unwrap();
        let same = talk.send("What?", |_: &str| ()).unwrap();
        talk.rewind(0);
        talk.show(std::fs::read(data("images/turned.jpg")).unwrap()).unwrap();
        let other = talk.send("What?", |_: &str| ()).unwrap();
        assert!(other.stats.reused_tokens <= image.at, "{name}: {:?}", other.stats);
        assert!(same.stats.reused_tokens >= other.stats.reused_tokens, "{name}");
    }
}

#[test]
fn another_answer_is_to_the_same_image() {
    let (_folder, model) = opened("qwen2_5_vl", false, None);
    let mut talk = chat(&model);
    let seen = send(&mut talk, &["noise.png"], "What?");
    talk.show(image("grey.png")).unwrap();
    assert_eq!(talk.regenerate(|_: &str| ()).unwrap().unwrap().tokens, seen);
    assert_eq!(talk.history()[0].images().len(), 1);
    // What was to be shown with the next question still is.
    talk.send("And?", |_: &str| ()).unwrap();
    assert_eq!(talk.history()[2].images()[0][..], image("grey.png"));
}

#[test]
fn conversations_are_kept_with_their_images() {
    for name in EACH {
        let (_folder, model) = opened(name, false, None);
        let mut talk = chat(&model);
        send(&mut talk, &["noise.png", "grey.png"], "What?");
        send(&mut talk, &[], "And?");
        let saved = talk.saved().unwrap();
        let mut other = chat(&model);
        assert_eq!(other.resume_from(&saved).unwrap(), None);
        assert_eq!(other.history(), talk.history());
        assert_eq!(other.saved().unwrap().len(), {
            let mut once_more = chat(&model);
            once_more.resume_from(&other.saved().unwrap()).unwrap();
            once_more.saved().unwrap().len()
        });
        assert_eq!(other.history()[0].images().len(), 2);
        other.send("Then?", |_: &str| ()).unwrap();

        let history = talk.history();
        let begun = model.chat(ChatOptions::default().history(history.clone()).answering(greedy(6))).unwrap();
        assert_eq!(begun.history(), history);

        // Who does not see cannot go on with it, and says so; nothing is lost of what it had.
        let folder = tempfile::tempdir().unwrap();
        let blind =
            Model::open(pteron::tiny::talking(folder.path()).unwrap().as_path(), OpenOptions::default());
        let blind = blind.unwrap();
        let mut silent = blind.chat(ChatOptions::default().system("Keep this.")).unwrap();
        let refused = silent.resume_from(&saved).unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused:?}");
        assert!(refused.to_string().contains("does not see images"), "{refused}");
        assert_eq!(silent.history().len(), 1);
    }
}

#[test]
fn the_oldest_turns_go_with_their_images() {
    for name in EACH {
        let (_folder, model) = opened(name, false, Some(120));
        let options = ChatOptions::default().answering(greedy(6)).when_full(WhenFull::Slide);
        let mut talk = model.chat(options).unwrap();
        for _ in 0..4 {
            send(&mut talk, &["noise.png"], "What?");
        }
        let shown = talk.turns() - talk.hidden();
        assert!(talk.hidden() > 0 && shown > 0, "{name}");
        // As one who has heard of nothing else, over the words alone: answers may be cut into tokens otherwise.
        talk.rewind(0);
        assert_eq!(
            send(&mut talk, &["noise.png"], "What?"),
            send(&mut chat(&model), &["noise.png"], "What?")
        );
    }
}

#[test]
fn words_that_spell_marks_are_words() {
    for (name, mark) in [
        ("gemma3", "<start_of_image>"),
        ("gemma3", "<image_soft_token>"),
        ("gemma4", "<|image|>"),
        ("gemma4", "<|image>"),
        ("qwen2_5_vl", "<|image_pad|>"),
    ] {
        let (_folder, model) = opened(name, false, None);
        for special in [SpecialTokens::Text, SpecialTokens::Parse] {
            let options = greedy(1).special_tokens(special);
            let message = Message::user(format!("a {mark} b")).showing([image("grey.png")]);
            let prompt = model.tokens(vec![message], &options).unwrap();
            let plain =
                model.tokens(vec![Message::user("a  b").showing([image("grey.png")])], &options).unwrap();
            assert_eq!(prompt.images.len(), 1, "{name}");
            assert_eq!(prompt.images, plain.images, "{name}");
            let spelled =
                model.tokens(Prompt::Raw(mark.to_owned()), &greedy(1).special_tokens(SpecialTokens::Text));
            assert_eq!(
                prompt.tokens.len() - plain.tokens.len(),
                spelled.unwrap().tokens.len()
                    - model.tokens(Prompt::Raw(String::new()), &options).unwrap().tokens.len(),
                "{name}"
            );
        }
        let alone = model.tokens(vec![Message::user(mark)], &greedy(1)).unwrap();
        assert!(alone.images.is_empty());
    }
}

#[test]
fn what_is_not_seen_is_told_before_anything_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = pteron::tiny::talking(folder.path()).unwrap();
    let blind = Model::open(path.as_path(), OpenOptions::default()).unwrap();
    let showing = || vec![Message::user("What?").showing([image("grey.png")])];
    let lack =
        |error: &Error| error.reason().and_then(|reason| reason.cause()?.downcast_ref::<Lack>().copied());
    for error in [
        blind.generate(showing(), &greedy(1)).unwrap_err(),
        blind.chat(ChatOptions::default()).unwrap().show(image("grey.png")).unwrap_err(),
    ] {
        assert_eq!(lack(&error), Some(Lack::Eyes), "{error:?}");
    }

    let (_folder, model) = opened("gemma3", false, None);
    let mut talk = chat(&model);
    for (bytes, told) in [
        (Vec::new(), "image 1: it is empty"),
        (b"GIF89a".to_vec(), "GIF image; PNG and JPEG are read"),
        (image("noise.png")[..200].to_vec(), "damaged"),
    ] {
        let error = talk.show(bytes.clone()).unwrap_err();
        assert!(error.to_string().contains(told) && matches!(error, Error::Invalid(_)), "{error:?}");
        let error = model.generate(vec![Message::user("?").showing([image("grey.png"), bytes])], &greedy(1));
        assert!(error.unwrap_err().to_string().contains("image 2: "));
    }
    assert_eq!(send(&mut talk, &[], "What?"), send(&mut chat(&model), &[], "What?"));
}
