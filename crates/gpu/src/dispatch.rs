//! Views of memory and what is done with them: the words in which ops are lowered.

use crate::kernel::Kernel;
use pteron_plan::{Access, Layout, Storage};
use pteron_tensor::DType;

/// Groups along the first axis of a grid; more go along the second.
pub const GROUPS_X: u32 = 1 << 15;

/// Texts that a run reads side by side, at most.
pub const MOST_SPANS: usize = 32;

/// Where a run's report begins to say what the greatest of its scores are, two words for each.
pub const REPORT_GREATEST: usize = 4;

/// Words that a run tells the host.
pub const REPORT_WORDS: usize = REPORT_GREATEST + 2 * MOST_SPANS;

/// Where descriptors may begin, whatever the device: no device asks for more.
pub(crate) const BINDING_ALIGNMENT: usize = 256;

/// A region of a device's memory. Offsets into it are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// What runs compute in.
    Arena,
    /// A tensor that the call was given.
    Input(usize),
    /// What the call gives.
    Outputs,
    /// A constant of the graph.
    Constant(usize),
    /// A buffer of the session.
    Buffer(usize),
    /// Keys or values of a layer of the session's cache.
    Cache(Cached),
    /// What a run tells the host, [`REPORT_WORDS`] of it. The first three words: 0, or one more than the number of a step that met an
    /// index outside its axis, the index, and the axis' size. From [`REPORT_GREATEST`] on: where the greatest of its scores are.
    Faults,
}

/// A part of an off-graph cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cached {
    /// The text whose cache it is, among those that are read side by side.
    pub span: usize,
    /// The layer.
    pub layer: usize,
    /// Whether it is the values, not the keys.
    pub values: bool,
}

/// A tensor in a region.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Where it lies.
    pub region: Region,
    /// Of its first element, in bytes.
    pub offset: usize,
    /// Element type.
    pub dtype: DType,
    /// Sizes and strides.
    pub layout: Layout,
    /// The memory that it shares with others, for hazards.
    pub storage: Storage,
}

impl View {
    /// Dims, outermost first.
    pub fn sizes(&self) -> &[usize] {
        self.layout.sizes()
    }

    /// The same memory under another layout.
    pub(crate) fn with(self, layout: Layout) -> View {
        View { layout, ..self }
    }

    /// The same layout so many elements further.
    pub(crate) fn moved(self, elements: isize) -> View {
        let bytes = elements * self.dtype.size() as isize;
        View { offset: self.offset.saturating_add_signed(bytes), ..self }
    }

    /// Whether it begins at a word and has no gaps.
    pub(crate) fn is_plain(&self) -> bool {
        self.offset.is_multiple_of(4) && self.layout.is_row_major()
    }
}

/// A part of a region that a kernel sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The region.
    pub region: Region,
    /// Where the kernel's part begins, in bytes.
    pub base: usize,
}

/// One kernel over a grid of groups.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// What runs.
    pub kernel: Kernel,
    /// In the order of the kernel's bindings, the first is written.
    pub operands: Vec<Operand>,
    /// Its numbers.
    pub params: Vec<u32>,
    /// How many groups.
    pub groups: u32,
    /// Which memory it touches.
    pub access: Access,
    /// The step that it belongs to.
    pub step: usize,
}

impl Dispatch {
    /// The grid: its groups in rows of [`GROUPS_X`].
    pub fn grid(&self) -> [u32; 3] {
        match self.groups {
            0 => [0, 1, 1],
            few if few <= GROUPS_X => [few, 1, 1],
            many => [GROUPS_X, many.div_ceil(GROUPS_X), 1],
        }
    }
}
