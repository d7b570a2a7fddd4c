//! Saved conversations: any bytes as a file, and any order of commands over a tiny model, begun anew or from such a file. A
//! conversation that was saved loads as the same messages.
//!
//! The first byte says whether the file is taken as it is, gets the first line that belongs to it, or is none at all; then
//! come the number of commands, the commands, and the file.

#[path = "../../../crates/llm/tests/support/mod.rs"]
mod support;

use crate::Source;
use pteron_cpu::Cpu;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{Conversation, Decoder, DecoderOptions, GenerateOptions, LanguageModel, WhenFull};
use pteron_models::Logits;
use pteron_runtime::{Options, Program, RunControl};
use sha2::{Digest, Sha256};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// Short, so that a few turns fill it.
const CONTEXT: usize = 48;
const MOST_COMMANDS: usize = 12;
/// Tokens of an answer.
const MAX_NEW: usize = 2;

static MODEL: LazyLock<LanguageModel> = LazyLock::new(|| {
    let mut options = Options { backend: Some("cpu".to_owned()), ..Options::default() };
    options.registry.add(Arc::new(Cpu::new(1, None).expect("the best path is there")));
    let file = support::file(support::Caches::Plain, Logits::Last, CONTEXT);
    LanguageModel::new(Program::load("tiny.pte", file, &[], &options).expect("it loads")).expect("it talks")
});

/// One file a process, in memory where the system has such a place.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let folder = folder.join(format!("pteron-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for one file");
    folder.join("conversation")
});

fn decoder() -> Decoder {
    Decoder::new(&MODEL, &DecoderOptions::default()).expect("a decoder")
}

/// One input.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let start = source.below(3);
    let commands = source.below(MOST_COMMANDS + 1);
    let commands = source.take(2 * commands);
    let body = source.rest();
    let full = if commands.len().is_multiple_of(4) { WhenFull::Slide } else { WhenFull::Stop };
    let mut conversation = Conversation::new(decoder(), support::voice(), None, full);
    if start > 0 {
        let title = format!("pteron conversation 1 {}\n", hex(&Sha256::digest(body)));
        let file = if start == 1 { body.to_vec() } else { [title.as_bytes(), body].concat() };
        std::fs::write(&*FILE, &file).expect("a file");
        if conversation.load(&FILE).is_err() {
            // What is no conversation stays as it is.
            if conversation.save(&FILE).is_err() {
                assert!(std::fs::read(&*FILE).expect("the file") == file, "a refused save changed the file");
            }
            return;
        }
    } else {
        // What an earlier input left there may be anything.
        let _ = std::fs::remove_file(&*FILE);
    }
    let mut commands = Source::new(commands);
    while !commands.is_empty() {
        command(&mut conversation, &mut commands);
    }
    conversation.save(&FILE).expect("it is saved");
    let restored = Conversation::restore(&FILE, decoder(), support::voice()).expect("what was saved loads");
    assert_eq!(restored.turns(), conversation.turns());
}

/// One command; what it may refuse it may refuse, but the conversation stays one.
fn command(conversation: &mut Conversation, source: &mut Source<'_>) {
    let options = GenerateOptions {
        max_new: Some(MAX_NEW),
        sampling: SamplerSettings::greedy(),
        seed: 0,
        stop: vec![],
        end_tokens: vec![67],
    };
    let say = |conversation: &mut Conversation, text: &str| {
        let (turns, before) = (conversation.turns().len(), saved(conversation));
        let mut show = |_: &str| ControlFlow::Continue(());
        match conversation.say(text, &options, None, &mut show, &RunControl::default()) {
            Ok(_) => assert_eq!(conversation.turns().len(), turns + 1),
            Err(error) => {
                assert_eq!(saved(conversation), before, "a question that was refused left a trace: {error}")
            }
        }
    };
    match source.below(8) {
        0..=2 => {
            let text = "Hello 12 ab\n".repeat(source.below(4));
            say(conversation, &text);
        }
        3 => drop(conversation.undo()),
        4 => {
            // Asked again, as it was or otherwise.
            if let Some(asked) = conversation.undo() {
                let asked = if source.flag() { asked + "x" } else { asked };
                say(conversation, &asked);
            }
        }
        5 => {
            conversation.save(&FILE).expect("it is saved");
            conversation.load(&FILE).expect("what was saved loads");
        }
        6 => *conversation = conversation.fork().expect("a fork"),
        _ => conversation.clear(),
    }
}

/// The conversation as its file.
fn saved(conversation: &Conversation) -> String {
    conversation.save(&FILE).expect("it is saved");
    std::fs::read_to_string(&*FILE).expect("its file")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
