//! Quantised weights: what torch and ExecuTorch store, packed as the catalogue reads it.
//!
//! Packing happens once, now: data of the archive flows in, constants of u32 words with scales and offsets flow
//! out. A product with packed weights is one op; whatever else reads them gets them unpacked by an op.

use super::call::{Arg, Call, Int};
use super::context::{Lowerer, Outs, Weight, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use super::{GgufLayout, gguf};
use crate::pt2::argument::ScalarType;
use crate::pt2::{Attribute, StridedTensor, SubclassKind};
use half::{bf16, f16};
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::quant::packed;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: Table = &[
    ("export.access_subclass_inner_tensor.default", inner_tensor),
    ("torchao.dequantize_affine.default", dequantize_affine),
    ("torchao.dequantize_int4_tensor.default", |_, _| Err(Refusal::Unknown)),
];

/// Weights as the catalogue reads them.
pub(super) struct Packed {
    pub(super) words: ValueId,
    pub(super) scales: ValueId,
    pub(super) biases: Option<ValueId>,
    pub(super) group: i32,
    pub(super) bits: i32,
    pub(super) mode: &'static str,
    /// What all numbers are to be multiplied by.
    pub(super) factor: Option<ValueId>,
}

fn text_of(error: impl std::fmt::Display) -> Refusal {
    Refusal::because(error.to_string())
}

/// Codes as rows of words, scales and offsets as they are used: `code * scale + offset`.
pub(super) struct Rows<'a> {
    pub(super) name: &'a str,
    pub(super) lead: Vec<usize>,
    pub(super) columns: usize,
    pub(super) codes: &'a [u8],
    pub(super) bits: u32,
    pub(super) group: usize,
    pub(super) scales: Vec<f32>,
    pub(super) offsets: Vec<f32>,
    /// Of scales and offsets.
    pub(super) dtype: DType,
}

pub(super) fn pack(l: &mut Lowerer<'_>, rows: &Rows<'_>) -> Lowered<Packed> {
    let row_words = packed::words(rows.columns, rows.bits).map_err(text_of)?;
    let mut words: Vec<u32> = Vec::with_capacity(row_words * rows.codes.len() / rows.columns.max(1));
    for row in rows.codes.chunks_exact(rows.columns.max(1)) {
        words.extend(packed::pack(row, rows.bits).map_err(text_of)?);
    }
    let shaped = |last: usize| rows.lead.iter().copied().chain([last]).collect::<Vec<usize>>();
    let groups = rows.columns / rows.group.max(1);
    let words = HostTensor::from_slice(shaped(row_words), &words).map_err(text_of)?;
    let scales = floats(&shaped(groups), &rows.scales, rows.dtype)?;
    let offsets = floats(&shaped(groups), &rows.offsets, rows.dtype)?;
    Ok(Packed {
        words: l.constant(&format!("{}_to_packed", rows.name), words)?,
        scales: l.constant(&format!("{}_to_scales", rows.name), scales)?,
        biases: Some(l.constant(&format!("{}_to_biases", rows.name), offsets)?),
        group: rows.group as i32,
        bits: rows.bits as i32,
        mode: "affine",
        factor: None,
    })
}

/// Numbers in a float dtype.
fn floats(shape: &[usize], values: &[f32], dtype: DType) -> Lowered<HostTensor> {
    let shape = shape.to_vec();
    match dtype {
        DType::F32 => HostTensor::from_slice(shape, values),
        DType::F16 => {
            HostTensor::from_slice(shape, &values.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>())
        }
        DType::BF16 => {
            HostTensor::from_slice(shape, &values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>())
        }
        other => return Err(Refusal::because(format!("scales of {other}"))),
    }
    .map_err(text_of)
}

/// Numbers of a tensor that is known now, as floats.
pub(super) fn as_floats(tensor: &HostTensor) -> Lowered<Vec<f32>> {
    let found = match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().map(<[f32]>::to_vec),
        DType::F16 => tensor.as_slice::<f16>().map(|all| all.iter().map(|x| x.to_f32()).collect()),
        DType::BF16 => tensor.as_slice::<bf16>().map(|all| all.iter().map(|x| x.to_f32()).collect()),
        DType::I8 => tensor.as_slice::<i8>().map(|all| all.iter().map(|x| f32::from(*x)).collect()),
        DType::U8 => tensor.as_slice::<u8>().map(|all| all.iter().map(|x| f32::from(*x)).collect()),
        DType::I32 => tensor.as_slice::<i32>().map(|all| all.iter().map(|x| *x as f32).collect()),
        DType::I64 => tensor.as_slice::<i64>().map(|all| all.iter().map(|x| *x as f32).collect()),
        other => return Err(Refusal::because(format!("numbers of {other}"))),
    };
    found.map_err(text_of)
}

impl Weight {
    fn part(&self, name: &str) -> Lowered<&StridedTensor> {
        self.subclass.tensors.get(name).ok_or_else(|| Refusal::because(format!("a weight without `{name}`")))
    }

    fn number(&self, name: &str) -> Lowered<i64> {
        match self.subclass.attributes.get(name) {
            Some(Attribute::Int(value)) => Ok(*value),
            Some(Attribute::Ints(values)) if !values.is_empty() => Ok(values[values.len() - 1]),
            other => Err(Refusal::because(format!("a weight whose `{name}` is {other:?}"))),
        }
    }

    /// The matrix's sizes.
    fn sizes(&self) -> Lowered<(usize, usize)> {
        match self.subclass.sizes.as_slice() {
            [rows, columns] => Ok((*rows, *columns)),
            other => Err(Refusal::because(format!("a packed weight of sizes {other:?}"))),
        }
    }
}

/// A weight of one of the known kinds, packed. `dtype` is that of what it will meet.
fn packed_weight(l: &mut Lowerer<'_>, weight: &Weight, dtype: DType) -> Lowered<Packed> {
    match weight.subclass.kind {
        SubclassKind::Gguf => gguf_weight(l, weight, dtype),
        SubclassKind::Int4 => int4(l, weight),
        SubclassKind::Nvfp4 => nvfp4(l, weight, dtype),
        SubclassKind::Intx => intx(l, weight),
    }
}

/// Scales of GGUF are products in f32: kept so, they stand for the very numbers of the blocks.
fn gguf_weight(l: &mut Lowerer<'_>, weight: &Weight, dtype: DType) -> Lowered<Packed> {
    let (rows, columns) = weight.sizes()?;
    let format = match weight.subclass.attributes.get("ggml_type") {
        Some(Attribute::Text(text)) => text.to_ascii_lowercase(),
        other => return Err(Refusal::because(format!("GGUF blocks of type {other:?}"))),
    };
    let mut codes = gguf::read(&format, &weight.part("raw")?.to_bytes())?;
    let dtype = match l.gguf {
        GgufLayout::Repacked if codes.group >= GROUPS[GROUPS.len() - 1] => {
            repacked(&mut codes, dtype);
            dtype
        }
        _ => DType::F32,
    };
    if Some(codes.codes.len()) != rows.checked_mul(columns) || columns % codes.group != 0 {
        return Err(Refusal::because("GGUF blocks of another number of elements"));
    }
    let rows = Rows {
        name: &weight.name,
        lead: vec![rows],
        columns,
        codes: &codes.codes,
        bits: codes.bits,
        group: codes.group,
        scales: codes.scales,
        offsets: codes.offsets,
        dtype,
    };
    pack(l, &rows)
}

/// Scales and offsets by way of a zero point, each rounded to a dtype.
fn repacked(codes: &mut gguf::Codes, dtype: DType) {
    let round = |value: f32| match dtype {
        DType::F16 => f16::from_f32(value).to_f32(),
        DType::BF16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    let middle = f32::from(1u8 << (codes.bits - 1));
    for (scale, offset) in codes.scales.iter_mut().zip(&mut codes.offsets) {
        let zero = if *scale == 0.0 { 0.0 } else { -*offset / *scale };
        let zero = round(zero - middle);
        *scale = round(*scale);
        *offset = round(-*scale * round(zero + middle));
    }
}

/// Nibbles in the very order of the catalogue; scales and zero points [groups, rows].
fn int4(l: &mut Lowerer<'_>, weight: &Weight) -> Lowered<Packed> {
    let (rows, columns) = weight.sizes()?;
    let group = usize::try_from(weight.number("group_size")?).unwrap_or(0).max(1);
    let scale = weight.part("scale")?.to_host().map_err(Refusal::Arguments)?;
    let zero = weight.part("zero_point")?.to_host().map_err(Refusal::Arguments)?;
    let (dtype, groups) = (scale.dtype(), columns / group);
    let (scale, zero) = (as_floats(&scale)?, as_floats(&zero)?);
    if scale.len() != groups * rows || zero.len() != scale.len() || !columns.is_multiple_of(8) {
        return Err(Refusal::because("scales of another number"));
    }
    let turned = |at: usize| at % groups * rows + at / groups;
    let scales: Vec<f32> = (0..scale.len()).map(|at| scale[turned(at)]).collect();
    let offsets: Vec<f32> = (0..scale.len()).map(|at| -scale[turned(at)] * zero[turned(at)]).collect();
    let words = HostTensor::new(DType::U32, vec![rows, columns / 8], weight.part("qdata")?.to_bytes());
    let name = &weight.name;
    let (scales, offsets) =
        (floats(&[rows, groups], &scales, dtype)?, floats(&[rows, groups], &offsets, dtype)?);
    Ok(Packed {
        words: l.constant(&format!("{name}_int4_to_packed"), words.map_err(text_of)?)?,
        scales: l.constant(&format!("{name}_int4_scales"), scales)?,
        biases: Some(l.constant(&format!("{name}_int4_biases"), offsets)?),
        group: group as i32,
        bits: 4,
        mode: "affine",
        factor: None,
    })
}

/// Words and scales as they are; the scale of the whole matrix comes after.
fn nvfp4(l: &mut Lowerer<'_>, weight: &Weight, dtype: DType) -> Lowered<Packed> {
    let (rows, columns) = weight.sizes()?;
    let group = weight.number("block_size")?;
    let bytes = |name: &str, dtype: DType, last: usize| -> Lowered<HostTensor> {
        HostTensor::new(dtype, vec![rows, last], weight.part(name)?.to_bytes()).map_err(text_of)
    };
    let words = bytes("qdata", DType::U32, columns / 8)?;
    let scales = bytes("scale", DType::U8, columns / usize::try_from(group).unwrap_or(16).max(1))?;
    let whole = as_floats(&weight.part("per_tensor_scale")?.to_host().map_err(Refusal::Arguments)?)?;
    let factor = match whole.as_slice() {
        [factor] if *factor == 1.0 => None,
        [factor] => Some(l.number(f64::from(*factor), dtype)?),
        _ => return Err(Refusal::because("a scale of the whole matrix that is not one number")),
    };
    let name = &weight.name;
    Ok(Packed {
        words: l.constant(&format!("{name}.qdata"), words)?,
        scales: l.constant(&format!("{name}.scale"), scales)?,
        biases: None,
        group: i32::try_from(group).unwrap_or(16),
        bits: 4,
        mode: "nvfp4",
        factor,
    })
}

/// One signed integer to a byte, scales and zero points by group of a row.
fn intx(l: &mut Lowerer<'_>, weight: &Weight) -> Lowered<Packed> {
    let (rows, columns) = weight.sizes()?;
    let group = weight.number("block_size")?;
    let bits = match weight.subclass.attributes.get("target_dtype") {
        Some(Attribute::Type(name)) => {
            name.trim_start_matches("torch.").trim_start_matches("int").parse().ok()
        }
        _ => None,
    };
    let bits: u32 = bits
        .filter(|bits| (1..=8).contains(bits))
        .ok_or_else(|| Refusal::because("integers of unknown width"))?;
    let quantised = weight.part("qdata")?.to_host().map_err(Refusal::Arguments)?;
    let scale = weight.part("scale")?.to_host().map_err(Refusal::Arguments)?;
    let zero = weight.part("zero_point")?.to_host().map_err(Refusal::Arguments)?;
    let matrix = Affine { name: &weight.name, lead: vec![rows], columns, group, bits, dtype: scale.dtype() };
    matrix.pack(l, &quantised, &scale, Some(&zero))
}

/// A matrix of signed integers, one to a byte: `(q - zero) * scale`.
pub(super) struct Affine<'a> {
    pub(super) name: &'a str,
    pub(super) lead: Vec<usize>,
    pub(super) columns: usize,
    pub(super) group: i64,
    pub(super) bits: u32,
    pub(super) dtype: DType,
}

/// Groups that products take, the largest first.
const GROUPS: [usize; 3] = [128, 64, 32];

impl Affine<'_> {
    pub(super) fn pack(
        self,
        l: &mut Lowerer<'_>,
        quantised: &HostTensor,
        scale: &HostTensor,
        zero: Option<&HostTensor>,
    ) -> Lowered<Packed> {
        let middle = 1i32 << (self.bits - 1);
        let values = quantised.as_slice::<i8>().map_err(text_of)?;
        let codes: Vec<u8> =
            values.iter().map(|q| (i32::from(*q) + middle) as u8 & mask(self.bits)).collect();
        let scales = as_floats(scale)?;
        let zeros = zero.map(as_floats).transpose()?.unwrap_or_else(|| vec![0.0; scales.len()]);
        let group = usize::try_from(self.group)
            .ok()
            .filter(|group| *group > 0 && self.columns.is_multiple_of(*group));
        let group = group.ok_or_else(|| Refusal::because(format!("groups of {}", self.group)))?;
        let rows: usize = self.lead.iter().product();
        if scales.len() != rows * (self.columns / group) || zeros.len() != scales.len() {
            return Err(Refusal::because("scales of another number"));
        }
        // A group that is larger than products take is several with the same scale.
        let fitting =
            GROUPS.into_iter().find(|size| group > 128 && group.is_multiple_of(*size)).unwrap_or(group);
        let times = group / fitting;
        let spread =
            |values: Vec<f32>| values.into_iter().flat_map(|x| std::iter::repeat_n(x, times)).collect();
        let offsets =
            scales.iter().zip(&zeros).map(|(scale, zero)| -scale * (zero + middle as f32)).collect();
        let rows = Rows {
            name: self.name,
            lead: self.lead,
            columns: self.columns,
            codes: &codes,
            bits: self.bits,
            group: fitting,
            scales: spread(scales),
            offsets: spread(offsets),
            dtype: self.dtype,
        };
        pack(l, &rows)
    }
}

fn mask(bits: u32) -> u8 {
    if bits >= 8 { u8::MAX } else { (1 << bits) - 1 }
}

/// The numbers that packed weights stand for.
fn unpacked(
    l: &mut Lowerer<'_>,
    packed: &Packed,
    words: [ValueId; 2],
    biases: Option<ValueId>,
    dtype: DType,
) -> Lowered<ValueId> {
    let found = l.emit(Op::Dequantize {
        w: words[0],
        scales: words[1],
        biases,
        group_size: packed.group,
        bits: packed.bits,
        mode: packed.mode.into(),
        global_scale: None,
        dtype: Some(dtype),
    })?;
    match packed.factor {
        Some(factor) => l.emit(Op::Multiply { a: found, b: factor }),
        None => Ok(found),
    }
}

/// A product with a packed weight, and a bias.
pub(super) fn linear(
    l: &mut Lowerer<'_>,
    weight: &Weight,
    x: ValueId,
    bias: Option<ValueId>,
    dtype: DType,
) -> Lowered<ValueId> {
    let packed = packed_weight(l, weight, l.dtype(x)?)?;
    let direct = packed.mode != "affine" || GROUPS.contains(&(packed.group as usize));
    if !direct {
        // As wide as the scales: weights rounded to less would add up to more than a product may stray.
        let wide = l.dtype(packed.scales)?;
        let dense = unpacked(l, &packed, [packed.words, packed.scales], packed.biases, wide)?;
        let (mat1, mat2) = (l.cast(x, wide)?, l.swapped(dense)?);
        let bias = bias.map(|bias| l.cast(bias, wide)).transpose()?;
        let found = l.emit(Op::Addmm { mat1, mat2, bias, alpha: 1.0, beta: 1.0 })?;
        return l.cast(found, dtype);
    }
    let mut found = l.emit(Op::QuantizedMatmul {
        x,
        w: packed.words,
        scales: packed.scales,
        biases: packed.biases,
        group_size: packed.group,
        bits: packed.bits,
        mode: packed.mode.into(),
        transpose: true,
    })?;
    if let Some(factor) = packed.factor {
        found = l.emit(Op::Multiply { a: found, b: factor })?;
    }
    if let Some(bias) = bias {
        found = l.emit(Op::Add { a: found, b: bias })?;
    }
    l.cast(found, dtype)
}

/// Rows of a packed weight, unpacked.
pub(super) fn embedding(
    l: &mut Lowerer<'_>,
    weight: &Weight,
    indices: ValueId,
    dtype: DType,
) -> Lowered<ValueId> {
    let packed = packed_weight(l, weight, dtype)?;
    let take =
        |l: &mut Lowerer<'_>, x: ValueId| l.emit(Op::Take { x, index: IndexArg::Tensor(indices), axis: 0 });
    let (words, scales) = (take(l, packed.words)?, take(l, packed.scales)?);
    let biases = packed.biases.map(|biases| take(l, biases)).transpose()?;
    unpacked(l, &packed, [words, scales], biases, dtype)
}

fn inner_tensor(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let Arg::Weight(weight) = call.raw("src_subclass_tensor")? else {
        return Err(Refusal::because("a part of a weight that has none"));
    };
    let (weight, attribute) = (weight.clone(), call.text("attr", "")?);
    let part = weight.part(&attribute)?;
    let tensor = part.to_host().map_err(Refusal::Arguments)?;
    one(l.constant(&format!("{}.{attribute}", weight.name), tensor)?)
}

/// Numbers of integers by block. A matrix in groups of its rows is packed; any other shape is computed.
fn dequantize_affine(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, scale) = (call.tensor("input")?, call.tensor("scale")?);
    let zero = call.maybe_tensor("zero_point")?;
    let block = call.ints("block_size")?;
    let dtype = call.result_dtype(0)?;
    if let Some(packed) = affine_constant(l, call, &block)? {
        return one(unpacked(l, &packed, [packed.words, packed.scales], packed.biases, dtype)?);
    }
    let shape = l.known_shape(x)?.ok_or_else(|| Refusal::because("integers of unknown number"))?;
    if block.len() != shape.len() || block.contains(&0) {
        return Err(Refusal::because("blocks of another rank"));
    }
    // Each axis as blocks and what is in them; scales have one element a block.
    let (mut split, mut of_scale) = (Vec::new(), Vec::new());
    for (&size, &block) in shape.iter().zip(&block) {
        let block = if block < 0 { size as i64 } else { block };
        if size as i64 % block != 0 {
            return Err(Refusal::because("blocks that do not fit"));
        }
        split.extend([Int::Literal(size as i64 / block), Int::Literal(block)]);
        of_scale.extend([Int::Literal(size as i64 / block), Int::Literal(1)]);
    }
    let computed = l.dtype(scale)?;
    let x = l.cast(x, computed)?;
    let mut x = l.reshape(x, split)?;
    if let Some(zero) = zero {
        let zero = l.cast(zero, computed)?;
        let zero = l.reshape(zero, of_scale.clone())?;
        x = l.emit(Op::Subtract { a: x, b: zero })?;
    }
    let scale = l.reshape(scale, of_scale)?;
    let x = l.emit(Op::Multiply { a: x, b: scale })?;
    let whole = shape.iter().map(|&size| Int::Literal(size as i64)).collect();
    let x = l.reshape(x, whole)?;
    one(l.cast(x, dtype)?)
}

fn affine_constant(l: &mut Lowerer<'_>, call: &Call<'_>, block: &[i64]) -> Lowered<Option<Packed>> {
    let (x, scale) = (call.tensor("input")?, call.tensor("scale")?);
    let &[1, group] = block else { return Ok(None) };
    let (Ok(low), Ok(high)) = (call.float("quant_min", -128.0), call.float("quant_max", 127.0)) else {
        return Ok(None);
    };
    let bits = (high - low + 1.0).log2();
    if !matches!(call.raw("input_dtype"), Ok(Arg::Type(ScalarType::I8)))
        || ![2.0, 3.0, 4.0, 5.0, 6.0, 8.0].contains(&bits)
        || low != -(bits - 1.0).exp2()
    {
        return Ok(None);
    }
    let Some(name) = l.name_of(x).map(str::to_owned) else { return Ok(None) };
    let zero = match call.maybe_tensor("zero_point")? {
        Some(zero) => match l.data_of(zero).cloned() {
            Some(zero) => Some(zero),
            None => return Ok(None),
        },
        None => None,
    };
    let (Some(x), Some(scale)) = (l.data_of(x).cloned(), l.data_of(scale).cloned()) else { return Ok(None) };
    let &[rows, columns] = x.shape() else { return Ok(None) };
    let group = if group < 0 { columns as i64 } else { group };
    let exact =
        usize::try_from(group).is_ok_and(|group| group >= 16 && (columns * bits as usize).is_multiple_of(32));
    if !exact || !scale.dtype().is_float() {
        return Ok(None);
    }
    let matrix =
        Affine { name: &name, lead: vec![rows], columns, group, bits: bits as u32, dtype: scale.dtype() };
    matrix.pack(l, &x, &scale, zero.as_ref()).map(Some)
}
