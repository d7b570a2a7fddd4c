//! The table: one line a run, printed as runs end, and what all of them come to.

use super::plan::Run;

/// How a run ended.
pub(super) enum Ending {
    /// Every case was judged.
    Ran(Counts),
    /// Not run, and why.
    LeftOut(String),
    /// It came to no end of its own; counts as one failure.
    Broken(String),
}

/// What came of the cases of a run.
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) seconds: f64,
    /// Names of the cases that failed, and why.
    pub(super) failures: Vec<(String, String)>,
    /// Greedy tokens that cases picked, and how many were not the right ones.
    pub(super) tokens: usize,
    pub(super) missed: usize,
}

/// Lines are cut here.
const WIDTH: usize = 100;
/// Failures of a run that are shown.
const SHOWN: usize = 5;

/// Widths of the columns, and the sums so far.
pub(super) struct Table {
    widths: [usize; 3],
    runs: usize,
    passed: usize,
    failed: usize,
    left_out: usize,
    /// Greedy tokens of the runs in `fast`, and those missed.
    fast: (usize, usize),
    had_fast: bool,
}

impl Table {
    /// A table for these runs.
    pub(super) fn new(runs: &[Run<'_>]) -> Table {
        let width = |head: &str, of: &dyn Fn(&Run<'_>) -> usize| {
            runs.iter().map(of).chain([head.len()]).max().unwrap_or(0)
        };
        let widths = [
            width("set", &|run| run.set.name.len()),
            width("variant", &|run| run.variant.len()),
            width("backend", &|run| run.engine.name.len()),
        ];
        Table { widths, runs: 0, passed: 0, failed: 0, left_out: 0, fast: (0, 0), had_fast: false }
    }

    pub(super) fn header(&self) -> String {
        format!(
            "{}  {:>6}  {:>6}  {:>7}",
            self.named(["set", "variant", "backend"]),
            "passed",
            "failed",
            "seconds"
        )
    }

    fn named(&self, cells: [&str; 3]) -> String {
        let [set, variant, backend] = self.widths;
        format!("{:<set$}  {:<variant$}  {:<backend$}", cells[0], cells[1], cells[2])
    }

    /// Counts a run; its line, and one for each of the first cases that failed.
    pub(super) fn add(&mut self, run: &Run<'_>, ending: Ending) -> String {
        let named = self.named([run.set.name, run.variant, &run.engine.name]);
        self.runs += 1;
        match ending {
            Ending::Ran(counts) => {
                self.passed += counts.passed;
                self.failed += counts.failed;
                if run.engine.is_fast {
                    self.had_fast = true;
                    self.fast.0 += counts.tokens;
                    self.fast.1 += counts.missed;
                }
                let Counts { passed, failed, seconds, failures, .. } = counts;
                let mut lines = format!("{named}  {passed:>6}  {failed:>6}  {seconds:>7.1}\n");
                for (name, why) in failures.iter().take(SHOWN) {
                    lines += &cut(&format!("    {name}: {why}"));
                }
                if failures.len() > SHOWN {
                    lines += &format!("    and {} more\n", failures.len() - SHOWN);
                }
                lines
            }
            Ending::LeftOut(why) => {
                self.left_out += 1;
                cut(&format!("{named}  left out: {why}"))
            }
            Ending::Broken(why) => {
                self.failed += 1;
                format!("{named}  {:>6}  {:>6}\n{}", 0, 1, cut(&format!("    the run ended with {why}")))
            }
        }
    }

    /// How many greedy tokens of the runs in `fast` were the right ones; `None` where there was no such run.
    pub(super) fn fast_tokens(&self) -> Option<String> {
        let (tokens, missed) = self.fast;
        self.had_fast.then(|| format!("{} of {tokens} are the right ones", tokens - missed))
    }

    pub(super) fn summary(&self) -> String {
        let Table { runs, passed, failed, left_out, .. } = self;
        format!("{runs} runs: {passed} passed, {failed} failed, {left_out} left out")
    }

    /// Whether something ran and nothing failed.
    pub(super) fn is_good(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

/// A line of text that fits the table.
fn cut(line: &str) -> String {
    let line = line.replace('\n', " ");
    match line.char_indices().nth(WIDTH) {
        None => line + "\n",
        Some(_) => line.chars().take(WIDTH - 3).chain("...\n".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Backend;
    use super::super::plan::{Engine, Set, runs};
    use super::*;

    fn counts(passed: usize, failures: usize) -> Counts {
        let failures: Vec<_> =
            (0..failures).map(|at| (format!("case_{at}"), "off\nby 1".repeat(30))).collect();
        let failed = failures.len();
        Counts { passed, failed, seconds: 1.25, failures, tokens: 10, missed: 2 }
    }

    /// The lines that a table of the packed samples gets, and its last ones.
    fn lines(endings: Vec<Ending>) -> (Vec<String>, Table) {
        let sets = Set::find(true, Some("checkpoints")).unwrap();
        let mut engines = Engine::of_cpu(&["scalar".to_owned()], false);
        engines.push(Engine::plain(Backend::Mlx));
        let runs = runs(&sets, &engines);
        let mut table = Table::new(&runs);
        let mut text = table.header() + "\n";
        for (run, ending) in runs.iter().zip(endings) {
            text += &table.add(run, ending);
        }
        (text.lines().map(str::to_owned).collect(), table)
    }

    #[test]
    fn what_is_left_out_is_neither_passed_nor_failed() {
        let endings = vec![
            Ending::Ran(counts(12, 0)),
            Ending::Ran(counts(12, 0)),
            Ending::LeftOut("MLX could not be installed".into()),
        ];
        let (lines, table) = lines(endings);
        assert_eq!(
            lines,
            [
                "set          variant          backend           passed  failed  seconds",
                "checkpoints  from checkpoint  cpu scalar exact      12       0      1.2",
                "checkpoints  from checkpoint  cpu scalar fast       12       0      1.2",
                "checkpoints  from checkpoint  mlx               left out: MLX could not be installed",
            ]
        );
        assert_eq!(table.summary(), "3 runs: 24 passed, 0 failed, 1 left out");
        assert_eq!(table.fast_tokens().as_deref(), Some("8 of 10 are the right ones"));
        assert!(table.is_good());
    }

    #[test]
    fn a_failure_or_a_run_that_breaks_off_makes_the_whole_bad() {
        let (shown, table) = lines(vec![Ending::Ran(counts(1, 7)), Ending::Broken("signal: 11".into())]);
        assert_eq!(table.summary(), "2 runs: 1 passed, 8 failed, 0 left out");
        assert!(!table.is_good());
        assert!(
            shown.contains(&"    and 2 more".to_owned())
                && shown.contains(&"    the run ended with signal: 11".to_owned())
        );
        assert!(shown.iter().all(|line| line.chars().count() <= WIDTH), "{shown:#?}");
        // Nothing but runs that were left out proves nothing.
        assert!(!lines(vec![Ending::LeftOut("no".into())]).1.is_good());
    }
}
