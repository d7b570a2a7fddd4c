//! What happens while a model is opened, on standard error: words, and one line with a bar where that is a terminal.

use super::bars::Bars;
use crate::output::complain;
use indicatif::{ProgressBar, ProgressStyle};
use pteron::{Event, Progress};
use pteron_registry::Variant;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

/// Standard error.
#[derive(Default)]
pub(crate) struct Screen(Mutex<Line>);

/// The line that moves.
#[derive(Default)]
enum Line {
    #[default]
    None,
    Fetching(Box<Bars>),
    Converting(ProgressBar),
}

impl Screen {
    /// Takes the line away that a bar was on.
    fn clear(&self) {
        self.with(|line| match std::mem::take(line) {
            Line::None => {}
            Line::Fetching(bars) => bars.end(),
            Line::Converting(bar) => bar.finish_and_clear(),
        });
    }

    fn with<T>(&self, show: impl FnOnce(&mut Line) -> T) -> T {
        show(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Screen {
    fn tell(&self, event: Event<'_>) {
        match event {
            Event::Converting { bytes, total } => self.with(|line| {
                if !matches!(line, Line::Converting(_)) {
                    *line = Line::Converting(bar());
                }
                if let Line::Converting(bar) = line {
                    bar.set_length(total);
                    bar.set_position(bytes);
                }
            }),
            Event::Says(words) => {
                self.clear();
                complain(&format!("{words}\n"));
            }
            Event::Remark(words) => {
                self.clear();
                complain(&format!("note: {words}\n"));
            }
            _ => self.clear(),
        }
    }

    fn fetch(&self, variant: &Variant, event: pteron_registry::Event<'_>) {
        self.with(|line| {
            if !matches!(line, Line::Fetching(_)) {
                *line = Line::Fetching(Box::new(Bars::new(variant)));
            }
            if let Line::Fetching(bars) = line {
                bars.show(event);
            }
        });
    }

    fn fetched(&self) {
        self.clear();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A bar on standard error; hidden where that is no terminal.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
