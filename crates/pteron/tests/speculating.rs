//! Answers that are guessed ahead: the same as without, in chats too, and a draft whose tokens mean something else is refused.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron::{Answer, Cancel, ChatOptions, Error, GenerateOptions, Model, OpenOptions, Prompt, Speculate};
use std::path::Path;
use tempfile::TempDir;

fn open(path: &Path, options: OpenOptions) -> Model {
    Model::open(path, options.threads(1)).unwrap()
}

/// A model, and one with the same weights that gives the last logits only and has no tokenizer.
fn models() -> (TempDir, Model, Model) {
    let folder = tempfile::tempdir().unwrap();
    let talking = pteron::tiny::talking(folder.path()).unwrap();
    let silent = pteron::tiny::silent(folder.path()).unwrap();
    let (talking, silent) = (open(&talking, OpenOptions::default()), open(&silent, OpenOptions::default()));
    (folder, talking, silent)
}

fn answer(model: &Model, speculate: Speculate) -> Answer {
    let prompt = Prompt::Raw("again and again and again and".to_owned());
    let options = GenerateOptions::default().max_tokens(60).ignore_end(true).speculate(speculate);
    model.stream(prompt, &options, &Cancel::default(), |_: &str| {}).unwrap()
}

#[test]
fn answers_are_the_same_however_they_are_guessed() {
    let (_folder, model, silent) = models();
    let plain = answer(&model, Speculate::Off);
    assert_eq!((plain.stats.guessed_tokens, plain.stats.no_speculation), (0, None));
    for speculate in [
        Speculate::Auto,
        Speculate::Lookup,
        Speculate::Draft(model.clone()),
        Speculate::Draft(silent.clone()),
    ] {
        let what = format!("{speculate:?}");
        let is_draft = matches!(speculate, Speculate::Draft(_));
        let guessed = answer(&model, speculate);
        assert_eq!(guessed.tokens, plain.tokens, "{what}");
        assert!(!is_draft || guessed.stats.accepted_tokens > 30, "{what}: {:?}", guessed.stats);
    }
}

#[test]
fn a_program_with_the_last_logits_answers_without_guesses_and_says_why() {
    let (_folder, _, silent) = models();
    let options = GenerateOptions::default().max_tokens(8).temperature(0.0);
    let ask = |options: &GenerateOptions| {
        let prompt = Prompt::Tokens(vec![5, 6, 7, 5, 6, 7, 5, 6]);
        silent.stream(prompt, options, &Cancel::default(), |_: &str| {}).unwrap()
    };
    let plain = ask(&options.clone().speculate(Speculate::Off));
    let asked = ask(&options.speculate(Speculate::Lookup));
    assert_eq!((asked.tokens, asked.stats.guessed_tokens), (plain.tokens, 0));
    let reason = asked.stats.no_speculation.unwrap().to_string();
    assert!(reason.contains("the logits of the last token only"), "{reason}");
}

#[test]
fn turns_of_a_chat_are_the_same_and_may_be_guessed_in_several_ways() {
    let (_folder, model, _) = models();
    let brief = |speculate| GenerateOptions::default().max_tokens(24).speculate(speculate);
    let talk = |ways: [Speculate; 3]| {
        let [first, second, third] = ways;
        let mut chat = model.chat(ChatOptions::default().answering(brief(first))).unwrap();
        let mut said = vec![chat.send("one and one", |_: &str| {}).unwrap().tokens];
        let mut fork = chat.fork().unwrap();
        said.push(chat.send_with("one and two", &brief(second), |_: &str| {}).unwrap().tokens);
        said.push(chat.send_with("one and one", &brief(third), |_: &str| {}).unwrap().tokens);
        said.push(fork.send("one and two", |_: &str| {}).unwrap().tokens);
        said
    };
    let plain = talk([Speculate::Off, Speculate::Off, Speculate::Off]);
    let draft = || Speculate::Draft(model.clone());
    assert_eq!(talk([Speculate::Lookup, draft(), Speculate::Auto]), plain);
    assert_eq!(talk([draft(), draft(), Speculate::Off]), plain);
}

#[test]
fn a_draft_with_another_tokenizer_is_refused_and_told_what_to_do() {
    let (folder, model, _) = models();
    let level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false
    });
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": {"b": 0, "a": 1}, "merges": []}
    });
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, tokenizer.to_string()).unwrap();
    let other = open(&folder.path().join("silent.pte"), OpenOptions::default().tokenizer(&file));
    let options = GenerateOptions::default().speculate(Speculate::Draft(other));
    let refused = model.stream("hello", &options, &Cancel::default(), |_: &str| {}).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(text.contains("it has another tokenizer: token 0 is `b` there"), "{text}");
    assert!(text.contains("take a smaller model of the same family"), "{text}");
    assert!(model.chat(ChatOptions::default().answering(options)).is_err());
}
