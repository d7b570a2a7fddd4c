//! Tensors of one or several safetensors files, found by name and read piece by piece.
//!
//! Files are read, not mapped: an export then needs memory for what it holds at the moment, and a file that somebody
//! cuts short is an error and not the end of the process.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pteron_models::WeightError;
use safetensors::tensor::{Dtype, Metadata};

use super::json;
use crate::CheckpointError;

/// Headers beyond this are no headers; the largest published ones have a few megabytes.
const LARGEST_HEADER: u64 = 64 << 20;
/// Files of one checkpoint.
const MOST_FILES: usize = 4096;
/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// Where a tensor lies.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    file: usize,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    bytes: Range<u64>,
}

impl Stored {
    pub(super) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// All tensors of a checkpoint.
pub(super) struct Tensors {
    files: Vec<OpenFile>,
    stored: HashMap<String, Stored>,
    /// What the headers say beside tensors, of all files.
    pub(super) metadata: BTreeMap<String, String>,
}

struct OpenFile {
    path: PathBuf,
    len: u64,
    file: Mutex<File>,
}

impl Tensors {
    /// Opens the files that a folder's index names, or its only one.
    pub(super) fn open(folder: &Path) -> Result<Tensors, CheckpointError> {
        Tensors::open_files(folder, &file_names(folder)?)
    }

    /// Opens these files of a folder.
    pub(super) fn open_files(folder: &Path, names: &[String]) -> Result<Tensors, CheckpointError> {
        let mut tensors = Tensors { files: Vec::new(), stored: HashMap::new(), metadata: BTreeMap::new() };
        for name in names {
            tensors.add(&folder.join(name))?;
        }
        Ok(tensors)
    }

    fn add(&mut self, path: &Path) -> Result<(), CheckpointError> {
        let io = |error| CheckpointError::io(path, error);
        // Opening a pipe would wait for somebody to write to it.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(CheckpointError::file(path, "it is no plain file"));
        }
        let mut file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let (start, header) =
            read_header(&mut file, len).map_err(|problem| CheckpointError::file(path, problem))?;
        let number = self.files.len();
        for (name, info) in header.tensors() {
            let (from, to) = info.data_offsets;
            let stored = Stored {
                file: number,
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes: start + from as u64..start + to as u64,
            };
            if self.stored.insert(name.clone(), stored).is_some() {
                return Err(CheckpointError::file(path, format!("{name} is in another file too")));
            }
        }
        self.metadata.extend(header.metadata().clone().unwrap_or_default());
        self.files.push(OpenFile { path: path.to_owned(), len, file: Mutex::new(file) });
        Ok(())
    }

    /// The tensor of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Stored> {
        self.stored.get(name)
    }

    /// All names, in no order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str)
    }

    /// Files with their sizes.
    pub(super) fn files(&self) -> BTreeMap<String, u64> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.files.iter().map(|file| (name(&file.path).unwrap_or_default(), file.len)).collect()
    }

    /// Some bytes of a tensor.
    pub(super) fn read(
        &self,
        name: &str,
        stored: &Stored,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), WeightError> {
        let file = &self.files[stored.file];
        let problem = |problem: String| WeightError::Read { name: name.to_owned(), problem };
        if from.checked_add(out.len() as u64).is_none_or(|end| end > stored.len()) {
            return Err(problem("a read past its end".into()));
        }
        let failed = |error: std::io::Error| problem(format!("{}: {error}", file.path.display()));
        // A panic elsewhere leaves the file at another place, and every read seeks first.
        let mut handle = file.file.lock().unwrap_or_else(PoisonError::into_inner);
        handle.seek(SeekFrom::Start(stored.bytes.start + from)).map_err(failed)?;
        handle.read_exact(out).map_err(failed)
    }

    /// A small tensor whole.
    pub(super) fn read_all(&self, name: &str, stored: &Stored) -> Result<Vec<u8>, WeightError> {
        // The length is that of a file that exists, so that it bounds the allocation.
        let mut bytes = vec![0; stored.len() as usize];
        self.read(name, stored, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies a tensor as it is stored.
    pub(super) fn copy(&self, name: &str, stored: &Stored, out: &mut dyn Write) -> std::io::Result<()> {
        let mut buffer = vec![0; CHUNK.min(stored.len() as usize)];
        let mut from = 0;
        while from < stored.len() {
            let part = &mut buffer[..CHUNK.min((stored.len() - from) as usize)];
            self.read(name, stored, from, part).map_err(std::io::Error::other)?;
            out.write_all(part)?;
            from += part.len() as u64;
        }
        Ok(())
    }

    /// Whether two tensors hold the same.
    pub(super) fn same(&self, a: (&str, &Stored), b: (&str, &Stored)) -> Result<bool, WeightError> {
        if (a.1.dtype, &a.1.shape) != (b.1.dtype, &b.1.shape) {
            return Ok(false);
        }
        let mut buffers = [vec![0; CHUNK], vec![0; CHUNK]];
        let mut from = 0;
        while from < a.1.len() {
            let len = CHUNK.min((a.1.len() - from) as usize);
            for (buffer, (name, stored)) in buffers.iter_mut().zip([a, b]) {
                self.read(name, stored, from, &mut buffer[..len])?;
            }
            if buffers[0][..len] != buffers[1][..len] {
                return Ok(false);
            }
            from += len as u64;
        }
        Ok(true)
    }
}

/// Names of the files that hold weights, in order.
fn file_names(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let index = folder.join(INDEX);
    if !index.is_file() {
        if folder.join(SINGLE).is_file() {
            return Ok(vec![SINGLE.to_owned()]);
        }
        let problem = match folder.join("pytorch_model.bin").is_file() {
            true => "it has weights in pytorch_model.bin only, a pickle; save it again as safetensors",
            false => "it has neither model.safetensors nor model.safetensors.index.json",
        };
        return Err(CheckpointError::NotACheckpoint { path: folder.to_owned(), problem: problem.into() });
    }
    let value = json::read(&index, LARGEST_HEADER)?;
    let map = value.get("weight_map").and_then(serde_json::Value::as_object);
    let map = map.ok_or_else(|| CheckpointError::file(&index, "it has no `weight_map`"))?;
    let mut names: Vec<String> = Vec::new();
    for file in map.values() {
        let name = file.as_str().unwrap_or_default();
        // A name that climbs out of the folder is no name of a shard.
        if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(CheckpointError::file(&index, format!("{file} is not a file beside it")));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        if names.len() > MOST_FILES {
            return Err(CheckpointError::file(&index, format!("it names more than {MOST_FILES} files")));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Where data begin, and what the header says; every range in it lies in the file.
fn read_header(file: &mut File, len: u64) -> Result<(u64, Metadata), String> {
    let mut size = [0; 8];
    let damaged = |error: std::io::Error| format!("it is no safetensors file: {error}");
    file.read_exact(&mut size).map_err(damaged)?;
    let size = u64::from_le_bytes(size);
    if size > LARGEST_HEADER || size > len.saturating_sub(8) {
        return Err(format!("it is no safetensors file: a header of {size} bytes in a file of {len}"));
    }
    let mut header = vec![0; size as usize];
    file.read_exact(&mut header).map_err(damaged)?;
    let header: Metadata = serde_json::from_slice(&header).map_err(|error| format!("its header: {error}"))?;
    let wanted = (header.data_len() as u64).checked_add(8 + size);
    if wanted != Some(len) {
        return Err(format!(
            "it has {len} bytes where its header describes {}; the download may be incomplete",
            wanted.map_or_else(|| "more than any file has".to_owned(), |bytes| bytes.to_string())
        ));
    }
    Ok((8 + size, header))
}
