//! What comes behind the last step of a call: what it gives, what buffers hold from then on, and where scores are greatest.

use super::{Datum, Finished, Walk, WalkError, invalid};
use crate::dispatch::{MOST_SPANS, REPORT_GREATEST, Region, View};
use crate::lower;
use pteron_ir::Type;
use pteron_plan::{Layout, Storage};
use pteron_tensor::DType;

/// Rows of fewer numbers are no scores of tokens, or are quickly read.
const LEAST_SCORES: usize = 1024;

impl Walk<'_> {
    /// Lowers what comes behind the last step: outputs into their region, in the dtypes that the graph declares, then what buffers
    /// hold now. Of scores it is also found where the greatest is.
    pub fn finish(&mut self, tensor_bytes: u64) -> Result<Finished, WalkError> {
        self.turn_spans();
        let (graph, plan) = (self.graph, &self.planned.plan);
        let mut end = 0usize;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        self.lowering.step = self.planned.steps.len();
        self.finish_cursor = Some(self.lowering.cursor());
        for (at, output) in graph.outputs.iter().enumerate() {
            let view = match self.values[output.value.0 as usize] {
                Some(Datum::Tensor(view)) => view,
                Some(number) => {
                    outputs.push(number);
                    continue;
                }
                None => return invalid(format!("%{} is not there", output.value.0)),
            };
            let dtype = match &output.ty {
                Type::Tensor(ty) => ty.dtype,
                _ => view.dtype,
            };
            let count = pteron_tensor::element_count(view.sizes());
            let bytes = count
                .and_then(|count| count.checked_mul(dtype.size()))
                .map_or(u64::MAX, |bytes| bytes as u64);
            if bytes > tensor_bytes.min(self.lowering.features.max_binding) {
                return Err(WalkError::Large(bytes));
            }
            let layout = Layout::row_major(view.sizes()).unwrap_or(view.layout);
            let storage = Storage::Heap((1 << 41) + at);
            let target = View { region: Region::Outputs, offset: end, dtype, layout, storage };
            end = (end + layout.len() * dtype.size()).next_multiple_of(16);
            lower::cast(&mut self.lowering, target, view);
            outputs.push(Datum::Tensor(target));
        }
        let mut moves = Vec::new();
        for write in &plan.writes {
            let (buffer, view) = (&graph.buffers[write.buffer], self.tensor(write.value)?);
            let target = self.tensor(buffer.value)?;
            moves.push((target, view, write.staging.is_some()));
        }
        for buffer in &graph.buffers {
            let (held, written) = (self.tensor(buffer.value)?, self.tensor(buffer.update)?);
            if (held.dtype, held.sizes()) != (written.dtype, written.sizes()) {
                let (name, old, new) = (&buffer.name, held.dtype, written.dtype);
                return invalid(format!(
                    "buffer `{name}` holds {old} {:?}, but {new} {:?} is written to it",
                    held.sizes(),
                    written.sizes()
                ));
            }
        }
        // What lies in a buffer itself is put aside before any buffer changes.
        for (_, view, staged) in &mut moves {
            if *staged {
                let aside = self.lowering.scratch(view.dtype, view.sizes());
                lower::copy(&mut self.lowering, aside, *view, true);
                *view = aside;
            }
        }
        for (target, view, _) in moves {
            lower::copy(&mut self.lowering, target, view, true);
        }
        let greatest = if self.traced { None } else { self.greatest(&outputs, &mut end) };
        Ok(Finished { outputs, bytes: end, greatest })
    }

    /// Finds the greatest of the last row of the one output that is long rows of floats, behind all that is given; of texts side by side
    /// the greatest of each row.
    fn greatest(&mut self, outputs: &[Datum], end: &mut usize) -> Option<(usize, Vec<usize>)> {
        let mut floats = outputs.iter().enumerate().filter_map(|(at, output)| match output {
            Datum::Tensor(view) if view.dtype.is_float() => Some((at, *view)),
            _ => None,
        });
        let (Some((at, view)), None) = (floats.next(), floats.next()) else { return None };
        let row = view.sizes().last().copied().filter(|&row| row >= LEAST_SCORES)?;
        let rows = view.layout.len() / row;
        let wanted = match self.spans.is_empty() {
            true => rows.checked_sub(1)?..rows,
            false if rows <= MOST_SPANS => 0..rows,
            false => return None,
        };
        let layout = Layout::row_major(&[1])?;
        let mut offsets = Vec::with_capacity(wanted.len());
        for (number, wanted) in wanted.enumerate() {
            let first = view.offset + wanted * row * view.dtype.size();
            let offset = end.next_multiple_of(crate::dispatch::BINDING_ALIGNMENT);
            let storage = Storage::Heap((1 << 41) + outputs.len() + number);
            let found = View { region: Region::Outputs, offset, dtype: DType::I64, layout, storage };
            let told = REPORT_GREATEST + 2 * number;
            if !lower::greatest(&mut self.lowering, found, view, (first, row), told) {
                return None;
            }
            *end = offset + DType::I64.size();
            offsets.push(offset);
        }
        Some((at, offsets))
    }
}
