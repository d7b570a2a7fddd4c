//! The headers of a model: of its one file, or of the several files that a large model is cut into. Such files are called
//! `NAME-00001-of-00003.gguf`; the first has the metadata, each has some of the tensors.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pteron_format::map::MappedFile;
use pteron_gguf::{Gguf, GgufError, Limits, Metadata, Tensor};

use crate::CheckpointError;

/// Files of one model.
const MOST_PARTS: u64 = 4096;

/// The headers of a model's files, in order; at least one.
pub(super) struct Parts(Vec<Gguf>);

/// A tensor, and the number of the file that holds it.
#[derive(Clone, Copy)]
pub(super) struct Found<'p> {
    pub(super) tensor: &'p Tensor,
    pub(super) part: usize,
}

impl Parts {
    /// Reads the headers of a file and, where it is one of several, of the others; with their paths.
    pub(super) fn open(path: &Path) -> Result<(Parts, Vec<PathBuf>), CheckpointError> {
        let file = read(path)?;
        let Some(count) = number(&file, path, "split.count")?.filter(|&count| count > 1) else {
            return Ok((Parts(vec![file]), vec![path.to_owned()]));
        };
        let paths = siblings(path, count).map_err(|problem| CheckpointError::file(path, problem))?;
        let mut parts = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            if !path.is_file() {
                return Err(CheckpointError::file(path, format!("part {} of {count} is missing", at + 1)));
            }
            let part = read(path)?;
            let says = (number(&part, path, "split.no")?, number(&part, path, "split.count")?);
            if says != (Some(at as u64), Some(count)) {
                let problem = format!("it is not part {} of {count}, as its name says", at + 1);
                return Err(CheckpointError::file(path, problem));
            }
            parts.push(part);
        }
        let parts = Parts(parts);
        parts
            .check(number(&parts.0[0], &paths[0], "split.tensors.count")?)
            .map_err(|problem| CheckpointError::file(&paths[0], problem))?;
        Ok((parts, paths))
    }

    /// Every tensor is in one file, and all are there.
    fn check(&self, wanted: Option<u64>) -> Result<(), String> {
        let mut names = HashSet::new();
        if let Some(twice) = self.tensors().find(|tensor| !names.insert(tensor.name())) {
            return Err(format!("{} is in two parts", twice.name()));
        }
        match wanted {
            Some(wanted) if wanted != names.len() as u64 => {
                Err(format!("its parts have {} tensors together, not {wanted}", names.len()))
            }
            _ => Ok(()),
        }
    }

    /// The model's metadata.
    pub(super) fn metadata(&self) -> Metadata<'_> {
        self.first().metadata()
    }

    /// The file that has the metadata.
    pub(super) fn first(&self) -> &Gguf {
        &self.0[0]
    }

    /// All tensors.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().flat_map(Gguf::tensors)
    }

    /// The tensor of that name.
    pub(super) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.find(name).map(|found| found.tensor)
    }

    /// The tensor of that name with its file.
    pub(super) fn find(&self, name: &str) -> Option<Found<'_>> {
        let mut parts = self.0.iter().enumerate();
        parts.find_map(|(part, file)| Some(Found { tensor: file.tensor(name)?, part }))
    }

    /// Some numbers of a tensor.
    pub(super) fn decode(
        &self,
        found: Found<'_>,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), GgufError> {
        self.0[found.part].decode(found.tensor, elements, out)
    }
}

impl From<Gguf> for Parts {
    fn from(file: Gguf) -> Parts {
        Parts(vec![file])
    }
}

/// The files that make one model with that one, by its name; itself where it is whole.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let count = path.file_name().and_then(|name| split_name(name.to_str()?)).map(|(_, _, count)| count);
    let parts = count.filter(|&count| count > 1).and_then(|count| siblings(path, count).ok());
    parts.unwrap_or_else(|| vec![path.to_owned()])
}

/// Whether a file is, by its name, another than the first of several.
pub(crate) fn is_later_part(path: &Path) -> bool {
    path.file_name().and_then(|name| split_name(name.to_str()?)).is_some_and(|(_, number, _)| number > 1)
}

fn read(path: &Path) -> Result<Gguf, CheckpointError> {
    let refused = |problem: String| CheckpointError::file(path, problem);
    let mapped = MappedFile::open(path, &pteron_format::Limits::default())
        .map_err(|error| refused(error.to_string()))?;
    Gguf::read(mapped.to_bytes(), &Limits::default()).map_err(|error| refused(error.to_string()))
}

fn number(file: &Gguf, path: &Path, key: &str) -> Result<Option<u64>, CheckpointError> {
    file.metadata().integer(key).map_err(|error| CheckpointError::file(path, error.to_string()))
}

/// The paths of all parts, from that of one.
fn siblings(path: &Path, count: u64) -> Result<Vec<PathBuf>, String> {
    if count > MOST_PARTS {
        return Err(format!("it is one of {count} parts, at most {MOST_PARTS} are read"));
    }
    match path.file_name().and_then(|name| split_name(name.to_str()?)) {
        Some((name, _, said)) if said == count => {
            let part = |number| path.with_file_name(format!("{name}-{number:05}-of-{count:05}.gguf"));
            Ok((1..=count).map(part).collect())
        }
        _ => Err(format!(
            "it is one of {count} parts, whose names end like -00001-of-{count:05}.gguf; name it so again, with the \
             others beside it"
        )),
    }
}

/// What stands before the numbers in the name of a part, and the numbers.
fn split_name(name: &str) -> Option<(&str, u64, u64)> {
    let digits = |text: &str| {
        text.parse().ok().filter(|_| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    Some((name, digits(number)?, digits(count)?))
}
