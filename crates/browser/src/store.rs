//! Files that are in memory: made with their length and filled chunk by chunk, as they come from storage, so that no file is
//! in memory twice.

use crate::{Result, invalid, thrown};
use pteron_bindings::{Bytes, PteronError};
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;

/// A file that is being filled. Its bytes lie in words of eight, so that every dtype finds its alignment.
#[wasm_bindgen]
pub struct File {
    name: String,
    words: Vec<u64>,
    length: usize,
    filled: usize,
}

/// Memory that an address of 32 bits reaches.
const ALL: u64 = 1 << 32;

#[wasm_bindgen]
impl File {
    /// An empty one of so many bytes.
    #[wasm_bindgen(constructor)]
    pub fn new(name: String, length: f64) -> Result<File> {
        if !(0.0..=ALL as f64).contains(&length) {
            return Err(thrown(too_large(&name, length as u64)));
        }
        let length = length as usize;
        let mut words = Vec::new();
        let count = length.div_ceil(8);
        words.try_reserve_exact(count).map_err(|_| thrown(too_large(&name, length as u64)))?;
        words.resize(count, 0);
        Ok(File { name, words, length, filled: 0 })
    }

    /// Its next bytes.
    pub fn push(&mut self, chunk: &[u8]) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        let place = bytes.get_mut(..self.length).and_then(|bytes| bytes.get_mut(self.filled..));
        let place = place.and_then(|rest| rest.get_mut(..chunk.len()));
        let Some(place) = place else {
            return Err(invalid(format!("{}: more bytes than the {} that it has", self.name, self.length)));
        };
        place.copy_from_slice(chunk);
        self.filled += chunk.len();
        Ok(())
    }
}

impl File {
    /// What it is called, and its bytes: as many as came.
    pub(crate) fn whole(self) -> (String, Bytes) {
        let filled = self.filled;
        let bytes = Bytes::shared(Arc::new(Words(self.words)), 0..filled);
        (self.name, bytes.unwrap_or_else(|| Bytes::zeroed(0)))
    }
}

struct Words(Vec<u64>);

impl pteron_bindings::ByteOwner for Words {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

fn too_large(name: &str, needed: u64) -> PteronError {
    let reason = format!("{name} has {needed} bytes, and there is no memory for them here");
    PteronError::NotEnoughMemory { needed, limit: ALL, reason }
}
