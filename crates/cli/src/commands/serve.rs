//! `pteron serve`: models over HTTP, for programs that speak OpenAI's interface.

use crate::failure::{self, Failure};
use crate::output::{Output, complain};
use crate::serving::{Sharing, Shelf, usual_memory};
use crate::talk::load::Loading;
use crate::talk::memory;
use pteron_serve::{KeepAlive, Options, Server};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Answer requests over HTTP, for clients of OpenAI, Anthropic and Ollama
///
/// Chats, completions, responses, tools, JSON schemas, streams and transcripts, for many clients at once; /openapi.json
/// describes all of it. Only this machine can reach it unless `--host` says otherwise. MODEL is what `pteron run --model`
/// takes. A single one is loaded before the first request, of several each when somebody asks for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron serve
  pteron serve smollm2-135m model.pte --port 9000
  pteron serve smollm2-135m qwen3-0.6b --memory-budget 4G --keep-alive 10m
  pteron serve smollm2-135m --speech whisper-tiny.en --embed all-minilm-l6-v2
  pteron serve --host 0.0.0.0 --api-key-file keys.txt
  curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'

Ends on an interrupt or SIGTERM, once the answers under way have come to their end.")]
pub(crate) struct Arguments {
    /// The models [default: the default model]
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// The address to listen at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port to listen at; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Answer only those who send one of the keys in this file, one a line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Answers that a model writes at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Requests that may wait for a model; others are told to come back later
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Connections at once; one that says nothing makes room for one that asks
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// A model that writes down what it hears, at /v1/audio/transcriptions
    #[arg(long, value_name = "MODEL")]
    speech: Vec<String>,
    /// A model that makes vectors of texts, at /v1/embeddings
    #[arg(long, value_name = "MODEL")]
    embed: Vec<String>,
    /// Load all models before the first request
    #[arg(long)]
    preload: bool,
    /// Memory for all models and their answers; the least used are dropped for those that are asked for [default: nearly
    /// all that is free]
    #[arg(long, value_name = "SIZE", value_parser = memory::parse)]
    memory_budget: Option<u64>,
    /// How long a model stays that nobody uses: 5m, 1h; 0 drops it at once, -1 keeps it
    #[arg(long, value_name = "TIME", default_value = "-1", allow_hyphen_values = true, value_parser = keep_alive)]
    keep_alive: KeepAlive,
    /// Let pages of this origin ask, such as `https://chat.example.org`; `*` for all
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors: Vec<String>,
    /// Log what is asked too, where PTERON_LOG=info logs requests
    #[arg(long)]
    log_prompts: bool,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<failure::Answer, Failure> {
    let mut options = Options::default();
    options.signals = true;
    if let Some(path) = &arguments.api_key_file {
        options.keys = keys(path)?;
    }
    options.origins.clone_from(&arguments.cors);
    let one = arguments.models.len() + arguments.speech.len() + arguments.embed.len() <= 1;
    let memory = arguments.memory_budget.unwrap_or_else(usual_memory);
    // One model alone may be mapped, and then be larger than what is free.
    options.memory = if one && arguments.memory_budget.is_none() { u64::MAX } else { memory };
    options.keep_alive = arguments.keep_alive;
    options.log_prompts = arguments.log_prompts;
    options.connections = arguments.connections as usize;
    let open = options.keys.is_empty() && !arguments.host.is_loopback();
    let sharing = Sharing { parallel: arguments.parallel.into(), queue: arguments.queue.into(), memory };
    let Arguments { models, speech, embed, loading, .. } = arguments;
    let loading = loading.clone().for_many();
    let shelf = Arc::new(Shelf::new(models, speech, embed, &loading, sharing)?);
    let names: Vec<String> = shelf.names().into_iter().map(str::to_owned).collect();
    let early = arguments.preload || names.len() == 1;
    let address = SocketAddr::new(arguments.host, arguments.port);
    let failed = |error: std::io::Error| Failure::new(format!("cannot listen at {address}: {error}"));
    let server = Server::bind(address, shelf.clone(), options).map_err(failed)?;
    for name in names.iter().filter(|_| early) {
        shelf.prepare(name)?;
        server.load(name).map_err(|error| Failure::new(format!("{name}: {error}")))?;
    }
    let address = server.address().map_err(failed)?;
    if open {
        complain(&format!("anybody who reaches {address} can use it; `--api-key-file` asks for keys\n"));
    }
    out.line(format!("serving {} at http://{address}/v1", names.join(", ")))?;
    out.flush()?;
    server.run().map_err(|error| Failure::new(format!("the server stopped: {error}")))?;
    Ok(failure::Answer::Yes)
}

fn keep_alive(text: &str) -> Result<KeepAlive, String> {
    KeepAlive::parse(text).ok_or_else(|| format!("`{text}` is no time; write it as 5m, 90s or -1"))
}

fn origin(text: &str) -> Result<String, String> {
    let place = text.split_once("://").filter(|(scheme, place)| !scheme.is_empty() && !place.is_empty());
    let is_origin = text == "*" || place.is_some_and(|(_, place)| !place.contains('/'));
    match is_origin {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is no origin; write it as https://chat.example.org, without a path")),
    }
}

/// The keys in a file, one a line; lines that begin with # are for people.
fn keys(path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::in_file(path, error))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<String> = lines.map(str::to_owned).collect();
    match keys.is_empty() {
        true => Err(Failure::in_file(path, "there is no key in it").hint("write one a line")),
        false => Ok(keys),
    }
}
