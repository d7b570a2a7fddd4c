//! Talking to language models that ExecuTorch exported, through the binary, with a vocabulary of single characters.
//!
//! The models are those of the packed sample; where `PTERON_CASES` names the folder that `cargo xtask cases` filled, all
//! of its set `models`.

#![allow(clippy::unwrap_used)] // a test may panic

mod model_cases;
mod support;

use model_cases::{Case, model_cases};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use support::{Folder, Run, character_tokenizer, characters, checkpoint, pteron, sample};

fn text_of(tokens: &[u64]) -> String {
    tokens.iter().map(|&token| characters()[token as usize]).collect()
}

/// Runs with statistics off; the JSON object.
fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&pteron(&[&["run", "--quiet", "--json"], arguments].concat()).ok()).unwrap()
}

fn tokens(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
}

/// Runs with a text on standard input.
fn pipe(arguments: &[&str], input: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The greedy answer of a program to a prompt of tokens, spelled with the vocabulary's characters.
fn greedy(model: &str, tokenizer: &str, backend: &str, prompt: &[u64], count: usize) -> Vec<u64> {
    let (count, text) = (count.to_string(), text_of(prompt));
    let choosing = ["--raw", "--temperature", "0", "--ignore-eos", "--max-new", &count];
    let loading = ["--model", model, "--tokenizer", tokenizer, "--backend", backend, "--precision", "exact"];
    let answer = json_of(&[&choosing[..], &loading, &[&text]].concat());
    assert_eq!(tokens(&answer["prompt_tokens"]), prompt);
    let written = tokens(&answer["tokens"]);
    assert_eq!((written.len().to_string(), &answer["finish_reason"]), (count, &json!("length")));
    assert_eq!(answer["text"], text_of(&written));
    assert_eq!(answer["stats"]["prompt_tokens"], prompt.len());
    assert_eq!(answer["stats"]["generated_tokens"], written.len());
    written
}

/// Every language model that ExecuTorch exported: each vocabulary of metadata, position input and cache.
#[test]
fn greedy_answers_are_those_of_pytorch() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let cases: Vec<Case> = model_cases().into_iter().filter(Case::writes_text).collect();
    assert!(cases.len() >= 5, "{} language models", cases.len());
    for case in cases {
        let model = folder.write("model.pte", &case.program);
        // What PyTorch chose, as runs of steps that each read what the one before gave: prompt and answer.
        let answers = case.greedy_answers();
        for backend in ["reference", "cpu"] {
            for (prompt, expected) in &answers {
                let written = greedy(&model, &tokenizer, backend, prompt, expected.len());
                assert_eq!(written, *expected, "{} on {backend} after {prompt:?}", case.name);
            }
            // To the end of the steps in one go, near ties or not.
            let prompt: Vec<u64> = (0..2).flat_map(|step| case.given(step)).collect();
            greedy(&model, &tokenizer, backend, &prompt, 7);
        }
        assert!(!answers.is_empty(), "{} has nothing to judge", case.name);
    }
}

#[test]
fn a_program_that_draws_its_tokens_is_told_how() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let case = model_cases().into_iter().find(|case| case.writes_text() && case.draws_itself()).unwrap();
    let model = folder.write("model.pte", &case.program);
    let prompt = text_of(&case.given(0));
    let common = ["--model", &model, "--tokenizer", &tokenizer, "--raw", "--max-new", "8", &prompt];
    let ask = |more: &[&str]| json_of(&[&common[..], more].concat());
    let drawn = |seed| tokens(&ask(&["--temperature", "5", "--top-k", "40", "--seed", seed])["tokens"]);
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    let refused = pteron(&[&["run"], &common[..], &["--min-p", "0.1"]].concat());
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("draws its tokens itself, which leaves no room for min-p"),
        "{}",
        refused.stderr
    );
}

#[test]
fn text_streams_and_statistics_go_beside_it() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let model = folder.write("model.pte", &sample("llama_f32", "model.pte"));
    let common =
        ["run", "--model", &model, "--tokenizer", &tokenizer, "--temperature", "0", "--max-new", "3"];
    let run = pteron(&[&common[..], &["drQiDlf8"]].concat());
    assert_eq!((run.code, run.stdout.as_str()), (0, "hVV\n"), "{}", run.stderr);
    // One line that people can read; the one for tools comes on request, alone.
    assert!(
        run.stderr.starts_with("8 tokens read at ") && run.stderr.contains(", 3 written at "),
        "{}",
        run.stderr
    );
    assert!(run.stderr.lines().count() == 1 && run.stderr.len() <= 80, "{}", run.stderr);
    let run = pteron(&[&common[..], &["drQiDlf8", "--stats", "json"]].concat());
    assert!(run.stderr.starts_with("PyTorchObserver {\"prefill_token_per_sec\":"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1);
    for quiet in [&["--stats", "none"][..], &["--quiet"], &["--json"]] {
        pteron(&[&common[..], &["drQiDlf8"], quiet].concat()).ok();
    }
    // From a pipe, with and without the dash; the line end of `echo` is no part of it.
    for arguments in [&["-", "--quiet"][..], &["--quiet"]] {
        assert_eq!(pipe(&[&common[..], arguments].concat(), "drQiDlf8\n").ok(), "hVV\n");
        for nothing in ["", "\n"] {
            let run = pipe(&[&common[..], arguments].concat(), nothing);
            assert!(run.code == 2 && run.stderr.contains("the prompt is empty"), "{}", run.stderr);
        }
    }
    // A stop string, an end that comes first, and the context as the bound.
    let raw = |more: &[&str]| json_of(&[&common[1..7], &["drQiDlf8"], more].concat());
    let stopped = raw(&["--stop", "VV"]);
    assert_eq!((&stopped["text"], &stopped["finish_reason"]), (&json!("h"), &json!("stop")));
    assert_eq!(tokens(&raw(&[])["tokens"]).len(), 32 - 8);
    assert_eq!(tokens(&raw(&["--context", "12"])["tokens"]).len(), 4);
    // Without a tokenizer, tokens are all there is.
    let ids = ["run", "--quiet", "--model", &model, "--temperature", "0", "--max-new", "3", "--tokens"];
    assert_eq!(pteron(&[&ids[..], &["3,17,42,8,29,11,5,60"]].concat()).ok(), "7,47,47\n");
}

#[test]
fn what_cannot_be_answered_is_refused_with_a_reason() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let llama = folder.write("llama.pte", &sample("llama_f32", "model.pte"));
    let bert = folder.write("bert.pte", &sample("bert", "model.pte"));
    let missing = folder.at("missing.pte");
    let long = "a".repeat(32);
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--model", &missing, "hi"], 2, "there is no file or folder"),
        (&["--model", &bert, "--tokenizer", &tokenizer, "hi"], 2, "is no language model"),
        (&["--model", &llama, "hi"], 2, "carries no tokenizer"),
        (
            &["--model", &llama, "--tokenizer", &tokenizer, &long],
            1,
            "32 tokens; a context of 32 leaves no room",
        ),
        (&["--model", &llama, "--tokenizer", &tokenizer, "--context", "33", "a"], 2, "have 32"),
        (
            &["--model", &llama, "--tokenizer", &tokenizer, "--memory-limit", "64K", "a"],
            1,
            "the limit is 64.0 KiB",
        ),
        (&["--model", &llama, "--tokenizer", &tokenizer, "--temperature", "-1", "a"], 2, "temperature"),
        (&["--model", &llama, "--tokens", "64"], 1, "not in the model's vocabulary of 64"),
        (&["--model", &llama, "--tokenizer", &llama, "a"], 1, "tokenizer"),
    ];
    for (arguments, code, wanted) in cases {
        let run = pteron(&[&["run"], arguments].concat());
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(wanted), "{wanted:?} in {}", run.stderr);
    }
}

#[test]
fn a_chat_keeps_its_caches_and_takes_orders() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let saved = folder.at("chat");
    for case in ["llama_f32", "llama_offgraph", "gemma3_ring"] {
        let model = folder.write("model.pte", &sample(case, "model.pte"));
        let common = ["chat", &model, "--tokenizer", &tokenizer, "--temperature", "0", "--max-new", "2"];
        let talk = |lines: &str| {
            let run = pipe(&common, lines);
            assert_eq!(run.code, 0, "{case}: {}", run.stderr);
            (run.stdout, run.stderr)
        };
        let (answers, told) =
            talk(&format!("hello\nwhy\n/stats\n/undo\nwho\n/save {saved}\n/nothing\n/quit\nunread\n"));
        assert!(told.contains("taken back: why") && told.contains("there is no /nothing"), "{case}: {told}");
        // The second turn read a part of its prompt only.
        let line = told.lines().find(|line| line.starts_with("prompt  ")).unwrap();
        let number = |before: &str| -> u64 {
            line.split(before).next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert!(number(" read") < number(" tokens"), "{case}: {line}");
        assert!(!told.contains("PyTorchObserver"), "{case}: {told}");
        // A new session gives what the one gave that went back, and what a restored one gives. Answers may hold line
        // ends, so they are told apart by where the next one begins.
        let ([first, both], [other, more]) = (
            ["hello\n", "hello\nwhy\n"].map(|lines| talk(lines).0),
            ["who\n", "who\nmore\n"].map(|lines| talk(&format!("hello\n{lines}")).0),
        );
        assert_eq!(answers, format!("{both}{}", other.strip_prefix(&first).unwrap()), "{case}");
        let (restored, _) = talk(&format!("/load {saved}\nmore\n"));
        assert_eq!(restored, more.strip_prefix(&other).unwrap(), "{case}");
    }
}

#[test]
fn perplexity_is_that_of_every_token_in_its_window() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let text: String = (0..40u64).map(|at| characters()[(at * at % 61) as usize]).collect();
    let text = folder.write("text.txt", text.as_bytes());
    // The first gives all logits, the second those of the last token only.
    for (case, count) in [("llama_f32", 40), ("gemma4_31b_sample", 0)] {
        let model = folder.write("model.pte", &sample(case, "model.pte"));
        let common = ["perplexity", &model, &text, "--tokenizer", &tokenizer, "--json"];
        if count == 0 {
            let refused = pteron(&[&common[..], &["--window", "16"]].concat());
            assert!(refused.stdout.contains("draws its tokens itself"), "{}", refused.stdout);
            continue;
        }
        let ask = |more: &[&str]| -> Value {
            serde_json::from_str(&pteron(&[&common[..], more].concat()).ok()).unwrap()
        };
        let windows = ask(&["--window", "16", "--divergence"]);
        assert_eq!((&windows["windows"], &windows["scored_tokens"]), (&json!(3), &json!(count - 3)));
        let perplexity = windows["perplexity"].as_f64().unwrap();
        assert!(perplexity > 1.0 && perplexity < 10_000.0, "{windows}");
        assert!(windows["fast"]["mean_kl_divergence"].as_f64().unwrap() < 1e-6, "{windows}");
        let cut = ask(&["--window", "16", "--tokens", "20"]);
        assert_eq!((&cut["windows"], &cut["scored_tokens"]), (&json!(2), &json!(18)));
        let refused = pteron(&[&common[..], &["--window", "33"]].concat());
        assert!(refused.code == 2 && refused.stdout.contains("the context has 32"), "{}", refused.stdout);
    }
}

#[test]
fn guesses_change_no_answer_and_are_told_in_the_statistics() {
    let folder = Folder::new();
    let (source, model) = (checkpoint(&folder, "smollm2-bf16"), folder.at("model.pte"));
    pteron(&["export", &source, "-o", &model, "--activations", "f32"]).ok();
    let choosing = ["run", "--temperature", "0", "--ignore-eos", "--max-new", "20", "--stats", "json"];
    let loading = ["--model", &model, "--precision", "exact", "--tokens", "5,6,7,5,6,7,5,6"];
    let ask = |how: &str| pteron(&[&choosing[..], &loading, &["--speculate", how]].concat());
    let count = |run: &Run, key: &str| -> u64 {
        let line: Value = serde_json::from_str(run.stderr.strip_prefix("PyTorchObserver ").unwrap()).unwrap();
        line[key].as_u64().unwrap()
    };
    let plain = ask("off");
    assert_eq!((plain.code, count(&plain, "proposed_tokens")), (0, 0));
    let draft = format!("draft={model}");
    for how in ["auto", "lookup", &draft] {
        let guessed = ask(how);
        assert_eq!((guessed.code, &guessed.stdout), (0, &plain.stdout), "{how}");
        let (proposed, accepted) = (count(&guessed, "proposed_tokens"), count(&guessed, "accepted_tokens"));
        assert!(accepted <= proposed, "{how}");
        assert!(!how.starts_with("draft") || accepted >= 10, "{how}: {accepted} of {proposed}");
    }
    // In words, on a line of their own.
    let words = pteron(&[&choosing[..6], &loading, &["--speculate", &draft]].concat()).stderr;
    assert!(words.contains("\nspeculation: ") && words.contains(" guessed tokens accepted\n"), "{words}");
    let refused = ask("sometimes");
    assert!(refused.code == 2 && refused.stderr.contains("draft=MODEL is wanted"), "{}", refused.stderr);
    let missing = ask("draft=nowhere.pte");
    assert!(missing.code != 0 && missing.stderr.contains("nowhere.pte"), "{}", missing.stderr);
}

#[test]
fn an_answer_that_is_cut_off_says_by_what() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let model = folder.write("model.pte", &sample("llama_f32", "model.pte"));
    let common = ["chat", &model, "--tokenizer", &tokenizer, "--temperature", "0", "--ignore-eos"];
    let talk = |more: &[&str], lines: &str| pipe(&[&common[..], more].concat(), lines).stderr;
    let bounded = talk(&["--max-new", "2"], "hello\n");
    assert!(bounded.contains("(cut off after 2 tokens, as --max-new has it)"), "{bounded}");
    // The context has 32 positions: full after one answer, and the next question has no room until turns are dropped.
    let full = talk(&[], "hello\nwhy\n/drop 1\nwhy\n/drop x\n");
    assert!(full.contains("(cut off: the context of 32 tokens is full; /drop N makes room)"), "{full}");
    assert!(full.contains("error: the context of 32 positions is full"), "{full}");
    assert!(full.contains("hint: `/drop N` leaves the N oldest turns out"), "{full}");
    assert!(full.contains("1 turns are left out; the model is shown the last 0"), "{full}");
    assert!(full.contains("write behind /drop how many"), "{full}");
    assert_eq!(full.matches("error: ").count(), 1, "{full}");
    let sliding = talk(&["--when-full", "drop"], "hello\nwhy\n");
    assert!(sliding.contains("(the context is full: the 1 oldest turns are left out)"), "{sliding}");
    assert!(!sliding.contains("error: "), "{sliding}");
}

#[test]
fn a_saved_conversation_replaces_no_other_file_and_names_its_model() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let program = sample("llama_f32", "model.pte");
    let (owl, raven) = (folder.write("owl.pte", &program), folder.write("raven.pte", &program));
    let precious = folder.write("precious.txt", b"mine");
    let saved = folder.at("talk.chat");
    let common = ["--tokenizer", &tokenizer, "--temperature", "0", "--max-new", "2"];
    let lines = format!("hello\n/save {precious}\n/save {saved}\n/save {saved}\n");
    let told = pipe(&[&["chat", &owl], &common[..]].concat(), &lines).stderr;
    assert!(told.contains("is there already and is no conversation"), "{told}");
    assert_eq!(told.matches("saved\n").count(), 2, "{told}");
    assert_eq!(std::fs::read(&precious).unwrap(), b"mine");
    let resume = |model: &str| pipe(&[&["chat", model, "--resume", &saved], &common[..]].concat(), "why\n");
    let (same, other) = (resume(&owl), resume(&raven));
    assert!(!same.stderr.contains("was held with"), "{}", same.stderr);
    let wanted = "this conversation was held with owl.pte; raven.pte goes on with it";
    assert!(other.stderr.contains(wanted), "{}", other.stderr);
    assert_eq!(same.stdout, other.stdout);
}

#[test]
fn a_list_of_messages_that_cannot_be_answered_is_told() {
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let model = folder.write("model.pte", &sample("llama_f32", "model.pte"));
    let ask = |messages: &str| {
        let file = folder.write("messages.json", messages.as_bytes());
        pteron(&["run", "--model", &model, "--tokenizer", &tokenizer, "--messages", &file])
    };
    let broken = ask("[{\"role\": \"user\"}]");
    assert!(
        broken.code == 1 && broken.stderr.contains("message 1: it has no `content`"),
        "{}",
        broken.stderr
    );
    let plain = ask("[{\"role\": \"user\", \"content\": \"hello\"}]");
    assert!(plain.code == 2 && plain.stderr.contains("carries no chat template"), "{}", plain.stderr);
    let both = pteron(&["run", "--messages", "x.json", "hello"]);
    assert!(both.code == 2 && both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[cfg(unix)]
#[test]
fn an_interrupted_answer_ends_with_the_status_of_an_interrupt() {
    use std::io::Read;
    let folder = Folder::new();
    let tokenizer = character_tokenizer(&folder);
    let model = folder.write("model.pte", &sample("llama_offgraph", "model.pte"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    let common = ["run", "--raw", "--model", &model, "--tokenizer", &tokenizer, "--backend", "reference"];
    let command = command.args(common).args(["--context", "100000", "--ignore-eos", "hello"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The key is listened to before the first word comes.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
