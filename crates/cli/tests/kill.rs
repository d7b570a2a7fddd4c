//! Processes that are killed at any moment of an export, a conversion, a save, or of serving: what is there afterwards is what
//! was there before or the whole new file, the next process works, and nothing is left of those before it.
//!
//! `cargo test --release -p pteron-cli --test kill -- --kills 200` kills each of them more often than the usual 4 times.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and this one tells how it went"
)]

mod support;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{Folder, SCALED, character_tokenizer, delegated, root, sample, weights};

/// A process, started anew after so many that were killed, must do its work.
const RESTART_EVERY: usize = 10;

/// Something that ends with a file in its place.
struct Work {
    name: &'static str,
    arguments: Vec<String>,
    /// What is typed.
    input: String,
    /// The folder that the file lands in; nothing else is in it.
    place: PathBuf,
}

/// What came of the kills of one work.
#[derive(Default)]
struct Tally {
    killed: usize,
    /// Those that left a part of a file behind.
    in_writing: usize,
    /// Those after which the new file was there.
    landed: usize,
}

/// A generator of moments, the same in every run.
struct Moments(u64);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let kills = arguments.iter().position(|argument| argument == "--kills");
    let kills = kills.map_or(4, |at| arguments[at + 1].parse().unwrap());
    let folder = Folder::new();
    let mut in_writing = 0;
    for work in works(&folder) {
        let tally = work.kill(kills);
        println!(
            "{}: killed {} times, {} of them in mid-write, {} when the file had landed",
            work.name, tally.killed, tally.in_writing, tally.landed
        );
        in_writing += tally.in_writing;
    }
    assert!(in_writing > 0, "no process was killed while it wrote");
}

/// Everything that writes a file which a later start reads.
fn works(folder: &Folder) -> Vec<Work> {
    let (checkpoint, tokenizer) = (checkpoint(folder), character_tokenizer(folder));
    let talker = folder.write("talker.pte", &sample("llama_f32", "model.pte"));
    let program = folder.write("large.pte", &large_program());
    let archive = root().join("crates/import/tests/data/layers.pt2").display().to_string();
    let work = |name: &'static str, file: &str, input: &str, arguments: &[&str]| {
        let place = folder.path(name);
        fs::create_dir(&place).unwrap();
        let file = place.join(file).display().to_string();
        let put =
            |text: &&str| text.replace("{file}", &file).replace("{place}", &place.display().to_string());
        Work {
            name,
            arguments: arguments.iter().map(put).collect(),
            input: put(&input),
            place: place.clone(),
        }
    };
    let random =
        ["--shape", "smollm2-135m", "--quantize", "2w", "--prompt", "1", "--new", "1", "--repeats", "1"];
    vec![
        work("export", "model.pte", "", &["export", &checkpoint, "-o", "{file}"]),
        work(
            "conversion",
            "",
            "",
            &[
                "run",
                "--model",
                &checkpoint,
                "--tokens",
                "1,2",
                "--max-new",
                "1",
                "--quiet",
                "--temperature",
                "0",
            ],
        ),
        work(
            "serve",
            "",
            "",
            &["serve", &checkpoint, "--tokenizer", &tokenizer, "--port", "0", "--threads", "1"],
        ),
        work(
            "chat",
            "talk",
            "hello\nwhy\n/save {file}\n/quit\n",
            &["chat", &talker, "--tokenizer", &tokenizer, "--temperature", "0", "--max-new", "2"],
        ),
        work("rewrite", "model.pte", "", &["rewrite", &program, "{file}"]),
        work("compile", "model.pte", "", &["compile", &archive, "-o", "{file}"]),
        work("bench", "model.pte", "", &[&["bench", "--save", "{file}"], &random[..]].concat()),
    ]
}

impl Work {
    fn kill(&self, kills: usize) -> Tally {
        self.clear();
        let start = Instant::now();
        assert!(self.is_done(), "{} fails unkilled", self.name);
        let whole_run = start.elapsed();
        let whole = self.landed();
        assert!(!whole.is_empty(), "{} writes nothing", self.name);
        let mut moments = Moments(kills as u64);
        let mut tally = Tally::default();
        let mut attempts = 0;
        while tally.killed < kills {
            attempts += 1;
            assert!(attempts < 20 * kills + 20, "{} ends before it can be killed", self.name);
            // With nothing there, and with a file that must stay until the new one takes its place.
            let before = if attempts % 2 == 0 { self.spoil(&whole) } else { Vec::new() };
            if before.is_empty() {
                self.clear();
            }
            let parts = self.parts();
            let status = match attempts % 4 {
                0 | 1 => self.kill_after(moments.up_to(whole_run)),
                _ => self.kill_in_writing(moments.up_to(Duration::from_millis(3)), whole_run),
            };
            if status.success() {
                continue;
            }
            tally.killed += 1;
            let is_new = |part: &PathBuf| !parts.contains(part);
            tally.in_writing += usize::from(self.parts().iter().any(is_new));
            let after = self.landed();
            assert!(
                after == before || self.is_of(&after, &whole),
                "{} left a file that is not whole",
                self.name
            );
            tally.landed += usize::from(after == whole);
            if tally.killed.is_multiple_of(RESTART_EVERY) || tally.killed == kills {
                assert!(self.is_done(), "{}: the next start fails", self.name);
                assert_eq!(self.landed(), whole, "{}: the next start gives something else", self.name);
                assert_eq!(self.parts(), Vec::<PathBuf>::new(), "{}: parts are left", self.name);
            }
        }
        tally
    }

    /// Whether its files land in a store, one after the other, by names that say what they are made of.
    fn converts(&self) -> bool {
        self.serves() || self.name == "conversion"
    }

    /// Whether it goes on until it is told to end.
    fn serves(&self) -> bool {
        self.name == "serve"
    }

    /// Whether that is all that lands, or, of a conversion, the weights whose program is still to come.
    fn is_of(&self, after: &[Vec<u8>], whole: &[Vec<u8>]) -> bool {
        after == whole || self.converts() && after.iter().all(|file| whole.contains(file))
    }

    /// Does its work to the end; whether it could.
    fn is_done(&self) -> bool {
        let mut child = self.start();
        if self.serves() {
            answers(&mut child);
            let end = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
            assert!(end.success());
        }
        child.wait().unwrap().success()
    }

    fn start(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
        command.args(&self.arguments).env("PTERON_HOME", &self.place);
        let out = if self.serves() { Stdio::piped() } else { Stdio::null() };
        command.stdin(Stdio::piped()).stdout(out).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A process that has ended already shows that by its status.
        let _ = child.stdin.take().unwrap().write_all(self.input.as_bytes());
        child
    }

    fn kill_after(&self, moment: Duration) -> ExitStatus {
        let mut child = self.start();
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap()
    }

    /// Waits for a new file to appear before it counts the moment.
    fn kill_in_writing(&self, moment: Duration, at_most: Duration) -> ExitStatus {
        let before = files(&self.place);
        let mut child = self.start();
        let end = Instant::now() + at_most;
        while files(&self.place).iter().all(|path| before.contains(path)) && Instant::now() < end {
            std::hint::spin_loop();
        }
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap()
    }

    /// The contents of the files that a later start would use, in the order of their names.
    fn landed(&self) -> Vec<Vec<u8>> {
        files(&self.place).iter().filter(|path| is_used(path)).map(|path| fs::read(path).unwrap()).collect()
    }

    /// Files that are being written, or were when their process ended.
    fn parts(&self) -> Vec<PathBuf> {
        files(&self.place).into_iter().filter(|path| is_aside(path)).collect()
    }

    /// Takes away what has landed. Parts stay, for the next process to find.
    fn clear(&self) {
        for path in files(&self.place) {
            if is_used(&path) {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Puts an older file in the place of the one that landed; what is there then. In a store nothing is ever replaced.
    fn spoil(&self, whole: &[Vec<u8>]) -> Vec<Vec<u8>> {
        if self.converts() || self.landed() != whole {
            return Vec::new();
        }
        for path in files(&self.place) {
            if is_used(&path) {
                fs::write(path, self.older()).unwrap();
            }
        }
        self.landed()
    }

    /// What the new file may take the place of: chat replaces nothing but conversations.
    fn older(&self) -> &'static [u8] {
        if self.name == "chat" { b"pteron conversation 1 of days gone by" } else { b"an older file" }
    }
}

/// Asks a server that has just been started for an answer.
fn answers(server: &mut Child) {
    let mut told = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut told).unwrap();
    let place = told.trim().split_once("http://").unwrap_or_else(|| panic!("{told:?}")).1;
    let mut stream = TcpStream::connect(place.trim_end_matches("/v1")).unwrap();
    let body = json!({"prompt": "hello", "max_tokens": 1}).to_string();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nContent-Length: ";
    stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

impl Moments {
    fn up_to(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        most.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Whether a later start would take the file for a model or a conversation: not what is being written, and not the
/// locks and records of a store.
fn is_used(path: &Path) -> bool {
    let is_record = path.extension().is_some_and(|ending| ending == "json");
    !is_aside(path) && !is_record && path.iter().all(|name| name != "locks")
}

/// Whether the file is one that is being written, or was when its process ended.
fn is_aside(path: &Path) -> bool {
    let hidden = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('.'));
    hidden || path.iter().any(|name| name == "partial")
}

/// All files below a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // A folder or a file may go while it is looked at.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(_) => found.push(entry.path()),
            Err(_) => {}
        }
    }
    found.sort();
    found
}

/// A checkpoint of a few megabytes, so that writing it takes a while.
fn checkpoint(folder: &Folder) -> String {
    const VOCABULARY: usize = 8192;
    const WIDTH: usize = 256;
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
        "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "vocab_size": VOCABULARY, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1,
        "eos_token_id": 2
    });
    let layer = "model.layers.0";
    let shapes = [
        ("lm_head".to_owned(), vec![VOCABULARY, WIDTH]),
        ("model.embed_tokens".to_owned(), vec![VOCABULARY, WIDTH]),
        ("model.norm".to_owned(), vec![WIDTH]),
        (format!("{layer}.input_layernorm"), vec![WIDTH]),
        (format!("{layer}.post_attention_layernorm"), vec![WIDTH]),
        (format!("{layer}.mlp.gate_proj"), vec![2 * WIDTH, WIDTH]),
        (format!("{layer}.mlp.up_proj"), vec![2 * WIDTH, WIDTH]),
        (format!("{layer}.mlp.down_proj"), vec![WIDTH, 2 * WIDTH]),
        (format!("{layer}.self_attn.q_proj"), vec![WIDTH, WIDTH]),
        (format!("{layer}.self_attn.k_proj"), vec![WIDTH / 2, WIDTH]),
        (format!("{layer}.self_attn.v_proj"), vec![WIDTH / 2, WIDTH]),
        (format!("{layer}.self_attn.o_proj"), vec![WIDTH, WIDTH]),
    ];
    let bytes = noise(2 * VOCABULARY * WIDTH);
    let view = |(name, shape): (String, Vec<usize>)| {
        let size = 2 * shape.iter().product::<usize>();
        (format!("{name}.weight"), TensorView::new(Dtype::BF16, shape, &bytes[..size]).unwrap())
    };
    fs::create_dir(folder.path("checkpoint")).unwrap();
    folder.write("checkpoint/config.json", config.to_string().as_bytes());
    let file = safetensors::serialize(shapes.into_iter().map(view), None).unwrap();
    folder.write("checkpoint/model.safetensors", &file);
    folder.at("checkpoint")
}

/// A program that carries four megabytes.
fn large_program() -> Vec<u8> {
    let mut carried = weights();
    carried.push(("ballast", noise(4 << 20)));
    delegated(SCALED, &carried)
}

/// Bytes that are small numbers as bf16.
fn noise(size: usize) -> Vec<u8> {
    let mut moments = Moments(7);
    let pair = |_| [moments.up_to(Duration::from_nanos(255)).as_nanos() as u8, 0x3c];
    (0..size / 2).flat_map(pair).collect()
}
