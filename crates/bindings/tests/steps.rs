//! What a browser uses, on a machine with threads: programs in memory, answers that come a step at a time, conversations as
//! bytes. What comes is what comes otherwise.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron_bindings::{
    Answer, Bytes, Chat, ChatOptions, DType, FinishReason, GenerateOptions, Message, Model, Module,
    OpenOptions, PteronError, Requirements, Source, Step, Steps, Tensor, Value,
};
use std::sync::Arc;

/// A program in memory that lies in no file any more.
fn memory(write: impl FnOnce(&std::path::Path) -> std::io::Result<std::path::PathBuf>) -> Bytes {
    let folder = tempfile::tempdir().unwrap();
    Bytes::copy_of(&std::fs::read(write(folder.path()).unwrap()).unwrap())
}

fn source(bytes: Bytes) -> Source {
    Source::Memory { name: "the model".to_owned(), bytes }
}

fn options() -> Option<OpenOptions> {
    Some(OpenOptions { threads: Some(1), ..OpenOptions::default() })
}

fn model() -> Arc<Model> {
    Model::of(source(memory(pteron::tiny::talking)), options(), None, None).unwrap()
}

fn brief(tokens: u64) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(tokens), temperature: Some(0.0), ..GenerateOptions::default() }
}

fn chat(model: &Model) -> Arc<Chat> {
    model.chat(Some(ChatOptions { answering: Some(brief(12)), ..ChatOptions::default() })).unwrap()
}

/// The pieces and the answer that they make.
fn read(mut steps: Steps) -> (String, Answer) {
    let mut said = String::new();
    loop {
        match steps.step().unwrap() {
            Step::Piece(piece) => said += &piece,
            Step::Ended(piece, answer) => return (said + &piece, answer),
        }
    }
}

#[test]
fn a_turn_in_steps_is_the_turn() {
    let model = model();
    let (whole, stepped) = (chat(&model), chat(&model));
    // The second is longer than a step reads.
    for question in ["Hello", &"Why is the sky blue? ".repeat(8)] {
        let answer = whole.send(question.to_owned(), None, None).unwrap();
        let (said, other) = read(stepped.steps(question, None).unwrap());
        assert_eq!((&other.text, &other.tokens), (&answer.text, &answer.tokens));
        assert_eq!(said, answer.text);
    }
    assert_eq!(stepped.history().unwrap(), whole.history().unwrap());
    assert_eq!(stepped.cache_state().unwrap(), whole.cache_state().unwrap());
    let (_, answer) = read(stepped.result_steps("14 degrees").unwrap());
    assert_eq!(answer.text, whole.send_result("14 degrees".to_owned(), None).unwrap().text);
}

#[test]
fn schemas_hold_in_steps_too() {
    let model = model();
    let chat = chat(&model);
    let schema = |text: &str| Some(GenerateOptions { schema: Some(text.to_owned()), ..brief(12) });
    let (said, answer) = read(chat.steps("Is it?", schema("{\"enum\": [\"yes\", \"no\"]}")).unwrap());
    assert!(said == "\"yes\"" || said == "\"no\"", "{said}");
    assert_eq!(answer.finish_reason, FinishReason::Stop);
    let refused = chat.steps("Is it?", schema("{\"type\": \"unheard of\"}")).err();
    assert!(matches!(refused, Some(PteronError::Invalid { .. })), "{refused:?}");
    assert_eq!(chat.turns().unwrap(), 1);
}

#[test]
fn a_chat_is_busy_until_its_steps_have_ended() {
    let model = model();
    let (chat, other) = (chat(&model), chat(&model));
    let mut steps = chat.steps("Hello", None).unwrap();
    assert!(matches!(chat.send("Why?".to_owned(), None, None), Err(PteronError::Busy { .. })));
    assert!(other.send("Why?".to_owned(), None, None).is_ok());
    steps.step().unwrap();
    chat.stop();
    let (_, answer) = read(steps);
    assert_eq!(answer.finish_reason, FinishReason::Cancelled);
    assert_eq!(chat.turns().unwrap(), 1);
    // Steps that nobody takes end as they came.
    let mut steps = chat.steps("Hello", None).unwrap();
    steps.step().unwrap();
    drop(steps);
    assert_eq!(chat.turns().unwrap(), 2);
    assert!(chat.send("Why?".to_owned(), None, None).is_ok());
}

#[test]
fn disposal_ends_steps() {
    let model = model();
    let chat = chat(&model);
    let mut steps = chat.steps("Hello", None).unwrap();
    let disposing = std::thread::spawn(move || model.dispose());
    let ended = loop {
        if let Step::Ended(_, answer) = steps.step().unwrap() {
            break answer;
        }
    };
    disposing.join().unwrap();
    assert!(matches!(steps.step(), Err(PteronError::Disposed { .. })));
    assert!(matches!(chat.turns(), Err(PteronError::Disposed { .. })));
    assert!(ended.tokens.len() <= 12);
}

#[test]
fn messages_in_steps_are_answered_as_at_once() {
    let model = model();
    let generation = model.generation(Some(brief(8))).unwrap();
    let asked = || vec![Message { role: "user".to_owned(), content: "Why?".to_owned(), tool_calls: None }];
    let (said, answer) = read(generation.steps(asked(), None).unwrap());
    assert_eq!(said, generation.respond(asked(), None, None).unwrap().text);
    assert_eq!(answer.tokens.len(), 8);
    let steps = generation.steps(asked(), None).unwrap();
    generation.stop();
    assert_eq!(read(steps).1.finish_reason, FinishReason::Cancelled);
}

#[test]
fn conversations_are_bytes() {
    let model = model();
    let (one, other) = (chat(&model), chat(&model));
    one.send("Hello".to_owned(), None, None).unwrap();
    let saved = one.saved().unwrap();
    assert_eq!(other.restore_saved(saved.clone()).unwrap(), None);
    assert_eq!(other.history().unwrap(), one.history().unwrap());
    let mut changed = saved;
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(other.restore_saved(changed), Err(PteronError::Damaged { .. })));
    assert_eq!(other.turns().unwrap(), 1);
}

#[test]
fn what_is_in_memory_is_told_by_its_name() {
    let whole = memory(pteron::tiny::talking);
    let needs = Requirements::of(source(whole.clone()), None).unwrap();
    assert!(needs.total > needs.weights && !needs.is_estimate);
    let half = Bytes::copy_of(&whole[..whole.len() / 2]);
    let cases = [
        (half, "Damaged"),
        (Bytes::copy_of(b"Dear reader,\n"), "Unsupported"),
        (Bytes::zeroed(0), "Damaged"),
        (Bytes::zeroed(100), "Damaged"),
    ];
    for (bytes, kind) in cases {
        let length = bytes.len();
        let error = Model::of(source(bytes), options(), None, None).err().unwrap();
        assert_eq!(error.kind(), kind, "{length}: {error}");
        assert!(error.to_string().contains("the model"), "{error}");
    }
    let limited = Some(OpenOptions { memory_limit: Some(1000), ..OpenOptions::default() });
    let error = Model::of(source(whole), limited, None, None).err().unwrap();
    assert_eq!(error.details()["limit"], 1000, "{error}");
}

#[test]
fn a_module_in_memory_runs() {
    let module = Module::of_memory("the module", memory(pteron::tiny::silent), options()).unwrap();
    let tokens: Vec<u8> = [5i64, 6, 7].iter().flat_map(|token| token.to_le_bytes()).collect();
    let tensor = Tensor::new(DType::I64, vec![1, 3], tokens).unwrap();
    let outputs = module.forward(vec![Value::Tensor { tensor }, Value::Int { value: 0 }]).unwrap();
    assert!(matches!(outputs.as_slice(), [Value::Tensor { tensor }] if tensor.shape() == [1, 262]));
}
