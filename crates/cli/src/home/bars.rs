//! Downloads as a person sees them: a bar on a terminal, and notes of what went wrong on the way.

use crate::output::{complain, size};
use indicatif::{ProgressBar, ProgressStyle};
use pteron_registry::{Error, Event, Variant};
use std::io::IsTerminal;
use std::time::Duration;

/// How often a bar without a known end moves.
const TICK: Duration = Duration::from_millis(120);

/// Draws what a store tells of one fetch.
pub(super) struct Bars<'a> {
    variant: &'a Variant,
    bar: ProgressBar,
    /// Why the last source failed; told when another one is tried, since the error at the end tells of all.
    failed: Option<String>,
}

impl<'a> Bars<'a> {
    pub(super) fn new(variant: &'a Variant) -> Bars<'a> {
        Bars { variant, bar: ProgressBar::hidden(), failed: None }
    }

    pub(super) fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Waiting => {
                self.note(&format!("another process is fetching {}; waiting for it", self.variant.id()));
            }
            Event::Damaged => {
                let id = self.variant.id();
                self.note(&format!("files of {id} are missing or have other sizes; it is fetched again"));
            }
            Event::Trying { source } => {
                if let Some(failed) = self.failed.take() {
                    self.note(&format!("{failed}; trying {source}"));
                }
                self.spin(format!("{} from {source}", self.variant.id()));
            }
            Event::Failed { source, error } => {
                // The address of a source follows from its name.
                let reason = match error {
                    Error::Network { problem, .. } => problem.clone(),
                    other => other.to_string(),
                };
                self.failed = Some(format!("{source} did not give {}: {reason}", self.variant.id()));
            }
            Event::Package { name, number, of, bytes } => {
                let part = if of > 1 { format!(" ({number} of {of})") } else { String::new() };
                self.bar.set_message(format!("package {name}{part}: {}", size(bytes)));
            }
            Event::File { path, size, at } => {
                self.bar.finish_and_clear();
                self.bar = file_bar(path, size);
                self.bar.set_position(at);
                // What was there before says nothing of the speed.
                self.bar.reset_eta();
            }
            Event::Bytes { at } => self.bar.set_position(at),
            Event::Retrying { error, after } => {
                self.note(&format!("{error}; trying again in {} s", after.as_secs_f64().ceil()));
            }
            Event::Recorded { size: bytes, sha256 } => self.note(&format!(
                "the registry does not state size and hash of {}; recorded as found: {}, SHA-256 {sha256}",
                self.variant.id(),
                size(bytes)
            )),
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn spin(&mut self, message: String) {
        self.bar.finish_and_clear();
        if std::io::stderr().is_terminal() {
            self.bar = ProgressBar::new_spinner().with_message(message);
            self.bar.enable_steady_tick(TICK);
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| complain(&format!("note: {text}\n")));
    }
}

fn file_bar(path: &str, size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        Some(size) => (
            ProgressBar::new(size),
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left",
        ),
        None => (ProgressBar::no_length(), "{msg} {spinner} {binary_bytes} {binary_bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(path.to_owned())
}
