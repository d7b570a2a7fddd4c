//! Named data in a `.ptd` file of its own, so that programs that differ in little else can share it.

use std::collections::HashMap;
use std::io::Write;

use super::{AssembleError, ProgramWriter};
use crate::ptd::{self, NamedTensor};
use crate::{Segment, WriteOptions};

/// A `.ptd` file in the making.
#[derive(Default)]
pub struct DataWriter<'a> {
    named: Vec<NamedTensor>,
    segments: Vec<Segment<'a>>,
}

impl DataWriter<'_> {
    /// What the file will hold: keys, and the bytes under each.
    pub fn entries(&self) -> impl Iterator<Item = (&str, u64)> {
        self.named.iter().map(|named| (&*named.key, self.segments[named.segment_index as usize].len()))
    }

    /// Writes the file; returns the bytes written.
    pub fn write(&self, options: &WriteOptions, out: &mut dyn Write) -> Result<u64, AssembleError> {
        Ok(ptd::write(&self.named, &self.segments, options, out)?)
    }
}

impl<'a> ProgramWriter<'a> {
    /// The program without the data under keys that `apart` names, and that data. A segment goes as a whole: with one of
    /// its keys all others of it leave the program too.
    pub fn split(mut self, apart: impl Fn(&str) -> bool) -> (ProgramWriter<'a>, DataWriter<'a>) {
        let leaving: HashMap<usize, usize> = {
            let mut places: Vec<usize> =
                self.keys.iter().filter(|(key, _)| apart(key)).map(|(_, &at)| at).collect();
            places.sort_unstable();
            places.dedup();
            places.into_iter().enumerate().map(|(new, old)| (old, new)).collect()
        };
        let mut data = DataWriter::default();
        // Where what stays is found from now on; hashes of held data are needed no more, since all is named.
        let mut stays = HashMap::new();
        let mut kept = super::Pool::default();
        for (old, segment) in std::mem::take(&mut self.data).entries.into_iter().enumerate() {
            match leaving.contains_key(&old) {
                true => data.segments.push(segment),
                false => {
                    stays.insert(old, kept.push(None, segment));
                }
            }
        }
        self.data = kept;
        for (key, old) in std::mem::take(&mut self.keys) {
            match (leaving.get(&old), stays.get(&old)) {
                (Some(&new), _) => {
                    let named = NamedTensor {
                        key: key.as_str().into(),
                        segment_index: new as u32,
                        tensor_layout: None,
                    };
                    data.named.push(named);
                    self.apart.insert(key);
                }
                (None, Some(&new)) => {
                    self.keys.insert(key, new);
                }
                (None, None) => {}
            }
        }
        (self, data)
    }
}
