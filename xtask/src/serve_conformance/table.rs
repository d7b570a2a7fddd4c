//! What was found: what failed and what was too much for the model by name, then one row a suite, then a line that sums up.

use std::fmt;

use super::suites::{Check, Verdict};
use crate::bench::rows::aligned;

/// All suites that ran.
#[derive(Default)]
pub(super) struct Table {
    suites: Vec<(&'static str, Vec<Check>)>,
}

impl Table {
    pub(super) fn add(&mut self, suite: &'static str, checks: Vec<Check>) {
        self.suites.push((suite, checks));
    }

    pub(super) fn is_good(&self) -> bool {
        self.count(Verdict::Failed) == 0 && self.count(Verdict::Passed) > 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.suites.iter().map(|(_, checks)| of(checks, verdict)).sum()
    }
}

fn of(checks: &[Check], verdict: Verdict) -> usize {
    checks.iter().filter(|check| check.outcome == verdict).count()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (verdict, word) in [
            (Verdict::Beyond, "beyond the model"),
            (Verdict::Disputed, "disputed"),
            (Verdict::Failed, "FAILED"),
        ] {
            for check in
                self.suites.iter().flat_map(|(_, checks)| checks).filter(|check| check.outcome == verdict)
            {
                writeln!(f, "{word}: {}\n    {}", check.name, check.detail)?;
            }
        }
        let mut lines =
            vec![["suite", "passed", "failed", "beyond", "disputed", "left out"].map(str::to_owned)];
        for (suite, checks) in &self.suites {
            let count = |verdict| of(checks, verdict).to_string();
            let [passed, failed] = [Verdict::Passed, Verdict::Failed].map(count);
            lines.push([
                (*suite).to_owned(),
                passed,
                failed,
                count(Verdict::Beyond),
                count(Verdict::Disputed),
                count(Verdict::Skipped),
            ]);
        }
        writeln!(f, "\n{}\n", aligned(&lines))?;
        let [passed, failed, beyond, disputed, skipped] =
            [Verdict::Passed, Verdict::Failed, Verdict::Beyond, Verdict::Disputed, Verdict::Skipped]
                .map(|verdict| self.count(verdict));
        write!(
            f,
            "serve conformance: {passed} passed, {failed} failed, {beyond} beyond the model, {disputed} disputed, {skipped} \
             left out by a suite"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_model_is_named_and_no_fault() {
        let mut table = Table::default();
        assert!(!table.is_good());
        let beyond = Check { name: "a".into(), outcome: Verdict::Beyond, detail: "too small".into() };
        let disputed =
            Check { name: "d".into(), outcome: Verdict::Disputed, detail: "says otherwise".into() };
        table.add("one", vec![Check::new("b", true, ""), beyond, disputed]);
        assert!(table.is_good());
        let text = table.to_string();
        assert!(text.contains("beyond the model: a\n    too small"), "{text}");
        assert!(text.contains("disputed: d\n    says otherwise"), "{text}");
        table.add("two", vec![Check::new("c", false, "wrong")]);
        assert!(!table.is_good());
        let last =
            "serve conformance: 1 passed, 1 failed, 1 beyond the model, 1 disputed, 0 left out by a suite";
        assert_eq!(table.to_string().lines().last(), Some(last));
    }
}
