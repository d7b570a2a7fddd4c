//! Ops as dispatches. Shapes and numbers are known here: every function is given views and emits what writes its result, which
//! lies without gaps from a word on.

mod along;
mod attention;
mod conv;
mod delta;
mod elementwise;
mod experts;
mod index;
mod linear;
mod norm;
mod order;
mod products;
mod reduce;
mod shape;
mod token;

pub(crate) use along::{random, running, scatter};
pub(crate) use attention::{Cacheable, Ring, Turned, Turns, attend, rope, sdpa};
pub(crate) use conv::{Convolution, convolution};
pub(crate) use delta::delta;
pub(crate) use elementwise::{Numbers, cast, elementwise, fill, range, triangle};
pub(crate) use experts::{gather, gather_packed};
pub(crate) use index::{index_copy, pick_along, pick_matrices, pick_slices};
pub(crate) use linear::{PackedRows, addmm, dequantize, embed, quantized_matmul};
pub(crate) use norm::{is_normed_by_words, norm};
pub(crate) use order::order;
pub(crate) use products::{Products, gemv};
pub(crate) use reduce::{greatest, reduce, rows};
pub(crate) use shape::{copy, edges, expanded, join, pad, roll};
pub(crate) use token::{token, turn};

use crate::dispatch::{BINDING_ALIGNMENT, Dispatch, Operand, Region, View};
use crate::features::Features;
use crate::kernel::Kernel;
use pteron_plan::{Access, Layout, Storage};
use pteron_tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of scratch begin behind those of a plan's own memory.
const SCRATCH: usize = 1 << 32;

/// Where dispatches go, and memory that steps need besides what the plan gave them.
pub(crate) struct Lowering {
    pub(crate) features: Features,
    pub(crate) dispatches: Vec<Dispatch>,
    /// The step that is lowered.
    pub(crate) step: usize,
    /// Where the next scratch begins in the arena, behind what the plan has placed.
    pub(crate) next: usize,
    /// Whether kernels see parts of the arena, because it is larger than what they may see.
    pub(crate) windowed: bool,
    scratches: usize,
    /// Bytes of a scratch that no kernel could see as a whole: the step cannot run.
    beyond: Option<usize>,
    /// Radians by pair, by base and features that turn: powers take longer than all else of a token.
    radians: HashMap<(u32, usize), Arc<[f32]>>,
    /// The last product of few rows, where the last dispatch is one.
    pub(crate) product: Option<(usize, Products)>,
}

impl Lowering {
    pub(crate) fn new(features: Features, arena_bytes: usize) -> Lowering {
        let windowed = arena_bytes as u64 > features.max_binding / 2;
        let next = arena_bytes.next_multiple_of(BINDING_ALIGNMENT);
        Lowering {
            features,
            dispatches: Vec::new(),
            step: 0,
            next,
            windowed,
            scratches: 0,
            beyond: None,
            radians: HashMap::new(),
            product: None,
        }
    }

    /// Where the next scratch begins and which number it has, to begin there once more.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        (self.next, self.scratches)
    }

    pub(crate) fn begin_at(&mut self, (next, scratches): (usize, usize)) {
        (self.next, self.scratches) = (next, scratches);
    }

    /// What each pair of so many features turns by from one position to the next.
    pub(crate) fn radians(&mut self, base: f32, dims: usize) -> Arc<[f32]> {
        let of = |i: usize| f64::from(base).powf(-2.0 * i as f64 / dims as f64) as f32;
        self.radians.entry((base.to_bits(), dims)).or_insert_with(|| (0..dims / 2).map(of).collect()).clone()
    }

    /// Memory behind the plan's.
    pub(crate) fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.next;
        self.next = at.saturating_add(bytes).next_multiple_of(BINDING_ALIGNMENT);
        at
    }

    /// A tensor for the time of this step.
    pub(crate) fn scratch(&mut self, dtype: DType, sizes: &[usize]) -> View {
        let layout = Layout::row_major(sizes).unwrap_or(Layout::SCALAR);
        let bytes = layout.len().saturating_mul(dtype.size());
        if bytes as u64 > self.features.max_binding || layout.len() > i32::MAX as usize {
            self.beyond = Some(bytes);
        }
        let offset = self.reserve(bytes);
        self.scratches += 1;
        let storage = Storage::Heap(SCRATCH + self.scratches);
        View { region: Region::Arena, offset, dtype, layout, storage }
    }

    /// A view without gaps that begins at a word: the same, or a copy.
    pub(crate) fn plain(&mut self, view: View) -> View {
        if view.is_plain() {
            return view;
        }
        let copied = self.scratch(view.dtype, view.sizes());
        copy(self, copied, view, true);
        copied
    }

    /// What rows of so many elements are written to: the result itself where they are whole words, else numbers of 32 bits that
    /// [`Lowering::settle`] rounds.
    pub(crate) fn row_target(&mut self, out: View, row: usize) -> View {
        let per = crate::kernel::per_word(out.dtype) as usize;
        if row.is_multiple_of(per) { out } else { self.scratch(DType::F32, out.sizes()) }
    }

    /// What is written element by element: the result itself where elements are whole words, else numbers of 32 bits that
    /// [`Lowering::settle`] makes narrower.
    pub(crate) fn word_target(&mut self, out: View) -> View {
        match out.dtype {
            _ if out.dtype.size() >= 4 => out,
            DType::F16 | DType::BF16 => self.scratch(DType::F32, out.sizes()),
            DType::I8 | DType::I16 => self.scratch(DType::I32, out.sizes()),
            _ => self.scratch(DType::U32, out.sizes()),
        }
    }

    /// Bytes of a scratch since this was last asked that no kernel could see.
    pub(crate) fn take_beyond(&mut self) -> Option<usize> {
        self.beyond.take()
    }

    pub(crate) fn settle(&mut self, target: View, out: View) {
        if (target.offset, target.dtype) != (out.offset, out.dtype) {
            cast(self, out, target);
        }
    }

    /// Where the part of a region begins that a kernel sees for a view.
    fn base(&self, view: &View) -> usize {
        if !self.windowed || view.region != Region::Arena {
            return 0;
        }
        let below = view.layout.sizes().iter().zip(view.layout.strides());
        let below: isize = below.map(|(&size, &stride)| (size.max(1) - 1) as isize * stride.min(0)).sum();
        let lowest = view.offset.saturating_add_signed(below * view.dtype.size() as isize);
        lowest / BINDING_ALIGNMENT * BINDING_ALIGNMENT
    }

    /// A view's first element, counted from where its kernel begins to see.
    pub(crate) fn first(&self, view: &View) -> u32 {
        ((view.offset - self.base(view)) / view.dtype.size()) as u32
    }

    /// The same in words.
    pub(crate) fn first_word(&self, view: &View) -> u32 {
        ((view.offset - self.base(view)) / 4) as u32
    }

    /// Appends a dispatch that writes `out`; with `faults`, one that may say that an index is outside its axis.
    pub(crate) fn emit(
        &mut self,
        kernel: Kernel,
        out: &View,
        reads: &[View],
        faults: bool,
        params: Vec<u32>,
        groups: usize,
    ) {
        let mut operands = vec![*out];
        operands.extend(reads);
        let access = Access {
            reads: reads.iter().map(|view| view.storage).collect(),
            writes: vec![out.storage],
            has_effect: false,
        };
        self.emit_over(kernel, &operands, access, params, groups);
        if faults && groups > 0 {
            self.tells_faults();
        }
    }

    /// Lets the last dispatch say that an index is outside its axis.
    pub(crate) fn tells_faults(&mut self) {
        if let Some(last) = self.dispatches.last_mut() {
            last.operands.push(Operand { region: Region::Faults, base: 0 });
        }
    }

    /// Appends a dispatch over these operands, in the order of the kernel's bindings, that touches what `access` says.
    pub(crate) fn emit_over(
        &mut self,
        kernel: Kernel,
        operands: &[View],
        access: Access,
        params: Vec<u32>,
        groups: usize,
    ) {
        let operand = |view: &View| Operand { region: view.region, base: self.base(view) };
        let operands = operands.iter().map(operand).collect();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        if groups > 0 {
            self.dispatches.push(Dispatch { kernel, operands, params, groups, access, step: self.step });
        }
    }

    /// Lets dispatches from a number on, which touch different parts of the same memory, wait for what any of them waits for, and not for
    /// each other.
    pub(crate) fn side_by_side(&mut self, from: usize) {
        let Some((first, others)) = self.dispatches.get_mut(from..).and_then(<[Dispatch]>::split_first_mut)
        else {
            return;
        };
        for other in others {
            let Access { reads, writes, has_effect } = std::mem::take(&mut other.access);
            first.access.reads.extend(reads);
            first.access.writes.extend(writes);
            first.access.has_effect |= has_effect;
        }
    }

    /// Whether a view is without gaps and begins where 16 bytes may be read at once.
    pub(crate) fn is_vectored(view: &View) -> bool {
        view.offset.is_multiple_of(16) && view.layout.is_row_major()
    }

    /// The number by which a dispatch of this step says that an index was wrong.
    pub(crate) fn fault(&self) -> u32 {
        self.step as u32 + 1
    }
}

/// An axis counted from the front; a tensor of rank 0 counts as one element along axis 0.
pub(crate) fn axis_of(axis: i32, rank: usize) -> usize {
    let axis = if axis < 0 { i64::from(axis) + rank.max(1) as i64 } else { axis.into() };
    usize::try_from(axis).unwrap_or(0)
}

/// Axes of equal sizes with strides by operand: those that step together are one.
pub(crate) struct Axes {
    pub(crate) sizes: Vec<usize>,
    /// By operand.
    pub(crate) strides: Vec<Vec<isize>>,
}

impl Axes {
    pub(crate) fn of(sizes: &[usize], operands: &[&[isize]]) -> Axes {
        let mut axes = Axes { sizes: Vec::new(), strides: vec![Vec::new(); operands.len()] };
        for (axis, &size) in sizes.iter().enumerate().filter(|(_, size)| **size != 1) {
            let together =
                axes.sizes.last().is_some()
                    && axes.strides.iter().zip(operands).all(|(own, operand)| {
                        own.last().copied() == operand[axis].checked_mul(size as isize)
                    });
            if together {
                if let Some(last) = axes.sizes.last_mut() {
                    *last *= size;
                }
            } else {
                axes.sizes.push(size);
            }
            for (own, operand) in axes.strides.iter_mut().zip(operands) {
                match own.last_mut() {
                    Some(last) if together => *last = operand[axis],
                    _ => own.push(operand[axis]),
                }
            }
        }
        axes
    }

    pub(crate) fn rank(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// Sizes, then by operand its first element and its strides.
    pub(crate) fn push(&self, params: &mut Vec<u32>, firsts: &[u32]) {
        params.extend(self.sizes.iter().map(|&size| size as u32));
        for (&first, strides) in firsts.iter().zip(&self.strides) {
            params.push(first);
            params.extend(strides.iter().map(|&stride| stride as i32 as u32));
        }
    }
}

/// Groups of threads for so many threads.
pub(crate) fn groups(threads: usize) -> usize {
    threads.div_ceil(crate::kernel::THREADS as usize)
}
