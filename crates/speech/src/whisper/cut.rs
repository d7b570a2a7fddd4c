//! Segments of a window's tokens, by their times, and where the next window begins.

use super::rules::TIME_STEP;

/// Frames of features between two times.
const FRAMES_A_STEP: usize = 2;

/// A stretch of text, in seconds from the window's beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Where it begins.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// Its words and times.
    pub tokens: Vec<u32>,
}

/// What became of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Its segments.
    pub pieces: Vec<Piece>,
    /// Frames from its beginning to that of the next.
    pub advance: usize,
    /// Whether something may be said behind its last time.
    pub ends_open: bool,
}

/// Cuts the tokens of a window of so many frames where two times stand side by side. What follows the last such pair is
/// heard again: it may go on behind the window's end.
pub fn cut(tokens: &[u32], first_time: u32, frames: usize) -> Cut {
    let is_time = |at: usize| tokens.get(at).is_some_and(|&id| id >= first_time);
    let steps = |id: u32| (id - first_time) as usize;
    let seconds = |id: u32| steps(id) as f64 * TIME_STEP;
    let count = tokens.len();
    let ends_with_one = count >= 2 && is_time(count - 1) && !is_time(count - 2);
    let mut borders: Vec<usize> = (1..count).filter(|&at| is_time(at - 1) && is_time(at)).collect();
    if borders.is_empty() {
        // No pair: all of it is one segment, up to the last time that it names.
        let last = tokens.iter().rev().find(|&&id| id >= first_time).filter(|&&id| id > first_time);
        let end = last.map_or(frames as f64 / 100.0, |&id| seconds(id));
        let pieces = vec![Piece { start: 0.0, end, tokens: tokens.to_vec() }];
        return Cut { pieces, advance: frames, ends_open: !ends_with_one };
    }
    if ends_with_one {
        borders.push(count);
    }
    let (mut pieces, mut from) = (Vec::new(), 0);
    for to in borders {
        let piece = &tokens[from..to];
        // A border is behind a time; the first piece begins with one by the rules, and where it does not, with the window.
        let time = |id: Option<&u32>| id.filter(|&&id| id >= first_time).map(|&id| seconds(id));
        let (start, end) = (time(piece.first()).unwrap_or(0.0), time(piece.last()).unwrap_or(0.0));
        pieces.push(Piece { start, end, tokens: piece.to_vec() });
        from = to;
    }
    let heard = match ends_with_one {
        // Nothing is said behind the only time at the end.
        true => frames,
        false => steps(tokens[from - 1]) * FRAMES_A_STEP,
    };
    // Times that go nowhere would be heard for ever.
    let advance = if heard == 0 { frames } else { heard.min(frames) };
    Cut { pieces, advance, ends_open: !ends_with_one }
}
