//! A plan as data: where every value lies, how large it is where that is known, and what becomes of buffers.

use crate::layout::Layout;
use pteron_ir::ValueId;
use pteron_tensor::DType;

/// What the values of a run lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunMemory {
    /// One region, in which values that are never needed at the same time share places.
    #[default]
    Planned,
    /// An allocation for every value and all scratch, spoiled when the plan says that it is no longer needed. Slow; what
    /// it computes is bit by bit what the region gives, unless a plan or a kernel is wrong. Under a sanitizer, an access
    /// one byte beyond a value is seen.
    Separate,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Nowhere: a number, or a value that is never made.
    None,
    /// In the planned region.
    Arena {
        /// Where it begins, in bytes.
        offset: usize,
        /// How much room it has.
        bytes: usize,
    },
    /// In memory of its own, which grows with use where sizes are not known.
    Heap(usize),
    /// A constant of the graph.
    Constant(usize),
    /// An input of the run.
    Input(usize),
    /// A buffer of the session.
    Buffer(usize),
    /// In the memory of another value.
    View,
}

/// What a run does at its end with a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferWrite {
    /// Its number in the graph.
    pub buffer: usize,
    /// What it will hold.
    pub value: ValueId,
    /// The scratch where that is put first, because it lies in a buffer itself.
    pub staging: Option<usize>,
}

/// What a step does to memory. Places are those of the plan: in the region by bytes, all others as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// What it reads.
    pub reads: Vec<Storage>,
    /// What it writes; an update in place both reads and writes.
    pub writes: Vec<Storage>,
    /// Whether it also changes what lies in no value: the off-graph cache, the random generator.
    pub has_effect: bool,
}

/// Everything that is decided before a run, but for the steps, which are the backend's.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By value; numbers have none.
    pub dtypes: Vec<Option<DType>>,
    /// By value, and behind those by scratch.
    pub storage: Vec<Storage>,
    /// Sizes that are known, of values with storage of their own.
    pub fixed: Vec<(ValueId, Layout)>,
    /// Numbers that are known.
    pub numbers: Vec<(ValueId, i64)>,
    /// Size of the planned region.
    pub arena_bytes: usize,
    /// Bytes of memory of its own that each value or piece of scratch begins with.
    pub heaps: Vec<usize>,
    /// What values lie in.
    pub memory: RunMemory,
    /// With separate memory: by step, the heaps that nobody needs when it has run.
    pub deaths: Vec<Vec<usize>>,
    /// By step: which memory it touches.
    pub accesses: Vec<Access>,
    /// Buffers that a run changes, in place or at its end.
    pub changed: Vec<bool>,
    /// Buffers that do not hold their new contents when the last step has run.
    pub writes: Vec<BufferWrite>,
    /// Whether a run advances the session's random generator.
    pub draws: bool,
}

impl Plan {
    /// Bytes that it takes itself.
    pub fn bytes(&self) -> usize {
        let accesses = self.accesses.iter().map(|access| {
            let places = access.reads.len() + access.writes.len();
            size_of::<Access>() + places * size_of::<Storage>()
        });
        size_of_val(&*self.dtypes)
            + size_of_val(&*self.storage)
            + size_of_val(&*self.fixed)
            + size_of_val(&*self.numbers)
            + accesses.sum::<usize>()
    }

    /// Where a value lies.
    #[inline]
    pub fn storage_of(&self, value: ValueId) -> Storage {
        self.storage[value.0 as usize]
    }

    /// Where scratch lies.
    #[inline]
    pub fn scratch(&self, number: usize) -> Storage {
        self.storage.get(self.dtypes.len() + number).copied().unwrap_or(Storage::None)
    }
}

/// Why a graph cannot be planned for some sizes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It needs more than it may have.
    #[error("{what} takes {found} bytes, and {limit} allows {allowed}")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// The name of the limit.
        limit: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        allowed: u64,
    },
    /// A size that no machine can count.
    #[error("the size of %{} overflows", .0.0)]
    Overflow(ValueId),
    /// More axes than a [`Layout`] has.
    #[error("%{} has {axes} axes", value.0)]
    Rank {
        /// Which value.
        value: ValueId,
        /// How many it has.
        axes: usize,
    },
}
