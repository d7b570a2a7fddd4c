//! The one list of bounds that files and runs are held to.
//!
//! Reading charges them before it allocates, running before it computes, so that a hostile file of a few
//! kilobytes can neither take the machine's memory nor its time. Nothing else in the workspace holds such a
//! number.

/// Bounds on what a file may ask for, in two profiles: [`Limits::untrusted`] for files of strangers, which is the default,
/// and [`Limits::own`] for a model that its user chose. They differ in what a model may rightly be large in:
///
/// | | untrusted | own |
/// | --- | --- | --- |
/// | `file_bytes` | 256 GiB | 16 TiB |
/// | `json_bytes` | 64 MiB | 1 GiB |
/// | `tensor_bytes` | 4 GiB | 1 TiB |
/// | `live_bytes` | 4 GiB | 4 TiB: whoever knows how much memory there is sets it lower |
/// | `work` | 2^48 | 2^56 |
/// | `cache_cells` | 2^32 | 2^40 |
///
/// What is left guards the readers themselves, far above anything that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file. Mapped, not allocated, hence far above what fits in memory.
    pub file_bytes: u64,
    /// Nesting of FlatBuffers tables below the root. The deepest known schema needs seven.
    pub table_depth: u32,
    /// FlatBuffers tables visited in one buffer, counted per visit: a file may point at the same table a
    /// million times, and each costs an owned one.
    pub tables: u64,
    /// Bytes of strings and vector elements copied out of one buffer, counted per visit for the same reason.
    /// Borrowed blobs (payloads, constants) do not count.
    pub decoded_bytes: u64,
    /// Bytes of one string.
    pub string_bytes: u64,
    /// Tensors of one payload or one method.
    pub tensors: u64,
    /// Values of one method, or scalar slots of one payload.
    pub values: u64,
    /// Chains of one method or payload.
    pub chains: u64,
    /// How deep a payload's chains may nest (branches and loops inside each other). Three occur.
    pub chain_depth: u32,
    /// Instructions of one chain, and of all chains of one payload, a body counted once for each use: lifting
    /// copies it there.
    pub instructions: u64,
    /// Elements of any other vector of tables: methods, operators, delegates, segments, named data.
    pub entries: u64,
    /// Bytes of one JSON member of a `.pt2`. Parsed, it takes some twenty times as much memory.
    pub json_bytes: u64,
    /// Opcodes of one pickle in a `.pt2`. Those of known tensor subclasses have fewer than 200.
    pub pickle_steps: u64,
    /// Dimensions of one tensor. ExecuTorch's own bound.
    pub rank: usize,
    /// Bytes of one tensor.
    pub tensor_bytes: u64,
    /// Bytes that a run may hold at once: activations, states and copies, not mapped weights.
    pub live_bytes: u64,
    /// Program-level instructions executed in one call; jumps make loops possible. ExecuTorch's own bound.
    pub executed_instructions: u64,
    /// Element operations of one call, by estimate: multiply-adds of products, elements read and written of
    /// everything else. That of untrusted files is minutes of work of the largest models; whoever runs them against the
    /// clock sets it lower.
    pub work: u64,
    /// Layers of an off-graph cache times the positions that each may hold.
    pub cache_cells: u64,
}

impl Limits {
    /// For files of unknown origin, in a server or under a fuzzer: a whole process stays under 6 GiB of address space for
    /// any small file.
    pub fn untrusted() -> Limits {
        Limits {
            file_bytes: 256 << 30,
            table_depth: 64,
            tables: 4_000_000,
            decoded_bytes: 512 << 20,
            string_bytes: 16 << 20,
            tensors: 1_000_000,
            values: 1_000_000,
            chains: 1_000_000,
            chain_depth: 64,
            instructions: 1_000_000,
            entries: 1_000_000,
            json_bytes: 64 << 20,
            pickle_steps: 20_000,
            rank: 16,
            tensor_bytes: 4 << 30,
            live_bytes: 4 << 30,
            executed_instructions: 10_000_000,
            work: 1 << 48,
            cache_cells: 1 << 32,
        }
    }

    /// For a model that its user chose and trusts: what the machine has is the bound.
    pub fn own() -> Limits {
        Limits {
            file_bytes: 16 << 40,
            json_bytes: 1 << 30,
            tensor_bytes: 1 << 40,
            live_bytes: 4 << 40,
            work: 1 << 56,
            cache_cells: 1 << 40,
            ..Limits::untrusted()
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::untrusted()
    }
}
