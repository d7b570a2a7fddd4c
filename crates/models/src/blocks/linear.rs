//! Matrices: plain or packed, as the source holds them and the options ask, and their two uses: products, and rows by
//! token. A tied head is the same matrix used twice, so that it is stored once.

use pteron_ir::{Op, TensorType, ValueId};
use pteron_tensor::quant::Scheme;

use crate::weights::Recipe;
use crate::{ModelError, Net, Part, Wanted};

/// A weight matrix `[out, in]` in the graph, or several of them.
#[derive(Clone, Copy, Debug)]
pub struct Matrix(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Dense(ValueId),
    Packed {
        codes: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        factor: Option<ValueId>,
        scheme: Scheme,
    },
}

/// The matrix of that name, `rows` outputs by `columns` inputs.
pub fn matrix(net: &mut Net, name: &str, rows: usize, columns: usize) -> Result<Matrix, ModelError> {
    matrices(net, name, &[], rows, columns)
}

/// So many matrices of that name, one behind another: experts.
pub fn stacked(
    net: &mut Net,
    name: &str,
    count: usize,
    rows: usize,
    columns: usize,
) -> Result<Matrix, ModelError> {
    matrices(net, name, &[count], rows, columns)
}

/// A matrix, or as many as the leading sizes say. Sources know them as one matrix of all their rows.
fn matrices(
    net: &mut Net,
    name: &str,
    lead: &[usize],
    each: usize,
    columns: usize,
) -> Result<Matrix, ModelError> {
    let rows = lead.iter().product::<usize>() * each;
    let shape = [rows, columns];
    let cut = |sizes: &[usize]| match sizes {
        [_, behind @ ..] => lead.iter().chain([&each]).chain(behind).copied().collect(),
        [] => Vec::new(),
    };
    let form = net.source().form(Wanted::new(name, &shape))?;
    let plan = net.options().quantization.plan(name, form, columns, net.activations());
    let plan = plan.map_err(|source| ModelError::Packing { name: name.to_owned(), source })?;
    let Some(plan) = plan else {
        let dtype = net.activations();
        return Ok(Matrix(Kind::Dense(net.floats_as(name, &shape, &cut(&shape), dtype)?)));
    };
    let packing = plan.packing;
    let stem = name.strip_suffix(".weight").unwrap_or(name);
    let mut part = |part: Part, suffix: &str| {
        let (dtype, sizes) = packing.part(rows, columns, part)?;
        let recipe = || Recipe::Packed { name: name.to_owned(), shape, plan, part };
        Some(net.constant(&format!("{stem}.{suffix}"), TensorType::known(dtype, &cut(&sizes)), recipe))
    };
    let missing = || ModelError::configuration(format!("{name}: a packing without codes or scales"));
    let codes = part(Part::Codes, "weight").ok_or_else(missing)?;
    let scales = part(Part::Scales, "scales").ok_or_else(missing)?;
    let factor = part(Part::TensorScale, "tensor_scale");
    let mut biases = part(Part::Biases, "biases");
    if packing.is_centred() {
        let sizes = cut(&[rows, columns / packing.scheme().group()]);
        let ty = TensorType::known(packing.scale_dtype(), &sizes);
        let (of, to) = (format!("{stem}.scales"), format!("{stem}.biases"));
        biases = Some(net.derived(&to, &of, ty, -packing.half()));
    }
    Ok(Matrix(Kind::Packed { codes, scales, biases, factor, scheme: packing.scheme() }))
}

/// A bias of that name.
pub fn bias(net: &mut Net, name: &str, size: usize) -> Result<ValueId, ModelError> {
    let dtype = net.activations();
    net.floats(name, &[size], dtype, 0.0)
}

/// `x` times the transposed matrix, plus a bias where there is one, in the activations' dtype.
pub fn linear(
    net: &mut Net,
    x: ValueId,
    matrix: Matrix,
    bias: Option<ValueId>,
) -> Result<ValueId, ModelError> {
    let y = product(net, x, matrix, bias)?;
    let dtype = net.activations();
    net.cast(y, dtype)
}

/// The same in the dtype that the product has by itself: scales of another dtype than the input's widen it.
pub fn product(
    net: &mut Net,
    x: ValueId,
    matrix: Matrix,
    bias: Option<ValueId>,
) -> Result<ValueId, ModelError> {
    match matrix.0 {
        Kind::Dense(w) => {
            let mat2 = net.op(Op::Transpose { x: w, perm: vec![1, 0] })?;
            net.op(Op::Addmm { mat1: x, mat2, bias, alpha: 1.0, beta: 1.0 })
        }
        Kind::Packed { codes, scales, biases, factor, scheme } => {
            let mut y = net.op(Op::QuantizedMatmul {
                x,
                w: codes,
                scales,
                biases,
                group_size: scheme.group() as i32,
                bits: scheme.bits() as i32,
                mode: scheme.mode().name().to_owned(),
                transpose: true,
            })?;
            if let Some(factor) = factor {
                y = net.multiply(y, factor)?;
            }
            match bias {
                Some(bias) => net.add(y, bias),
                None => Ok(y),
            }
        }
    }
}

/// The product with a weight of the graph that is not packed, `[out, in]`.
pub(crate) fn product_of(
    net: &mut Net,
    x: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
) -> Result<ValueId, ModelError> {
    linear(net, x, Matrix(Kind::Dense(weight)), bias)
}

/// Products with matrices that are picked by number: rows `[.., 1, columns]` and picks that go together with what stands
/// before them, in the activations' dtype.
pub fn picked(net: &mut Net, x: ValueId, matrices: Matrix, picks: ValueId) -> Result<ValueId, ModelError> {
    let (lhs_indices, rhs_indices) = (None, Some(picks));
    let y = match matrices.0 {
        Kind::Dense(w) => {
            let b = net.op(Op::Transpose { x: w, perm: vec![0, 2, 1] })?;
            net.op(Op::GatherMm {
                a: x,
                b,
                lhs_indices,
                rhs_indices,
                sorted_indices: false,
                sorted_indices_flag: None,
            })?
        }
        Kind::Packed { codes, scales, biases, factor, scheme } => {
            let y = net.op(Op::GatherQmm {
                x,
                w: codes,
                scales,
                mode: scheme.mode().name().to_owned(),
                biases,
                lhs_indices,
                rhs_indices,
                transpose: true,
                group_size: scheme.group() as i32,
                bits: scheme.bits() as i32,
                sorted_indices: false,
                sorted_indices_flag: None,
            })?;
            match factor {
                Some(factor) => net.multiply(y, factor)?,
                None => y,
            }
        }
    };
    let dtype = net.activations();
    net.cast(y, dtype)
}

/// The rows of the tokens, in the activations' dtype.
pub fn embed(net: &mut Net, matrix: Matrix, tokens: ValueId) -> Result<ValueId, ModelError> {
    match matrix.0 {
        Kind::Dense(w) => net.rows(w, tokens),
        Kind::Packed { codes, scales, biases, factor, scheme } => {
            let w = net.rows(codes, tokens)?;
            let scales = net.rows(scales, tokens)?;
            let biases = biases.map(|biases| net.rows(biases, tokens)).transpose()?;
            let dtype = net.activations();
            let rows = net.op(Op::Dequantize {
                w,
                scales,
                biases,
                group_size: scheme.group() as i32,
                bits: scheme.bits() as i32,
                mode: scheme.mode().name().to_owned(),
                global_scale: None,
                dtype: Some(dtype),
            })?;
            match factor {
                Some(factor) => net.multiply(rows, factor),
                None => Ok(rows),
            }
        }
    }
}

/// The product with a module's matrix, and its bias where it has one.
pub fn projected(
    net: &mut Net,
    x: ValueId,
    module: &str,
    rows: usize,
    columns: usize,
    has_bias: bool,
) -> Result<ValueId, ModelError> {
    let weight = matrix(net, &format!("{module}.weight"), rows, columns)?;
    let bias = match has_bias {
        true => Some(bias(net, &format!("{module}.bias"), rows)?),
        false => None,
    };
    linear(net, x, weight, bias)
}

/// The product with a module's matrix in the activations' dtype, whatever other matrices are packed in, and its bias.
pub fn unpacked(
    net: &mut Net,
    x: ValueId,
    module: &str,
    rows: usize,
    columns: usize,
    has_bias: bool,
) -> Result<ValueId, ModelError> {
    let dtype = net.activations();
    let weight = net.floats(&format!("{module}.weight"), &[rows, columns], dtype, 0.0)?;
    let bias = match has_bias {
        true => Some(bias(net, &format!("{module}.bias"), rows)?),
        false => None,
    };
    linear(net, x, Matrix(Kind::Dense(weight)), bias)
}
