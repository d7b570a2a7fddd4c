//! Bounds on what a GGUF file may ask for.

/// What a file may ask for. [`Limits::default`] takes every published model that we know of with room to spare; what
/// is read beside the file's own bytes stays below about 200 bytes an entry of metadata or tensor. One profile serves
/// files of strangers and a user's own, because no model is large in any of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of metadata. Real files have some fifty.
    pub metadata: u64,
    /// Tensors. The largest mixtures of experts have some thousands.
    pub tensors: u64,
    /// Bytes of a key or of a tensor's name. The format says 65535, real ones have fewer than 100.
    pub name_bytes: u64,
    /// Bytes of one string in metadata; chat templates are the longest.
    pub string_bytes: u64,
    /// Elements of one array; vocabularies are the longest, at some hundred thousand.
    pub array_len: u64,
    /// How deep arrays may nest. No known key nests them at all.
    pub array_depth: u32,
    /// Dimensions of one tensor; llama.cpp has four.
    pub rank: u32,
    /// The largest alignment of tensor data.
    pub alignment: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            metadata: 1 << 16,
            tensors: 1 << 18,
            name_bytes: 1 << 16,
            string_bytes: 16 << 20,
            array_len: 1 << 24,
            array_depth: 4,
            rank: 4,
            alignment: 1 << 20,
        }
    }
}
