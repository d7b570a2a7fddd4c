//! Metal kernels of ours for the kernels that exporters write: the simplest that read memory once. A thread has an
//! element, a row or a state of its own; a product has a SIMD group.

use super::Operands;
use super::index::checked_from_front;
use super::kernels::check_steps;
use crate::calls::Call;
use crate::error::{MlxError, invalid};
use crate::ffi::{Array, Attributes};
use crate::values::ArrayType;
use pteron_ir::ValueId;
use pteron_runtime::reference::KnownKernel;
use pteron_tensor::DType;
use pteron_tensor::quant::BlockFormat;

const GATED_DELTA_STEP: &str = "
    uint d = thread_position_in_grid.x, h = thread_position_in_grid.y, b = thread_position_in_grid.z;
    uint steps = q_shape[1];
    uint row = ((b * Hv + h) * Dv + d) * Dk;
    float s[Dk];
    for (uint i = 0; i < Dk; ++i) s[i] = float(state_in[row + i]);
    for (uint t = 0; t < steps; ++t) {
        uint key = ((b * steps + t) * Hk + h * Hk / Hv) * Dk;
        uint gate = (b * steps + t) * Hv + h;
        float fade = float(g[gate]), memory = 0, sum = 0;
        for (uint i = 0; i < Dk; ++i) { s[i] *= fade; memory += s[i] * float(k[key + i]); }
        float delta = (float(v[gate * Dv + d]) - memory) * float(beta[gate]);
        for (uint i = 0; i < Dk; ++i) { s[i] += delta * float(k[key + i]); sum += s[i] * float(q[key + i]); }
        y[gate * Dv + d] = static_cast<OutT>(sum);
    }
    for (uint i = 0; i < Dk; ++i) state_out[row + i] = static_cast<OutT>(s[i]);
";

const TQ_NORM: &str = "
    uint row = thread_position_in_grid.x;
    float sum = 0;
    for (uint i = 0; i < D; ++i) { float value = float(x[row * D + i]); sum += value * value; }
    norms[row] = static_cast<OutT>(metal::precise::sqrt(sum));
";

const TQ4_COMPRESS: &str = "
    uint at = thread_position_in_grid.x;
    uint high = 0, low = 0;
    for (uint i = 0; i < B; ++i) {
        float boundary = float(boundaries[i]);
        high += float(values[2 * at]) > boundary;
        low += float(values[2 * at + 1]) > boundary;
    }
    out[at] = static_cast<OutT>(high << 4 | low);
";

const TQ_DEQUANT: &str = "
    uint at = thread_position_in_grid.x;
    uint code = at % 2 == 0 ? packed[at / 2] >> 4 : packed[at / 2] & 15;
    out[at] = static_cast<OutT>(float(static_cast<OutT>(centroids[code])) * float(norms[at / D]));
";

const GGUF_LINEAR: &str = "
    uint lane = thread_index_in_simdgroup, n = thread_position_in_grid.y, m = thread_position_in_grid.z;
    const device uchar* row = weight + size_t(n) * (K / 256 * Bytes);
    float sum = 0;
    for (uint i = lane; i < K; i += 32) sum += float(x[size_t(m) * K + i]) * element(row + i / 256 * Bytes, i % 256);
    sum = simd_sum(sum);
    if (lane == 0) out[size_t(m) * N + n] = static_cast<OutT>(sum BIAS);
";

const GGUF_EMBEDDING: &str = "
    uint i = thread_position_in_grid.x, at = thread_position_in_grid.y;
    const device uchar* row = weight + size_t(indices[at]) * (K / 256 * Bytes);
    out[size_t(at) * K + i] = static_cast<OutT>(element(row + i / 256 * Bytes, i % 256));
";

/// One value of a block. The first 16 bytes of Q4_K and Q5_K are two halves and twelve bytes of 6-bit numbers.
const Q45_K: &str = "
    inline float element(const device uchar* block, uint i) {
        const device uchar* packed = block + 4;
        uint group = i / 32, scale, least;
        if (group < 4) {
            scale = packed[group] & 63;
            least = packed[group + 4] & 63;
        } else {
            scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4);
            least = (packed[group + 4] >> 4) | (packed[group] >> 6 << 4);
        }
        uchar nibbles = block[CODES + group / 2 * 32 + i % 32];
        uint code = group % 2 == 0 ? nibbles & 15 : nibbles >> 4;
        FIFTH
        float d = float(as_type<half>(ushort(block[0] | block[1] << 8)));
        float m = float(as_type<half>(ushort(block[2] | block[3] << 8)));
        return d * float(scale) * float(code) - m * float(least);
    }
";

const Q6_K: &str = "
    inline float element(const device uchar* block, uint i) {
        uint part = i / 128, row = i % 128 / 32, column = i % 32;
        uchar low = block[part * 64 + row % 2 * 32 + column];
        uint code = row < 2 ? low & 15 : low >> 4;
        code |= (block[128 + part * 32 + column] >> (2 * row) & 3) << 4;
        float d = float(as_type<half>(ushort(block[208] | block[209] << 8)));
        return d * float(char(block[192 + i / 16])) * (float(code) - 32.0f);
    }
";

/// One launch of a kernel.
struct Launch<'a> {
    name: &'a str,
    header: &'a str,
    source: &'a str,
    inputs: &'a str,
    outputs: &'a str,
    /// Names and values of template arguments; the first is the dtype of the results.
    template: &'a [(&'a str, i64)],
    grid: [usize; 3],
    group: [usize; 3],
}

impl Launch<'_> {
    fn run(&self, on: &Operands<'_>, arrays: &[&Array]) -> Result<Vec<Array>, MlxError> {
        let mut ints: Vec<i64> = self.grid.iter().chain(&self.group).map(|&size| size as i64).collect();
        ints.push(on.results.len() as i64);
        for ArrayType { dtype, shape } in on.results {
            ints.extend([i64::from(dtype.code()), shape.len() as i64]);
            ints.extend(shape.iter().map(|&size| size as i64));
        }
        ints.push(on.out().dtype.code().into());
        ints.extend(self.template.iter().map(|argument| argument.1));
        let names: Vec<&str> =
            std::iter::once("OutT").chain(self.template.iter().map(|argument| argument.0)).collect();
        let fields = [self.name, self.header, self.source, self.inputs, self.outputs, &names.join(",")];
        let arrays: Vec<Option<&Array>> = arrays.iter().copied().map(Some).collect();
        let attributes = Attributes { ints: &ints, text: &fields.join("\x1f"), ..Attributes::default() };
        on.mlx.many(Call::MetalKernel, &arrays, attributes, on.results.len())
    }
}

/// Computes a known kernel on Metal.
pub(super) fn run(
    on: &mut Operands<'_>,
    kernel: KnownKernel,
    inputs: &[ValueId],
) -> Result<Vec<Array>, MlxError> {
    let arrays = inputs.iter().map(|&input| on.array(input)).collect::<Result<Vec<_>, _>>()?;
    let elements = on.out().count();
    let plain = |name, source, inputs, outputs| Launch {
        name,
        header: "",
        source,
        inputs,
        outputs,
        template: &[],
        grid: [elements, 1, 1],
        group: [elements.clamp(1, 256), 1, 1],
    };
    let size = |value: ValueId, axis: usize| -> Result<i64, MlxError> {
        Ok(on.ty(value)?.shape.get(axis).copied().unwrap_or(1) as i64)
    };
    let last = |value: ValueId| -> Result<i64, MlxError> {
        Ok(on.ty(value)?.shape.last().copied().unwrap_or(1) as i64)
    };
    match (kernel, inputs) {
        (KnownKernel::GatedDeltaStep, &[q, _, v, .., steps]) => {
            let template =
                [("Hk", size(q, 2)?), ("Dk", size(q, 3)?), ("Hv", size(v, 2)?), ("Dv", size(v, 3)?)];
            let (batches, count) = (on.ty(q)?.shape[0], on.ty(q)?.shape[1]);
            let grid = [template[3].1 as usize, template[2].1 as usize, batches];
            check_steps(on, steps, count)?;
            let launch = Launch {
                template: &template,
                grid,
                group: [grid[0].clamp(1, 64), 1, 1],
                ..plain("pteron_gated_delta_step", GATED_DELTA_STEP, "q,k,v,g,beta,state_in", "y,state_out")
            };
            launch.run(on, &arrays[..6])
        }
        (KnownKernel::TqNorm, &[x]) => {
            let template = [("D", last(x)?)];
            Launch { template: &template, ..plain("pteron_tq_norm", TQ_NORM, "x", "norms") }.run(on, &arrays)
        }
        (KnownKernel::Tq4Compress, &[_, boundaries]) => {
            let template = [("B", last(boundaries)?)];
            let launch = plain("pteron_tq4_compress", TQ4_COMPRESS, "values,boundaries", "out");
            Launch { template: &template, ..launch }.run(on, &arrays)
        }
        (KnownKernel::TqDequant, _) => {
            let template = [("D", on.out().shape.last().copied().unwrap_or(1) as i64)];
            let launch = plain("pteron_tq_dequant", TQ_DEQUANT, "packed,norms,centroids", "out");
            Launch { template: &template, ..launch }.run(on, &arrays)
        }
        (KnownKernel::GgufLinear(format), &[x, weight, ref bias @ ..]) => {
            let (columns, inner) = (size(weight, 0)?, last(x)?);
            let template = [("N", columns), ("K", inner), ("Bytes", format.block_bytes() as i64)];
            let source = GGUF_LINEAR.replace("BIAS", if bias.is_empty() { "" } else { "+ float(bias[n])" });
            let names = if bias.is_empty() { "x,weight" } else { "x,weight,bias" };
            let name = format!("pteron_gguf_linear_{format:?}_{}", bias.len());
            let launch = Launch {
                header: &element(format)?,
                template: &template,
                grid: [32, columns as usize, elements / (columns.max(1) as usize)],
                group: [32, 1, 1],
                ..plain(&name, &source, names, "out")
            };
            launch.run(on, &arrays)
        }
        (KnownKernel::GgufEmbedding(format), &[weight, indices]) => {
            let inner = on.out().shape.last().copied().unwrap_or(1);
            let rows = size(weight, 0)? as usize;
            let template = [("K", inner as i64), ("Bytes", format.block_bytes() as i64)];
            let picks = checked_from_front(on, indices, rows)?;
            let name = format!("pteron_gguf_embedding_{format:?}");
            let launch = Launch {
                header: &element(format)?,
                template: &template,
                grid: [inner, elements / inner.max(1), 1],
                group: [inner.clamp(1, 256), 1, 1],
                ..plain(&name, GGUF_EMBEDDING, "weight,indices", "out")
            };
            launch.run(on, &[arrays[0], &on.cast(&picks, DType::I32)?])
        }
        _ => invalid("operands of other numbers than were recognised"),
    }
}

/// The function that reads one value of a block.
fn element(format: BlockFormat) -> Result<String, MlxError> {
    Ok(match format {
        BlockFormat::Q4K => Q45_K.replace("CODES", "16").replace("FIFTH", ""),
        BlockFormat::Q5K => {
            Q45_K.replace("CODES", "48").replace("FIFTH", "code |= (block[16 + i % 32] >> group & 1) << 4;")
        }
        BlockFormat::Q6K => Q6_K.to_owned(),
        format => return invalid(format!("no known kernel reads blocks of {format:?}")),
    })
}
