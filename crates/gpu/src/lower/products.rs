//! Products of few rows with packed rows, several at once, with what stands before and behind them.

use super::Lowering;
use super::linear::FEW_ROWS;
use crate::dispatch::View;
use crate::kernel::{Gemv, Kernel, Packed, per_word};
use pteron_plan::Access;
use pteron_tensor::DType;

/// Packed rows up to which a group takes two of them: more groups are under way then.
const SMALL_ROWS: usize = 4096;

/// Numbers of a packed row from which on a group takes more of them all the same: its threads have enough to do.
const LONG_ROWS: usize = 4096;

/// Rows of activations up to which packed rows are read once for a few of them: tiles are for more.
const MOST_ROWS: usize = 32;

/// What is multiplied by what.
#[derive(Clone)]
pub(crate) struct Products {
    /// By matrix; of a gate, the one result.
    pub(crate) outs: Vec<View>,
    pub(crate) x: View,
    /// Words, scales and biases.
    pub(crate) packed: Vec<[View; 3]>,
    pub(crate) bits: u32,
    pub(crate) group: u32,
    /// The activation of the first of two products that the second multiplies.
    pub(crate) gate: Option<&'static str>,
    /// What is added.
    pub(crate) residual: Option<View>,
    /// Weight and epsilon of a norm of `x`.
    pub(crate) norm: Option<(View, f32)>,
}

impl Products {
    /// Of `x`, with nothing yet.
    pub(crate) fn new(x: View) -> Products {
        Products {
            outs: Vec::new(),
            x,
            packed: Vec::new(),
            bits: 0,
            group: 0,
            gate: None,
            residual: None,
            norm: None,
        }
    }

    /// Rows and inner size of `x`.
    fn rows(&self) -> (usize, usize) {
        let inner = self.x.sizes().last().copied().unwrap_or(1).max(1);
        (self.x.layout.len() / inner, inner)
    }

    /// Rows that are better than tiles; without subgroups, sums of more rows would not fit into what a group shares.
    fn most_rows(&self, on: &Lowering) -> usize {
        if on.features.subgroups { MOST_ROWS } else { FEW_ROWS }
    }

    /// Whether one dispatch can compute it.
    pub(crate) fn fits(&self, on: &Lowering) -> bool {
        let (rows, inner) = self.rows();
        let floats = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let parts =
            3 * self.packed.len() + usize::from(self.residual.is_some()) + usize::from(self.norm.is_some());
        let columns_fit = |[w, ..]: &[View; 3]| {
            let columns = w.sizes().first().copied().unwrap_or(0);
            let per = self.outs.first().map_or(2, |out| per_word(out.dtype) as usize);
            columns > 0 && columns.is_multiple_of(per)
        };
        let packed_fits = self.packed.iter().all(|parts| {
            let [w, scales, biases] = parts;
            w.layout.rank() == 2
                && Lowering::is_vectored(w)
                && scales.is_plain()
                && biases.is_plain()
                && columns_fit(parts)
        });
        matches!(self.bits, 4 | 8)
            && (1..=self.most_rows(on)).contains(&rows)
            && inner.is_multiple_of(self.group.max(32) as usize)
            && floats(self.x.dtype)
            && Lowering::is_vectored(&self.x)
            && self.outs.iter().all(|out| floats(out.dtype) && out.is_plain())
            && packed_fits
            && self.residual.is_none_or(|view| floats(view.dtype) && view.is_plain())
            && self.norm.is_none_or(|(weight, _)| floats(weight.dtype) && Lowering::is_vectored(&weight))
            && 3 + parts <= on.features.max_bindings as usize
            // Results share a binding.
            && (self.packed.len() == 1 || !on.windowed)
    }
}

/// Emits products as one dispatch; false where that cannot be, and nothing is emitted.
pub(crate) fn gemv(on: &mut Lowering, products: Products) -> bool {
    if !products.fits(on) {
        return false;
    }
    let Products { outs, x, packed, bits, group, gate, residual, norm } = &products;
    let Some(&out) = outs.first() else { return false };
    let (rows, inner) = products.rows();
    let chunks = inner / Gemv::chunk(*bits) as usize;
    let all: usize = packed.iter().map(|[w, ..]| w.sizes()[0]).sum();
    let each = if all <= SMALL_ROWS && inner < LONG_ROWS { 2 } else { 4 };
    let threads = match chunks {
        0..=32 => 32,
        33..=64 => 64,
        _ => 128,
    };
    let x_vectors = inner * x.dtype.size() / 16;
    let mut params = vec![
        inner as u32,
        on.first_word(x) / 4,
        x_vectors as u32,
        chunks as u32,
        (inner / *group as usize) as u32,
        residual.map_or(0, |view| on.first(&view)),
        norm.map_or(0, |(weight, _)| on.first_word(&weight) / 4),
        norm.map_or(0, |(_, eps)| eps.to_bits()),
        rows as u32,
        outs.first().and_then(|out| out.sizes().last()).map_or(0, |&columns| columns as u32),
    ];
    let mut blocks = 0;
    for (number, [w, scales, biases]) in packed.iter().enumerate() {
        let columns = w.sizes()[0];
        if gate.is_none() || number == 0 {
            blocks += columns.div_ceil(each as usize);
        }
        let out = outs.get(number).unwrap_or(&out);
        params.extend([
            blocks as u32,
            columns as u32,
            on.first_word(out),
            on.first_word(w) / 4,
            on.first(scales),
            on.first(biases),
            columns as u32,
        ]);
    }
    let mut operands = vec![out, *x];
    operands.extend(residual);
    operands.extend(norm.map(|(weight, _)| weight));
    operands.extend(packed.iter().flatten());
    let access = Access {
        reads: operands[1..].iter().map(|view| view.storage).collect(),
        writes: outs.iter().map(|view| view.storage).collect(),
        has_effect: false,
    };
    let dtype = packed[0][1].dtype;
    let mut kernel = Gemv {
        left: x.dtype,
        right: Packed { bits: *bits, group: *group, dtype },
        out: out.dtype,
        matrices: packed.len() as u32,
        rows: each,
        lanes: 1,
        threads,
        gate: *gate,
        residual: residual.map(|view| view.dtype),
        norm: norm.map(|(weight, _)| weight.dtype),
        subgroups: on.features.subgroups,
        int8: on.features.dots,
    };
    // Up to a few rows, more groups at once gain more than taking packed rows apart once does.
    if rows > FEW_ROWS {
        kernel.lanes = 4;
        if kernel.shared_bytes() > on.features.shared_bytes {
            kernel.lanes = 2;
        }
    }
    let groups = blocks * rows.div_ceil(kernel.lanes as usize);
    on.emit_over(Kernel::Gemv(kernel), &operands, access, params, groups);
    on.product = Some((on.dispatches.len(), products));
    true
}
