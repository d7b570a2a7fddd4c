//! Products of few rows with packed rows, several at once, with what stands before and behind them.

use super::Lowering;
use super::linear::{FEW_ROWS, PackedRows};
use crate::dispatch::View;
use crate::kernel::{Gemv, Kernel, per_word};
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
    /// Of one form.
    pub(crate) packed: Vec<PackedRows>,
    /// The activation of the first of two products that the second multiplies.
    pub(crate) gate: Option<&'static str>,
    /// What is added.
    pub(crate) residual: Option<View>,
    /// Weight and epsilon of a norm of `x`.
    pub(crate) norm: Option<(View, f32)>,
    /// Which matrix of a stack each row has.
    pub(crate) picks: Option<Picks>,
}

/// Matrices that rows pick out of a stack by number.
#[derive(Clone, Copy)]
pub(crate) struct Picks {
    /// By row of the result, without gaps.
    pub(crate) view: View,
    /// How many rows of the result in turn have one row of activations.
    pub(crate) turns: usize,
}

impl Products {
    /// Of `x`, with nothing yet.
    pub(crate) fn new(x: View) -> Products {
        Products {
            outs: Vec::new(),
            x,
            packed: Vec::new(),
            gate: None,
            residual: None,
            norm: None,
            picks: None,
        }
    }

    /// Rows of the result, and the inner size.
    fn rows(&self) -> (usize, usize) {
        let inner = self.x.sizes().last().copied().unwrap_or(1).max(1);
        (self.picks.map_or(self.x.layout.len() / inner, |picks| picks.view.layout.len()), inner)
    }

    /// Rows that are better than tiles; without subgroups, sums of more rows would not fit into what a group shares.
    fn most_rows(&self, on: &Lowering) -> usize {
        if self.picks.is_some() {
            return usize::MAX;
        }
        if on.features.subgroups { MOST_ROWS } else { FEW_ROWS }
    }

    /// Whether one dispatch can compute it.
    pub(crate) fn fits(&self, on: &Lowering) -> bool {
        let (rows, inner) = self.rows();
        let floats = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let Some(&PackedRows { packed, .. }) = self.packed.first() else { return false };
        let parts = self.packed.iter().flat_map(PackedRows::parts).count()
            + usize::from(self.residual.is_some())
            + usize::from(self.norm.is_some())
            + if self.picks.is_some() { 2 } else { 0 };
        let columns_fit = |rows: &PackedRows| {
            let columns = rows.rows();
            let per = self.outs.first().map_or(2, |out| per_word(out.dtype) as usize);
            columns > 0 && columns.is_multiple_of(per)
        };
        let packed_fits = self.packed.iter().all(|rows| {
            rows.packed == packed
                && (rows.w.layout.rank() == 2 || self.picks.is_some())
                && Lowering::is_vectored(&rows.w)
                && rows.parts().all(|part| part.is_plain())
                && columns_fit(rows)
        });
        matches!(packed.bits, 4 | 8)
            && (1..=self.most_rows(on)).contains(&rows)
            && inner.is_multiple_of(packed.group.max(32) as usize)
            && floats(self.x.dtype)
            && Lowering::is_vectored(&self.x)
            && self.outs.iter().all(|out| floats(out.dtype) && out.is_plain())
            && packed_fits
            && self.residual.is_none_or(|view| floats(view.dtype) && view.is_plain())
            && self.norm.is_none_or(|(weight, _)| floats(weight.dtype) && Lowering::is_vectored(&weight))
            && self.picks.is_none_or(|picks| picks.view.is_plain())
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
    let Products { outs, x, packed, gate, residual, norm, picks } = &products;
    let (Some(&out), Some(&PackedRows { packed: right, .. })) = (outs.first(), packed.first()) else {
        return false;
    };
    let (rows, inner) = products.rows();
    let chunks = inner / Gemv::chunk(right.bits) as usize;
    let all: usize = packed.iter().map(PackedRows::rows).sum();
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
        (inner / right.group as usize) as u32,
        residual.map_or(0, |view| on.first(&view)),
        norm.map_or(0, |(weight, _)| on.first_word(&weight) / 4),
        norm.map_or(0, |(_, eps)| eps.to_bits()),
        rows as u32,
        outs.first().and_then(|out| out.sizes().last()).map_or(0, |&columns| columns as u32),
    ];
    let mut blocks = 0;
    for (number, matrix) in packed.iter().enumerate() {
        let columns = matrix.rows();
        let [scales, biases] = matrix.firsts(on);
        if gate.is_none() || number == 0 {
            blocks += columns.div_ceil(each as usize);
        }
        let out = outs.get(number).unwrap_or(&out);
        params.extend([
            blocks as u32,
            columns as u32,
            on.first_word(out),
            on.first_word(&matrix.w) / 4,
            scales,
            biases,
            columns as u32,
        ]);
    }
    if let Some(Picks { view, turns }) = picks {
        let matrices = packed[0].matrices();
        params.extend([on.first(view), matrices as u32, *turns as u32, on.fault()]);
    }
    let mut operands = vec![out, *x];
    operands.extend(residual);
    operands.extend(norm.map(|(weight, _)| weight));
    operands.extend(packed.iter().flat_map(PackedRows::parts));
    operands.extend(picks.map(|picks| picks.view));
    let access = Access {
        reads: operands[1..].iter().map(|view| view.storage).collect(),
        writes: outs.iter().map(|view| view.storage).collect(),
        has_effect: false,
    };
    let mut kernel = Gemv {
        left: x.dtype,
        right,
        out: out.dtype,
        matrices: packed.len() as u32,
        rows: each,
        lanes: 1,
        threads,
        gate: *gate,
        residual: residual.map(|view| view.dtype),
        norm: norm.map(|(weight, _)| weight.dtype),
        picks: picks.map(|picks| picks.view.dtype),
        subgroups: on.features.subgroups,
        int8: on.features.dots && right.fits_bytes(),
    };
    // Up to a few rows, more groups at once gain more than taking packed rows apart once does.
    if rows > FEW_ROWS && picks.is_none() {
        kernel.lanes = 4;
        if kernel.shared_bytes() > on.features.shared_bytes {
            kernel.lanes = 2;
        }
    }
    let groups = blocks * rows.div_ceil(kernel.lanes as usize);
    on.emit_over(Kernel::Gemv(kernel), &operands, access, params, groups);
    if picks.is_some() {
        on.tells_faults();
    }
    on.product = Some((on.dispatches.len(), products));
    true
}
