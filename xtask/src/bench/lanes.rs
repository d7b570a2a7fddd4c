//! Throughput of several sessions at once, beside llama.cpp with as many sequences in one batch: by model, vector path, depth
//! of context and number of lanes. Both sides are held to the same instruction set; the peer's best one is named too.

use serde::Serialize;

use super::files::{Files, Subject};
use super::record;
use super::rounds::{Measurement, Together, Turn, take_turns};
use super::rows::median;
use super::{Arguments, pick};
use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::workspace;

/// What is measured where nobody names models: one that threads and caches decide, and one that memory does.
const USUAL: [&str; 2] = ["real/smollm2-135m", "llama-3.2-1b"];

/// One number of lanes.
#[derive(Serialize)]
struct Row {
    model: String,
    /// The vector path of both sides; each one's best where none was asked for.
    path: String,
    threads: usize,
    context: usize,
    lanes: usize,
    pteron_tok_s: f64,
    peer_tok_s: f64,
    /// Pteron by the peer on the same path.
    ratio: f64,
    /// As many times what one lane reaches, where one was measured.
    pteron_gain: Option<f64>,
    peer_gain: Option<f64>,
    /// Pteron by the best of the peer's paths that were measured.
    ratio_to_best: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<Outcome> {
    let subjects = match arguments.models.as_slice() {
        [] => USUAL.iter().map(|name| Subject::find(name)).collect::<Result<Vec<_>>>()?,
        names => pick(names)?,
    };
    let context = arguments.context_or(&[0, 1024]);
    let new = arguments.new.unwrap_or(128);
    let deepest = context.iter().max().copied().unwrap_or(0);
    let files = Files::at(Cache::locate()?.benchmarks())?;
    files.make_peer()?;
    let (pteron, python) = (workspace::build_pteron()?, files.python());
    let mut rows = Vec::new();
    for subject in subjects {
        let pair = files.make(&subject, &pteron, deepest + new)?;
        let name = subject.name();
        let threads = if arguments.threads.is_empty() { vec![2] } else { arguments.threads.clone() };
        for threads in threads {
            for path in arguments.paths_or_best() {
                let measurement = Measurement {
                    threads,
                    prompt: 0,
                    new,
                    context: &context,
                    backend: arguments.backend.as_deref(),
                    precision: &arguments.precision,
                    lanes: &arguments.lanes,
                    path,
                    repeats: 1,
                };
                let rounds = usize::from(arguments.rounds.unwrap_or(3));
                let shown = path.unwrap_or("best");
                let ours = |round| {
                    eprintln!("{name}, {shown}, {threads} threads: round {} of {rounds}", round + 1);
                    measurement.pteron(&pteron, &pair.pte)
                };
                let (ours, theirs) = take_turns(rounds, ours, |_| measurement.peer(&python, &pair.gguf))?;
                rows.extend(compare((&name, shown, threads), &ours, &theirs));
            }
        }
    }
    against_best(&mut rows);
    match arguments.json {
        true => {
            println!("{}", serde_json::to_string(&rows).map_err(|error| Error::message(error.to_string()))?)
        }
        false => record::show(arguments.record.as_deref(), "Sessions at once", 5, &lines(&rows))?,
    }
    Ok(Outcome::Good)
}

/// A row for each depth and number of lanes that both sides have.
fn compare((model, path, threads): (&str, &str, usize), ours: &[Turn], theirs: &[Turn]) -> Vec<Row> {
    let at = |turns: &[Turn], place: &Together| {
        let speeds: Vec<f64> = turns
            .iter()
            .filter_map(|turn| turn.lanes.iter().find(|lanes| lanes.is_like(place)))
            .map(|lanes| lanes.tok_s.median)
            .collect();
        median(&speeds)
    };
    let places: &[Together] = ours.first().map_or(&[], |turn| &turn.lanes);
    let rows = places.iter().filter_map(|place| {
        let one = Together { lanes: 1, ..place.clone() };
        let (pteron, peer) = (at(ours, place)?, at(theirs, place)?);
        Some(Row {
            model: model.to_owned(),
            path: path.to_owned(),
            threads,
            context: place.context,
            lanes: place.lanes,
            pteron_tok_s: pteron,
            peer_tok_s: peer,
            ratio: pteron / peer,
            pteron_gain: at(ours, &one).map(|one| pteron / one),
            peer_gain: at(theirs, &one).map(|one| peer / one),
            ratio_to_best: pteron / peer,
        })
    });
    rows.collect()
}

/// Sets every row against the fastest of the peer's paths.
fn against_best(rows: &mut [Row]) {
    let key = |row: &Row| (row.model.clone(), row.threads, row.context, row.lanes);
    let all: Vec<_> = rows.iter().map(|row| (key(row), row.peer_tok_s)).collect();
    for row in rows {
        let same = all.iter().filter(|(other, _)| *other == key(row));
        let best = same.map(|(_, speed)| *speed).fold(row.peer_tok_s, f64::max);
        row.ratio_to_best = row.pteron_tok_s / best;
    }
}

fn lines(rows: &[Row]) -> Vec<[String; 11]> {
    let header = [
        "model",
        "path",
        "threads",
        "context",
        "lanes",
        "pteron tok/s",
        "by one lane",
        "llama.cpp tok/s",
        "by one lane",
        "ratio",
        "to its best",
    ];
    let mut lines = vec![header.map(str::to_owned)];
    let gain = |gain: Option<f64>| gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}"));
    for row in rows {
        lines.push([
            row.model.clone(),
            row.path.clone(),
            row.threads.to_string(),
            row.context.to_string(),
            row.lanes.to_string(),
            format!("{:.1}", row.pteron_tok_s),
            gain(row.pteron_gain),
            format!("{:.1}", row.peer_tok_s),
            gain(row.peer_gain),
            format!("{:.2}", row.ratio),
            format!("{:.2}", row.ratio_to_best),
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(speeds: &[(usize, f64)]) -> Turn {
        let lanes: Vec<_> = speeds
            .iter()
            .map(|(lanes, speed)| {
                serde_json::json!({"lanes": lanes, "context": 0, "tok_s": {"median": speed}})
            })
            .collect();
        serde_json::from_value(
            serde_json::json!({"prefill": null, "decode": [], "load_s": 0.5, "lanes": lanes}),
        )
        .unwrap()
    }

    #[test]
    fn rows_hold_gains_and_ratios_on_the_same_path_and_to_the_best() {
        let ours = [turn(&[(1, 10.0), (8, 50.0)]), turn(&[(1, 12.0), (8, 54.0)])];
        let mut rows = compare(("tiny", "avx2", 2), &ours, &[turn(&[(1, 10.0), (8, 26.0)])]);
        rows.extend(compare(("tiny", "avx512", 2), &ours, &[turn(&[(1, 20.0), (8, 104.0)])]));
        against_best(&mut rows);
        let eight = &rows[1];
        assert_eq!((eight.lanes, eight.pteron_tok_s, eight.ratio, eight.ratio_to_best), (8, 52.0, 2.0, 0.5));
        assert_eq!((eight.pteron_gain, eight.peer_gain), (Some(52.0 / 11.0), Some(2.6)));
        assert!(lines(&rows).iter().any(|line| line.contains(&"52.0".to_owned())));
    }
}
