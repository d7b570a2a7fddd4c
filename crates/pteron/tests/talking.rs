//! Chats and answers: stopped, side by side, forked, taken back, kept in files; messages, tools, schemas.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron::{
    Cancel, Chat, ChatOptions, Error, FinishReason, GenerateOptions, Message, Messages, Model, OpenOptions,
    Prompt, Transcriber, WhenFull,
};
use serde_json::json;
use std::ops::ControlFlow;
use std::sync::mpsc;
use tempfile::TempDir;

fn model() -> (TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    let path = pteron::tiny::talking(folder.path()).unwrap();
    let model = Model::open(path.as_path(), OpenOptions::default().threads(1)).unwrap();
    (folder, model)
}

fn brief() -> ChatOptions {
    ChatOptions::default().answering(GenerateOptions::default().max_tokens(12))
}

fn say(chat: &mut Chat, text: &str) -> String {
    chat.send(text, |_: &str| {}).unwrap().text
}

#[test]
fn models_and_chats_go_from_thread_to_thread() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Model>();
    shared::<Cancel>();
    shared::<pteron::Stopper>();
    shared::<Error>();
    sent::<Chat>();
    sent::<Transcriber>();
}

#[test]
fn an_answer_is_stopped_from_another_thread_and_what_was_said_stays() {
    let (_folder, model) = model();
    let mut chat = model.chat(ChatOptions::default()).unwrap();
    let stopper = chat.stopper();
    let (begun, hears) = mpsc::channel();
    let (stopped, waits) = mpsc::channel();
    let stops = std::thread::spawn(move || {
        hears.recv().unwrap();
        stopper.stop();
        stopped.send(()).unwrap();
    });
    let forever = GenerateOptions::default().ignore_end(true);
    let mut pieces = 0;
    let answer = chat.send_with("Count.", &forever, |_: &str| {
        pieces += 1;
        if pieces == 3 {
            begun.send(()).unwrap();
            waits.recv().unwrap();
        }
    });
    stops.join().unwrap();
    let answer = answer.unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert!(pieces <= 4, "what was held back comes last: {pieces}");
    assert_eq!(chat.history()[1], Message::assistant(&answer.text));
    // The next answer is not stopped.
    let next = chat.send_with("Go on.", &forever.max_tokens(4), |_: &str| {}).unwrap();
    assert_eq!((next.finish_reason, next.tokens.len()), (FinishReason::Length, 4));
}

#[test]
fn a_listener_ends_an_answer() {
    let (_folder, model) = model();
    let mut shown = String::new();
    let answer = model.stream("Hi", &GenerateOptions::default(), &Cancel::default(), |piece: &str| {
        shown += piece;
        ControlFlow::Break(())
    });
    let answer = answer.unwrap();
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert!(answer.text.starts_with(&shown), "{shown:?}");
}

#[test]
fn two_chats_at_once_say_what_each_says_alone() {
    let (_folder, model) = model();
    let talk = |questions: &[&str]| {
        let mut chat = model.chat(brief()).unwrap();
        questions.iter().map(|question| say(&mut chat, question)).collect::<Vec<_>>()
    };
    let (one, other) = (["Hello", "Why?", "And then?"], ["Who are you?", "Where?", "When?"]);
    let alone = (talk(&one), talk(&other));
    let together = std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(|| talk(&one)), scope.spawn(|| talk(&other)));
        (one.join().unwrap(), other.join().unwrap())
    });
    assert_eq!(together, alone);
}

#[test]
fn forks_and_rewinds_are_as_if_nothing_else_had_been_said() {
    let (_folder, model) = model();
    let straight = |questions: &[&str]| {
        let mut chat = model.chat(brief()).unwrap();
        questions.iter().map(|question| say(&mut chat, question)).collect::<Vec<_>>()
    };
    let mut chat = model.chat(brief()).unwrap();
    let first = say(&mut chat, "Hello");
    let mut fork = chat.fork().unwrap();
    let (here, there) = (say(&mut chat, "Why?"), say(&mut fork, "Who?"));
    assert_eq!([first.clone(), here], *straight(&["Hello", "Why?"]));
    assert_eq!([first.clone(), there], *straight(&["Hello", "Who?"]));
    chat.rewind(1);
    assert_eq!(chat.turns(), 1);
    assert_eq!(say(&mut chat, "Who?"), straight(&["Hello", "Who?"])[1]);
    chat.rewind(0);
    assert!(chat.history().is_empty());
    assert_eq!(say(&mut chat, "Hello"), first);
    assert!(chat.cache_state().position > 0);
    // At temperature 0 the same question has the same answer.
    assert_eq!(chat.regenerate(|_: &str| {}).unwrap().unwrap().text, first);
}

#[test]
fn a_conversation_is_kept_with_its_tools_and_resumed() {
    let (folder, model) = model();
    let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
    let file = folder.path().join("kept.chat");
    let mut chat = model.chat(brief().system("Be brief.").tools(tools)).unwrap();
    say(&mut chat, "How warm is it?");
    chat.send_result("14 degrees", |_: &str| {}).unwrap();
    chat.save(&file).unwrap();
    let mut resumed = model.chat(brief()).unwrap();
    assert_eq!(resumed.resume(&file).unwrap(), None);
    assert_eq!(resumed.history(), chat.history());
    let roles: Vec<String> = chat.history().iter().map(|message| message.role().to_owned()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);
    assert_eq!(say(&mut resumed, "Thanks"), say(&mut chat, "Thanks"));

    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(matches!(resumed.resume(&file), Err(Error::Damaged(_))));
    assert!(matches!(resumed.resume(&folder.path().join("none")), Err(Error::NotFound(_))));
    let precious = folder.path().join("precious.txt");
    std::fs::write(&precious, b"mine").unwrap();
    assert!(matches!(chat.save(&precious), Err(Error::Storage(_))));
    assert_eq!(std::fs::read(&precious).unwrap(), b"mine");
}

#[test]
fn tools_and_roles_reach_the_template() {
    let (_folder, model) = model();
    let whole = json!({
        "messages": [
            {"role": "user", "content": "How warm is it in Oslo?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}
            ]},
            {"role": "tool", "content": "14 degrees"},
        ],
        "tools": [{"type": "function", "function": {"name": "weather"}}],
    });
    let messages = Messages::from_json(whole).unwrap();
    let prompt = model.tokens(messages, &GenerateOptions::default()).unwrap();
    for part in
        ["\"name\": \"weather\"", "<|user|>How warm", "<|tool|>14 degrees<|end|><|turn|><|assistant|>"]
    {
        assert!(prompt.text.contains(part), "{part} is not in {}", prompt.text);
    }
    let before = vec![Message::system("Be brief."), Message::user("Hi"), Message::assistant("Hello")];
    let mut chat = model.chat(brief().history(before.clone())).unwrap();
    assert_eq!(chat.history(), before);
    let told = say(&mut chat, "Why?");
    let asked = [before, vec![Message::user("Why?")]].concat();
    let options = GenerateOptions::default().max_tokens(12);
    assert_eq!(model.generate(asked, &options).unwrap()[0].text, told);
}

#[test]
fn what_makes_no_sense_is_invalid() {
    let (_folder, model) = model();
    let wrong = |options: ChatOptions| matches!(model.chat(options), Err(Error::Invalid(_)));
    assert!(wrong(brief().tools(json!({"name": "weather"}))));
    assert!(wrong(brief().history(vec![Message::assistant("Hello")])));
    assert!(wrong(brief().history(vec![Message::user("Hello")])));
    assert!(wrong(brief().system("a").history(vec![Message::system("b")])));
    let refused = |options: GenerateOptions| matches!(model.generate("Hi", &options), Err(Error::Invalid(_)));
    assert!(refused(GenerateOptions::default().temperature(-1.0)));
    assert!(refused(GenerateOptions::default().schema(json!({"type": "unheard of"}))));
    assert!(refused(GenerateOptions::default().grammar("start: missing")));
    assert!(refused(GenerateOptions::default().schema(json!(true)).grammar("start: \"a\"")));
    let unknown = model.generate(Prompt::Tokens(vec![1 << 20]), &GenerateOptions::default());
    assert!(matches!(unknown, Err(Error::Invalid(_))), "{unknown:?}");
}

#[test]
fn a_text_that_does_not_fit_says_how_long_it_is() {
    let (_folder, model) = model();
    let long = "a".repeat(600);
    let error = model.generate(Prompt::Raw(long.clone()), &GenerateOptions::default()).unwrap_err();
    assert!(matches!(error, Error::ContextFull { tokens: 600, context: 512, .. }), "{error:?}");
    let mut chat = model.chat(brief().when_full(WhenFull::Stop)).unwrap();
    say(&mut chat, &"b".repeat(400));
    let before = chat.history();
    let full = chat.send(&"c".repeat(200), |_: &str| {});
    assert!(matches!(full, Err(Error::ContextFull { .. })), "{full:?}");
    assert_eq!(chat.history(), before, "the conversation is as before");
    chat.drop_oldest(1);
    say(&mut chat, &"c".repeat(200));
    assert_eq!((chat.turns(), chat.hidden()), (2, 1));
}

#[test]
fn several_answers_have_seeds_of_their_own() {
    let (_folder, model) = model();
    let options = GenerateOptions::default().temperature(1.5).max_tokens(8).seed(3);
    let texts = |options: &GenerateOptions| -> Vec<Vec<u32>> {
        let answers = model.generate("Name a colour.", options).unwrap();
        answers.into_iter().map(|answer| answer.tokens).collect()
    };
    let three = texts(&options.clone().answers(3));
    assert_eq!(three, texts(&options.clone().answers(3)));
    assert!(three[0] != three[1] && three[1] != three[2], "{three:?}");
    assert_eq!(three[1], texts(&options.seed(4))[0]);
}

#[test]
fn several_answers_to_one_prompt_read_it_once() {
    let (_folder, model) = model();
    let options = GenerateOptions::default().temperature(1.5).max_tokens(6).ignore_end(true).seed(5);
    let prompt = Prompt::Raw("a".repeat(100));
    // More than are written at the same time.
    let answers = model.generate(prompt.clone(), &options.clone().answers(20)).unwrap();
    let read: usize =
        answers.iter().map(|answer| answer.stats.prompt_tokens - answer.stats.reused_tokens).sum();
    let (first, rest) = answers.split_at(16);
    // All of the first share one reading; the others find it in the caches.
    assert!(first.iter().all(|answer| answer.stats.reused_tokens == 0), "{read}");
    assert!(rest.iter().all(|answer| answer.stats.reused_tokens > 50), "{read}");
    for (answer, seed) in answers.iter().zip(5..) {
        let alone = model.generate(prompt.clone(), &options.clone().seed(seed)).unwrap();
        assert_eq!(answer.tokens, alone[0].tokens, "seed {seed}");
    }
}

#[test]
fn a_schema_holds_for_one_answer_of_a_chat() {
    let (_folder, model) = model();
    let mut chat = model.chat(brief()).unwrap();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"], "additionalProperties": false});
    let options = GenerateOptions::default().schema(schema);
    let answer = chat.send_with("A number?", &options, |_: &str| {}).unwrap();
    let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert!((0..=99).contains(&value["n"].as_i64().unwrap()), "{value}");
    assert_eq!(answer.finish_reason, FinishReason::Stop);
    chat.send("And now?", |_: &str| {}).unwrap();
}
