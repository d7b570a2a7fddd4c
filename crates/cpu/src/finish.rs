//! The end of a run, when all steps are done: what the caller gets, and what buffers hold that were not written in place.

use crate::copy;
use crate::frame::Slot;
use crate::run::Run;
use pteron_ir::Type;
use pteron_kernels::view::View;
use pteron_plan::Layout;
use pteron_runtime::reference::cast;
use pteron_runtime::{Error, Result, Value};

/// Takes the outputs, and writes what buffers shall hold.
pub(crate) fn finish(run: &mut Run<'_>, outputs: &mut Vec<Value>) -> Result<()> {
    let plan = run.plan;
    let at_end = |error: pteron_runtime::NodeError| Error::Invalid(error.to_string());
    outputs.resize(run.graph.outputs.len(), Value::None);
    for (output, place) in run.graph.outputs.iter().zip(outputs) {
        run.read_into(output.value, place).map_err(at_end)?;
        // The file declares what a caller gets: argmax gives u32 and is declared i64.
        if let (Type::Tensor(declared), Value::Tensor(tensor)) = (&output.ty, &*place)
            && tensor.dtype() != declared.dtype
        {
            *place = Value::Tensor(cast(tensor, declared.dtype)?);
        }
    }
    for write in &plan.writes {
        let view = run.view(write.value).map_err(at_end)?;
        let buffer = &run.graph.buffers[write.buffer];
        let wanted = run.slot(buffer.value).layout;
        if view.sizes() != wanted.sizes() || Some(view.dtype()) != plan.dtypes[buffer.value.0 as usize] {
            return Err(Error::Invalid(format!(
                "buffer `{}` holds {:?}, but {} {:?} is written to it",
                buffer.name,
                wanted.sizes(),
                view.dtype(),
                view.sizes()
            )));
        }
        if let Some(staging) = write.staging {
            let len = view.len() * view.dtype().size();
            let (data, bytes) = run.scratch(staging);
            if len > 0 && len <= bytes {
                // SAFETY: the arena holds these bytes, and the plan gives them to this write alone.
                copy::to_bytes(run.pool, &view, unsafe { std::slice::from_raw_parts_mut(data, len) });
            }
        }
    }
    for write in &plan.writes {
        let target = run.graph.buffers[write.buffer].value;
        let mut source = *run.slot(write.value);
        if let Some(staging) = write.staging {
            let layout = Layout::row_major(source.layout.sizes()).unwrap_or(source.layout);
            source = Slot { data: run.scratch(staging).0, layout };
        }
        // What was updated in place has slots of its own: the buffer's is where the run found it.
        let whole = *run.slot(target);
        let dtype = run.dtype(target).map_err(at_end)?;
        run.save(write.buffer, dtype, &whole);
        // SAFETY: the value's own memory, or the staging that was filled above; buffers are written only here.
        let from =
            unsafe { View::from_raw(source.data, dtype, source.layout.sizes(), source.layout.strides()) };
        pteron_kernels::copy::copy(run.pool, &mut run.target(target).map_err(at_end)?, &from);
    }
    Ok(())
}
