//! `cargo xtask serve-bench`: how fast `pteron serve` answers many clients on this machine, beside llama.cpp's library with
//! as many sequences in one batch, turn by turn in one run; what a warm prefix saves; mixed load for minutes or hours; and
//! crowds of connections.

mod crowd;
mod load;
mod mixed;
mod peer;
mod prefix;
mod rows;

use std::path::{Path, PathBuf};
use std::thread;

use crate::Outcome;
use crate::bench::files::Files;
use crate::bench::rounds::take_turns;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::language::pull;
use crate::serving::{Environment, Server, Start, binary};
use rows::{Report, Row};

/// Measure `pteron serve` with many clients, beside llama.cpp with as many sequences in one batch.
///
/// Every client streams one answer after the other; prompts are the same tokens on both sides and answers have the same
/// length. Told are tokens a second of all together, the time to the first token and between two tokens (median and 99th
/// percentile), and how long a question behind a prefix of 1,000 tokens takes when the prefix is warm, by when it is cold. The
/// peer is that of `cargo xtask bench`. Keep the machine quiet while it measures.
///
/// With --mixed, one model is asked in many ways for so many minutes; 5 % of the clients vanish and 1 % send nonsense. Told are
/// errors of the server's, resident memory over time and whether every slot is free at the end; the status says whether
/// there were no errors, all slots are free and, from half an hour on, memory grew by less than 1 % after its first sixth.
///
/// With --crowd, so many connections are opened that say nothing, half of a request, or take nothing of their answers, to a
/// server with the usual number of places and to one with room for all. Told is how soon it answers others meanwhile, and what
/// it holds.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these models of the registry; may be given several times [default: SmolLM2 and the Qwen coder of 0.5 B].
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Numbers of clients.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 4, 8, 16])]
    clients: Vec<usize>,
    /// Answers that each client asks for.
    #[arg(long, value_name = "N", default_value_t = 3)]
    answers: usize,
    /// Words of a prompt.
    #[arg(long, value_name = "N", default_value_t = 100)]
    prompt: usize,
    /// Tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 64)]
    new: usize,
    /// How often each side takes its turn.
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: usize,
    /// Threads of both sides [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Measure Pteron alone.
    #[arg(long)]
    alone: bool,
    /// Put the server under mixed load for so many minutes, in place of measuring.
    #[arg(long, value_name = "MINUTES")]
    mixed: Option<f64>,
    /// Open so many connections that are of no use, in place of measuring.
    #[arg(long, value_name = "N", conflicts_with = "mixed")]
    crowd: Option<usize>,
    /// Use this binary, in place of building one.
    #[arg(long, value_name = "FILE")]
    pteron: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const USUAL: [&str; 2] = ["smollm2-135m", "qwen2.5-coder-0.5b"];

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let pteron = binary(arguments.pteron.as_deref())?;
    let models: Vec<&str> = match arguments.models.as_slice() {
        [] => USUAL.to_vec(),
        models => models.iter().map(String::as_str).collect(),
    };
    if let (Some(minutes), Some(model)) = (arguments.mixed, models.first()) {
        return mixed::run(&arguments.server(&pteron, model, 8)?, model, minutes);
    }
    if let (Some(crowd), Some(model)) = (arguments.crowd, models.first()) {
        return crowd::run(|connections| arguments.server_for(&pteron, model, 8, connections), model, crowd);
    }
    let files = Files::at(Cache::locate()?.benchmarks())?;
    if !arguments.alone {
        files.make_peer()?;
    }
    let mut report = Report::default();
    for model in models {
        let gguf = pull(&pteron, model)?;
        for &clients in &arguments.clients {
            let server = arguments.server(&pteron, model, clients.max(1))?;
            let plan = load::Plan::make(&server.client(), model, clients, arguments)?;
            let ours = |round| {
                eprintln!("{model}, {clients} clients: round {} of {}", round + 1, arguments.rounds);
                plan.run(&server.client()).map(Some)
            };
            let theirs = |_| match arguments.alone {
                true => Ok(None),
                false => peer::run(&files.python(), &gguf, &plan, arguments.threads()).map(Some),
            };
            // Nobody's, like all others of the first moments.
            plan.warm_up(&server.client())?;
            let (ours, theirs) = take_turns(arguments.rounds, ours, theirs)?;
            report.rows.extend(Row::of(model, clients, &ours, &theirs));
        }
        let server = arguments.server(&pteron, model, 4)?;
        report.prefixes.push(prefix::measure(&server.client(), model)?);
    }
    match arguments.json {
        true => {
            println!("{}", serde_json::to_string(&report).map_err(|error| Error::message(error.to_string()))?)
        }
        false => println!("{report}"),
    }
    Ok(Outcome::Good)
}

impl Arguments {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
    }

    fn server(&self, pteron: &Path, model: &str, parallel: usize) -> Result<Server> {
        self.server_for(pteron, model, parallel, None)
    }

    /// The same for so many connections.
    fn server_for(
        &self,
        pteron: &Path,
        model: &str,
        parallel: usize,
        connections: Option<usize>,
    ) -> Result<Server> {
        Server::start(&Start {
            pteron,
            models: &[model],
            threads: self.threads(),
            key: None,
            parallel,
            connections,
            folder: Environment::locate()?.root(),
        })
    }
}
