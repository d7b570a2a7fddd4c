//! `cargo xtask serve-conformance`: suites that others wrote, and the official clients, against a `pteron serve` with real
//! small models on this machine.

mod probe;
mod suites;
mod table;

use std::path::PathBuf;

use crate::Outcome;
use crate::error::Result;
use crate::serving::{Environment, Server, Start, binary};
use suites::Suite;
use table::Table;

/// Ask `pteron serve` by suites that others wrote and by the official clients.
///
/// Builds the release binary and serves two small models at a free port of this machine. Packages come by name and version
/// into the cache folder (pip and npm; Node 20). Suites: llmprobe's MUST checks; ExecuTorch's contract, written anew; every
/// kind of reply held strictly to the types of the packages `openai`, `anthropic` and `ollama`; these clients in Python and
/// JavaScript; LangChain's tests of chat models; random requests by schemathesis over /openapi.json; the page in a headless
/// Chromium with axe. What a small model cannot be held to is named, with the reason, and so is what a suite asks against the
/// interface that it is about. The last line sums up.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this suite; may be repeated.
    #[arg(long, value_name = "SUITE")]
    only: Vec<Suite>,
    /// The model that is asked to call tools.
    #[arg(long, value_name = "MODEL", default_value = "qwen2.5-coder-0.5b")]
    model: String,
    /// A smaller one, for whatever any model can do.
    #[arg(long, value_name = "MODEL", default_value = "smollm2-135m")]
    small: String,
    /// Use this binary, in place of building one.
    #[arg(long, value_name = "FILE")]
    pteron: Option<PathBuf>,
    /// Threads of the server.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Leave out llmprobe's slow checks (long contexts, caches, many at once).
    #[arg(long)]
    quick: bool,
}

/// What clients send; the server takes no other.
const KEY: &str = "key-of-the-suites";

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let suites: Vec<Suite> = match arguments.only.as_slice() {
        [] => Suite::ALL.to_vec(),
        only => only.to_vec(),
    };
    let environment = Environment::locate()?;
    if suites.iter().any(|suite| suite.needs_python()) {
        environment.make_python()?;
    }
    if suites.iter().any(|suite| suite.needs_node()) {
        environment.make_node()?;
    }
    let pteron = binary(arguments.pteron.as_deref())?;
    let (model, small) = (arguments.model.as_str(), arguments.small.as_str());
    let mut table = Table::default();
    for open in [false, true] {
        let of_kind: Vec<Suite> = suites.iter().copied().filter(|suite| suite.open() == open).collect();
        if of_kind.is_empty() {
            continue;
        }
        // The page is asked by people, who have no key at first, and needs one model only.
        let (both, one) = ([model, small], [small]);
        let mut server = Server::start(&Start {
            pteron: &pteron,
            models: if open || model == small { &one } else { &both },
            threads: arguments.threads,
            key: (!open).then_some(KEY),
            parallel: 8,
            connections: None,
            folder: environment.root(),
        })?;
        for suite in of_kind {
            eprintln!("{}", suite.name());
            let subject = suites::Subject {
                environment: &environment,
                url: server.url(),
                key: if open { "" } else { KEY },
                model,
                small,
                quick: arguments.quick,
            };
            table.add(suite.name(), suite.run(&subject)?);
        }
        table.add("server", vec![suites::health(&mut server)]);
    }
    println!("{table}");
    Ok(if table.is_good() { Outcome::Good } else { Outcome::Bad })
}
