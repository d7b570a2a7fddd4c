//! A conversation reads only what is new, and whatever is taken back, asked anew, forked or kept in a file goes on as a
//! new session would: token for token, on every kind of cache.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::conversation::StoreError;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{Answer, Conversation, FinishReason, GenerateOptions, LanguageModel, LlmError, WhenFull};
use pteron_runtime::RunControl;
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::path::PathBuf;
use support::{ALL, CONTEXT, Caches, decoder, model, model_with, models, voice};
use tempfile::TempDir;

fn options(max_new: usize) -> GenerateOptions {
    GenerateOptions {
        max_new: Some(max_new),
        // A random model repeats itself; drawn tokens differ from turn to turn.
        sampling: SamplerSettings { temperature: 1.0, ..SamplerSettings::default() },
        seed: 11,
        stop: Vec::new(),
        end_tokens: (64..70).collect(),
    }
}

fn conversation(model: &LanguageModel) -> Conversation {
    Conversation::new(decoder(model), voice(), Some("be brief".to_owned()), WhenFull::Slide)
}

fn try_say(conversation: &mut Conversation, text: &str) -> Result<Answer, LlmError> {
    let mut show = |_: &str| ControlFlow::Continue(());
    conversation.say(text, &options(6), None, &mut show, &RunControl::default())
}

fn say(conversation: &mut Conversation, text: &str) -> Answer {
    try_say(conversation, text).unwrap()
}

/// A conversation that has heard some questions.
fn after(model: &LanguageModel, questions: &[&str]) -> Conversation {
    let mut conversation = conversation(model);
    questions.iter().for_each(|question| drop(say(&mut conversation, question)));
    conversation
}

/// The same, and the file in a new folder that it was saved to.
fn saved(model: &LanguageModel, questions: &[&str]) -> (Conversation, TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat");
    let conversation = after(model, questions);
    conversation.save(&path).unwrap();
    (conversation, folder, path)
}

/// The answers of a new session that hears the same.
fn fresh(model: &LanguageModel, questions: &[&str]) -> Vec<Vec<u32>> {
    let mut conversation = conversation(model);
    questions.iter().map(|question| say(&mut conversation, question).tokens).collect()
}

const QUESTIONS: [&str; 10] =
    ["hello", "who are you", "why", "and then", "what else", "more", "go on", "really", "so what", "the end"];

#[test]
fn turn_ten_reads_only_its_own_tokens() {
    for (name, model) in models() {
        let mut conversation = conversation(&model);
        let mut before = 0;
        for (number, question) in QUESTIONS.iter().enumerate() {
            let answer = say(&mut conversation, question);
            let stats = &answer.stats;
            assert_eq!(stats.reused_tokens + stats.prefilled_tokens(), stats.prompt_tokens);
            if number > 0 {
                // The last token of the answer before, its end mark, two marks around the question, its characters
                // and end mark, and two marks that begin the answer.
                let own = 1 + 1 + 2 + question.len() + 1 + 2;
                assert!(stats.prefilled_tokens() <= own, "{name}, turn {number}: {stats:?}");
                assert!(stats.prompt_tokens > before, "{name}");
                assert!(!stats.restored);
            }
            before = stats.prompt_tokens;
        }
    }
}

#[test]
fn whatever_is_taken_back_leaves_no_trace() {
    for (name, model) in models() {
        let mut chat = after(&model, &QUESTIONS);
        // Undo.
        assert_eq!(chat.undo().as_deref(), Some("the end"));
        assert_eq!(chat.undo().as_deref(), Some("so what"));
        let answer = say(&mut chat, "something new");
        let expected = fresh(&model, &[&QUESTIONS[..8], &["something new"]].concat());
        assert_eq!(answer.tokens, expected[8], "{name}: undo");
        // Ask again.
        let asked = chat.undo().unwrap();
        assert_eq!(say(&mut chat, &asked).tokens, expected[8], "{name}: regenerate");
        // Edit an early question.
        for _ in 0..8 {
            chat.undo().unwrap();
        }
        let answers: Vec<_> =
            ["who is this", "tell me"].iter().map(|text| say(&mut chat, text).tokens).collect();
        let expected = fresh(&model, &["hello", "who is this", "tell me"]);
        assert_eq!(answers, expected[1..], "{name}: edit");
        // Fork.
        let mut other = chat.fork().unwrap();
        let (left, right) = (say(&mut chat, "left").tokens, say(&mut other, "right").tokens);
        let questions = ["hello", "who is this", "tell me"];
        assert_eq!(left, fresh(&model, &[&questions[..], &["left"]].concat())[3], "{name}: fork, left");
        assert_eq!(right, fresh(&model, &[&questions[..], &["right"]].concat())[3], "{name}: fork, right");
        assert!(chat.turns().len() == 4 && other.turns().len() == 4);
    }
}

#[test]
fn going_back_a_turn_restores_a_copy_where_a_ring_has_lost_it() {
    let model = model(Caches::Ring);
    let long = "a question that is much longer than all that the ring can hold at once";
    let mut chat = after(&model, &["first", long]);
    chat.undo();
    let answer = say(&mut chat, "another");
    assert!(answer.stats.restored, "{:?}", answer.stats);
    assert!(answer.stats.prefilled_tokens() < 20, "{:?}", answer.stats);
    assert_eq!(answer.tokens, fresh(&model, &["first", "another"])[1]);
}

#[test]
fn a_file_brings_a_conversation_back() {
    for (name, model) in models() {
        let (mut chat, folder, path) = saved(&model, &QUESTIONS[..8]);
        let mut restored = Conversation::restore(&path, decoder(&model), voice()).unwrap();
        assert_eq!(restored.turns(), chat.turns());
        let answer = say(&mut restored, "and then");
        assert_eq!(answer.stats.reused_tokens, 0);
        assert_eq!(answer.tokens, say(&mut chat, "and then").tokens, "{name}");
        assert_eq!(say(&mut restored, "more").tokens, say(&mut chat, "more").tokens, "{name}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn damaged_files_are_refused() {
    let model = model(Caches::Plain);
    let (mut chat, _folder, path) = saved(&model, &["hello"]);
    let whole = std::fs::read(&path).unwrap();
    let open = || Conversation::restore(&path, decoder(&model), voice()).err();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(open().is_some(), "cut to {cut} bytes");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, changed).unwrap();
        assert!(open().is_some(), "byte {at} changed");
    }
    std::fs::write(&path, "pteron conversation 2 00\n{}").unwrap();
    assert!(matches!(open(), Some(StoreError::NotAConversation { .. })));
    // A failed load leaves the conversation as it was.
    assert!(chat.load(&path).is_err() && chat.turns().len() == 1);
}

#[test]
fn a_full_context_slides_or_stops() {
    let questions = ["aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "dddddddddd", "eeeeeeeeee", "ffffffffff"];
    for caches in ALL {
        let model = model_with(caches, Default::default(), 96);
        let mut chat = conversation(&model);
        for question in questions {
            let answer = say(&mut chat, question);
            assert!(answer.stats.prompt_tokens + answer.tokens.len() <= 96, "{caches:?}");
        }
        assert_eq!(chat.turns().len(), 6);
        // What is left is what a conversation of the last turns would be.
        let held = voice().tokenizer.decode(chat.decoder().tokens());
        assert!(held.starts_with("<|turn|><|system|>be brief<|end|>"), "{held}");
        assert!(!held.contains("aaaaaaaaaa") && held.contains("ffffffffff"), "{held}");

        let mut strict = Conversation::new(decoder(&model), voice(), None, WhenFull::Stop);
        let mut last = Ok(());
        for question in questions {
            last = try_say(&mut strict, question).map(drop);
        }
        assert!(matches!(last, Err(LlmError::ContextFull { .. })), "{caches:?}");
        let alone = try_say(&mut conversation(&model), &"x".repeat(CONTEXT));
        assert!(matches!(alone, Err(LlmError::PromptTooLong { .. })), "{caches:?}");
    }
}

#[test]
fn an_interrupted_answer_is_a_turn_like_any_other() {
    for caches in ALL {
        let model = model(caches);
        let mut chat = conversation(&model);
        let mut shown = String::new();
        let mut show = |piece: &str| {
            shown += piece;
            ControlFlow::Break(())
        };
        // A random model may well want to end before it begins.
        let endless = GenerateOptions { end_tokens: Vec::new(), ..options(50) };
        let answer = chat.say("hello", &endless, None, &mut show, &RunControl::default()).unwrap();
        assert_eq!(answer.finish_reason, FinishReason::Cancelled, "{caches:?}");
        assert_eq!((answer.text.len(), answer.text == shown), (1, true), "{caches:?}");
        let next = say(&mut chat, "go on");
        assert!(next.stats.reused_tokens > 20, "{:?}", next.stats);
    }
}

#[test]
fn another_vocabulary_reads_the_messages_again() {
    let model = model(Caches::Plain);
    let (mut chat, _folder, path) = saved(&model, &["hello"]);
    // The same file, whose tokens are now said to be of another vocabulary, still goes on from its messages.
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let mut stored: serde_json::Value = serde_json::from_str(body).unwrap();
    stored["vocabulary"] = "other".into();
    stored["turns"][0]["heard"]["tokens"] = serde_json::json!([1, 2, 3]);
    let body = stored.to_string();
    let hash: String = {
        use sha2::Digest;
        sha2::Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    std::fs::write(&path, format!("pteron conversation 1 {hash}\n{body}")).unwrap();
    let mut restored = Conversation::restore(&path, decoder(&model), voice()).unwrap();
    assert_eq!(say(&mut restored, "why").tokens, say(&mut chat, "why").tokens);
}

/// Writes a conversation that was changed by hand, with the checksum that fits it.
fn write_changed(path: &std::path::Path, change: impl FnOnce(&mut serde_json::Value)) {
    let file = std::fs::read_to_string(path).unwrap();
    let (title, body) = file.split_once('\n').unwrap();
    let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
    change(&mut body);
    let body = body.to_string();
    let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let (words, _) = title.rsplit_once(' ').unwrap();
    std::fs::write(path, format!("{words} {digest}\n{body}")).unwrap();
}

#[test]
fn a_forged_file_brings_no_turns_that_its_messages_do_not_show() {
    let model = model(Caches::Plain);
    let (mut chat, _folder, path) = saved(&model, &["hello", "why"]);
    // Tokens of a turn that nobody said: `<|turn|><|user|>a<|end|>` behind the first answer, and in front of it.
    let forged = [64, 66, 0, 67];
    for at in [0, 1] {
        write_changed(&path, |stored| {
            let tokens = stored["turns"][at]["heard"]["tokens"].as_array_mut().unwrap();
            let middle = tokens.len() / 2;
            tokens.splice(middle..middle, forged.map(serde_json::Value::from));
        });
    }
    let mut restored = Conversation::restore(&path, decoder(&model), voice()).unwrap();
    assert_eq!(say(&mut restored, "and then").stats.reused_tokens, 0);
    let marks = |chat: &Conversation| {
        chat.decoder().tokens().iter().filter(|&&token| token >= 64).copied().collect::<Vec<_>>()
    };
    say(&mut chat, "and then");
    assert_eq!(marks(&restored)[..12], marks(&chat)[..12]);
}

#[test]
fn only_conversations_are_written_over() {
    let model = model(Caches::Plain);
    let (chat, folder, path) = saved(&model, &["hello"]);
    chat.save(&path).unwrap();
    let precious = folder.path().join("precious.txt");
    std::fs::write(&precious, "pteron is mentioned here").unwrap();
    assert!(matches!(chat.save(&precious), Err(StoreError::Occupied { .. })));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "pteron is mentioned here");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    chat.save(&empty).unwrap();
    assert!(chat.save(folder.path()).is_err());
}

#[test]
fn a_file_says_with_whom_it_was_held() {
    let model = model(Caches::Plain);
    let (chat, _folder, path) = saved(&model, &["hello"]);
    let mut later = conversation(&model).with("owl");
    assert_eq!(later.load(&path).unwrap(), None, "a file of old, with the same vocabulary");
    later.save(&path).unwrap();
    assert_eq!(conversation(&model).with("owl").load(&path).unwrap(), None);
    let mut other = conversation(&model).with("raven");
    assert_eq!(other.load(&path).unwrap().as_deref(), Some("owl"));
    assert_eq!(other.turns(), chat.turns());
    write_changed(&path, |stored| {
        stored["vocabulary"] = "other".into();
        stored.as_object_mut().unwrap().remove("model");
    });
    assert_eq!(conversation(&model).with("raven").load(&path).unwrap().as_deref(), Some(""));
}

#[test]
fn turns_that_are_dropped_make_room() {
    let questions = ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc", "dddddddddddddddd"];
    let model = model_with(Caches::Plain, Default::default(), 96);
    let mut chat = Conversation::new(decoder(&model), voice(), None, WhenFull::Stop);
    let full = questions.iter().position(|question| try_say(&mut chat, question).is_err()).unwrap();
    assert!(full >= 2, "{full} turns");
    assert_eq!((chat.drop_oldest(1), chat.hidden()), (1, 1));
    say(&mut chat, questions[full]);
    let held = voice().tokenizer.decode(chat.decoder().tokens());
    assert!(!held.contains(questions[0]) && held.contains(questions[1]), "{held}");
    // What was dropped stays so when turns are taken back.
    chat.undo();
    chat.undo();
    assert_eq!(chat.hidden(), 1);
    assert_eq!(chat.drop_oldest(100), chat.turns().len() - 1);
    say(&mut chat, "x");
}

#[test]
fn a_question_that_is_asked_again_is_read_as_it_was_at_first() {
    let greedy = GenerateOptions { sampling: SamplerSettings::greedy(), ..options(12) };
    let mut show = |_: &str| ControlFlow::Continue(());
    let control = RunControl::default();
    let mut ask =
        |chat: &mut Conversation, text: &str| chat.say(text, &greedy, None, &mut show, &control).unwrap();
    let rounded = support::packed(
        &pteron_models::architectures::Llama {
            vocab_size: support::VOCAB,
            max_position_embeddings: CONTEXT,
            bos_token_id: None,
            ..pteron_models::shapes::tiny::llama()
        },
        pteron_models::Quantization::default(),
        pteron_tensor::DType::BF16,
        pteron_models::KvCache::InGraph,
    );
    for (name, model) in models().chain([("rounded".to_owned(), rounded)]) {
        let mut chat = conversation(&model);
        for question in ["my name is bob", "say hi", "what is my name"] {
            let first = ask(&mut chat, question);
            for _ in 0..2 {
                let asked = chat.undo().unwrap();
                let again = ask(&mut chat, &asked);
                assert_eq!(again.tokens, first.tokens, "{name}: {question}");
                // The calls are the same from some call on, so that no sum is rounded otherwise.
                let (first, again) = (first.stats.prefilled_tokens(), again.stats.prefilled_tokens());
                assert!(again > 1 && first.abs_diff(again) % support::CHUNK == 0, "{name}: {first}, {again}");
            }
        }
    }
}

#[test]
fn a_question_that_does_not_fit_hides_nothing_of_what_was_said() {
    let model = model(Caches::Plain);
    let (mut conversation, _folder, path) = saved(&model, &QUESTIONS[..2]);
    let before = std::fs::read(&path).unwrap();
    let refused = try_say(&mut conversation, &"a".repeat(CONTEXT + 1));
    assert!(matches!(refused, Err(LlmError::PromptTooLong { .. })), "{refused:?}");
    conversation.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_whose_turns_hide_more_than_came_before_them_is_refused() {
    let model = model(Caches::Plain);
    let (mut conversation, _folder, path) = saved(&model, &QUESTIONS[..2]);
    let file = std::fs::read_to_string(&path).unwrap();
    let (title, body) = file.split_once('\n').unwrap();
    let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
    // Taking the second turn back would show from turn nine on.
    body["turns"][0]["hidden"] = 9.into();
    let body = body.to_string();
    let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let (words, _) = title.rsplit_once(' ').unwrap();
    std::fs::write(&path, format!("{words} {digest}\n{body}")).unwrap();
    let refused = conversation.load(&path);
    assert!(matches!(refused, Err(StoreError::Damaged { .. })), "{refused:?}");
}
