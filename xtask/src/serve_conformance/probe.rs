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

/// A demand of the suite's that contradicts the interface it is made of.
struct Dispute {
    /// What the ids of its checks begin with.
    checks: &'static str,
    label: &'static str,
    reason: &'static str,
}

const DISPUTES: [Dispute; 1] = [Dispute {
    checks: "messages-",
    label: "cached tokens do not exceed input tokens",
    reason: "in Anthropic's interface `input_tokens` leaves out what was read from a cache: its types say that all input \
             tokens are `input_tokens`, `cache_creation_input_tokens` and `cache_read_input_tokens` together, so that a \
             prompt of which most is cached has more cached tokens than input tokens; the suite `clients` holds the sum to \
             what `count_tokens` says",
}];

impl Probed {
    fn check(&self) -> Check {
        let outcome = match self.outcome.as_str() {
            "pass" => Verdict::Passed,
            "inconclusive" => Verdict::Beyond,
            "skipped" | "unsupported" => Verdict::Skipped,
            _ => Verdict::Failed,
        };
        let dispute = self.dispute().filter(|_| outcome == Verdict::Failed);
        let faults = self.failures.iter().map(|Fault { label, severity, message }| {
            let message: String = message.chars().take(200).collect();
            format!("{severity} {label}: {message}")
        });
        let reasons = (!self.reason.is_empty()).then(|| self.reason.clone());
        let detail: Vec<String> =
            faults.chain(reasons).chain(dispute.map(|dispute| dispute.reason.to_owned())).collect();
        let outcome = if dispute.is_some() { Verdict::Disputed } else { outcome };
        Check { name: format!("{} ({})", self.name, self.id), outcome, detail: detail.join("; ") }
    }

    /// The dispute that all of its faults are about, as far as they must not be.
    fn dispute(&self) -> Option<&'static Dispute> {
        let mut faults = self.failures.iter().filter(|fault| fault.severity.eq_ignore_ascii_case("must"));
        let of = |fault: &Fault| {
            DISPUTES
                .iter()
                .find(|dispute| self.id.starts_with(dispute.checks) && fault.label == dispute.label)
        };
        let first = of(faults.next()?)?;
        faults.all(|fault| of(fault).is_some()).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(id: &str, outcome: &str, faults: &[(&str, &str)]) -> Check {
        let fault = |(severity, label): &(&str, &str)| Fault {
            label: (*label).into(),
            severity: (*severity).into(),
            message: "m".into(),
        };
        let failures = faults.iter().map(fault).collect();
        let (id, name, outcome) = (id.into(), "n".into(), outcome.into());
        Probed { id, name, outcome, reason: String::new(), failures }.check()
    }

    #[test]
    fn a_check_fails_by_what_it_must_and_not_by_what_it_should() {
        let of = |outcome: &str| probed("i", outcome, &[("SHOULD", "l")]);
        let told: Vec<Verdict> =
            ["pass", "fail", "inconclusive", "unsupported"].map(|word| of(word).outcome).into();
        assert_eq!(told, [Verdict::Passed, Verdict::Failed, Verdict::Beyond, Verdict::Skipped]);
        assert_eq!(of("pass").detail, "SHOULD l: m");
    }

    #[test]
    fn only_what_is_disputed_is_told_apart_from_failures() {
        let label = DISPUTES[0].label;
        let disputed = probed("messages-prompt-caching", "fail", &[("MUST", label), ("SHOULD", "l")]);
        assert_eq!(disputed.outcome, Verdict::Disputed);
        assert!(disputed.detail.contains("count_tokens"), "{}", disputed.detail);
        let failed = [
            probed("messages-prompt-caching", "fail", &[("MUST", label), ("MUST", "l")]),
            probed("chat-prompt-caching", "fail", &[("MUST", label)]),
            probed("messages-prompt-caching", "fail", &[]),
        ];
        assert!(failed.iter().all(|check| check.outcome == Verdict::Failed), "{failed:?}");
        assert_eq!(probed("messages-usage", "pass", &[]).outcome, Verdict::Passed);
    }
}
