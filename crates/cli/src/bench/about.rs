//! What every report says first: which program, where it runs, and how.

use pteron_runtime::{LoadMode, Precision, Program};
use serde::Serialize;
use std::path::Path;

/// A program that is measured, and what measures it.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    pub(crate) model: String,
    pub(crate) file_bytes: u64,
    pub(crate) backend: &'static str,
    pub(crate) device: String,
    pub(crate) precision: &'static str,
    pub(crate) threads: usize,
    pub(crate) load: &'static str,
    pub(crate) load_s: f64,
}

impl About {
    /// A program under the name that its user gave it, loaded from a file in so many seconds.
    pub(crate) fn of(
        name: &str,
        path: &Path,
        program: &Program,
        precision: Precision,
        threads: usize,
        load_s: f64,
    ) -> About {
        let (backend, device) = program.backend();
        About {
            model: name.to_owned(),
            file_bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
            backend,
            device: device.name.clone(),
            precision: match precision {
                Precision::Exact => "exact",
                Precision::Fast => "fast",
            },
            threads,
            load: match program.load_mode() {
                LoadMode::Map => "map",
                LoadMode::Lock => "lock",
                LoadMode::Arrange => "arrange",
                LoadMode::Copy => "copy",
            },
            load_s,
        }
    }
}
