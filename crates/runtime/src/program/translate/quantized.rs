//! Rows of tables of codes, as nodes.

use super::{Nodes, Operand};
use crate::Value;
use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

/// Rows of a table of codes of so many bits: its weights, scales, zero points and the rows that are wanted.
pub(super) fn embedding(
    nodes: &mut Nodes<'_>,
    [weight, scales, rows]: [ValueId; 3],
    zeros: &Operand,
    bits: i64,
) -> Option<ValueId> {
    let is_table = nodes.rank(weight)? == 2 && matches!(nodes.dtype(weight)?, DType::I8 | DType::U8);
    let is_index = matches!(nodes.dtype(rows)?, DType::I32 | DType::I64);
    if !is_table || !is_index || nodes.dtype(scales)? != DType::F32 {
        return None;
    }
    let width = nodes.size(weight, 1)?.checked_mul(8 / bits)?;
    let groups = match nodes.rank(scales)? {
        1 => 1,
        2 => nodes.size(scales, 1)?,
        _ => return None,
    };
    if groups < 1 || width % groups != 0 {
        return None;
    }
    let of_rows =
        |nodes: &mut Nodes<'_>, x| nodes.append(Op::Take { x, index: IndexArg::Tensor(rows), axis: 0 });
    let packed = of_rows(nodes, weight)?;
    let codes = match bits {
        8 => nodes.append(Op::AsType { x: packed, scalar_type: DType::F32 })?,
        _ => unpacked(nodes, packed, bits)?,
    };
    let grouped = shaped(nodes, rows, &[groups, width / groups])?;
    let mut numbers = nodes.append(Op::Reshape { x: codes, shape: grouped })?;
    let by_group = |nodes: &mut Nodes<'_>, x| {
        let x = of_rows(nodes, x)?;
        let shape = shaped(nodes, rows, &[groups, 1])?;
        nodes.append(Op::Reshape { x, shape })
    };
    match zeros {
        Operand::Tensor(zeros) if nodes.dtype(*zeros)? == DType::F32 => {
            let zeros = by_group(nodes, *zeros)?;
            numbers = nodes.append(Op::Subtract { a: numbers, b: zeros })?;
        }
        Operand::Fixed(Value::None) => {}
        _ => return None,
    }
    let scales = by_group(nodes, scales)?;
    let x = nodes.append(Op::Multiply { a: numbers, b: scales })?;
    let shape = shaped(nodes, rows, &[width])?;
    nodes.append(Op::Reshape { x, shape })
}

/// The shape of rows' numbers, with further axes behind.
fn shaped(nodes: &mut Nodes<'_>, rows: ValueId, behind: &[i64]) -> Option<Vec<IntArg<ValueId>>> {
    let mut shape = Vec::new();
    for axis in 0..nodes.rank(rows)? {
        shape.push(match nodes.size(rows, axis) {
            Some(size) => IntArg::Literal(size),
            None => IntArg::Value(nodes.append(Op::SymSize { a: rows, dim: axis as i32 })?),
        });
    }
    shape.extend(behind.iter().map(|&size| IntArg::Literal(size)));
    Some(shape)
}

/// Codes of less than 8 bits, as floats around zero, with an axis for those of one byte: of 4 bits the high ones come first,
/// of 2 the low ones.
fn unpacked(nodes: &mut Nodes<'_>, packed: ValueId, bits: i64) -> Option<ValueId> {
    let rank = nodes.rank(packed)? as i32;
    let number = |nodes: &mut Nodes<'_>, value: i64, scalar_type| {
        let v = FloatArg::Literal(value as f64);
        nodes.append(Op::Full { shape: Vec::new(), v, scalar_type })
    };
    let mut shifts: Vec<i64> = (0..8).step_by(bits as usize).collect();
    if bits == 4 {
        shifts.reverse();
    }
    let mask = number(nodes, (1 << bits) - 1, DType::U8)?;
    let mut parts = Vec::new();
    for shift in shifts {
        let unit = number(nodes, 1 << shift, DType::U8)?;
        let moved = nodes.append(Op::FloorDivide { a: packed, b: unit })?;
        parts.push(nodes.append(Op::BitwiseAnd { a: moved, b: mask })?);
    }
    let codes = nodes.append(Op::Stack { tensors: parts, axis: rank })?;
    let codes = nodes.append(Op::AsType { x: codes, scalar_type: DType::F32 })?;
    let middle = number(nodes, 1 << (bits - 1), DType::F32)?;
    nodes.append(Op::Subtract { a: codes, b: middle })
}
