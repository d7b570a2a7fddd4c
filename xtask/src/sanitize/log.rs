//! What the log of a run says: how many tests passed, what was found, and where to begin to read. Knows the words of the
//! test harness and of the four tools, and nothing of how they were started.

use std::fs;
use std::path::Path;

use crate::error::{Doing, Result};

/// How a run went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) passed: usize,
    /// Reports of the tool and failed tests; one at least where the run failed or tested nothing.
    pub(super) findings: usize,
}

/// How the reports of the tools begin.
const REPORTS: [&str; 5] = [
    "error: Undefined Behavior",
    "ERROR: AddressSanitizer",
    "ERROR: LeakSanitizer",
    "WARNING: ThreadSanitizer",
    "error: memory leaked",
];
/// How many lines of a log are shown.
const SHOWN: usize = 40;

impl Verdict {
    pub(super) fn of(log: &str, succeeded: bool) -> Verdict {
        let (mut passed, mut failed, mut reports) = (0, 0, 0);
        for line in log.lines() {
            if let Some(result) = line.strip_prefix("test result: ") {
                passed += count(result, "passed");
                failed += count(result, "failed");
            } else if is_report(line) {
                reports += 1;
            }
        }
        let least = usize::from(!succeeded || passed == 0);
        Verdict { passed, findings: (failed + reports).max(least) }
    }
}

/// `N` of `ok. N passed; M failed; ...`.
fn count(result: &str, what: &str) -> usize {
    let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

fn is_report(line: &str) -> bool {
    REPORTS.iter().any(|report| line.contains(report))
}

/// The lines of a log that a person should read first.
pub(super) fn first_finding(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let is_failure = |line: &&str| {
        line.starts_with("error") || line.contains("panicked at") || line.ends_with("... FAILED")
    };
    let at = lines.iter().position(|line| is_report(line)).or_else(|| lines.iter().position(is_failure));
    // A run that ends without a word is told by its end.
    let at = at.unwrap_or(lines.len().saturating_sub(SHOWN));
    lines[at..].iter().take(SHOWN).map(|line| format!("   {line}\n")).collect()
}

/// How many tests of a crate are compiled out under a condition, as `#[cfg(not(miri))]` does it.
pub(super) fn left_out(folder: &Path, condition: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        if path.is_dir() {
            count += left_out(&path, condition)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            count += left_out_of(&fs::read_to_string(&path).doing("read", &path)?, condition);
        }
    }
    Ok(count)
}

fn left_out_of(source: &str, condition: &str) -> usize {
    let condition = format!("not({condition})");
    let is_test = |line: &str| line.trim() == "#[test]";
    let lines: Vec<&str> = source.lines().collect();
    let mut count = 0;
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        if text.starts_with("#![cfg(") && text.contains(&condition) {
            return lines.iter().filter(|line| is_test(line)).count();
        }
        if !text.starts_with("#[cfg(") || !text.contains(&condition) {
            continue;
        }
        let before = at > 0 && is_test(lines[at - 1]);
        // An item ends at a brace as far in as its attributes, or with its first line.
        let is_attribute = |line: &str| line.trim_start().starts_with("#[");
        let first = (at..lines.len()).find(|&at| !is_attribute(lines[at])).unwrap_or(at);
        let end = format!("{}}}", &line[..line.len() - text.len()]);
        let last = match lines.get(first) {
            Some(line) if line.ends_with(';') || line.ends_with('}') => first,
            _ => (first..lines.len()).find(|&at| lines[at] == end).unwrap_or(first),
        };
        count += usize::from(before) + lines[at..=last].iter().filter(|line| is_test(line)).count();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str =
        "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1s";

    #[test]
    fn counts_are_summed_over_the_programs_of_a_crate() {
        let log = format!("running 12 tests\n{PASSED}\n     Running tests/views.rs\n{PASSED}\n");
        assert_eq!(Verdict::of(&log, true), Verdict { passed: 24, findings: 0 });
    }

    #[test]
    fn failed_tests_reports_and_bad_ends_are_findings() {
        let failed = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Verdict::of(failed, false), Verdict { passed: 3, findings: 2 });
        let race = format!("WARNING: ThreadSanitizer: data race (pid=1)\n{PASSED}");
        assert_eq!(Verdict::of(&race, false), Verdict { passed: 12, findings: 1 });
        assert_eq!(Verdict::of("==1==ERROR: AddressSanitizer: heap-use-after-free", false).findings, 1);
        assert_eq!(Verdict::of(PASSED, false).findings, 1, "killed without a word");
    }

    #[test]
    fn a_run_without_tests_is_a_finding() {
        assert_eq!(Verdict::of("test result: ok. 0 passed; 0 failed; 0 ignored", true).findings, 1);
        assert_eq!(Verdict::of("", true).findings, 1);
    }

    #[test]
    fn reading_begins_at_the_report() {
        let log = "   Compiling a\ntest a ... FAILED\nerror: Undefined Behavior: dangling\n --> src/a.rs\n";
        assert!(first_finding(log).starts_with("   error: Undefined Behavior"));
        assert!(first_finding("a\nthread 'main' panicked at src/a.rs\nb").starts_with("   thread"));
        assert_eq!(first_finding("a\nb"), "   a\n   b\n");
    }

    #[test]
    fn tests_that_are_compiled_out_are_counted() {
        let source = "#[cfg(not(miri))]\nmod files;\n\n#[cfg(all(test, not(miri)))]\nmod tests {\n    #[test]\n    fn a() {\n    }\n\
                      \n    #[test]\n    fn b() {}\n}\n\n#[test]\nfn runs() {\n}\n\n#[cfg(not(miri))]\n#[test]\nfn c() {\n}\n\n\
                      #[test]\n#[cfg(not(miri))]\nfn d() {}\n";
        assert_eq!(left_out_of(source, "miri"), 4);
        assert_eq!(left_out_of(&format!("#![cfg(not(miri))]\n{source}"), "miri"), 5);
        assert_eq!(left_out_of("#[test]\nfn a() {}\n", "miri"), 0);
    }
}
