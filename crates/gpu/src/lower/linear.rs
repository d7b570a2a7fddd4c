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
    tiles(on, target, &batch, (rows, columns, inner), &operands, (alpha, beta), None);
    on.settle(target, out);
    Some(())
}

/// Packed rows with what a kernel needs to find their parts.
struct PackedRows {
    packed: Packed,
    transposed: bool,
    words: usize,
    w: View,
    scales: View,
    biases: View,
}

fn tiles(
    on: &mut Lowering,
    out: View,
    batch: &[usize],
    (rows, columns, inner): (usize, usize, usize),
    operands: &[(View, Layout)],
    (alpha, beta): (f32, f32),
    packed: Option<&PackedRows>,
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
        Some(rows) => {
            let row = rows.words * 32 / rows.packed.bits as usize / rows.packed.group as usize;
            params.extend([rows.words as u32, row as u32, on.first(&rows.scales), on.first(&rows.biases)]);
        }
        None => params.extend([0; 4]),
    }
    // By batch: left, right, added; packed rows are the same for all.
    let zeros = vec![0; batch_rank];
    let mut strides: Vec<&[isize]> =
        operands.iter().map(|(_, layout)| &layout.strides()[..batch_rank]).collect();
    let mut firsts: Vec<u32> = operands.iter().map(|(view, _)| on.first(view)).collect();
    if let Some(packed) = packed {
        strides.insert(1, &zeros);
        firsts.insert(1, on.first(&packed.w));
    }
    let axes = Axes::of(batch, &strides);
    axes.push(&mut params, &firsts);
    let kernel = Kernel::Matmul {
        left: operands[0].0.dtype,
        right: match packed {
            Some(rows) => Right::Packed { packed: rows.packed, transposed: rows.transposed },
            None => Right::Dense(operands[1].0.dtype),
        },
        out: out.dtype,
        bias: operands.get(added).map(|(view, _)| view.dtype),
        batch: axes.rank(),
    };
    let mut reads = vec![operands[0].0];
    match packed {
        Some(rows) => reads.extend([rows.w, rows.scales, rows.biases]),
        None => reads.push(operands[1].0),
    }
    reads.extend(operands.get(added).map(|operand| operand.0));
    let batches = batch.iter().product::<usize>();
    on.emit(kernel, &out, &reads, false, params, across * down * batches);
}

/// `x` times packed rows, each a column of the matrix or, not transposed, a row.
pub(crate) fn quantized_matmul(
    on: &mut Lowering,
    out: View,
    x: View,
    [w, scales, biases]: [View; 3],
    (bits, group): (u32, u32),
    transposed: bool,
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let &[packed_rows, words] = w.sizes() else { return None };
    let x = on.plain(x);
    let (w, scales, biases) = (on.plain(w), on.plain(scales), on.plain(biases));
    let inner = *x.sizes().last()?;
    let rows = x.layout.len() / inner.max(1);
    let columns = if transposed { packed_rows } else { words * 32 / bits as usize };
    let packed = Packed { bits, group, dtype: scales.dtype };
    let shape = (rows, columns, inner);
    if transposed && rows > FEW_ROWS && gemm(on, out, x, [w, scales, biases], packed, shape) {
        return Some(());
    }
    let target = on.row_target(out, columns);
    let flat = target.with(Layout::row_major(&[rows, columns])?);
    if transposed && rows <= FEW_ROWS {
        let blocks = columns.div_ceil(ROWS as usize);
        let params = vec![
            rows as u32,
            columns as u32,
            inner as u32,
            on.first_word(&flat),
            on.first(&x),
            inner as u32,
            words as u32,
            (inner / group as usize) as u32,
            on.first(&w),
            on.first(&scales),
            on.first(&biases),
            blocks as u32,
        ];
        let subgroups = on.features.subgroups;
        let kernel = Kernel::Matvec { left: x.dtype, right: packed, out: flat.dtype, subgroups };
        on.emit(kernel, &flat, &[x, w, scales, biases], false, params, blocks * rows);
    } else {
        let left = Layout::row_major(&[rows, inner])?;
        let rows_of = PackedRows { packed, transposed, words, w, scales, biases };
        tiles(on, flat, &[], (rows, columns, inner), &[(x, left)], (1.0, 0.0), Some(&rows_of));
    }
    on.settle(target, out);
    Some(())
}

/// Products of many rows in register tiles; false where parts are not whole, and nothing is emitted.
fn gemm(
    on: &mut Lowering,
    out: View,
    x: View,
    [w, scales, biases]: [View; 3],
    packed: Packed,
    (rows, columns, inner): (usize, usize, usize),
) -> bool {
    let floats = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let fits = matches!(packed.bits, 4 | 8)
        && inner.is_multiple_of(GEMM_STEP)
        && columns.is_multiple_of(per_word(out.dtype) as usize)
        && [x.dtype, out.dtype].into_iter().all(floats)
        && [&x, &w].into_iter().all(Lowering::is_vectored)
        && on.features.max_threads >= 128;
    if !fits {
        return false;
    }
    let units = on_matrix_units(on, rows, columns);
    let tile = units.map_or(GEMM_TILE, Cooperative::tile);
    let (across, down) = (columns.div_ceil(tile), rows.div_ceil(tile));
    let at_once = Gemm::words(packed.bits);
    let params = vec![
        rows as u32,
        columns as u32,
        inner as u32,
        on.first_word(&out),
        on.first_word(&x) / 4,
        (inner * x.dtype.size() / 16) as u32,
        on.first_word(&w) / at_once as u32,
        (inner * packed.bits as usize / 32 / at_once) as u32,
        (inner / packed.group as usize) as u32,
        on.first(&scales),
        on.first(&biases),
        across as u32,
    ];
    let (left, right, out_dtype, subgroup) = (x.dtype, packed, out.dtype, on.features.matrices);
    let kernel = match units {
        Some(large) => Kernel::Cooperative(Cooperative { left, right, out: out_dtype, subgroup, large }),
        None => Kernel::Gemm(Gemm { left, right, out: out_dtype }),
    };
    on.emit(kernel, &out, &[x, w, scales, biases], false, params, across * down);
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
pub(crate) fn dequantize(
    on: &mut Lowering,
    out: View,
    [w, scales, biases]: [View; 3],
    (bits, group): (u32, u32),
) -> Option<()> {
    let (w, scales, biases) = (on.plain(w), on.plain(scales), on.plain(biases));
    let words = *w.sizes().last()?;
    let row = *out.sizes().last()?;
    let params = vec![
        out.layout.len() as u32,
        on.first_word(&out),
        row as u32,
        words as u32,
        (row / group as usize) as u32,
        on.first(&w),
        on.first(&scales),
        on.first(&biases),
    ];
    let kernel = Kernel::Dequantize { packed: Packed { bits, group, dtype: scales.dtype }, out: out.dtype };
    let threads = out.layout.len().div_ceil(per_word(out.dtype) as usize);
    on.emit(kernel, &out, &[w, scales, biases], false, params, groups(threads));
    Some(())
}

/// Packed rows that plain indices pick, as numbers.
pub(crate) fn embed(
    on: &mut Lowering,
    out: View,
    indices: View,
    [w, scales, biases]: [View; 3],
    (bits, group): (u32, u32),
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let indices = on.plain(indices);
    let (w, scales, biases) = (on.plain(w), on.plain(scales), on.plain(biases));
    let &[rows, words] = w.sizes() else { return None };
    let row = *out.sizes().last()?;
    let params = vec![
        out.layout.len() as u32,
        on.first_word(&out),
        on.fault(),
        row as u32,
        words as u32,
        (row / group as usize) as u32,
        on.first(&w),
        on.first(&scales),
        on.first(&biases),
        on.first(&indices),
        rows as u32,
    ];
    let packed = Packed { bits, group, dtype: scales.dtype };
    let kernel = Kernel::Embed { packed, indices: indices.dtype, out: out.dtype };
    let threads = out.layout.len().div_ceil(per_word(out.dtype) as usize);
    on.emit(kernel, &out, &[w, scales, biases, indices], true, params, groups(threads));
    Some(())
}
