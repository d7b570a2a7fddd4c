//! A server over a tiny random model whose vocabulary is the printable characters, and a client that knows nothing but
//! sockets.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; whatever cannot be had fails its test

use pteron_format::WriteOptions;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig, TokenizerFormat};
use pteron_llm::{Counts, LanguageModel, ScheduleOptions, Scheduler, Voice};
use pteron_models::architectures::Llama;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model as Built, ModelOptions, RandomWeights};
use pteron_runtime::{Options as LoadOptions, Program};
use pteron_serve::{Loaded, Model, Models, OpenError, Options, Served, Server, Stop};
use pteron_template::ChatTemplate;
use pteron_tensor::{Bytes, DType};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Printable characters, a line end, turn marks.
pub(crate) const VOCAB: usize = 102;
pub(crate) const END: u32 = 99;
pub(crate) const CONTEXT: usize = 4096;

pub(crate) const TEMPLATE: &str = "{% if tools %}<|turn|>{{ tools | tojson }}<|end|>{% endif %}{% for message in messages %}<|turn|>\
     {{ message.role }}: {{ message.content }}{% for call in message.tool_calls %}<tool_call>\
     {{ call.function | tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}\
     {% if add_generation_prompt %}<|turn|>assistant: {% endif %}";

fn tokenizer() -> Tokenizer {
    let characters = (' '..='~').chain(['\n']);
    // As byte-level vocabularies spell them.
    let spelled = characters.map(|c| match c {
        ' ' => '\u{120}',
        '\n' => '\u{10a}',
        other => other,
    });
    let vocabulary: serde_json::Map<String, Value> =
        spelled.enumerate().map(|(id, c)| (c.to_string(), id.into())).collect();
    assert_eq!(vocabulary.len(), 96);
    let marks = ["<|begin|>", "<|pad|>", "<|turn|>", "<|end|>"];
    let added: Vec<Value> = (96..)
        .zip(marks)
        .map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    });
    let tokens = BTreeMap::from([("eos_token".to_owned(), "<|end|>".to_owned())]);
    let config = TokenizerConfig { tokens, ..TokenizerConfig::default() };
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

fn model() -> LanguageModel {
    let llama = Llama {
        vocab_size: VOCAB,
        max_position_embeddings: CONTEXT,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_id: vec![END],
        ..tiny::llama()
    };
    let (activations, cache) = (DType::F32, DType::F32);
    let (context, chunk, kv) = (CONTEXT, 64, KvCache::OffGraph);
    let options = ModelOptions { activations, cache, context, chunk, kv, ..ModelOptions::default() };
    let built = Built::build(&llama, Arc::new(RandomWeights::new(7)), options).unwrap();
    let mut bytes = Vec::new();
    built.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut bytes).unwrap();
    let options = LoadOptions { batch_invariant: true, ..LoadOptions::default() };
    LanguageModel::new(Program::load("tiny.pte", Bytes::copy_of(&bytes), &[], &options).unwrap()).unwrap()
}

struct One(Arc<Model>);

impl Models for One {
    fn list(&self) -> Vec<Served> {
        vec![Served::new(self.0.name.as_str(), 1)]
    }

    fn load(&self, _: &str) -> Result<Loaded, OpenError> {
        Ok(Loaded::Talks(self.0.clone()))
    }
}

/// A server that ends with its test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: Stop,
    /// The one that is served where it is only one.
    model: Option<Arc<Model>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn counts(&self) -> Counts {
        self.model.as_ref().unwrap().handle.counts()
    }

    /// Waits for something to become true; soon, or never.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Counts) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(&self.counts()) {
            assert!(Instant::now() < end, "{what}: {:?}", self.counts());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the server has ended.
    pub(crate) fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A model whose scheduler runs.
pub(crate) fn tiny_model(
    name: &str,
    template: &str,
    change: impl FnOnce(&mut ScheduleOptions),
) -> Arc<Model> {
    let model = model();
    let voice = Voice { template: Some(ChatTemplate::new(template).unwrap()), ..Voice::new(tokenizer()) };
    let mut schedule = ScheduleOptions::default();
    change(&mut schedule);
    let (scheduler, handle) = Scheduler::new(&model, Some(&voice.tokenizer), schedule).unwrap();
    scheduler.spawn().unwrap();
    Arc::new(Model::new(name, handle, voice, SamplerSettings::default()))
}

pub(crate) fn serve(
    change_schedule: impl FnOnce(&mut ScheduleOptions),
    change: impl FnOnce(&mut Options),
) -> Running {
    serve_named("tiny", change_schedule, change)
}

/// The same with a model of another name.
pub(crate) fn serve_named(
    name: &str,
    change_schedule: impl FnOnce(&mut ScheduleOptions),
    change: impl FnOnce(&mut Options),
) -> Running {
    let model = tiny_model(name, TEMPLATE, change_schedule);
    let mut running = serve_models(Arc::new(One(model.clone())), change);
    running.model = Some(model);
    running
}

pub(crate) fn serve_models(models: Arc<dyn Models>, change: impl FnOnce(&mut Options)) -> Running {
    let mut options = Options::default();
    change(&mut options);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), models, options).unwrap();
    let (address, stop) = (server.address().unwrap(), server.stop());
    let thread = Some(std::thread::spawn(move || server.run().unwrap()));
    Running { address, stop, model: None, thread }
}

pub(crate) fn plain() -> Running {
    serve(|_| (), |_| ())
}

/// A reply, whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The events of a stream, each as JSON; the last word of it.
    pub(crate) fn events(&self) -> (Vec<Value>, String) {
        let data: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (last, events) = data.split_last().unwrap();
        (events.iter().map(|event| serde_json::from_str(event).unwrap()).collect(), (*last).to_owned())
    }
}

/// A request that was sent.
pub(crate) fn send(address: SocketAddr, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a body may close before it has all of it.
    let _ = stream.write_all(body);
    stream
}

pub(crate) fn head(method: &str, path: &str, more: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{more}\r\n"
    )
}

/// Reads a reply to its end.
pub(crate) fn receive(stream: TcpStream) -> Reply {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|kind| kind == "chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).unwrap();
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        reader.read_to_end(&mut body).unwrap();
    }
    Reply { status, headers, body: String::from_utf8(body).unwrap() }
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    receive(send(address, &head("GET", path, "", 0), b""))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    receive(send(address, &head("POST", path, "", body.len()), body.as_bytes()))
}

pub(crate) fn chat(address: SocketAddr, body: &Value) -> Reply {
    post(address, "/v1/chat/completions", body)
}

/// Biases against all tokens that show nothing.
pub(crate) fn only_characters() -> Value {
    (96..VOCAB).map(|token| (token.to_string(), Value::from(-100))).collect::<serde_json::Map<_, _>>().into()
}

/// A question with more fields; greedy, and without an end but the budget.
pub(crate) fn question(text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12,
        "logit_bias": only_characters(),
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body
}
