//! What was measured, as a table or as JSON.

use std::fmt;

use serde::Serialize;

use super::load::Turn;
use super::prefix::Prefix;
use crate::bench::rows::{aligned, median};

/// One side with one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Side {
    /// The median of the rounds.
    tok_s: f64,
    /// Milliseconds to the first token and between two, over all answers of all rounds: median and 99th percentile.
    first_ms: [f64; 2],
    between_ms: [f64; 2],
}

impl Side {
    fn of(turns: &[Turn]) -> Option<Side> {
        let speeds: Vec<f64> = turns.iter().map(|turn| turn.tok_s).collect();
        let all = |of: fn(&Turn) -> &[f64]| -> Option<[f64; 2]> {
            let times: Vec<f64> =
                turns.iter().flat_map(|turn| of(turn).iter().map(|time| time * 1e3)).collect();
            Some([median(&times)?, percentile(times, 0.99)?])
        };
        Some(Side {
            tok_s: median(&speeds)?,
            first_ms: all(|turn| &turn.first)?,
            between_ms: all(|turn| &turn.between).unwrap_or_default(),
        })
    }
}

/// The value below which such a share lies.
fn percentile(mut all: Vec<f64>, share: f64) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    let at = ((all.len() as f64 * share).ceil() as usize).saturating_sub(1);
    all.get(at).copied()
}

#[derive(Serialize)]
pub(super) struct Row {
    model: String,
    clients: usize,
    pteron: Side,
    peer: Option<Side>,
    /// Pteron's speed by the peer's.
    ratio: Option<f64>,
}

impl Row {
    pub(super) fn of(
        model: &str,
        clients: usize,
        ours: &[Option<Turn>],
        theirs: &[Option<Turn>],
    ) -> Option<Row> {
        let there = |turns: &[Option<Turn>]| turns.iter().flatten().cloned().collect::<Vec<Turn>>();
        let (pteron, peer) = (Side::of(&there(ours))?, Side::of(&there(theirs)));
        let ratio = peer.as_ref().map(|peer| pteron.tok_s / peer.tok_s);
        Some(Row { model: model.to_owned(), clients, pteron, peer, ratio })
    }
}

/// All of it.
#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
    pub(super) prefixes: Vec<Prefix>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["model", "clients", "side", "tok/s", "ratio", "first ms", "99 %", "between ms", "99 %"];
        let mut lines = vec![header.map(str::to_owned)];
        for row in &self.rows {
            let sides = [("pteron", Some(&row.pteron), row.ratio), ("llama.cpp", row.peer.as_ref(), None)];
            for (name, side, ratio) in sides {
                let Some(Side { tok_s, first_ms: [first, slow], between_ms: [between, long] }) = side else {
                    continue;
                };
                lines.push([
                    row.model.clone(),
                    row.clients.to_string(),
                    name.to_owned(),
                    format!("{tok_s:.1}"),
                    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                    format!("{first:.0}"),
                    format!("{slow:.0}"),
                    format!("{between:.1}"),
                    format!("{long:.1}"),
                ]);
            }
        }
        write!(f, "{}", aligned(&lines))?;
        for Prefix { model, prompt_tokens, cold, warm } in &self.prefixes {
            let (share, cold, warm) = (warm / cold, cold * 1e3, warm * 1e3);
            write!(
                f,
                "\n{model}: {prompt_tokens} tokens, first token cold {cold:.0} ms, warm {warm:.0} ms: {share:.2} of it"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_medians_percentiles_and_the_ratio() {
        let turn = |tok_s: f64| Turn {
            tok_s,
            first: vec![0.1, 0.3, 0.2],
            between: (1..=100).map(f64::from).collect(),
        };
        let row =
            Row::of("m", 4, &[30.0, 10.0, 20.0].map(|speed| Some(turn(speed))), &[Some(turn(10.0)), None])
                .unwrap();
        assert_eq!((row.pteron.tok_s, row.ratio), (20.0, Some(2.0)));
        assert_eq!((row.pteron.first_ms, row.pteron.between_ms), ([200.0, 300.0], [50_500.0, 99_000.0]));
        assert_eq!(Row::of("m", 4, &[Some(turn(1.0))], &[None]).unwrap().peer, None);
    }
}
