//! Python programs that stay while files are judged: loading ExecuTorch takes seconds.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// What a judge says of a file.
#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) verdict: String,
    pub(super) details: Vec<String>,
}

/// `check_pte.py`: whether ExecuTorch reads a file, and whether it says the same as another.
pub(super) struct Checker(Judge);

impl Checker {
    pub(super) fn start(python: &Path) -> Result<Checker> {
        Judge::start(python, "check_pte.py", &["--batch", "-"]).map(Checker)
    }

    pub(super) fn ask(&mut self, files: &[&Path]) -> Result<Answer> {
        self.0.ask(files)
    }
}

/// `run_portable.py`: what ExecuTorch's runtime computes by a file.
pub(super) struct Runner(Judge);

impl Runner {
    pub(super) fn start(python: &Path) -> Result<Runner> {
        Judge::start(python, "run_portable.py", &[]).map(Runner)
    }

    pub(super) fn ask(&mut self, case: &Path, program: &Path) -> Result<Answer> {
        self.0.ask(&[case, program])
    }
}

/// A script that answers every line of paths with a line of JSON.
struct Judge {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Judge {
    fn start(python: &Path, script: &str, arguments: &[&str]) -> Result<Judge> {
        let mut child = Command::new(python)
            .arg("-B")
            .arg(workspace::conformance().join("tools").join(script))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // ExecuTorch logs every operator that it misses; the verdict says what matters.
            .stderr(Stdio::null())
            .spawn()
            .doing("start", python)?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::message("the judge has no standard input and output"));
        };
        Ok(Judge { child, questions, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, paths: &[&Path]) -> Result<Answer> {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        writeln!(self.questions, "{}", names.join("\t")).doing("ask", "the judge")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).doing("hear", "the judge")?;
        serde_json::from_str(&line)
            .map_err(|_| Error::message(format!("the judge broke off at {}", names.join(" and "))))
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It would end by itself at the end of its input; after an error nobody waits for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
