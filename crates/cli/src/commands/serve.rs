//! `pteron serve`: models over HTTP, for programs that speak OpenAI's interface.

use crate::failure::{self, Failure};
use crate::output::{Output, complain};
use crate::talk::load::Loading;
use pteron::parts::machine::memory;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::{ScheduleOptions, Scheduler};
use pteron_serve::{Model, Models, OpenError, Options, Served, Server};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Answer requests over HTTP, as OpenAI's interface has them
///
/// Chats, completions, tools, JSON schemas and streams at /v1/chat/completions and /v1/completions, for many clients at
/// once. Only this machine can reach it unless `--host` says otherwise. MODEL is what `pteron run --model` takes; all are
/// loaded before the first request.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron serve
  pteron serve smollm2-135m model.pte --port 9000
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
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<failure::Answer, Failure> {
    let mut options = Options::default();
    options.signals = true;
    if let Some(path) = &arguments.api_key_file {
        options.keys = keys(path)?;
    }
    let open = options.keys.is_empty() && !arguments.host.is_loopback();
    let names: Vec<Option<&str>> = match arguments.models.as_slice() {
        [] => vec![None],
        models => models.iter().map(|model| Some(model.as_str())).collect(),
    };
    let mut models = Vec::with_capacity(names.len());
    for name in &names {
        models.push(arguments.open(*name, names.len() as u64)?);
    }
    let served = models.iter().map(|model| model.name.clone()).collect::<Vec<_>>().join(", ");
    let address = SocketAddr::new(arguments.host, arguments.port);
    let failed = |error: std::io::Error| Failure::new(format!("cannot listen at {address}: {error}"));
    let models = Open { models, created: seconds() };
    let server = Server::bind(address, Arc::new(models), options).map_err(failed)?;
    let address = server.address().map_err(failed)?;
    if open {
        complain(&format!("anybody who reaches {address} can use it; `--api-key-file` asks for keys\n"));
    }
    out.line(format!("serving {served} at http://{address}/v1"))?;
    out.flush()?;
    server.run().map_err(|error| Failure::new(format!("the server stopped: {error}")))?;
    Ok(failure::Answer::Yes)
}

impl Arguments {
    /// Loads a model and starts its scheduler; it shares what memory is free with so many.
    fn open(&self, name: Option<&str>, models: u64) -> Result<Arc<Model>, Failure> {
        let loaded = self.loading.load(name)?;
        let voice = loaded.voice()?.clone();
        let mut options = ScheduleOptions::default();
        options.parallel = self.parallel.into();
        options.queue = self.queue.into();
        options.kept = options.parallel;
        options.context = self.loading.context;
        options.memory = memory().map_or(u64::MAX, |(_, free)| free / 2 / models);
        let (scheduler, handle) = Scheduler::new(loaded.language(), Some(&voice.tokenizer), options)?;
        let start = scheduler.spawn();
        start.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
        let usual = SamplerSettings { temperature: 0.7, ..SamplerSettings::default() };
        let sampling = loaded.suggested().over(usual);
        Ok(Arc::new(Model::new(called(loaded.name()), handle, voice, sampling)))
    }
}

/// What clients call a model: its name, or that of its file without the folder.
fn called(name: &str) -> String {
    let path = Path::new(name);
    let stem = path.file_stem().filter(|_| path.exists()).and_then(|stem| stem.to_str());
    stem.unwrap_or(name).to_owned()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
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

/// Models that were loaded when the server began.
struct Open {
    models: Vec<Arc<Model>>,
    created: u64,
}

impl Models for Open {
    fn list(&self) -> Vec<Served> {
        let served = |model: &Arc<Model>| Served { name: model.name.clone(), created: self.created };
        self.models.iter().map(served).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<Model>, OpenError> {
        self.models.iter().find(|model| model.name == name).cloned().ok_or(OpenError::Unknown)
    }

    fn opened(&self) -> Vec<Arc<Model>> {
        self.models.clone()
    }
}
