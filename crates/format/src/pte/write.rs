//! Writing a `.pte`: tables first, then segments streamed from wherever they are.
//!
//! The same program and segments give the same bytes. Nothing is written that the reader would refuse.

use std::io::Write;
#[cfg(not(target_family = "wasm"))]
use std::path::Path;

use super::check::check;
use super::header::{ExtendedHeader, IDENTIFIER, LEAST_FILE};
use super::schema::*;
use super::values::EValue;
use crate::flatbuffer::{Builder, Finished, TableFields};
use crate::mirror::{Field, List};
use crate::segments::{Layout, Segment, WriteOptions, stream};
use crate::{Limits, Result};

/// Writes a program and its segments; returns the bytes written. `program.segments` is replaced by where the
/// segments come to lie; all other tables are written as they are (see [`Program::complete`]).
pub fn write(
    program: &Program,
    segments: &[Segment<'_>],
    options: &WriteOptions,
    out: &mut dyn Write,
) -> Result<u64> {
    let layout = Layout::of(segments, options)?;
    let sizes: Vec<u64> = layout.spans.iter().map(|(_, size)| *size).collect();
    // What is written here is no stranger's.
    check(program, &sizes, &Limits::own())?;
    let tables = encode(program, &layout)?;
    if layout.len == 0 {
        // Without a byte of segments there is no header either, and the tables are the file.
        let mut file = tables.bytes;
        file.resize(file.len().max(LEAST_FILE), 0);
        return stream(out, &file, 0, &[], &layout);
    }
    let (head, base) = ExtendedHeader::insert(&tables, layout.len, options.segment_alignment)?;
    stream(out, &head, base, segments, &layout)
}

/// Writes a file of that name: aside, flushed, then renamed, so that nobody sees a part of it.
#[cfg(not(target_family = "wasm"))]
pub fn write_file(
    path: &Path,
    program: &Program,
    segments: &[Segment<'_>],
    options: &WriteOptions,
) -> Result<u64> {
    pteron_aside::write_file(path, |out| write(program, segments, options, out))
}

/// The root by hand, slot by slot: its segments come from the layout, and a program is too large to clone for
/// that one list.
fn encode(program: &Program, layout: &Layout) -> Result<Finished> {
    let spans = layout.spans.iter().map(|(offset, size)| DataSegment { offset: *offset, size: *size });
    let segments = match program.segments.is_absent() && layout.spans.is_empty() {
        true => List::absent(),
        false => spans.collect(),
    };
    let mut builder = Builder::new();
    let mut fields = TableFields::new();
    program.version.write(&mut builder, &mut fields, 0);
    program.execution_plan.write(&mut builder, &mut fields, 1);
    program.constant_buffer.write(&mut builder, &mut fields, 2);
    program.backend_delegate_data.write(&mut builder, &mut fields, 3);
    segments.write(&mut builder, &mut fields, 4);
    program.constant_segment.write(&mut builder, &mut fields, 5);
    program.mutable_data_segments.write(&mut builder, &mut fields, 6);
    program.named_data.write(&mut builder, &mut fields, 7);
    let root = builder.table(&fields);
    builder.finish(root, Some(IDENTIFIER))
}

impl Program {
    /// Makes present what ExecuTorch's loader wants to find even if empty: vectors of every method, sizes of
    /// every tensor, and a `constant_segment` with its placeholder, without which it takes a deprecated path.
    /// For programs that are built; a program that was read is written as it was.
    pub fn complete(&mut self) {
        for plan in self.execution_plan.make_mut() {
            plan.complete();
        }
        self.segments.make_mut();
        if self.constant_segment.is_none() && self.constant_buffer.is_empty() {
            let offsets = vec![0].into();
            self.constant_segment = Some(SubsegmentOffsets { segment_index: 0, offsets });
        }
    }
}

impl ExecutionPlan {
    fn complete(&mut self) {
        for value in self.values.make_mut() {
            match value {
                EValue::Tensor(tensor) => {
                    tensor.sizes.make_mut();
                    tensor.dim_order.make_mut();
                }
                EValue::IntList(items) => {
                    items.make_mut();
                }
                EValue::DoubleList(items) => {
                    items.make_mut();
                }
                EValue::BoolList(items) => {
                    items.make_mut();
                }
                EValue::TensorList(items) | EValue::OptionalTensorList(items) => {
                    items.make_mut();
                }
                _ => {}
            }
        }
        for list in [&mut self.inputs, &mut self.outputs] {
            list.make_mut();
        }
        self.operators.make_mut();
        self.delegates.make_mut();
        if self.non_const_buffer_sizes.is_empty() {
            self.non_const_buffer_sizes = vec![0].into();
        }
        if self.chains.is_empty() {
            self.chains = vec![Chain::default()].into();
        }
        for chain in self.chains.make_mut() {
            chain.inputs.make_mut();
            chain.outputs.make_mut();
            chain.instructions.make_mut();
        }
    }
}
