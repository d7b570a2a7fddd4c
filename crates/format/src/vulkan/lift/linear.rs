//! Products of matrices, with weights of floats and of codes. Codes of 4 bits stay packed where the catalogue has their
//! layout.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Int, Part, Step, literals, problem};
use crate::vulkan::tables::VkTensor;

pub(super) const TABLE: Table = &[
    ("aten.bmm.default", product),
    ("aten.mm.default", product),
    ("aten.addmm.default", |l, call| {
        let (bias, mat1, mat2) = (Some(l.tensor(call, 0)?), l.tensor(call, 1)?, l.tensor(call, 2)?);
        let (beta, alpha) = (l.maybe_float(call, 3)?.unwrap_or(1.0), l.maybe_float(call, 4)?.unwrap_or(1.0));
        one(l.emit(Op::Addmm { mat1, mat2, bias, alpha: alpha as f32, beta: beta as f32 })?)
    }),
    ("aten.linear.default", |l, call| {
        let (mat1, weight) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
        let (mat2, bias) = (l.swapped(weight)?, l.maybe_tensor(call, 2)?);
        one(l.emit(Op::Addmm { mat1, mat2, bias, alpha: 1.0, beta: 1.0 })?)
    }),
    ("et_vk.linear_dW.default", |l, call| {
        let (a, b) = (l.rows(call, 0)?, l.rows(call, 1)?);
        let mat1 = l.swapped(a)?;
        one(l.emit(Op::Addmm { mat1, mat2: b, bias: None, alpha: 1.0, beta: 1.0 })?)
    }),
    ("aten._weight_int8pack_mm.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let weight = l.eight_bit_weights(call, 1, 2)?;
        one(l.with_weights(x, weight, None)?)
    }),
    ("et_vk.linear_q4gsw.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let group = l.known_int(call, 3)?;
        let weights = Codes { weight: l.tensor_table(call, 1)?, scales: l.tensor_table(call, 2)?, group };
        four_bits(l, call, x, weights, 4)
    }),
    ("et_vk.linear_dq8ca_q4gsw.default", |l, call| {
        let (x, scale, zero) = (l.tensor(call, 0)?, l.tensor(call, 1)?, l.tensor(call, 2)?);
        let x = l.rounded_rows(x, scale, zero)?;
        let group = l.known_int(call, 6)?;
        let weights = Codes { weight: l.tensor_table(call, 3)?, scales: l.tensor_table(call, 5)?, group };
        four_bits(l, call, x, weights, 7)
    }),
    ("et_vk.linear_qcs4w.default", |l, call| {
        // Two codes a byte, the even column in the high half, of one scale a row.
        let (x, table) = (l.tensor(call, 0)?, l.tensor_table(call, 1)?);
        let (bytes, [rows, pairs]) = l.matrix_in_init(table, DType::U8)?;
        let codes = l.nibbles(bytes, [rows, pairs], 2 * pairs, false)?;
        let scales = l.scales_in_init(l.tensor_table(call, 2)?, rows)?;
        let weight = l.append(Part::Init, Op::Multiply { a: codes, b: scales })?;
        let weight = l.made_of(call, 1, "numbers", weight)?;
        one(l.with_weights(x, weight, None)?)
    }),
    ("et_vk.linear_q8ta_q8csw.default", |l, call| {
        let x = l.on_grid(call, 0, 1)?;
        let weight = l.eight_bit_weights(call, 3, 5)?;
        let bias = l.maybe_tensor(call, 6)?;
        one(l.with_weights(x, weight, bias)?)
    }),
    ("et_vk.q8ta_linear.default", eight_bits),
    ("et_vk.q8ta_linear_gemv.default", eight_bits),
    ("et_vk.embedding_q4gsw.default", embedding),
];

/// The catalogue's groups.
const GROUPS: [i64; 3] = [128, 64, 32];

/// Weights of 4 bits: `[rows, columns / 2]` bytes, the even column in the low half, and a scale for each group.
struct Codes<'p> {
    weight: &'p VkTensor,
    scales: &'p VkTensor,
    group: i64,
}

fn product(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (mat1, mat2) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
    one(l.emit(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })?)
}

/// Scales lie `[groups, rows]`, perhaps with more rows than there are.
fn four_bits(l: &mut Lifter<'_>, call: &Call<'_>, x: ValueId, codes: Codes<'_>, bias: usize) -> Step<Given> {
    let Codes { weight, scales, group } = codes;
    let (&[rows, pairs], &[groups, _]) = (&weight.dims[..], &scales.dims[..]) else {
        return problem("weights and scales of two dims are wanted");
    };
    let (rows, pairs, groups) = (rows as usize, pairs as usize, groups as usize);
    if group < 1 || rows == 0 || groups == 0 {
        return problem(format!("{rows} rows of {groups} groups of {group}"));
    }
    let columns = i64::from(weight.dims[1]) * 2;
    let scales = l.constant_value(Part::Init, scales)?;
    let scales = l.append(Part::Init, Op::Transpose { x: scales, perm: vec![1, 0] })?;
    let scales = l.front(scales, rows)?;
    let bias = l.maybe_tensor(call, bias)?;
    let at = if call.name.contains("dq8ca") { 3 } else { 1 };
    if GROUPS.contains(&group) && columns == group * groups as i64 {
        let scales = l.append(Part::Init, Op::Contiguous { x: scales })?;
        let eight = l.number_in(Part::Init, -8.0, DType::F32)?;
        let biases = l.append(Part::Init, Op::Multiply { a: scales, b: eight })?;
        let (scales, biases) =
            (l.made_of(call, at, "scales", scales)?, l.made_of(call, at, "biases", biases)?);
        let w = l.constant_as(Part::Main, weight, DType::U32, &[rows, pairs / 4])?;
        let (biases, group_size, mode) = (Some(biases), group as i32, "affine".into());
        let product =
            Op::QuantizedMatmul { x, w, scales, biases, group_size, bits: 4, mode, transpose: true };
        let value = l.emit(product)?;
        return one(l.biased(value, bias)?);
    }
    let (bytes, shape) = l.matrix_in_init(weight, DType::U8)?;
    // Columns are padded to whole bytes and groups to whole groups.
    let columns = columns.min(group.saturating_mul(groups as i64)) as usize;
    let codes = l.nibbles(bytes, shape, columns, true)?;
    let repeats = IntArg::Literal(group);
    let scales = l.append(Part::Init, Op::Repeat { x: scales, repeats, axis: 1 })?;
    let [axis, start, stop] = [1, 0, columns as i64].map(IntArg::Literal);
    let scales = l.append(Part::Init, Op::Slice { x: scales, axis, start, stop, step: 1 })?;
    let weight = l.append(Part::Init, Op::Multiply { a: codes, b: scales })?;
    let weight = l.made_of(call, at, "numbers", weight)?;
    one(l.with_weights(x, weight, bias)?)
}

/// Codes in, codes out.
fn eight_bits(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.decoded(call, 0, 1)?;
    let weight = l.eight_bit_weights(call, 3, 5)?;
    let bias = l.maybe_tensor(call, 8)?;
    let value = l.with_weights(x, weight, bias)?;
    let value = l.activated(call, 9, value)?;
    one(l.encoded(call, 6, value)?)
}

/// Rows of codes of 4 bits, a scale for each group: the even column in the high half of a byte, or, shared with a
/// product, in the low one.
fn embedding(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (table, group) = (l.tensor_table(call, 0)?, l.known_int(call, 2)?);
    let (indices, even_is_low) = (l.tensor(call, 3)?, l.flag(call, 4)?);
    let (bytes, [rows, pairs]) = l.matrix_in_init(table, DType::U8)?;
    let scales = l.tensor_table(call, 1)?;
    let (&[_, groups] | &[groups]) = &scales.dims[..] else {
        return problem("scales of one or two dims are wanted");
    };
    let groups = if scales.dims.len() == 1 { 1 } else { groups };
    if group < 1 || i64::from(groups).checked_mul(group) != Some(2 * pairs as i64) {
        return problem(format!("{groups} groups of {group} in rows of {}", 2 * pairs));
    }
    let take = |l: &mut Lifter<'_>, x| l.emit(Op::Take { x, index: IndexArg::Tensor(indices), axis: 0 });
    let scales = l.constant_as(Part::Init, scales, DType::F32, &[rows, groups as usize])?;
    if even_is_low && GROUPS.contains(&group) {
        let eight = l.number_in(Part::Init, -8.0, DType::F32)?;
        let biases = l.append(Part::Init, Op::Multiply { a: scales, b: eight })?;
        let scales = l.append(Part::Init, Op::Contiguous { x: scales })?;
        let (scales, biases) = (l.made_of(call, 0, "scales", scales)?, l.made_of(call, 0, "biases", biases)?);
        let w = l.constant_as(Part::Main, table, DType::U32, &[rows, pairs / 4])?;
        let (w, scales, biases) = (take(l, w)?, take(l, scales)?, Some(take(l, biases)?));
        let (mode, group_size) = ("affine".into(), group as i32);
        let whole =
            Op::Dequantize { w, scales, biases, group_size, bits: 4, mode, global_scale: None, dtype: None };
        return one(l.emit(whole)?);
    }
    let codes = l.nibbles(bytes, [rows, pairs], 2 * pairs, even_is_low)?;
    let scales = l.append(Part::Init, Op::Repeat { x: scales, repeats: IntArg::Literal(group), axis: 1 })?;
    let numbers = l.append(Part::Init, Op::Multiply { a: codes, b: scales })?;
    let numbers = l.made_of(call, 0, "numbers", numbers)?;
    one(take(l, numbers)?)
}

impl Lifter<'_> {
    /// All but the last axis as one.
    fn rows(&mut self, call: &Call<'_>, at: usize) -> Step<ValueId> {
        let x = self.tensor(call, at)?;
        let Some(last) = self.rank(x)?.checked_sub(1) else {
            return problem("rows of a tensor without dims");
        };
        let shape: Vec<Int> = vec![IntArg::Literal(-1), self.size(x, last)?];
        self.emit(Op::Reshape { x, shape })
    }

    /// What the init graph makes of an argument, which is a constant.
    pub(super) fn made_of(
        &mut self,
        call: &Call<'_>,
        at: usize,
        what: &str,
        value: ValueId,
    ) -> Step<ValueId> {
        let (id, _) = self.argument(call, at)?;
        self.made(format!("value_{id}_{what}"), value)
    }

    /// A constant matrix in the init graph, and its sizes.
    fn matrix_in_init(&mut self, table: &VkTensor, dtype: DType) -> Step<(ValueId, [usize; 2])> {
        let &[rows, columns] = &table.dims[..] else { return problem("a constant of two dims is wanted") };
        let shape = [rows as usize, columns as usize];
        Ok((self.constant_as(Part::Init, table, dtype, &shape)?, shape))
    }

    /// The first of the rows that there are, in the init graph.
    pub(super) fn front(&mut self, x: ValueId, rows: usize) -> Step<ValueId> {
        let has = self.ty(Part::Init, x)?.shape.first().and_then(pteron_ir::Dim::as_known);
        match has {
            Some(has) if has == rows as i64 => Ok(x),
            Some(has) if has > rows as i64 => {
                let [axis, start, stop] = [0, 0, rows as i64].map(IntArg::Literal);
                self.append(Part::Init, Op::Slice { x, axis, start, stop, step: 1 })
            }
            _ => problem(format!("{} scales for {rows} rows", has.unwrap_or(0))),
        }
    }

    /// Scales of rows as a column of floats, in the init graph.
    pub(super) fn scales_in_init(&mut self, table: &VkTensor, rows: usize) -> Step<ValueId> {
        let scales = self.constant_value(Part::Init, table)?;
        let scales = self.append(Part::Init, Op::Reshape { x: scales, shape: vec![IntArg::Literal(-1)] })?;
        let scales = self.front(scales, rows)?;
        let scales = self.append(Part::Init, Op::AsType { x: scales, scalar_type: DType::F32 })?;
        self.append(Part::Init, Op::Reshape { x: scales, shape: literals(&[rows, 1]) })
    }

    /// The numbers of signed bytes `[rows, columns]` with a scale a row.
    fn eight_bit_weights(&mut self, call: &Call<'_>, weight: usize, scales: usize) -> Step<ValueId> {
        let (codes, [rows, _]) = self.matrix_in_init(self.tensor_table(call, weight)?, DType::I8)?;
        let scales = self.scales_in_init(self.tensor_table(call, scales)?, rows)?;
        let codes = self.append(Part::Init, Op::AsType { x: codes, scalar_type: DType::F32 })?;
        let numbers = self.append(Part::Init, Op::Multiply { a: codes, b: scales })?;
        self.made_of(call, weight, "numbers", numbers)
    }

    /// A product with weights `[outputs, inputs]`, which may have more columns than there are inputs.
    fn with_weights(&mut self, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Step<ValueId> {
        let Some(last) = self.rank(x)?.checked_sub(1) else {
            return problem("rows of a tensor without dims");
        };
        let mut weight = weight;
        if let (IntArg::Literal(inputs), IntArg::Literal(columns)) =
            (self.size(x, last)?, self.size(weight, 1)?)
            && inputs < columns
        {
            weight = self.cut(weight, 1, IntArg::Literal(0), IntArg::Literal(inputs), 1)?;
        }
        let mat2 = self.swapped(weight)?;
        let wide = self.cast(x, DType::F32)?;
        let value = self.emit(Op::Addmm { mat1: wide, mat2, bias: None, alpha: 1.0, beta: 1.0 })?;
        self.biased(value, bias)
    }

    /// The bias may have more numbers than there are outputs.
    fn biased(&mut self, value: ValueId, bias: Option<ValueId>) -> Step<ValueId> {
        let Some(bias) = bias else { return Ok(value) };
        let last = self.rank(value)?.saturating_sub(1);
        let mut bias = bias;
        if let (IntArg::Literal(outputs), IntArg::Literal(has)) =
            (self.size(value, last)?, self.size(bias, 0)?)
            && outputs < has
        {
            bias = self.cut(bias, 0, IntArg::Literal(0), IntArg::Literal(outputs), 1)?;
        }
        self.emit(Op::Add { a: value, b: bias })
    }
}
