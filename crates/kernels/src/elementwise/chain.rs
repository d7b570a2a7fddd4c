//! Running chains: blocks of elements go through registers, one loop after another.

use super::run::{One, Three, Two};
use super::walk::{Cursor, MAX_OPERANDS, Walk};
use crate::copy::move_run;
use crate::pool::Pool;
use crate::split::in_parts;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Elements of a register.
const BLOCK: usize = 512;
/// The most registers of a chain, inputs and constants counted; all of them fit the nearest cache.
pub(super) const MAX_REGISTERS: usize = 16;
/// Rows at least this long are not put together into blocks: their elements are used where they lie.
const LONG_ROW: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    One(One),
    Two(Two),
    Three(Three),
}

impl Run {
    pub(super) fn operands(&self) -> usize {
        match self {
            Run::One(_) => 1,
            Run::Two(_) => 2,
            Run::Three(_) => 3,
        }
    }
}

/// Where a step finds an operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Input(usize),
    Register(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) run: Run,
    pub(super) sources: [Source; 3],
    /// The register of the result.
    pub(super) out: usize,
}

/// Element-wise ops that run together.
#[derive(Clone, Debug)]
pub struct Chain {
    inputs: Vec<DType>,
    output: DType,
    /// Bits and size of each constant; they lie in the registers behind the inputs'.
    constants: Vec<(u64, usize)>,
    steps: Vec<Step>,
    registers: usize,
}

/// One register: room for a block of the widest elements.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Register([MaybeUninit<u64>; BLOCK]);

/// The registers of one task, as addresses: steps read some while they write another, which references to all of
/// them would not allow.
#[derive(Clone, Copy)]
struct Registers<'a> {
    first: *mut Register,
    count: usize,
    memory: PhantomData<&'a mut [Register]>,
}

impl<'a> Registers<'a> {
    fn new(registers: &'a mut [Register]) -> Registers<'a> {
        Registers { first: registers.as_mut_ptr(), count: registers.len(), memory: PhantomData }
    }

    /// Where the elements of a register lie.
    #[inline]
    fn at(self, index: usize) -> *mut u8 {
        assert!(index < self.count, "no register {index}");
        self.first.wrapping_add(index).cast()
    }
}

impl Chain {
    pub(super) fn assembled(
        inputs: Vec<DType>,
        output: DType,
        constants: Vec<(u64, usize)>,
        steps: Vec<Step>,
        registers: usize,
    ) -> Chain {
        Chain { inputs, output, constants, steps, registers }
    }

    /// The dtypes of the operands.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// The dtype of the result.
    pub fn output(&self) -> DType {
        self.output
    }

    /// Computes the result. Operands have the result's sizes; where one is repeated, its stride is 0. The output may
    /// be the very elements of an operand (same dtype size, same strides), and must not overlap one otherwise.
    ///
    /// # Panics
    /// When dtypes, sizes or the number of operands are not those of the chain.
    pub fn run(&self, pool: &Pool, out: &mut ViewMut<'_>, inputs: &[View<'_>]) {
        let Some(walk) = self.walk(out, inputs) else { return };
        let bytes = self.inputs.iter().map(|dtype| dtype.size()).sum::<usize>() + self.output.size();
        // Memory at about 8 bytes a nanosecond, or a loop at about 4 elements.
        let cost = bytes / 8 + self.steps.len() / 4 + 1;
        in_parts(pool, out.len(), BLOCK, cost, &|range| {
            // SAFETY: views cover all elements of their sizes; ranges are disjoint, and so are their outputs.
            unsafe { self.run_part(&walk, out, inputs, range) };
        });
    }

    /// As [`Chain::run`], on the calling thread alone: for whoever is a task of a pool already.
    ///
    /// # Panics
    /// As [`Chain::run`].
    pub fn run_alone(&self, out: &mut ViewMut<'_>, inputs: &[View<'_>]) {
        if let Some(walk) = self.walk(out, inputs) {
            // SAFETY: views cover all elements of their sizes, and the output is borrowed by this call.
            unsafe { self.run_part(&walk, out, inputs, 0..out.len()) };
        }
    }

    /// The walk over output and inputs; `None` where there is nothing to compute.
    fn walk(&self, out: &ViewMut<'_>, inputs: &[View<'_>]) -> Option<Walk> {
        assert_eq!(out.dtype(), self.output);
        assert_eq!(inputs.len(), self.inputs.len());
        let mut strides: [&[isize]; MAX_OPERANDS] = [&[]; MAX_OPERANDS];
        strides[0] = out.strides();
        for ((input, &dtype), strides) in inputs.iter().zip(&self.inputs).zip(&mut strides[1..]) {
            assert_eq!(input.dtype(), dtype);
            assert_eq!(input.sizes(), out.sizes());
            *strides = input.strides();
        }
        (!out.is_empty()).then(|| Walk::new(out.sizes(), &strides[..inputs.len() + 1]))
    }

    /// # Safety
    /// `walk` is that of the output and the inputs, in this order, and nobody else touches the range's outputs.
    unsafe fn run_part(
        &self,
        walk: &Walk,
        out: &ViewMut<'_>,
        inputs: &[View<'_>],
        range: std::ops::Range<usize>,
    ) {
        let mut registers = [const { Register([MaybeUninit::uninit(); BLOCK]) }; MAX_REGISTERS];
        let registers = Registers::new(&mut registers[..self.registers]);
        for (&(bits, size), register) in self.constants.iter().zip(inputs.len()..) {
            // SAFETY: a register has room for `BLOCK` elements of any size.
            unsafe { fill(registers.at(register), (&raw const bits).cast(), size, BLOCK) };
        }
        for (at, input) in inputs.iter().enumerate() {
            if walk.is_constant(at + 1) {
                // SAFETY: as above; a view that is not empty has its first element.
                unsafe { fill(registers.at(at), input.data(), input.dtype().size(), BLOCK) };
            }
        }
        let (mut cursor, mut at) = (walk.cursor(range.start), range.start);
        let whole_rows = walk.inner() >= LONG_ROW;
        let one_pass = self.is_one_pass(walk, out, inputs);
        while at < range.end {
            let left = range.end - at;
            let count = match (one_pass, whole_rows) {
                (true, _) => left.min(cursor.left_in_row()),
                (_, true) => left.min(cursor.left_in_row()).min(BLOCK),
                _ => left.min(BLOCK),
            };
            // SAFETY: the elements from `at` on, `count` of them, lie in all views.
            unsafe { self.block(walk, &mut cursor, out, inputs, registers, count) };
            at += count;
        }
    }

    /// Whether one loop reads all operands where they lie and writes the result where it belongs, so that no
    /// register bounds a run.
    fn is_one_pass(&self, walk: &Walk, out: &ViewMut<'_>, inputs: &[View<'_>]) -> bool {
        let dense = (0..=inputs.len()).all(|operand| walk.inner_stride(operand) == 1);
        let apart = inputs.iter().all(|input| input.data() != out.data().cast_const());
        self.steps.len() == 1 && self.constants.is_empty() && !inputs.is_empty() && dense && apart
    }

    /// # Safety
    /// As [`Chain::run_part`], for `count` elements from the cursor on; without dense rows they fit a register.
    unsafe fn block(
        &self,
        walk: &Walk,
        cursor: &mut Cursor<'_>,
        out: &ViewMut<'_>,
        inputs: &[View<'_>],
        registers: Registers<'_>,
        count: usize,
    ) {
        let start = cursor.clone();
        let one_row = cursor.left_in_row() >= count;
        // Where the last step may write at once: its row is dense and is none of its operands.
        let mut target = registers.at(self.steps[self.steps.len() - 1].out);
        let direct = one_row && walk.inner_stride(0) == 1;
        let place = out.data().wrapping_offset(start.offset(0) * self.output.size() as isize);
        let mut operands = [std::ptr::null::<u8>(); MAX_OPERANDS];
        let mut in_place = false;
        for (index, input) in inputs.iter().enumerate() {
            let size = input.dtype().size();
            let first = input.data().wrapping_offset(start.offset(index + 1) * size as isize);
            let register = registers.at(index);
            operands[index] = match walk.inner_stride(index + 1) {
                _ if walk.is_constant(index + 1) => register,
                1 if one_row => {
                    in_place |= first == place.cast_const();
                    first
                }
                _ => {
                    // SAFETY: `count` elements from the cursor on lie in the view and fit the register.
                    unsafe { gather(register, input.data(), size, index + 1, walk, start.clone(), count) };
                    register
                }
            };
        }
        let (last, steps) = self.steps.split_last().unwrap_or((&self.steps[0], &[]));
        for step in steps {
            let to = registers.at(step.out);
            // SAFETY: all operands are `count` elements of the lanes for which the loop was picked, and a step's
            // register is none of its operands'.
            unsafe { step.call(to, &operands, registers, count) };
        }
        if direct && !in_place {
            target = place;
        }
        // SAFETY: as above; the target is the register of the last step, or elements of the output that are none
        // of an operand's.
        unsafe { last.call(target, &operands, registers, count) };
        if direct && in_place {
            // SAFETY: `count` elements of the output lie side by side at `place`.
            unsafe { target.copy_to_nonoverlapping(place, count * self.output.size()) };
        } else if !direct {
            // SAFETY: `count` elements from the cursor on lie in the output.
            unsafe { scatter(out.data(), target, self.output.size(), walk, start, count) };
        }
        advance(cursor, count);
    }
}

impl Step {
    /// # Safety
    /// Operands and target are `count` elements of the lanes of the loop; the target overlaps no operand.
    #[inline]
    unsafe fn call(&self, to: *mut u8, inputs: &[*const u8], registers: Registers<'_>, count: usize) {
        let at = |source: Source| match source {
            Source::Input(input) => inputs[input],
            Source::Register(register) => registers.at(register).cast_const(),
        };
        let [a, b, c] = self.sources;
        // SAFETY: passed on.
        unsafe {
            match self.run {
                Run::One(run) => run(to, at(a), count),
                Run::Two(run) => run(to, at(a), at(b), count),
                Run::Three(run) => run(to, at(a), at(b), at(c), count),
            }
        }
    }
}

/// Steps over any number of rows.
fn advance(cursor: &mut Cursor<'_>, count: usize) {
    let mut left = count;
    while left > 0 {
        let step = left.min(cursor.left_in_row());
        cursor.advance(step);
        left -= step;
    }
}

/// Repeats one element.
///
/// # Safety
/// `to` has room for `count` elements of `size` bytes, at most 8, and one lies at `from`.
unsafe fn fill(to: *mut u8, from: *const u8, size: usize, count: usize) {
    // SAFETY: the caller's promise; elements and registers are aligned for their size.
    unsafe {
        match size {
            1 => to.write_bytes(from.read(), count),
            2 => (0..count).for_each(|i| to.cast::<u16>().add(i).write(from.cast::<u16>().read())),
            4 => (0..count).for_each(|i| to.cast::<u32>().add(i).write(from.cast::<u32>().read())),
            _ => (0..count).for_each(|i| to.cast::<u64>().add(i).write(from.cast::<u64>().read())),
        }
    }
}

/// Puts the next elements of an operand side by side.
///
/// # Safety
/// `count` elements from the cursor on lie in the operand, and fit at `to`.
unsafe fn gather(
    to: *mut u8,
    from: *const u8,
    size: usize,
    operand: usize,
    walk: &Walk,
    mut cursor: Cursor<'_>,
    count: usize,
) {
    let stride = walk.inner_stride(operand);
    let mut done = 0;
    while done < count {
        let run = (count - done).min(cursor.left_in_row());
        // SAFETY: the caller's promise.
        unsafe {
            let from = from.offset(cursor.offset(operand) * size as isize);
            move_run(to.add(done * size), 1, from, stride, size, run);
        }
        cursor.advance(run);
        done += run;
    }
}

/// Puts elements that lie side by side where they belong in the output.
///
/// # Safety
/// `count` elements from the cursor on lie in the output, and as many at `from`.
unsafe fn scatter(
    to: *mut u8,
    from: *const u8,
    size: usize,
    walk: &Walk,
    mut cursor: Cursor<'_>,
    count: usize,
) {
    let stride = walk.inner_stride(0);
    let mut done = 0;
    while done < count {
        let run = (count - done).min(cursor.left_in_row());
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.offset(cursor.offset(0) * size as isize);
            move_run(to, stride, from.add(done * size), 1, size, run);
        }
        cursor.advance(run);
        done += run;
    }
}
