//! Products: dense ones in tiles, quantised ones by rows where there are few and in tiles elsewhere.

use super::{Axes, Lowering, groups};
use crate::dispatch::View;
use crate::kernel::matvec::ROWS;
use crate::kernel::{Cooperative, GEMM_STEP, GEMM_TILE, Gemm, Kernel, Packed, Right, TILE, per_word};
use pteron_plan::Layout;
use pteron_tensor::DType;

/// Rows up to which packed rows are read once for each of them.
pub(crate) const FEW_ROWS: usize = 8;

/// Large tiles that keep a device busy: with fewer, more of them are under way when they are small.
const MANY_TILES: usize = 128;

/// A layout with axes of size 1 where a vector has none.
fn as_matrix(view: View, is_left: bool) -> Option<View> {
    match view.layout.rank() {
        0 => None,
        1 => view.layout.insert_axis(usize::from(!is_left)).map(|layout| view.with(layout)),
        _ => Some(view),
    }
}

/// `alpha * (a @ b) + beta * bias`.
pub(crate) fn addmm(
    on: &mut Lowering,
    out: View,
    (a, b): (View, View),
    bias: Option<View>,
    (alpha, beta): (f32, f32),
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let (a_is_vector, b_is_vector) = (a.layout.rank() == 1, b.layout.rank() == 1);
    let (left, right) = (as_matrix(a, true)?, as_matrix(b, false)?);
    let (&[.., rows, inner], &[.., columns]) = (left.sizes(), right.sizes()) else { return None };
    let lost = usize::from(a_is_vector) + usize::from(b_is_vector);
    let batch_rank = out.layout.rank() + lost - 2;
    let batch = out.sizes()[..batch_rank].to_vec();
    let over = |view: View, rows: usize, columns: usize| {
        view.layout.broadcast_to(&[&batch[..], &[rows, columns]].concat())
    };
    let (l, r) = (over(left, rows, inner)?, over(right, inner, columns)?);
    // A bias of no weight is not looked at: NaN in it does not spread.
    let bias = bias.filter(|_| beta != 0.0);
    let added = match bias {
        None => None,
        Some(bias) => {
            let mut layout = bias.layout.broadcast_to(out.sizes())?;
            if a_is_vector {
                layout = layout.insert_axis(batch_rank)?;
            }
            if b_is_vector {
                layout = layout.insert_axis(batch_rank + 1)?;
            }
            Some((bias, layout))
        }
    };
    let has_bias = added.is_some();
    let alpha = if has_bias { alpha } else { 1.0 };
    let target = on.row_target(out, columns);
    let mut operands: Vec<(View, Layout)> = vec![(left, l), (right, r)];
    operands.extend(added);
    tiles(on, target, &batch, (rows, columns, inner), &operands, (alpha, beta), None, None);
    on.settle(target, out);
    Some(())
}

/// Packed rows and where their parts lie.
#[derive(Clone, Copy)]
pub(crate) struct PackedRows {
    pub(crate) packed: Packed,
    pub(crate) w: View,
    pub(crate) scales: View,
    /// Of affine ones.
    pub(crate) biases: Option<View>,
}

impl PackedRows {
    /// Its parts in the order of kernels' bindings.
    pub(crate) fn parts(&self) -> impl Iterator<Item = View> {
        [self.w, self.scales].into_iter().chain(self.biases)
    }

    /// The same with parts without gaps.
    pub(super) fn plain(self, on: &mut Lowering) -> PackedRows {
        let biases = self.biases.map(|biases| on.plain(biases));
        PackedRows { w: on.plain(self.w), scales: on.plain(self.scales), biases, ..self }
    }

    /// The first scale and the first bias.
    pub(crate) fn firsts(&self, on: &Lowering) -> [u32; 2] {
        [on.first(&self.scales), self.biases.map_or(0, |biases| on.first(&biases))]
    }

    /// Rows of a matrix.
    pub(super) fn rows(&self) -> usize {
        self.w.sizes().iter().rev().nth(1).copied().unwrap_or(1)
    }

    /// Matrices of a stack.
    pub(super) fn matrices(&self) -> usize {
        self.w.sizes().iter().rev().skip(2).product()
    }

    /// Words of a row.
    pub(super) fn words(&self) -> usize {
        self.w.sizes().last().copied().unwrap_or(0)
    }

    /// Numbers of a row.
    fn row(&self) -> usize {
        self.words() * 32 / self.packed.bits as usize
    }

    /// Groups of a row.
    fn groups(&self) -> usize {
        self.row() / self.packed.group as usize
    }
}

/// Matrices side by side, of which a number picks one for each batch.
pub(super) struct Stack {
    /// By batch, without gaps.
    pub(super) picks: View,
    /// How many matrices there are.
    pub(super) count: usize,
    /// Elements from one to the next, of packed ones words.
    pub(super) step: isize,
    /// Packed rows of one.
    pub(super) rows: usize,
}

#[allow(clippy::too_many_arguments)] // all that a product has
pub(super) fn tiles(
    on: &mut Lowering,
    out: View,
    batch: &[usize],
    (rows, columns, inner): (usize, usize, usize),
    operands: &[(View, Layout)],
    (alpha, beta): (f32, f32),
    packed: Option<(&PackedRows, bool)>,
    stack: Option<&Stack>,
) {
    let batch_rank = batch.len();
    let step = |number: usize, back: usize| {
        let strides = operands.get(number).map(|(_, layout)| layout.strides());
        strides.map_or(0, |strides| strides[strides.len() - back] as i32 as u32)
    };
    let (across, down) = (columns.div_ceil(TILE), rows.div_ceil(TILE));
    let mut params = vec![rows as u32, columns as u32, inner as u32, on.first_word(&out)];
    params.extend([alpha.to_bits(), beta.to_bits(), across as u32, down as u32]);
    // Of packed rows there are no strides; the others' last two axes.
    let right = packed.is_none().then_some(1);
    let added = if packed.is_some() { 1 } else { 2 };
    params.extend([step(0, 2), step(0, 1)]);
    params.extend([right.map_or(0, |at| step(at, 2)), right.map_or(0, |at| step(at, 1))]);
    params.extend([step(added, 2), step(added, 1)]);
    match packed {
        Some((rows, _)) => {
            params.extend([rows.words() as u32, rows.groups() as u32]);
            params.extend(rows.firsts(on));
        }
        None => params.extend([0; 4]),
    }
    let batches = batch.iter().product::<usize>();
    params.push(batches as u32);
    if let Some(stack) = stack {
        params.extend([on.first(&stack.picks), stack.count as u32, stack.step as i32 as u32]);
        params.extend([stack.rows as u32, on.fault()]);
    }
    // By batch: left, right, added; packed rows are the same for all.
    let zeros = vec![0; batch_rank];
    let mut strides: Vec<&[isize]> =
        operands.iter().map(|(_, layout)| &layout.strides()[..batch_rank]).collect();
    let mut firsts: Vec<u32> = operands.iter().map(|(view, _)| on.first(view)).collect();
    if let Some((rows, _)) = packed {
        strides.insert(1, &zeros);
        firsts.insert(1, on.first(&rows.w));
    }
    let axes = Axes::of(batch, &strides);
    axes.push(&mut params, &firsts);
    let kernel = Kernel::Matmul {
        left: operands[0].0.dtype,
        right: match packed {
            Some((rows, transposed)) => Right::Packed { packed: rows.packed, transposed },
            None => Right::Dense(operands[1].0.dtype),
        },
        out: out.dtype,
        bias: operands.get(added).map(|(view, _)| view.dtype),
        picks: stack.map(|stack| stack.picks.dtype),
        batch: axes.rank(),
    };
    let mut reads = vec![operands[0].0];
    match packed {
        Some((rows, _)) => reads.extend(rows.parts()),
        None => reads.push(operands[1].0),
    }
    reads.extend(operands.get(added).map(|operand| operand.0));
    reads.extend(stack.map(|stack| stack.picks));
    on.emit(kernel, &out, &reads, stack.is_some(), params, across * down * batches);
}

/// `x` times packed rows, each a column of the matrix or, not transposed, a row.
pub(crate) fn quantized_matmul(
    on: &mut Lowering,
    out: View,
    x: View,
    packed: PackedRows,
    transposed: bool,
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let &[packed_rows, words] = packed.w.sizes() else { return None };
    let x = on.plain(x);
    let packed = packed.plain(on);
    let inner = *x.sizes().last()?;
    let rows = x.layout.len() / inner.max(1);
    let columns = if transposed { packed_rows } else { packed.row() };
    let shape = (rows, columns, inner);
    if transposed && rows > FEW_ROWS && gemm(on, out, x, &packed, shape, None) {
        return Some(());
    }
    let target = on.row_target(out, columns);
    let flat = target.with(Layout::row_major(&[rows, columns])?);
    if transposed && rows <= FEW_ROWS {
        let blocks = columns.div_ceil(ROWS as usize);
        let [scales, biases] = packed.firsts(on);
        let params = vec![
            rows as u32,
            columns as u32,
            inner as u32,
            on.first_word(&flat),
            on.first(&x),
            inner as u32,
            words as u32,
            packed.groups() as u32,
            on.first(&packed.w),
            scales,
            biases,
            blocks as u32,
        ];
        let subgroups = on.features.subgroups;
        let kernel = Kernel::Matvec { left: x.dtype, right: packed.packed, out: flat.dtype, subgroups };
        let reads: Vec<View> = [x].into_iter().chain(packed.parts()).collect();
        on.emit(kernel, &flat, &reads, false, params, blocks * rows);
    } else {
        let left = Layout::row_major(&[rows, inner])?;
        let right = Some((&packed, transposed));
        tiles(on, flat, &[], (rows, columns, inner), &[(x, left)], (1.0, 0.0), right, None);
    }
    on.settle(target, out);
    Some(())
}

/// Products of many rows in register tiles; false where parts are not whole, and nothing is emitted. Over a stack of matrices rows are
/// those of a table that is given, with how many of them in turn have one row of activations.
pub(super) fn gemm(
    on: &mut Lowering,
    out: View,
    x: View,
    packed: &PackedRows,
    (rows, columns, inner): (usize, usize, usize),
    table: Option<(View, usize)>,
) -> bool {
    let floats = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let bits = packed.packed.bits;
    let fits = matches!(bits, 4 | 8)
        && inner.is_multiple_of(GEMM_STEP)
        && columns.is_multiple_of(per_word(out.dtype) as usize)
        && [x.dtype, out.dtype].into_iter().all(floats)
        && [&x, &packed.w].into_iter().all(Lowering::is_vectored)
        && on.features.max_threads >= 128;
    if !fits {
        return false;
    }
    let units = on_matrix_units(on, rows, columns);
    let tile = units.map_or(GEMM_TILE, Cooperative::tile);
    let across = columns.div_ceil(tile);
    // Of every matrix the last tile may be part of one.
    let down = match table {
        None => rows.div_ceil(tile),
        Some(_) => rows / tile + rows.min(packed.matrices()),
    };
    let at_once = Gemm::words(bits);
    let [scales, biases] = packed.firsts(on);
    let mut params = vec![
        rows as u32,
        columns as u32,
        inner as u32,
        on.first_word(&out),
        on.first_word(&x) / 4,
        (inner * x.dtype.size() / 16) as u32,
        on.first_word(&packed.w) / at_once as u32,
        (packed.words() / at_once) as u32,
        packed.groups() as u32,
        scales,
        biases,
        across as u32,
    ];
    if let Some((table, turns)) = table {
        params.extend([on.first_word(&table), packed.matrices() as u32, turns as u32]);
    }
    let (left, right, out_dtype, subgroup) = (x.dtype, packed.packed, out.dtype, on.features.matrices);
    let sorted = table.is_some();
    let kernel = match units {
        Some(large) => {
            Kernel::Cooperative(Cooperative { left, right, out: out_dtype, subgroup, large, sorted })
        }
        None => Kernel::Gemm(Gemm { left, right, out: out_dtype, sorted }),
    };
    let table = table.map(|(table, _)| table);
    let reads: Vec<View> = [x].into_iter().chain(packed.parts()).chain(table).collect();
    on.emit(kernel, &out, &reads, false, params, across * down);
    true
}

/// Whether a device multiplies on matrix units, and in tiles of which size.
fn on_matrix_units(on: &Lowering, rows: usize, columns: usize) -> Option<bool> {
    let features = &on.features;
    let fits = |large: bool| {
        features.matrices > 0
            && Cooperative::threads(large, features.matrices) <= features.max_threads
            && Cooperative::shared_bytes(large) <= features.shared_bytes
    };
    let tiles = columns.div_ceil(Cooperative::tile(true)) * rows.div_ceil(Cooperative::tile(true));
    match tiles >= MANY_TILES && fits(true) {
        true => Some(true),
        false => fits(false).then_some(false),
    }
}

/// Packed rows as numbers.
pub(crate) fn dequantize(on: &mut Lowering, out: View, packed: PackedRows) -> Option<()> {
    let packed = packed.plain(on);
    let [scales, biases] = packed.firsts(on);
    let params = vec![
        out.layout.len() as u32,
        on.first_word(&out),
        *out.sizes().last()? as u32,
        packed.words() as u32,
        packed.groups() as u32,
        on.first(&packed.w),
        scales,
        biases,
    ];
    let kernel = Kernel::Dequantize { packed: packed.packed, out: out.dtype };
    let threads = out.layout.len().div_ceil(per_word(out.dtype) as usize);
    let reads: Vec<View> = packed.parts().collect();
    on.emit(kernel, &out, &reads, false, params, groups(threads));
    Some(())
}

/// Packed rows that plain indices pick, as numbers.
pub(crate) fn embed(on: &mut Lowering, out: View, indices: View, packed: PackedRows) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let indices = on.plain(indices);
    let packed = packed.plain(on);
    let &[rows, words] = packed.w.sizes() else { return None };
    let [scales, biases] = packed.firsts(on);
    let params = vec![
        out.layout.len() as u32,
        on.first_word(&out),
        on.fault(),
        *out.sizes().last()? as u32,
        words as u32,
        packed.groups() as u32,
        on.first(&packed.w),
        scales,
        biases,
        on.first(&indices),
        rows as u32,
    ];
    let kernel = Kernel::Embed { packed: packed.packed, indices: indices.dtype, out: out.dtype };
    let threads = out.layout.len().div_ceil(per_word(out.dtype) as usize);
    let reads: Vec<View> = packed.parts().chain([indices]).collect();
    on.emit(kernel, &out, &reads, true, params, groups(threads));
    Some(())
}
