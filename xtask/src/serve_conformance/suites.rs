//! The suites: how each is run, and what it says of every check.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::probe;
use crate::error::{Doing, Result};
use crate::serving::{Environment, Server, scripts};

/// A suite by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Suite {
    Contract,
    Wire,
    Clients,
    Langchain,
    Llmprobe,
    Schemathesis,
    Page,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// It asks more than that a model answers in the right form, and this one is too small.
    Beyond,
    /// It asks for what the interface itself says otherwise; the reason is told with it.
    Disputed,
    /// The suite left it out: for what we do not offer, or by its own choice.
    Skipped,
}

/// One check, as scripts tell it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) outcome: Verdict,
    #[serde(default)]
    pub(super) detail: String,
}

impl Check {
    pub(super) fn new(name: impl Into<String>, good: bool, detail: impl Into<String>) -> Check {
        let outcome = if good { Verdict::Passed } else { Verdict::Failed };
        Check { name: name.into(), outcome, detail: detail.into() }
    }
}

/// The server that is asked.
pub(super) struct Subject<'a> {
    pub(super) environment: &'a Environment,
    pub(super) url: String,
    pub(super) key: &'a str,
    pub(super) model: &'a str,
    pub(super) small: &'a str,
    pub(super) quick: bool,
}

impl Suite {
    /// The quick ones first.
    pub(super) const ALL: [Suite; 7] = [
        Suite::Contract,
        Suite::Wire,
        Suite::Clients,
        Suite::Schemathesis,
        Suite::Llmprobe,
        Suite::Langchain,
        Suite::Page,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Suite::Contract => "contract",
            Suite::Wire => "wire",
            Suite::Clients => "clients",
            Suite::Langchain => "langchain",
            Suite::Llmprobe => "llmprobe",
            Suite::Schemathesis => "schemathesis",
            Suite::Page => "page",
        }
    }

    pub(super) fn needs_python(self) -> bool {
        !matches!(self, Suite::Llmprobe | Suite::Page)
    }

    pub(super) fn needs_node(self) -> bool {
        matches!(self, Suite::Clients | Suite::Llmprobe | Suite::Page)
    }

    /// Whether it asks a server that takes no keys.
    pub(super) fn open(self) -> bool {
        self == Suite::Page
    }

    pub(super) fn run(self, subject: &Subject<'_>) -> Result<Vec<Check>> {
        match self {
            Suite::Contract => subject.python("contract.py"),
            Suite::Wire => subject.python("wire.py"),
            Suite::Langchain => subject.python("langchain_suite.py"),
            Suite::Clients => {
                Ok([subject.python("clients.py")?, subject.javascript("clients.mjs")?].concat())
            }
            Suite::Page => subject.javascript("page.mjs"),
            Suite::Llmprobe => probe::run(subject),
            Suite::Schemathesis => subject.python("schemathesis_suite.py"),
        }
    }
}

impl Subject<'_> {
    fn python(&self, script: &str) -> Result<Vec<Check>> {
        let mut command = Command::new(self.environment.python("python"));
        // -B: no compiled modules in the checkout.
        command.arg("-B").arg(scripts().join(script));
        self.checks(command, script)
    }

    fn javascript(&self, script: &str) -> Result<Vec<Check>> {
        let mut command = Command::new("node");
        command.arg(scripts().join(script));
        self.checks(command, script)
    }

    /// Runs a script that tells of each check by a line of JSON.
    fn checks(&self, mut command: Command, script: &str) -> Result<Vec<Check>> {
        command
            .env("PTERON_URL", &self.url)
            .env("PTERON_KEY", self.key)
            .env("PTERON_MODEL", self.model)
            .env("PTERON_SMALL", self.small)
            .env("PTERON_NODE", self.environment.node())
            .env("PTERON_SHOTS", self.environment.root().join("shots"));
        let log = self.environment.root().join(format!("{script}.log"));
        let errors = std::fs::File::create(&log).doing("write", &log)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = child.doing("start", script)?;
        let mut checks = Vec::new();
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.doing("read", script)?;
                checks.extend(serde_json::from_str::<Check>(&line).ok());
            }
        }
        let status = child.wait().doing("wait for", script)?;
        if !status.success() || checks.is_empty() {
            let told = format!("{status}, {} checks; {} has what it said", checks.len(), log.display());
            checks.push(Check::new(format!("{script} runs to its end"), false, told));
        }
        Ok(checks)
    }
}

/// Whether the server has outlived a suite, with nothing left under way.
pub(super) fn health(server: &mut Server) -> Check {
    let runs = server.runs();
    let left = |name: &str| server.counted(name).ok();
    let under_way = || (left("pteron:num_requests_waiting"), left("pteron:num_requests_running"));
    // Clients that left are noticed within a step.
    for _ in 0..50 {
        if under_way() == (Some(0.0), Some(0.0)) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let ((waiting, running), failed) = (under_way(), left("pteron:requests_failed_total"));
    let good = runs && (waiting, running, failed) == (Some(0.0), Some(0.0), Some(0.0));
    let told = format!("runs: {runs}, waiting {waiting:?}, running {running:?}, failed {failed:?}");
    Check::new("every slot is free at the end and no answer has failed", good, told)
}
