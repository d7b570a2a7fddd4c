//! Downloads as a person sees them: one line on a terminal, as wide as that is at most, and notes of what went wrong on the
//! way.

use crate::output::{complain, size};
use indicatif::{ProgressBar, ProgressStyle};
use pteron_registry::{Error, Event, FileKind, Variant};
use std::io::IsTerminal;
use std::time::Duration;

/// How often a line without a known end moves.
const TICK: Duration = Duration::from_millis(120);

/// While nobody knows how much there is to come.
const WAITING: &str = "{spinner} {wide_msg}";
const ENDLESS: &str = "{spinner} {msg:20!} {binary_bytes} {binary_bytes_per_sec}";
const FILE: &str = "{msg:16!} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// Draws what a store tells of one fetch.
pub(super) struct Bars {
    variant: Variant,
    /// The one line; what is fetched changes what it shows.
    bar: ProgressBar,
    /// Why the last source failed; told when another one is tried, since the error at the end tells of all.
    failed: Option<String>,
}

impl Bars {
    pub(super) fn new(variant: &Variant) -> Bars {
        let hidden = !std::io::stderr().is_terminal();
        Bars::on(variant, if hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() })
    }

    fn on(variant: &Variant, bar: ProgressBar) -> Bars {
        Bars { variant: variant.clone(), bar, failed: None }
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
                self.wait(format!("{} from {source}", self.variant.id()));
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
                self.wait(format!("package {name}{part}: {}", size(bytes)));
            }
            Event::File { path, size, at } => {
                self.bar.set_style(style(if size.is_some() { FILE } else { ENDLESS }));
                self.bar.set_message(self.name(path));
                match size {
                    Some(size) => self.bar.set_length(size),
                    None => self.bar.unset_length(),
                }
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

    fn wait(&self, message: String) {
        self.bar.set_style(style(WAITING));
        self.bar.set_message(message);
        self.bar.enable_steady_tick(TICK);
    }

    /// What a file is called on the line: the model's only file by the model, one of many by its own name.
    fn name(&self, path: &str) -> String {
        match self.variant.kind {
            FileKind::Folder => path.rsplit('/').next().unwrap_or(path).to_owned(),
            _ => self.variant.model.clone(),
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| complain(&format!("note: {text}\n")));
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{ProgressDrawTarget, TermLike};
    use pteron_registry::Registry;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Debug)]
    struct Screen {
        columns: u16,
        written: Arc<Mutex<Vec<String>>>,
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.columns
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.written.lock().unwrap().push(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_fetch_is_one_line_that_fits_the_terminal() {
        let registry = Registry::built_in().unwrap();
        let variant = &registry.model("qwen2.5-coder-1.5b").unwrap().variants[0];
        for columns in [80, 60] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let screen = Screen { columns, written: written.clone() };
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::term_like(Box::new(screen)));
            let mut bars = Bars::on(variant, bar);
            let (path, size) = (variant.file.as_deref().unwrap_or("x"), Some(1_117_320_768));
            for event in [
                Event::Trying { source: &variant.sources[0] },
                Event::Package { name: "a-package-of-some-name-part3", number: 3, of: 12, bytes: 99_999_999 },
                Event::File { path, size: None, at: 0 },
                Event::File { path, size, at: 0 },
                Event::Bytes { at: 1_017_320_768 },
            ] {
                bars.show(event);
                bars.bar.force_draw();
            }
            bars.end();
            let lines: Vec<String> = written.lock().unwrap().clone();
            let shown = lines.join("\n");
            assert!(lines.iter().all(|line| line.trim_end().chars().count() <= columns.into()), "{shown}");
            for part in ["qwen2.5-coder-1.", "part3 (3 of 12): 95.4 MiB", "970.19 MiB/1.04 GiB"] {
                assert!(shown.contains(part), "{part} is missing in\n{shown}");
            }
        }
    }
}
