//! MetalKernel nodes: the kernels that ExecuTorch's exporter writes are known by name, template arguments and
//! shapes, and computed by functions of ours. The source in the node is never looked at, let alone compiled; a
//! kernel that is not known is refused by its name.
//!
//! [`recognise`] works on symbolic types when a program is loaded and on known ones when it runs: what cannot be
//! told of a symbolic size is let through the first time and checked the second.

mod compute;
#[cfg(test)]
mod tests;

use super::{KernelError, Operands};
use pteron_ir::dim::Dim;
use pteron_ir::{Op, Ssa, Symbols, TensorType, Type, TypeSource, ValueId};
use pteron_tensor::quant::BlockFormat;
use pteron_tensor::{DType, HostTensor};

/// A kernel that we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownKernel {
    /// The recurrence of gated delta attention over all time steps.
    GatedDeltaStep,
    /// Length of every row.
    TqNorm,
    /// 4-bit codes by 15 boundaries.
    Tq4Compress,
    /// 4-bit codes to centroids, times the row's length.
    TqDequant,
    /// Product with GGUF weights, and a bias.
    GgufLinear(BlockFormat),
    /// Rows of GGUF weights.
    GgufEmbedding(BlockFormat),
}

use KnownKernel::{GatedDeltaStep, GgufEmbedding, GgufLinear, Tq4Compress, TqDequant, TqNorm};

/// Name, kernel, and names of the template arguments. Those that end in `T` are dtypes, the others integers;
/// NSG only says how the GPU cuts the work.
const KERNELS: [(&str, KnownKernel, &[&str]); 13] = [
    ("gated_delta_step", GatedDeltaStep, &["InT", "Dk", "Dv", "Hk", "Hv"]),
    ("tq_norm", TqNorm, &["InT", "D"]),
    ("tq4_compress", Tq4Compress, &["InT", "B"]),
    ("tq_dequant", TqDequant, &["InT", "D"]),
    ("gguf_q4k_matvec", GgufLinear(BlockFormat::Q4K), &["InT", "OutT", "N", "K", "NSG"]),
    ("gguf_q4k_matmul", GgufLinear(BlockFormat::Q4K), &["InT", "OutT", "N", "K"]),
    ("gguf_q4k_embedding", GgufEmbedding(BlockFormat::Q4K), &["OutT", "K", "V"]),
    ("gguf_q5k_matvec", GgufLinear(BlockFormat::Q5K), &["InT", "OutT", "N", "K", "NSG"]),
    ("gguf_q5k_matmul", GgufLinear(BlockFormat::Q5K), &["InT", "OutT", "N", "K"]),
    ("gguf_q5k_embedding", GgufEmbedding(BlockFormat::Q5K), &["OutT", "K"]),
    ("gguf_q6k_matvec", GgufLinear(BlockFormat::Q6K), &["InT", "N", "K", "NSG"]),
    ("gguf_q6k_matmul", GgufLinear(BlockFormat::Q6K), &["InT", "N", "K"]),
    ("gguf_q6k_embedding", GgufEmbedding(BlockFormat::Q6K), &["OutT", "K"]),
];

/// Computes a node.
pub(super) fn metal_kernel(
    operands: &Operands<'_>,
    op: &Op<Ssa>,
    inputs: &[ValueId],
) -> Result<Vec<HostTensor>, KernelError> {
    let inputs = inputs.iter().map(|&input| operands.tensor(input)).collect::<Result<Vec<_>, _>>()?;
    let input_types: Vec<_> = inputs.iter().map(|x| TensorType::known(x.dtype(), x.shape())).collect();
    let output_types: Vec<_> =
        operands.results.iter().map(|ty| TensorType::known(ty.dtype, &ty.shape)).collect();
    let kernel = recognise(op, &input_types, &output_types)
        .map_err(|reason| KernelError::Unsupported("this MetalKernel", reason))?;
    let results = &operands.results;
    Ok(match kernel {
        GatedDeltaStep => compute::gated_delta_step(&inputs, results)?,
        TqNorm => vec![compute::tq_norm(inputs[0], &results[0])?],
        Tq4Compress => vec![compute::tq4_compress(inputs[0], inputs[1], &results[0])?],
        TqDequant => vec![compute::tq_dequant(&inputs, &results[0])?],
        GgufLinear(format) => vec![compute::gguf_linear(format, &inputs, &results[0])?],
        GgufEmbedding(format) => vec![compute::gguf_embedding(format, inputs[0], inputs[1], &results[0])?],
    })
}

/// The kernel that a node stands for, by the types in a graph; otherwise why there is none.
pub fn recognise_in(op: &Op<Ssa>, types: &dyn TypeSource) -> Result<KnownKernel, String> {
    let Op::MetalKernel { inputs, .. } = op else { return Err("not a MetalKernel".into()) };
    let tensor = |ty: Option<&Type>| match ty {
        Some(Type::Tensor(tensor)) => Ok(tensor.clone()),
        _ => Err("an input is not a tensor".to_owned()),
    };
    let inputs = inputs.iter().map(|&input| tensor(types.type_of(input))).collect::<Result<Vec<_>, _>>()?;
    let outputs = pteron_ir::infer(op, types, &mut Symbols::default()).map_err(|error| error.to_string())?;
    let outputs = outputs.iter().map(|ty| tensor(Some(ty))).collect::<Result<Vec<_>, _>>()?;
    recognise(op, &inputs, &outputs)
}

/// The kernel that a node with operands of those types stands for; otherwise why there is none.
pub(crate) fn recognise(
    op: &Op<Ssa>,
    inputs: &[TensorType],
    outputs: &[TensorType],
) -> Result<KnownKernel, String> {
    let Op::MetalKernel { name, template_arg_names, template_arg_kinds, template_arg_values, .. } = op else {
        return Err("not a MetalKernel".into());
    };
    let Some((_, kernel, names)) = KERNELS.iter().find(|known| known.0 == name) else {
        return Err(format!("Metal kernel `{name}` is not a known one, and its source is never run"));
    };
    let template = Template::new(
        names,
        template_arg_names.as_deref().unwrap_or_default(),
        template_arg_kinds.as_deref().unwrap_or_default(),
        template_arg_values.as_deref().unwrap_or_default(),
    );
    let fits = template.and_then(|template| match kernel {
        GatedDeltaStep => gated_delta_step(&template, inputs, outputs),
        TqNorm => tq_norm(&template, inputs, outputs),
        Tq4Compress => tq4_compress(&template, inputs, outputs),
        TqDequant => tq_dequant(&template, inputs, outputs),
        GgufLinear(format) => gguf_linear(*format, &template, inputs, outputs),
        GgufEmbedding(format) => gguf_embedding(*format, &template, inputs, outputs),
    });
    fits.map(|()| *kernel).map_err(|reason| format!("Metal kernel `{name}` is known, but not with {reason}"))
}

type Fits = Result<(), String>;

fn gated_delta_step(template: &Template<'_>, inputs: &[TensorType], outputs: &[TensorType]) -> Fits {
    let ([q, k, v, g, beta, state, steps], [y, new_state]) = (inputs, outputs) else {
        return operand_count();
    };
    let [dk, dv, hk, hv] = ["Dk", "Dv", "Hk", "Hv"].map(|name| template.int(name));
    // The source gives each of 32 lanes Dk / 32 features, and each key head Hv / Hk value heads.
    if dk <= 0 || dk % 32 != 0 || hk <= 0 || hv % hk != 0 {
        return Err(format!("Dk = {dk}, Hk = {hk}, Hv = {hv}"));
    }
    all_floats(&[q, k, v, g, beta, state])?;
    dtype("T", steps, DType::I32)?;
    dtype("y", y, template.dtype("InT")?)?;
    dtype("state_out", new_state, template.dtype("InT")?)?;
    let [b, t, ..] = q.shape.as_slice() else { return Err("q of that rank".into()) };
    let size = |value: i64| Dim::known(value);
    let (dk, dv, hk, hv) = (&size(dk), &size(dv), &size(hk), &size(hv));
    shape("q", q, &[b, t, hk, dk])?;
    shape("k", k, &[b, t, hk, dk])?;
    shape("v", v, &[b, t, hv, dv])?;
    shape("g", g, &[b, t, hv])?;
    shape("beta", beta, &[b, t, hv])?;
    shape("state_in", state, &[b, hv, dv, dk])?;
    shape("T", steps, &[])?;
    shape("y", y, &[b, t, hv, dv])?;
    shape("state_out", new_state, &[b, hv, dv, dk])
}

fn tq_norm(template: &Template<'_>, inputs: &[TensorType], outputs: &[TensorType]) -> Fits {
    let ([x], [norms]) = (inputs, outputs) else { return operand_count() };
    let features = template.multiple_of("D", 32)?;
    dtype("x", x, template.dtype("InT")?)?;
    dtype("norms", norms, template.dtype("InT")?)?;
    let lead = lead("x", x)?;
    rows("x", x, lead, &features)?;
    rows("norms", norms, lead, &Dim::known(1))
}

fn tq4_compress(template: &Template<'_>, inputs: &[TensorType], outputs: &[TensorType]) -> Fits {
    let ([values, boundaries], [out]) = (inputs, outputs) else { return operand_count() };
    if template.int("B") != 15 {
        return Err(format!("B = {}", template.int("B")));
    }
    dtype("values", values, template.dtype("InT")?)?;
    all_floats(&[values, boundaries])?;
    dtype("out", out, DType::U8)?;
    shape("boundaries", boundaries, &[&Dim::known(15)])?;
    let lead = lead("values", values)?;
    let features = out.shape.last().and_then(|half| half.scale(2));
    rows("values", values, lead, &features.ok_or("out of that rank")?)?;
    rows("out", out, lead, &out.shape[out.shape.len() - 1])
}

fn tq_dequant(template: &Template<'_>, inputs: &[TensorType], outputs: &[TensorType]) -> Fits {
    let ([packed, norms, centroids], [out]) = (inputs, outputs) else { return operand_count() };
    let features = template.multiple_of("D", 64)?;
    dtype("packed", packed, DType::U8)?;
    dtype("norms", norms, template.dtype("InT")?)?;
    dtype("out", out, template.dtype("InT")?)?;
    all_floats(&[norms, centroids])?;
    shape("centroids", centroids, &[&Dim::known(16)])?;
    let lead = lead("packed", packed)?;
    rows("packed", packed, lead, &features.divide_exactly(2).ok_or("an odd D")?)?;
    rows("norms", norms, lead, &Dim::known(1))?;
    rows("out", out, lead, &features)
}

fn gguf_linear(
    format: BlockFormat,
    template: &Template<'_>,
    inputs: &[TensorType],
    outputs: &[TensorType],
) -> Fits {
    let ([x, weight, bias @ ..], [out]) = (inputs, outputs) else { return operand_count() };
    if bias.len() > 1 {
        return operand_count();
    }
    let (columns, inner) = (Dim::known(template.int("N")), Dim::known(template.int("K")));
    dtype("x", x, template.dtype("InT")?)?;
    // Q6_K's kernels have one dtype for both.
    dtype("out", out, template.dtype("OutT").or_else(|_| template.dtype("InT"))?)?;
    all_floats(&[x, out])?;
    gguf_weight(format, weight, &columns, template.int("K"))?;
    if let [bias] = bias {
        all_floats(&[bias])?;
        shape("bias", bias, &[&columns])?;
    }
    let lead = lead("x", x)?;
    rows("x", x, lead, &inner)?;
    rows("out", out, lead, &columns)
}

fn gguf_embedding(
    format: BlockFormat,
    template: &Template<'_>,
    inputs: &[TensorType],
    outputs: &[TensorType],
) -> Fits {
    let ([weight, indices], [out]) = (inputs, outputs) else { return operand_count() };
    dtype("out", out, template.dtype("OutT")?)?;
    all_floats(&[out])?;
    if !indices.dtype.is_int() {
        return Err(format!("indices of {}", indices.dtype));
    }
    let vocabulary = weight.shape.first().ok_or("weight of that rank")?;
    if template.has("V") {
        same("weight", vocabulary, &Dim::known(template.int("V")))?;
    }
    gguf_weight(format, weight, vocabulary, template.int("K"))?;
    rows("out", out, &indices.shape, &Dim::known(template.int("K")))
}

fn gguf_weight(format: BlockFormat, weight: &TensorType, count: &Dim, features: i64) -> Fits {
    dtype("weight", weight, DType::U8)?;
    let bytes = usize::try_from(features).ok().and_then(|features| format.row_bytes(features).ok());
    let bytes = bytes.ok_or_else(|| format!("K = {features}"))?;
    shape("weight", weight, &[count, &Dim::known(bytes as i64)])
}

/// Template arguments whose names are known to be right.
struct Template<'a> {
    names: &'static [&'static str],
    values: &'a [i32],
}

impl Template<'_> {
    fn new<'a>(
        names: &'static [&'static str],
        got: &[String],
        kinds: &[i8],
        values: &'a [i32],
    ) -> Result<Template<'a>, String> {
        // Kind 0 is an integer, 2 a dtype.
        let kind = |name: &str| if name.ends_with('T') { 2 } else { 0 };
        let kinds_fit = names.iter().map(|name| kind(name)).eq(kinds.iter().copied());
        if names != got || !kinds_fit || values.len() != names.len() {
            return Err(format!("template arguments {got:?} of kinds {kinds:?}"));
        }
        Ok(Template { names, values })
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// An integer; every name that is asked for stands in the table.
    fn int(&self, name: &str) -> i64 {
        let at = self.names.iter().position(|known| *known == name);
        at.map_or(-1, |at| self.values[at].into())
    }

    fn multiple_of(&self, name: &str, factor: i64) -> Result<Dim, String> {
        match self.int(name) {
            value if value > 0 && value % factor == 0 => Ok(Dim::known(value)),
            value => Err(format!("{name} = {value}, which is no multiple of {factor}")),
        }
    }

    fn dtype(&self, name: &str) -> Result<DType, String> {
        let code = i8::try_from(self.int(name)).ok();
        let dtype = code.and_then(DType::from_code).filter(|_| self.has(name));
        dtype.filter(|dtype| dtype.is_float()).ok_or_else(|| format!("{name} = {}", self.int(name)))
    }
}

fn operand_count() -> Fits {
    Err("that number of inputs or outputs".into())
}

fn all_floats(tensors: &[&TensorType]) -> Fits {
    match tensors.iter().find(|ty| !ty.dtype.is_float()) {
        Some(ty) => Err(format!("{} where floats are needed", ty.dtype)),
        None => Ok(()),
    }
}

fn dtype(what: &str, ty: &TensorType, want: DType) -> Fits {
    if ty.dtype == want { Ok(()) } else { Err(format!("{what} of {} instead of {want}", ty.dtype)) }
}

/// Refuses sizes that are known to differ.
fn same(what: &str, got: &Dim, want: &Dim) -> Fits {
    match (got.as_known(), want.as_known()) {
        (Some(got), Some(want)) if got != want => Err(format!("a size {got} of {what} instead of {want}")),
        _ => Ok(()),
    }
}

fn shape(what: &str, ty: &TensorType, want: &[&Dim]) -> Fits {
    if ty.shape.len() != want.len() {
        return Err(format!("rank {} of {what} instead of {}", ty.shape.len(), want.len()));
    }
    ty.shape.iter().zip(want).try_for_each(|(got, want)| same(what, got, want))
}

/// All axes but the last.
fn lead<'a>(what: &str, ty: &'a TensorType) -> Result<&'a [Dim], String> {
    ty.shape.split_last().map(|(_, lead)| lead).ok_or_else(|| format!("{what} of rank 0"))
}

/// Rows of `last` elements, as many as `lead` says.
fn rows(what: &str, ty: &TensorType, lead: &[Dim], last: &Dim) -> Fits {
    let want: Vec<&Dim> = lead.iter().chain([last]).collect();
    shape(what, ty, &want)
}
