//! How elements fold: along dense runs, or row by row into columns.

use super::lanes::{BLOCK, Lane, Number};
use super::{Axes, ReduceOp};
use crate::elementwise::walk::Walk;
use crate::path::Path;
use crate::pool::Pool;
use crate::simd::{Kernel, Simd, on};
use crate::split::in_parts;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;

/// What a reduction needs of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A result for no elements, too.
    Total,
    /// At least one element.
    Choice,
    /// At least one element, along one axis.
    Index,
}

/// A planned reduction.
#[derive(Clone, Debug)]
pub(super) struct Folding {
    op: ReduceOp,
    lane: LaneKind,
    path: Path,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneKind {
    Float,
    Signed,
    Unsigned,
    Truth,
}

/// One way to fold.
trait Fold {
    type L: Lane;
    type A: Copy;
    const START: Self::A;
    fn step(a: Self::A, x: Self::L, pivot: f64) -> Self::A;
    fn merge(a: Self::A, b: Self::A) -> Self::A;
    fn number(a: Self::A) -> Number;
}

macro_rules! folds {
    ($($Name:ident: $L:ty => $A:ty, $start:expr, |$a:ident, $x:ident, $p:ident| $step:expr,
       |$b:ident, $c:ident| $merge:expr, $Number:ident as $N:ty;)*) => { $(
        struct $Name;
        impl Fold for $Name {
            type L = $L;
            type A = $A;
            const START: $A = $start;
            #[inline(always)]
            fn step($a: $A, $x: $L, $p: f64) -> $A { let _ = $p; $step }
            #[inline(always)]
            fn merge($b: $A, $c: $A) -> $A { $merge }
            fn number(a: $A) -> Number { Number::$Number(a as $N) }
        }
    )* };
}

folds! {
    SumF: f32 => f64, 0.0, |a, x, p| a + f64::from(x), |a, b| a + b, Float as f64;
    ProdF: f32 => f64, 1.0, |a, x, p| a * f64::from(x), |a, b| a * b, Float as f64;
    SquaresF: f32 => f64, 0.0, |a, x, p| {
        let distance = f64::from(x) - p;
        a + distance * distance
    }, |a, b| a + b, Float as f64;
    MaxF: f32 => f32, f32::NEG_INFINITY, |a, x, p| if x > a || x.is_nan() { x } else { a },
        |a, b| if b > a || b.is_nan() { b } else { a }, Float as f64;
    MinF: f32 => f32, f32::INFINITY, |a, x, p| if x < a || x.is_nan() { x } else { a },
        |a, b| if b < a || b.is_nan() { b } else { a }, Float as f64;
    SumI: i64 => i64, 0, |a, x, p| a.wrapping_add(x), |a, b| a.wrapping_add(b), Int as u64;
    ProdI: i64 => i64, 1, |a, x, p| a.wrapping_mul(x), |a, b| a.wrapping_mul(b), Int as u64;
    MaxI: i64 => i64, i64::MIN, |a, x, p| if x > a { x } else { a }, |a, b| if b > a { b } else { a }, Int as u64;
    MinI: i64 => i64, i64::MAX, |a, x, p| if x < a { x } else { a }, |a, b| if b < a { b } else { a }, Int as u64;
    MaxU: u64 => u64, u64::MIN, |a, x, p| if x > a { x } else { a }, |a, b| if b > a { b } else { a }, Int as u64;
    MinU: u64 => u64, u64::MAX, |a, x, p| if x < a { x } else { a }, |a, b| if b < a { b } else { a }, Int as u64;
    AnyB: u8 => u8, 0, |a, x, p| a | x, |a, b| a | b, Int as u64;
    AllB: u8 => u8, 1, |a, x, p| a & x, |a, b| a & b, Int as u64;
}

impl Folding {
    pub(super) fn new(op: ReduceOp, input: DType, output: DType, path: Path) -> Option<Folding> {
        use ReduceOp as Op;
        let lane = match input {
            DType::F64 => return None,
            _ if matches!(op, Op::Any | Op::All) => LaneKind::Truth,
            DType::F32 | DType::F16 | DType::BF16 => LaneKind::Float,
            DType::U64 => LaneKind::Unsigned,
            _ => LaneKind::Signed,
        };
        let real = matches!(op, Op::Mean | Op::Var { .. } | Op::Std { .. });
        (output != DType::F64 && (lane == LaneKind::Float || !real)).then_some(Folding { op, lane, path })
    }

    pub(super) fn kind(&self) -> Kind {
        match self.op {
            ReduceOp::Max | ReduceOp::Min => Kind::Choice,
            ReduceOp::Argmax | ReduceOp::Argmin => Kind::Index,
            _ => Kind::Total,
        }
    }

    pub(super) fn run(&self, pool: &Pool, out: &ViewMut<'_>, x: &View<'_>, kept: &Axes, folded: &Axes) {
        use LaneKind::{Float, Signed, Truth, Unsigned};
        use ReduceOp as Op;
        let layout = Layout::new(x, kept, folded, self.path);
        let count = folded.count() as f64;
        let plain = |number: Number| number;
        let divided = |by: f64, root: bool| {
            move |number: Number| match number {
                Number::Float(x) if root => Number::Float((x / by).sqrt()),
                Number::Float(x) => Number::Float(x / by),
                int => int,
            }
        };
        match (self.op, self.lane) {
            (Op::Sum, Float) => layout.fold::<SumF>(pool, out, false, &plain),
            (Op::Mean, _) => layout.fold::<SumF>(pool, out, false, &divided(count, false)),
            (Op::Var { ddof }, _) => {
                layout.fold::<SquaresF>(pool, out, true, &divided((count - f64::from(ddof)).max(0.0), false));
            }
            (Op::Std { ddof }, _) => {
                layout.fold::<SquaresF>(pool, out, true, &divided((count - f64::from(ddof)).max(0.0), true));
            }
            (Op::Prod, Float) => layout.fold::<ProdF>(pool, out, false, &plain),
            (Op::Max, Float) => layout.fold::<MaxF>(pool, out, false, &plain),
            (Op::Min, Float) => layout.fold::<MinF>(pool, out, false, &plain),
            (Op::Sum, _) => layout.fold::<SumI>(pool, out, false, &plain),
            (Op::Prod, _) => layout.fold::<ProdI>(pool, out, false, &plain),
            (Op::Max, Unsigned) => layout.fold::<MaxU>(pool, out, false, &plain),
            (Op::Min, Unsigned) => layout.fold::<MinU>(pool, out, false, &plain),
            (Op::Max, Signed | Truth) => layout.fold::<MaxI>(pool, out, false, &plain),
            (Op::Min, Signed | Truth) => layout.fold::<MinI>(pool, out, false, &plain),
            (Op::Any, _) => layout.fold::<AnyB>(pool, out, false, &plain),
            (Op::All, _) => layout.fold::<AllB>(pool, out, false, &plain),
            (Op::Argmax, Float) => {
                layout.index::<MaxF>(pool, out, |x, best| x > best || (x.is_nan() && !best.is_nan()))
            }
            (Op::Argmin, Float) => {
                layout.index::<MinF>(pool, out, |x, best| x < best || (x.is_nan() && !best.is_nan()))
            }
            (Op::Argmax, Unsigned) => layout.index::<MaxU>(pool, out, |x, best| x > best),
            (Op::Argmin, Unsigned) => layout.index::<MinU>(pool, out, |x, best| x < best),
            (Op::Argmax, _) => layout.index::<MaxI>(pool, out, |x, best| x > best),
            (Op::Argmin, _) => layout.index::<MinI>(pool, out, |x, best| x < best),
        }
    }
}

/// Where elements lie, as the fold visits them.
struct Layout<'a> {
    data: *const u8,
    dtype: DType,
    path: Path,
    kept: Walk,
    folded: Walk,
    kept_count: usize,
    folded_count: usize,
    /// Whether neighbours along the innermost kept axis lie side by side, and none along a folded one does.
    columns: bool,
    of: std::marker::PhantomData<&'a [u8]>,
}

// SAFETY: the data is that of a view that the caller of a reduction borrows; it is only read.
unsafe impl Sync for Layout<'_> {}

impl<'a> Layout<'a> {
    fn new(x: &View<'a>, kept: &Axes, folded: &Axes, path: Path) -> Layout<'a> {
        let walk = |axes: &Axes| {
            let (sizes, from, to) = (&axes.sizes[..axes.len], &axes.from[..axes.len], &axes.to[..axes.len]);
            Walk::new(sizes, &[to, from])
        };
        let (kept_walk, folded_walk) = (walk(kept), walk(folded));
        let columns =
            kept_walk.inner_stride(1) == 1 && kept_walk.inner() >= 8 && folded_walk.inner_stride(1) != 1;
        Layout {
            data: x.data(),
            dtype: x.dtype(),
            path,
            kept_count: kept.count(),
            folded_count: folded.count(),
            kept: kept_walk,
            folded: folded_walk,
            columns,
            of: std::marker::PhantomData,
        }
    }

    /// Elements from an offset on, as lanes: where they lie, or converted.
    ///
    /// # Safety
    /// `count` elements, at most a block, lie `stride` apart.
    unsafe fn lanes<'b, L: Lane>(
        &self,
        at: isize,
        stride: isize,
        count: usize,
        buffer: &'b mut [L; BLOCK],
    ) -> &'b [L] {
        let from = self.data.wrapping_offset(at * self.dtype.size() as isize);
        // SAFETY: the caller's promise; the view outlives the reduction.
        unsafe {
            if self.dtype == L::DTYPE && stride == 1 {
                return std::slice::from_raw_parts(from.cast(), count);
            }
            L::load(self.path, from, self.dtype, stride, count, buffer);
        }
        &buffer[..count]
    }

    fn fold<F: Fold>(
        &self,
        pool: &Pool,
        out: &ViewMut<'_>,
        about_mean: bool,
        finish: &(dyn Fn(Number) -> Number + Sync),
    ) {
        let (size, dtype) = (out.dtype().size() as isize, out.dtype());
        let write = |at: isize, number: Number| {
            // SAFETY: every result is inside the output and written by one task.
            unsafe { finish(number).write(out.data().offset(at * size), dtype) };
        };
        if self.columns {
            return self.fold_columns::<F>(pool, about_mean, &write);
        }
        in_parts(pool, self.kept_count, 1, self.folded_count / 4 + 4, &|range| {
            let mut cursor = self.kept.cursor(range.start);
            for _ in range {
                let at = cursor.offset(1);
                let pivot =
                    if about_mean { self.fold_one::<SumF>(at, 0.0) / self.folded_count as f64 } else { 0.0 };
                write(cursor.offset(0), F::number(self.fold_one::<F>(at, pivot)));
                cursor.advance(1);
            }
        });
    }

    /// All that folds into the result whose first element is at `at`.
    fn fold_one<F: Fold>(&self, at: isize, pivot: f64) -> F::A {
        let mut buffer = [F::L::default(); BLOCK];
        let mut folded = F::START;
        let (mut cursor, mut left) = (self.folded.cursor(0), self.folded_count);
        while left > 0 {
            let count = left.min(cursor.left_in_row()).min(BLOCK);
            // SAFETY: the run is inside the view.
            let lanes = unsafe {
                self.lanes::<F::L>(at + cursor.offset(1), self.folded.inner_stride(1), count, &mut buffer)
            };
            folded = F::merge(folded, on(self.path, FoldRun::<F> { lanes, pivot }));
            cursor.advance(count);
            left -= count;
        }
        folded
    }

    /// Folds rows into columns.
    fn fold_columns<F: Fold>(&self, pool: &Pool, about_mean: bool, write: &(dyn Fn(isize, Number) + Sync)) {
        let rows = self.kept_count / self.kept.inner();
        let blocks = self.kept.inner().div_ceil(BLOCK);
        in_parts(pool, rows * blocks, 1, self.folded_count * BLOCK.min(self.kept.inner()) / 4, &|range| {
            for item in range {
                let (row, first) = (item / blocks, item % blocks * BLOCK);
                let count = BLOCK.min(self.kept.inner() - first);
                let cursor = self.kept.cursor(row * self.kept.inner() + first);
                let mut pivots = [0.0; BLOCK];
                if about_mean {
                    let mut sums = [SumF::START; BLOCK];
                    self.fold_block::<SumF>(cursor.offset(1), &mut sums[..count], &pivots);
                    for (pivot, sum) in pivots.iter_mut().zip(&sums[..count]) {
                        *pivot = sum / self.folded_count as f64;
                    }
                }
                let mut folded = [F::START; BLOCK];
                self.fold_block::<F>(cursor.offset(1), &mut folded[..count], &pivots);
                for (column, &folded) in folded[..count].iter().enumerate() {
                    write(cursor.offset(0) + column as isize * self.kept.inner_stride(0), F::number(folded));
                }
            }
        });
    }

    fn fold_block<F: Fold>(&self, at: isize, folded: &mut [F::A], pivots: &[f64]) {
        let mut buffer = [F::L::default(); BLOCK];
        let mut cursor = self.folded.cursor(0);
        for _ in 0..self.folded_count {
            // SAFETY: a block of the row is inside the view.
            let lanes = unsafe { self.lanes::<F::L>(at + cursor.offset(1), 1, folded.len(), &mut buffer) };
            on(self.path, FoldRow::<F> { folded, lanes, pivots });
            cursor.advance(1);
        }
    }

    /// Index of the best element along the one folded axis; of equals the first.
    fn index<F: Fold<A = <F as Fold>::L>>(
        &self,
        pool: &Pool,
        out: &ViewMut<'_>,
        better: impl Fn(F::L, F::L) -> bool + Sync,
    ) {
        let size = out.dtype().size() as isize;
        let stride = self.folded.inner_stride(1);
        in_parts(pool, self.kept_count, 1, self.folded_count / 4 + 4, &|range| {
            let mut cursor = self.kept.cursor(range.start);
            let mut buffer = [F::L::default(); BLOCK];
            for _ in range {
                let mut best: Option<(usize, F::L)> = None;
                for start in (0..self.folded_count).step_by(BLOCK) {
                    let count = BLOCK.min(self.folded_count - start);
                    let at = cursor.offset(1) + start as isize * stride;
                    // SAFETY: the run is inside the view.
                    let lanes = unsafe { self.lanes::<F::L>(at, stride, count, &mut buffer) };
                    // Most blocks hold nothing better, which one fold tells.
                    let top = on(self.path, FoldRun::<F> { lanes, pivot: 0.0 });
                    if best.is_some_and(|(_, best)| !better(top, best)) {
                        continue;
                    }
                    for (i, &x) in lanes.iter().enumerate() {
                        if best.is_none_or(|(_, best)| better(x, best)) {
                            best = Some((start + i, x));
                        }
                    }
                }
                let index = best.map_or(0, |(index, _)| index as u64);
                // SAFETY: every result is inside the output and written by one task.
                unsafe { Number::Int(index).write(out.data().offset(cursor.offset(0) * size), out.dtype()) };
                cursor.advance(1);
            }
        });
    }
}

/// Folds elements side by side, sixteen folds in turn, so that they can be lanes.
struct FoldRun<'a, F: Fold> {
    lanes: &'a [F::L],
    pivot: f64,
}

impl<F: Fold> Kernel for FoldRun<'_, F> {
    type Output = F::A;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> F::A {
        let mut folded = [F::START; 16];
        let (chunks, rest) = self.lanes.as_chunks::<16>();
        for chunk in chunks {
            for (folded, &x) in folded.iter_mut().zip(chunk) {
                *folded = F::step(*folded, x, self.pivot);
            }
        }
        let mut all = F::START;
        for folded in folded {
            all = F::merge(all, folded);
        }
        for &x in rest {
            all = F::step(all, x, self.pivot);
        }
        all
    }
}

/// Folds one row into columns.
struct FoldRow<'a, F: Fold> {
    folded: &'a mut [F::A],
    lanes: &'a [F::L],
    pivots: &'a [f64],
}

impl<F: Fold> Kernel for FoldRow<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for ((folded, &x), &pivot) in self.folded.iter_mut().zip(self.lanes).zip(self.pivots) {
            *folded = F::step(*folded, x, pivot);
        }
    }
}
