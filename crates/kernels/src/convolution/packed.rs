//! Convolutions of f32 whose filters were packed once: products with panels, or sums by channel.

use super::collect::{Collected, origin};
use super::{Shape, depthwise};
use crate::dense::packed::{self, Job, Panels};
use crate::epilogue::Epilogue;
use crate::path::Path;
use crate::pool::Pool;
use crate::split::Shared;
use crate::view::{View, ViewMut};
use pteron_tensor::DType;

/// The filters of a convolution in the form that its kernel reads.
#[derive(Debug)]
pub struct Filters {
    path: Path,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A matrix a group.
    Panels(Vec<Panels>),
    /// By tap, so that channels lie side by side.
    Depthwise(Vec<f32>),
}

impl Filters {
    /// Packs `w` of [filters, kernel.., channels / groups], contiguous and of f32; `None` where it cannot be counted.
    ///
    /// # Panics
    /// When it does not fit the shape.
    pub fn pack(path: Path, w: &View<'_>, shape: &Shape<'_>) -> Option<Filters> {
        shape.check();
        let (taps, depth) = (shape.taps(), shape.depth());
        assert!(w.dtype() == DType::F32 && w.is_contiguous() && w.len() == shape.filters * taps * depth);
        if shape.is_depthwise() {
            let mut by_tap = vec![0.0; w.len()];
            // SAFETY: a contiguous tensor of so many f32.
            depthwise::by_tap(
                unsafe { std::slice::from_raw_parts(w.data().cast(), w.len()) },
                taps,
                &mut by_tap,
            );
            return Some(Filters { path, kind: Kind::Depthwise(by_tap) });
        }
        let (inner, columns) = (taps * depth, shape.filters / shape.groups);
        let (sizes, strides) = ([columns, inner], [inner as isize, 1]);
        let group = |group: usize| {
            let data = w.data().wrapping_add(group * columns * inner * 4);
            // SAFETY: the filters of a group are a part of the tensor.
            Panels::pack(path, &unsafe { View::from_raw(data, DType::F32, &sizes, &strides) })
        };
        let panels = (0..shape.groups).map(group).collect::<Option<_>>()?;
        Some(Filters { path, kind: Kind::Panels(panels) })
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Panels(panels) => panels.iter().map(Panels::bytes).sum(),
            Kind::Depthwise(by_tap) => by_tap.len() * 4,
        }
    }

    /// Bytes of scratch that a convolution with them needs.
    pub fn scratch_bytes(&self, shape: &Shape<'_>, threads: usize) -> usize {
        let rows = shape.batch * shape.positions();
        match &self.kind {
            Kind::Panels(panels) => {
                let bytes = panels.iter().map(|panels| panels.scratch(rows, origin(shape), threads));
                bytes.max().unwrap_or(0)
            }
            Kind::Depthwise(_) => 0,
        }
    }
}

/// Convolves `x` of [batch, input.., channels] into `out` of [batch, output.., filters], both contiguous f32, with filters that were
/// packed for this shape but for the batch.
///
/// # Panics
/// When tensors or filters do not fit the shape, or scratch is smaller than [`Filters::scratch_bytes`].
pub fn convolution(
    pool: &Pool,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    filters: &Filters,
    shape: &Shape<'_>,
    epilogue: &Epilogue<'_>,
    scratch: &mut [u8],
) {
    shape.check();
    let (taps, depth, rows) = (shape.taps(), shape.depth(), shape.batch * shape.positions());
    assert!(x.dtype() == DType::F32 && out.dtype() == DType::F32, "convolutions of f32");
    assert_eq!(x.len(), shape.batch * shape.pixels() * shape.channels);
    assert_eq!(out.len(), rows * shape.filters);
    assert!(x.is_contiguous() && out.is_contiguous());
    epilogue.check(rows, shape.filters);
    if out.is_empty() {
        return;
    }
    match &filters.kind {
        Kind::Depthwise(by_tap) => {
            assert!(shape.is_depthwise() && by_tap.len() == taps * shape.filters, "filters of this shape");
            depthwise::run(pool, filters.path, out, x, by_tap, shape, epilogue);
        }
        Kind::Panels(groups) => {
            assert!(groups.len() == shape.groups && !shape.is_depthwise(), "filters of this shape");
            let columns = shape.filters / shape.groups;
            for (group, panels) in groups.iter().enumerate() {
                assert!(
                    panels.inner() == taps * depth && panels.columns() == columns,
                    "filters of this shape"
                );
                let source = Collected::new(shape, x.data().cast(), group);
                let (out, column) = (Shared::new(out.data().cast()), group * columns);
                let job = Job { panels, rows, out, row: shape.filters, column, epilogue: *epilogue };
                // SAFETY: the output is borrowed by this call and has those rows and columns.
                unsafe { packed::run(pool, &job, &source, scratch) };
            }
        }
    }
}
