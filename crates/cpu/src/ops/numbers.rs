//! Integers of the run: read from tensors, or computed from each other.

use super::lowering::{Compiled, Numbered};
use crate::fault::invalid;
use crate::step::Kernel;
use half::{bf16, f16};
use pteron_ir::Op;
use pteron_kernels::view::View;
use pteron_plan::{arithmetic, counted};
use pteron_runtime::NodeError;
use pteron_tensor::{DType, Scalar};

pub(super) fn compile(node: &Numbered) -> Option<Compiled> {
    let result = *node.node.results.first()?;
    let kernel: Kernel = match node.node.op.clone() {
        Op::ItemInt { x } => Box::new(move |run| {
            let number = item(&run.view(x)?)?;
            run.set_number(result, Scalar::Int(number));
            Ok(())
        }),
        Op::SymSize { a, dim } => Box::new(move |run| {
            let sizes = run.slot(a).layout.sizes();
            let size = counted(dim, sizes.len()).map(|axis| sizes[axis] as i64);
            run.set_number(
                result,
                Scalar::Int(size.ok_or_else(|| invalid(format!("there is no axis {dim}")))?),
            );
            Ok(())
        }),
        op => {
            let ([a, b], apply) = arithmetic(&op)?;
            Box::new(move |run| {
                let (a, b) = (run.int(&a), run.int(&b));
                let number = apply(a, b);
                let number =
                    number.ok_or_else(|| invalid(format!("{a} and {b} give no integer of 32 bits")))?;
                run.set_number(result, Scalar::Int(number));
                Ok(())
            })
        }
    };
    Some(Compiled::Whole(kernel))
}

/// The one element of a tensor, floats truncated; an error where it does not fit 32 bits.
fn item(view: &View<'_>) -> Result<i64, NodeError> {
    if view.len() != 1 {
        return Err(invalid(format!("a tensor of {} elements is not a number", view.len())));
    }
    let data = view.data();
    // SAFETY: the view has one element of its dtype there; its alignment is the dtype's.
    let number = unsafe {
        match view.dtype() {
            DType::Bool | DType::U8 => i64::from(*data),
            DType::I8 => i64::from(*data.cast::<i8>()),
            DType::I16 => i64::from(*data.cast::<i16>()),
            DType::U16 => i64::from(*data.cast::<u16>()),
            DType::I32 => i64::from(*data.cast::<i32>()),
            DType::U32 => i64::from(*data.cast::<u32>()),
            DType::I64 => *data.cast::<i64>(),
            DType::F32 => *data.cast::<f32>() as i64,
            DType::F16 => data.cast::<f16>().read().to_f64() as i64,
            DType::BF16 => data.cast::<bf16>().read().to_f64() as i64,
            other => return Err(invalid(format!("a number read from {other}"))),
        }
    };
    match i32::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(invalid(format!("{number} does not fit 32 bits"))),
    }
}
