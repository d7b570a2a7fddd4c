//! The result: a row for each model, phase, number of threads and depth, with both sides' medians and spreads.

use serde::Serialize;

use super::record;
use super::rounds::Turn;
use crate::error::{Error, Result};

/// All rows.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
    loads: Vec<Load>,
}

/// One comparison.
#[derive(Serialize)]
struct Row {
    model: String,
    /// The vector path of both sides; `best` where each one chose.
    path: String,
    phase: &'static str,
    threads: usize,
    /// Positions that were full before.
    context: usize,
    /// Tokens of the prompt (prefill), whose time is that to the first token; `null` for decode.
    prompt: Option<usize>,
    pteron_tok_s: f64,
    pteron_low: f64,
    pteron_high: f64,
    peer: &'static str,
    peer_tok_s: f64,
    peer_low: f64,
    peer_high: f64,
    ratio: f64,
    /// Pteron's part of the read limit (decode) or of the matrix limit (prefill).
    limit_fraction: Option<f64>,
    /// The peer's part of the read limit, reading the same bytes.
    peer_limit_fraction: Option<f64>,
}

/// What one side needs to be ready.
#[derive(Serialize)]
struct Load {
    model: String,
    path: String,
    threads: usize,
    pteron_load: Option<String>,
    pteron_load_s: f64,
    peer_load_s: f64,
    pteron_peak_bytes: Option<u64>,
    peer_peak_bytes: Option<u64>,
}

const PEER: &str = "llama.cpp";

/// All turns of both sides.
pub(crate) struct Turns {
    pub(crate) pteron: Vec<Turn>,
    pub(crate) peer: Vec<Turn>,
}

impl Report {
    /// Adds what was measured of a model on a vector path with so many threads.
    pub(crate) fn add(&mut self, place: (&str, &str, usize), turns: &Turns) {
        let prefill = |turns: &[Turn]| speeds(turns, |turn| Some(turn.prefill.as_ref()?.tok_s.median));
        let limits = median(&speeds(&turns.pteron, |turn| turn.matrix_limit_multiply_adds_s));
        let work = median(&speeds(&turns.pteron, |turn| turn.prefill.as_ref()?.multiply_adds_s));
        let fraction = work.zip(limits).map(|(work, limit)| work / limit);
        let (ours, theirs) = (prefill(&turns.pteron), prefill(&turns.peer));
        let peer_fraction = |part: f64, row: &Row| part / row.ratio;
        if let Some(mut row) = Row::of(place, "prefill", 0, &ours, &theirs) {
            row.limit_fraction = fraction;
            row.peer_limit_fraction = fraction.map(|part| peer_fraction(part, &row));
            row.prompt = turns.pteron.first().and_then(|turn| Some(turn.prefill.as_ref()?.tokens));
            self.rows.push(row);
        }
        self.add_longest_prompt(place, turns);
        let read_limit = median(&speeds(&turns.pteron, |turn| turn.read_limit_bytes_s));
        let depths = turns.pteron.first().map(|turn| turn.decode.iter().map(|decode| decode.context));
        for depth in depths.into_iter().flatten() {
            let at = |turn: &Turn| turn.decode.iter().find(|decode| decode.context == depth).cloned();
            let decode = |turns: &[Turn]| speeds(turns, |turn| Some(at(turn)?.tok_s.median));
            let (ours, theirs) = (decode(&turns.pteron), decode(&turns.peer));
            let bytes = turns.pteron.first().and_then(|turn| at(turn)?.bytes_per_token);
            if let Some(mut row) = Row::of(place, "decode", depth, &ours, &theirs) {
                let part =
                    bytes.zip(read_limit).map(|(bytes, limit)| bytes as f64 * row.pteron_tok_s / limit);
                row.limit_fraction = part;
                row.peer_limit_fraction = part.map(|part| peer_fraction(part, &row));
                self.rows.push(row);
            }
        }
        let (model, path, threads) = place;
        if self.loads.iter().any(|load| (load.model.as_str(), load.path.as_str(), load.threads) == place) {
            return;
        }
        let peak = |turns: &[Turn]| turns.iter().filter_map(|turn| turn.peak_bytes).max();
        self.loads.push(Load {
            model: model.to_owned(),
            path: path.to_owned(),
            threads,
            pteron_load: turns.pteron.first().and_then(|turn| turn.load.clone()),
            pteron_load_s: median(&speeds(&turns.pteron, |turn| Some(turn.load_s))).unwrap_or(0.0),
            peer_load_s: median(&speeds(&turns.peer, |turn| Some(turn.load_s))).unwrap_or(0.0),
            pteron_peak_bytes: peak(&turns.pteron),
            peer_peak_bytes: peak(&turns.peer),
        });
    }

    /// The longest text that was read before decoding, where it is longer than the one of the prefill: what somebody
    /// waits for the first token.
    fn add_longest_prompt(&mut self, place: (&str, &str, usize), turns: &Turns) {
        let Some(first) = turns.pteron.first() else { return };
        let longest = first.decode.iter().map(|decode| decode.context).max().unwrap_or(0);
        if first.prefill.as_ref().is_some_and(|prefill| prefill.tokens >= longest) {
            return;
        }
        let fill = |turns: &[Turn]| {
            speeds(turns, |turn| {
                let decode = turn.decode.iter().find(|decode| decode.context == longest)?;
                (decode.fill_s > 0.0).then(|| longest as f64 / decode.fill_s)
            })
        };
        if let Some(mut row) = Row::of(place, "prefill", 0, &fill(&turns.pteron), &fill(&turns.peer)) {
            row.prompt = Some(longest);
            self.rows.push(row);
        }
    }

    pub(crate) fn json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::message(error.to_string()))
    }

    /// Shows the rows, then what loading took, and keeps both where a machine is named.
    pub(crate) fn show(&self, machine: Option<&str>) -> Result<()> {
        record::show(machine, "Language models", 6, &self.speeds())?;
        println!();
        record::show(machine, "Loading language models", 3, &self.loads())
    }

    fn speeds(&self) -> Vec<[String; 11]> {
        let header = [
            "model",
            "path",
            "phase",
            "prompt",
            "threads",
            "context",
            "pteron tok/s",
            "llama.cpp tok/s",
            "ratio",
            "of limit",
            "peer's",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        for row in &self.rows {
            let spread = |median: f64, low: f64, high: f64| format!("{median:.1} ({low:.1} to {high:.1})");
            let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{part:.2}"));
            lines.push([
                row.model.clone(),
                row.path.clone(),
                row.phase.to_owned(),
                row.prompt.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string()),
                row.threads.to_string(),
                row.context.to_string(),
                spread(row.pteron_tok_s, row.pteron_low, row.pteron_high),
                spread(row.peer_tok_s, row.peer_low, row.peer_high),
                format!("{:.2}", row.ratio),
                part(row.limit_fraction),
                part(row.peer_limit_fraction),
            ]);
        }
        lines
    }

    fn loads(&self) -> Vec<[String; 8]> {
        let header = [
            "model",
            "path",
            "threads",
            "weights",
            "pteron load s",
            "llama.cpp load s",
            "pteron peak MB",
            "llama.cpp peak MB",
        ];
        let mut lines = vec![header.map(str::to_owned)];
        for load in &self.loads {
            let megabytes = |bytes: Option<u64>| {
                bytes.map_or_else(|| "-".into(), |bytes| (bytes / 1_000_000).to_string())
            };
            lines.push([
                load.model.clone(),
                load.path.clone(),
                load.threads.to_string(),
                load.pteron_load.clone().unwrap_or_default(),
                format!("{:.2}", load.pteron_load_s),
                format!("{:.2}", load.peer_load_s),
                megabytes(load.pteron_peak_bytes),
                megabytes(load.peer_peak_bytes),
            ]);
        }
        lines
    }
}

impl Row {
    fn of(
        (model, path, threads): (&str, &str, usize),
        phase: &'static str,
        context: usize,
        ours: &[f64],
        theirs: &[f64],
    ) -> Option<Row> {
        let (pteron, peer) = (median(ours)?, median(theirs)?);
        let low = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        Some(Row {
            model: model.to_owned(),
            path: path.to_owned(),
            phase,
            threads,
            context,
            prompt: None,
            pteron_tok_s: pteron,
            pteron_low: low(ours),
            pteron_high: high(ours),
            peer: PEER,
            peer_tok_s: peer,
            peer_low: low(theirs),
            peer_high: high(theirs),
            ratio: pteron / peer,
            limit_fraction: None,
            peer_limit_fraction: None,
        })
    }
}

fn speeds(turns: &[Turn], speed: impl Fn(&Turn) -> Option<f64>) -> Vec<f64> {
    turns.iter().filter_map(speed).collect()
}

pub(crate) fn median(all: &[f64]) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// Columns as wide as their widest cell; the first is text, the others stand to the right.
pub(crate) fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let show = |line: &[String; N]| {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    lines.iter().map(show).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(prefill: f64, decode: f64) -> Turn {
        serde_json::from_value(serde_json::json!({
            "prefill": {"tokens": 512, "tok_s": {"median": prefill}, "multiply_adds_s": prefill * 10.0},
            "decode": [{"context": 1024, "fill_s": 2.0, "tok_s": {"median": decode}, "bytes_per_token": 100}],
            "load_s": 0.5,
            "peak_bytes": 1000,
            "read_limit_bytes_s": 10000.0,
            "matrix_limit_multiply_adds_s": 40000.0,
        }))
        .unwrap()
    }

    #[test]
    fn rows_hold_medians_ratios_and_parts_of_the_limit() {
        let mut report = Report::default();
        let turns = Turns {
            pteron: vec![turn(900.0, 40.0), turn(1000.0, 60.0), turn(1100.0, 50.0)],
            peer: vec![turn(500.0, 25.0)],
        };
        report.add(("tiny", "avx2", 2), &turns);
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        let [prefill, longest, decode] = [&json["rows"][0], &json["rows"][1], &json["rows"][2]];
        assert_eq!((&longest["prompt"], &longest["pteron_tok_s"]), (&1024.into(), &512.0.into()));
        assert_eq!((&prefill["phase"], &prefill["ratio"]), (&"prefill".into(), &2.0.into()));
        assert_eq!(prefill["limit_fraction"], 0.25);
        assert_eq!((&decode["pteron_tok_s"], &decode["context"]), (&50.0.into(), &1024.into()));
        assert_eq!((&decode["limit_fraction"], &decode["peer_limit_fraction"]), (&0.5.into(), &0.25.into()));
        assert_eq!((&decode["pteron_low"], &decode["pteron_high"]), (&40.0.into(), &60.0.into()));
        assert!(report.speeds()[3].contains(&"50.0 (40.0 to 60.0)".to_owned()));
    }
}
