//! What `torch.save` writes: dictionaries of tensors and plain numbers, read without Python.
//!
//! A file flows in; its tensors, which borrow it, and its integers flow out, under the keys that lead to them, joined by
//! dots. Everything else in it is passed over.

use super::archive::Archive;
use super::error::{Pt2Error, Result};
use super::pickle;
use super::rebuild::{Heap, Id, Object};
use super::tensor::StridedTensor;
use super::weights::check_byte_order;
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_tensor::Bytes;
use std::path::Path;

/// Dictionaries inside each other.
const DEEPEST: usize = 4;
/// Entries of all dictionaries; one that is shared counts as often as it is met.
const MOST_ENTRIES: usize = 1 << 17;

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// Tensors by name.
    pub tensors: IndexMap<String, StridedTensor>,
    /// Integers by name.
    pub numbers: IndexMap<String, i64>,
}

impl Saved {
    /// Opens a file; what is read from it borrows its mapping.
    pub fn open(path: &Path, limits: &Limits) -> Result<Saved> {
        Saved::read(MappedFile::open(path, limits)?.to_bytes(), limits)
    }

    /// Reads a file.
    pub fn read(bytes: Bytes, limits: &Limits) -> Result<Saved> {
        let archive = Archive::read("file", bytes, limits)?;
        let root = archive.root("data.pkl")?;
        check_byte_order(&archive, &root)?;
        let missing = || Pt2Error::Missing { member: "data.pkl".to_owned() };
        let data = archive.get(&format!("{root}data.pkl")).ok_or_else(missing)?;
        let storage = |key: &str| archive.get(&format!("{root}data/{key}"));
        let (heap, result) = pickle::run("data.pkl", &data, limits, &storage)?;
        let mut saved = Saved::default();
        saved.collect(&heap, result, "", 0).map_err(|problem| Pt2Error::member("data.pkl", problem))?;
        Ok(saved)
    }

    fn collect(
        &mut self,
        heap: &Heap<'_>,
        id: Id,
        name: &str,
        depth: usize,
    ) -> std::result::Result<(), String> {
        if self.tensors.len() + self.numbers.len() > MOST_ENTRIES {
            return Err(format!("more than {MOST_ENTRIES} entries"));
        }
        match heap.get(id) {
            Object::Tensor(tensor) => drop(self.tensors.insert(name.to_owned(), (**tensor).clone())),
            Object::Int(number) => drop(self.numbers.insert(name.to_owned(), *number)),
            Object::Dict(_) if depth == DEEPEST => {
                return Err("dictionaries too deep in each other".to_owned());
            }
            Object::Dict(entries) => {
                if entries.len() > MOST_ENTRIES {
                    return Err(format!("more than {MOST_ENTRIES} entries"));
                }
                for &(key, value) in entries {
                    let Some(key) = heap.text(key) else { continue };
                    let name = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
                    self.collect(heap, value, &name, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
