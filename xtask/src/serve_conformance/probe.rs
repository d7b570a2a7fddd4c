//! llmprobe: an npm package that probes all interfaces of a server. Its report is read check by check; what it says of the
//! model's cleverness is not asked for here.

use std::fs;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::suites::{Check, Subject, Verdict};
use crate::error::{Doing, Error, Result};

#[derive(Deserialize)]
struct Report {
    conformance: Conformance,
}

#[derive(Deserialize)]
struct Conformance {
    results: Vec<Probed>,
}

#[derive(Deserialize)]
struct Probed {
    id: String,
    name: String,
    outcome: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    failures: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    label: String,
    severity: String,
    message: String,
}

pub(super) fn run(subject: &Subject<'_>) -> Result<Vec<Check>> {
    let root = subject.environment.root();
    let (saved, log) = (root.join("llmprobe.json"), root.join("llmprobe.log"));
    // What an earlier run left must not be taken for this one's.
    let _ = fs::remove_file(&saved);
    let output = fs::File::create(&log).doing("write", &log)?;
    let mut command = Command::new("node");
    command.arg(subject.environment.node().join("node_modules/.bin/llmprobe")).arg(&subject.url);
    command.args(["--api-key", subject.key, "--model", subject.model, "--timeout", "300"]);
    command.args(["--no-bench", "--no-save", "--no-color", "--save"]).arg(&saved);
    if !subject.quick {
        command.arg("--full");
    }
    // Its status is a verdict over the model too; the report says more.
    command.stdin(Stdio::null()).stdout(output).status().doing("start", "llmprobe")?;
    let text = fs::read_to_string(&saved).doing("read", &saved)?;
    let report: Report = serde_json::from_str(&text).map_err(|error| Error::content(&saved, error))?;
    Ok(report.conformance.results.iter().map(Probed::check).collect())
}

impl Probed {
    fn check(&self) -> Check {
        let outcome = match self.outcome.as_str() {
            "pass" => Verdict::Passed,
            "inconclusive" => Verdict::Beyond,
            "skipped" | "unsupported" => Verdict::Skipped,
            _ => Verdict::Failed,
        };
        let faults = self.failures.iter().map(|Fault { label, severity, message }| {
            let message: String = message.chars().take(200).collect();
            format!("{severity} {label}: {message}")
        });
        let detail: Vec<String> =
            faults.chain((!self.reason.is_empty()).then(|| self.reason.clone())).collect();
        Check { name: format!("{} ({})", self.name, self.id), outcome, detail: detail.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_by_what_it_must_and_not_by_what_it_should() {
        let of = |outcome: &str| {
            let fault = Fault { label: "l".into(), severity: "SHOULD".into(), message: "m".into() };
            let probed = Probed {
                id: "i".into(),
                name: "n".into(),
                outcome: outcome.into(),
                reason: String::new(),
                failures: vec![fault],
            };
            probed.check()
        };
        let told: Vec<Verdict> =
            ["pass", "fail", "inconclusive", "unsupported"].map(|word| of(word).outcome).into();
        assert_eq!(told, [Verdict::Passed, Verdict::Failed, Verdict::Beyond, Verdict::Skipped]);
        assert_eq!(of("pass").detail, "SHOULD l: m");
    }
}
