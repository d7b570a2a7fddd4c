//! Two binaries of Pteron on the same programs, turn by turn: what a change has cost or gained. Turns are compared in
//! pairs, because what else the machine does moves both turns of a round alike, and medians of pairs do not see it.

use std::path::Path;

use super::files::{Files, Subject};
use super::rounds::{Turn, take_turns};
use super::rows::{aligned, median};
use super::{Arguments, pick};
use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::language::pull;
use crate::workspace;

/// What is measured where nobody names models: one that threads and caches decide, and one that memory does.
const SMALL: &str = "smollm2-135m";
const LARGE: &str = "llama-3.2-1b";

pub(super) fn run(arguments: &Arguments, old: &Path) -> Result<Outcome> {
    // Absolute, because a bare name would be looked for in the search path.
    let old = std::path::absolute(old).map_err(|error| Error::content(old, error))?;
    if !old.is_file() {
        return Err(Error::content(&old, "there is no such binary"));
    }
    let subjects = match arguments.models.as_slice() {
        [] => usual(&old)?,
        names => pick(names)?,
    };
    let context = arguments.context_or(&[0, 512]);
    let files = Files::at(Cache::locate()?.benchmarks())?;
    let new = workspace::build_pteron()?;
    let mut rows = Vec::new();
    for subject in subjects {
        // By the older one: what it writes both can read, and the change under test is not in the file.
        let program = files.make_program(&subject, &old, arguments.positions(&context))?;
        let name = subject.name();
        for threads in arguments.all_threads() {
            for measurement in arguments.measurements(&program, &context, threads, None)? {
                let rounds = usize::from(arguments.rounds.unwrap_or(8));
                let ours = |round| {
                    eprintln!("{name}, {threads} threads: round {} of {rounds}", round + 1);
                    measurement.pteron(&new, &program)
                };
                let (new, old) = take_turns(rounds, ours, |_| measurement.pteron(&old, &program))?;
                rows.extend(compare(&name, threads, &new, &old));
            }
        }
    }
    println!("{}", table(&rows));
    let lowest = lowest(&rows).ok_or_else(|| Error::message("nothing was measured"))?;
    println!("lowest median ratio {:.3} of {} rows: {}", lowest.ratio, rows.len(), lowest.what());
    Ok(if lowest.ratio >= arguments.least { Outcome::Good } else { Outcome::Bad })
}

/// The published SmolLM2 where it can be had, else its shape; and the shape of a model of a billion weights.
fn usual(pteron: &Path) -> Result<Vec<Subject>> {
    let small = match pull(pteron, SMALL) {
        Ok(_) => format!("real/{SMALL}"),
        Err(error) => {
            eprintln!("{SMALL}: random weights of the same shape, because it cannot be fetched: {error}");
            SMALL.to_owned()
        }
    };
    [small.as_str(), LARGE].into_iter().map(Subject::find).collect()
}

/// One phase of one model with one number of threads, new against old.
struct Row {
    model: String,
    /// As the table names it.
    phase: String,
    threads: usize,
    new: f64,
    old: f64,
    /// The median of the rounds' ratios, new to old; the lowest and the highest.
    ratio: f64,
    low: f64,
    high: f64,
}

impl Row {
    /// Pairs the speeds of both sides, round by round.
    fn of(model: &str, phase: String, threads: usize, new: &[f64], old: &[f64]) -> Option<Row> {
        let ratios: Vec<f64> = new.iter().zip(old).map(|(new, old)| new / old).collect();
        Some(Row {
            model: model.to_owned(),
            phase,
            threads,
            new: median(new)?,
            old: median(old)?,
            ratio: median(&ratios)?,
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(0.0, f64::max),
        })
    }

    fn what(&self) -> String {
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        format!("{}, {}, {threads}", self.model, self.phase)
    }
}

/// The rows of a model: prefill, then decode at every depth. A phase that a side did not measure in every round is
/// not there, because its pairs would be of different rounds.
fn compare(model: &str, threads: usize, new: &[Turn], old: &[Turn]) -> Vec<Row> {
    let row = |phase: String, speed: &dyn Fn(&Turn) -> Option<f64>| {
        let speeds = |turns: &[Turn]| turns.iter().map(speed).collect::<Option<Vec<f64>>>();
        Row::of(model, phase, threads, &speeds(new)?, &speeds(old)?)
    };
    let Some(first) = new.first() else { return vec![] };
    let prompt = first.prefill.as_ref().map_or(0, |prefill| prefill.tokens);
    let prefill = row(format!("prefill {prompt}"), &|turn| Some(turn.prefill.as_ref()?.tok_s.median));
    let decode = first.decode.iter().filter_map(|at| {
        row(format!("decode at {}", at.context), &|turn| {
            let found = turn.decode.iter().find(|decode| decode.context == at.context)?;
            Some(found.tok_s.median)
        })
    });
    prefill.into_iter().chain(decode).collect()
}

fn lowest(rows: &[Row]) -> Option<&Row> {
    rows.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

fn table(rows: &[Row]) -> String {
    let header = ["model", "phase", "threads", "old tok/s", "new tok/s", "new/old", "from", "to"];
    let mut lines = vec![header.map(str::to_owned)];
    for row in rows {
        lines.push([
            row.model.clone(),
            row.phase.clone(),
            row.threads.to_string(),
            format!("{:.1}", row.old),
            format!("{:.1}", row.new),
            format!("{:.3}", row.ratio),
            format!("{:.3}", row.low),
            format!("{:.3}", row.high),
        ]);
    }
    aligned(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(prefill: Option<f64>, decode: &[(usize, f64)]) -> Turn {
        let decode = decode.iter().map(|(context, speed)| {
            serde_json::json!({"context": context, "fill_s": 0.0, "tok_s": {"median": speed}, "bytes_per_token": 1})
        });
        serde_json::from_value(serde_json::json!({
            "prefill": prefill.map(|speed| serde_json::json!({"tokens": 64, "tok_s": {"median": speed}})),
            "decode": decode.collect::<Vec<_>>(),
            "load_s": 0.0,
        }))
        .unwrap()
    }

    #[test]
    fn ratios_are_of_turns_of_the_same_round() {
        // The machine was at half its speed in the second round: medians of each side would say 100 to 80.
        let new =
            [turn(Some(100.0), &[(0, 10.0)]), turn(Some(50.0), &[(0, 6.0)]), turn(Some(110.0), &[(0, 9.0)])];
        let old =
            [turn(Some(100.0), &[(0, 10.0)]), turn(Some(50.0), &[(0, 5.0)]), turn(Some(80.0), &[(0, 10.0)])];
        let rows = compare("tiny", 2, &new, &old);
        let shown: Vec<_> = rows.iter().map(|row| (row.what(), row.ratio, row.low, row.high)).collect();
        assert_eq!(
            shown,
            [
                ("tiny, prefill 64, 2 threads".to_owned(), 1.0, 1.0, 1.375),
                ("tiny, decode at 0, 2 threads".to_owned(), 1.0, 0.9, 1.2),
            ]
        );
        assert_eq!((rows[0].new, rows[0].old), (100.0, 80.0));
        assert!(table(&rows).lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn a_phase_that_was_not_measured_in_every_round_has_no_row() {
        let new = [turn(Some(1.0), &[(0, 1.0), (512, 1.0)]), turn(None, &[(0, 1.0)])];
        let rows = compare("tiny", 1, &new, &new);
        assert_eq!(rows.iter().map(Row::what).collect::<Vec<_>>(), ["tiny, decode at 0, 1 thread"]);
    }

    #[test]
    fn the_lowest_row_is_named() {
        let row = |phase: &str, ratio: f64| Row::of("m", phase.into(), 1, &[ratio], &[1.0]);
        let rows: Vec<Row> = [("a", 1.1), ("b", 0.96), ("c", 0.99)]
            .map(|(phase, ratio)| row(phase, ratio))
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(lowest(&rows).map(Row::what).as_deref(), Some("m, b, 1 thread"));
        assert!(lowest(&[]).is_none());
    }
}
