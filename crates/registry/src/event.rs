//! What happens while a model is fetched, told to whoever draws the bars.

use crate::{Error, Sha256, Source};
use std::time::Duration;

/// Who is told.
pub type Listener<'a> = &'a mut dyn FnMut(Event<'_>);

/// One thing that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Another process is at work on the same thing; this one waits until it is done.
    Waiting,
    /// What was fetched earlier is not whole any more: files are missing or have other sizes. It is fetched again.
    Damaged,
    /// A source is tried.
    Trying {
        /// Which.
        source: &'a Source,
    },
    /// A source did not give the bytes; the next one is tried.
    Failed {
        /// Which.
        source: &'a Source,
        /// Why.
        error: &'a Error,
    },
    /// The machine's own package client is fetching.
    Package {
        /// The package.
        name: &'a str,
        /// Its number, from 1.
        number: usize,
        /// Packages of this source.
        of: usize,
        /// Bytes that it has on disk by now.
        bytes: u64,
    },
    /// A file begins, or goes on where it was left.
    File {
        /// Its name.
        path: &'a str,
        /// Its size, where anybody stated it.
        size: Option<u64>,
        /// Bytes that are there already.
        at: u64,
    },
    /// More of that file is there.
    Bytes {
        /// Bytes that are there now.
        at: u64,
    },
    /// The connection broke; it is taken up again after a pause.
    Retrying {
        /// What broke.
        error: &'a Error,
        /// The pause.
        after: Duration,
    },
    /// The registry does not state size and hash of what was fetched; they are recorded as found.
    Recorded {
        /// Bytes.
        size: u64,
        /// Hash of the file, or of a folder's list of files.
        sha256: Sha256,
    },
}
