//! Mixture of experts: tokens by expert, products with picked matrices, and the way back.

use super::call::{Call, Int};
use super::context::{Bound, Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::quantised::{Affine, Rows, as_floats, pack};
use super::registry::Table;
use pteron_ir::op::{FloatArg, IndexArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("mlx.moe_gather_inputs.default", gather_inputs),
    ("mlx.moe_scatter_outputs.default", scatter_outputs),
    ("mlx.gather_mm.default", gather_mm),
    ("mlx.gather_qmm.default", gather_qmm),
];

/// The promise that experts come in order, as an integer that is read when the program runs.
fn sorted_flag(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Option<Int>> {
    match call.maybe_tensor("sorted_indices")? {
        Some(x) => Ok(Some(l.emit_int(Op::ItemInt { x })?)),
        None => Ok(None),
    }
}

fn gather_mm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (a, b) = (call.tensor("a")?, call.tensor("b")?);
    let (lhs_indices, rhs_indices) = (call.maybe_tensor("lhs_indices")?, call.maybe_tensor("rhs_indices")?);
    let sorted_indices_flag = sorted_flag(l, call)?;
    one(l.emit(Op::GatherMm {
        a,
        b,
        lhs_indices,
        rhs_indices,
        sorted_indices: false,
        sorted_indices_flag,
    })?)
}

/// Torch stores signed codes, one or two to a byte; the catalogue reads unsigned ones in words.
fn gather_qmm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, w, scales) = (call.tensor("x")?, call.tensor("w")?, call.tensor("scales")?);
    let (bits, group) = (call.int("bits", 4)?, call.int("group_size", 32)?);
    let mode = call.text("mode", "affine")?;
    let biases = call.maybe_tensor("biases")?;
    let name = l.name_of(w).map(str::to_owned);
    let (Some(name), Some(weights), Some(scale)) = (name, l.data_of(w).cloned(), l.data_of(scales).cloned())
    else {
        return Err(Refusal::because("quantised experts that are not constants"));
    };
    let offsets = match biases {
        Some(biases) => match l.data_of(biases) {
            Some(biases) => Some(as_floats(biases)?),
            None => return Err(Refusal::because("offsets of experts that are not constants")),
        },
        None => None,
    };
    let [lead @ .., last] = weights.shape() else { return Err(Refusal::because("experts without dims")) };
    if mode != "affine" {
        return Err(Refusal::because(format!("experts in mode {mode}")));
    }
    let dtype = scale.dtype();
    let (bits, middle) = match u32::try_from(bits) {
        Ok(bits @ 1..=8) => (bits, f32::from(1u16 << (bits - 1))),
        _ => return Err(Refusal::because(format!("experts of {bits} bits"))),
    };
    let packed = match (weights.dtype(), offsets) {
        (DType::I8, None) => {
            let matrix = Affine { name: &name, lead: lead.to_vec(), columns: *last, group, bits, dtype };
            matrix.pack(l, &weights, &scale, None)?
        }
        (stored @ (DType::I8 | DType::U8), offsets) => {
            let bytes: &[u8] = weights.bytes();
            let codes: Vec<u8> = match stored {
                DType::U8 if bits == 4 => bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect(),
                DType::I8 => bytes
                    .iter()
                    .map(|byte| byte.wrapping_add(middle as u8) & ((1u16 << bits) - 1) as u8)
                    .collect(),
                _ => return Err(Refusal::because(format!("packed experts of {bits} bits"))),
            };
            let scales = as_floats(&scale)?;
            let offsets = offsets.unwrap_or_else(|| vec![0.0; scales.len()]);
            if offsets.len() != scales.len() {
                return Err(Refusal::because("as many offsets as scales are needed"));
            }
            let offsets =
                offsets.iter().zip(&scales).map(|(offset, scale)| offset - scale * middle).collect();
            let columns = if stored == DType::U8 { last * 2 } else { *last };
            let group = usize::try_from(group).unwrap_or(0);
            pack(
                l,
                &Rows {
                    name: &name,
                    lead: lead.to_vec(),
                    columns,
                    codes: &codes,
                    bits,
                    group,
                    scales,
                    offsets,
                    dtype,
                },
            )?
        }
        (other, _) => return Err(Refusal::because(format!("experts stored as {other}"))),
    };
    let sorted_indices_flag = sorted_flag(l, call)?;
    one(l.emit(Op::GatherQmm {
        x,
        w: packed.words,
        scales: packed.scales,
        mode,
        biases: packed.biases,
        lhs_indices: call.maybe_tensor("lhs_indices")?,
        rhs_indices: call.maybe_tensor("rhs_indices")?,
        transpose: call.flag("transpose", true)?,
        group_size: packed.group,
        bits: packed.bits,
        sorted_indices: false,
        sorted_indices_flag,
    })?)
}

/// Tokens repeated for their experts; sorted by expert where there are enough of them to gain by it.
fn gather_inputs(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, experts) = (call.tensor("x")?, call.tensor("expert_indices")?);
    let (top_k, cutoff) = (call.int("top_k", 1)?, call.int("sort_cutoff", 1)?);
    let count = l.size(x, 0)?;
    let values = match count {
        Int::Literal(count) if count > cutoff => sorted_inputs(l, x, experts, top_k)?,
        Int::Literal(_) => plain_inputs(l, x, experts, top_k)?,
        Int::Value(_) => {
            // Not zero exactly where there are more tokens than the cutoff.
            let cond =
                l.emit_int(Op::FloorDivideInt { a: count, b: Int::Literal(cutoff.saturating_add(1)) })?;
            l.builder().open_block(Vec::new());
            let sorted = sorted_inputs(l, x, experts, top_k);
            let then_chain_idx = l.builder().close_block(sorted.clone().unwrap_or_default());
            sorted?;
            l.builder().open_block(Vec::new());
            let plain = plain_inputs(l, x, experts, top_k);
            let else_chain_idx = l.builder().close_block(plain.clone().unwrap_or_default());
            plain?;
            l.emit_all(Op::If { cond, then_chain_idx, else_chain_idx })?
        }
    };
    Ok(values.into_iter().map(Bound::Tensor).collect())
}

fn flag(l: &mut Lowerer<'_>, value: f64) -> Lowered<ValueId> {
    l.emit(Op::Full { shape: Vec::new(), v: FloatArg::Literal(value), scalar_type: DType::I32 })
}

/// Tokens in the order of their experts, the experts, 1, and where each went.
fn sorted_inputs(l: &mut Lowerer<'_>, x: ValueId, experts: ValueId, top_k: i64) -> Lowered<Vec<ValueId>> {
    let flat = l.reshape(experts, vec![Int::Literal(-1)])?;
    let order = l.emit(Op::Argsort { x: flat, axis: 0 })?;
    let order = l.cast(order, DType::I32)?;
    let back = l.emit(Op::Argsort { x: order, axis: 0 })?;
    let back = l.cast(back, DType::I32)?;
    let picked = l.emit(Op::Take { x: flat, index: IndexArg::Tensor(order), axis: 0 })?;
    let picked = l.cast(picked, DType::I32)?;
    let each = l.whole_number(top_k, DType::I32)?;
    let token = l.emit(Op::FloorDivide { a: order, b: each })?;
    let rows = l.emit(Op::Take { x, index: IndexArg::Tensor(token), axis: 0 })?;
    let rows = l.emit(Op::ExpandDims { x: rows, axis: 1 })?;
    Ok(vec![rows, picked, flag(l, 1.0)?, back])
}

/// Tokens in their own order, the experts, 0, and an order that changes nothing.
fn plain_inputs(l: &mut Lowerer<'_>, x: ValueId, experts: ValueId, top_k: i64) -> Lowered<Vec<ValueId>> {
    let rows = l.emit(Op::Repeat { x, repeats: Int::Literal(top_k), axis: 0 })?;
    let rows = l.emit(Op::ExpandDims { x: rows, axis: 1 })?;
    let picked = l.reshape(experts, vec![Int::Literal(-1)])?;
    let picked = l.cast(picked, DType::I32)?;
    let count = l.size(rows, 0)?;
    let order = l.emit(Op::ARange {
        start: Int::Literal(0),
        stop: count,
        step: Int::Literal(1),
        scalar_type: Some(DType::I32),
    })?;
    Ok(vec![rows, picked, flag(l, 0.0)?, order])
}

fn scatter_outputs(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (down, sorted, order) =
        (call.tensor("down")?, call.tensor("sort_experts")?, call.tensor("inv_order")?);
    let top_k = call.int("top_k", 1)?;
    let axis = l.rank(down)?.checked_sub(2).ok_or_else(|| Refusal::because("outputs without a row axis"))?;
    let rows = l.emit(Op::Squeeze { x: down, dims: Some(vec![axis as i32]) })?;
    let cond = l.emit_int(Op::ItemInt { x: sorted })?;
    l.builder().open_block(Vec::new());
    let moved = l.emit(Op::Take { x: rows, index: IndexArg::Tensor(order), axis: 0 });
    let then_chain_idx = l.builder().close_block(moved.clone().into_iter().collect());
    moved?;
    l.builder().open_block(Vec::new());
    let kept = l.emit(Op::IdCopy { x: rows });
    let else_chain_idx = l.builder().close_block(kept.clone().into_iter().collect());
    kept?;
    let rows = l.emit(Op::If { cond, then_chain_idx, else_chain_idx })?;
    let width = l.size(down, axis + 1)?;
    one(l.reshape(rows, vec![Int::Literal(-1), Int::Literal(top_k), width])?)
}
