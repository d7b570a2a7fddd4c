//! Element-wise ops, casts, and tensors that are made from numbers.

use super::{Axes, Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, per_word};
use pteron_ir::OpKind;
use pteron_plan::Layout;
use pteron_tensor::{DType, Scalar};

/// What is computed of which elements.
pub(crate) struct Numbers<'a> {
    pub(crate) kind: OpKind,
    pub(crate) form: u8,
    /// In what it is computed.
    pub(crate) work: DType,
    /// The op's own two.
    pub(crate) numbers: [u32; 2],
    pub(crate) inputs: &'a [View],
}

/// Writes `out`, to which the operands broadcast.
pub(crate) fn elementwise(on: &mut Lowering, out: View, what: &Numbers<'_>) {
    let (rank, mut params) = (0, Vec::new());
    map(on, out, what, rank, &mut params);
}

fn map(on: &mut Lowering, out: View, what: &Numbers<'_>, mut rank: u32, tail: &mut Vec<u32>) {
    let count = out.layout.len();
    if count == 0 {
        return;
    }
    let mut params = vec![count as u32, on.first_word(&out), what.numbers[0], what.numbers[1]];
    let views: Vec<View> = what
        .inputs
        .iter()
        .map(|view| view.with(view.layout.broadcast_to(out.sizes()).unwrap_or(view.layout)))
        .collect();
    let firsts: Vec<u32> = views.iter().map(|view| on.first(view)).collect();
    if views.iter().all(|view| view.layout.is_row_major()) {
        params.extend(&firsts);
    } else {
        let strides: Vec<&[isize]> = views.iter().map(|view| view.layout.strides()).collect();
        let axes = Axes::of(out.sizes(), &strides);
        rank = axes.rank();
        if rank == 0 {
            params.extend(&firsts);
        } else {
            axes.push(&mut params, &firsts);
        }
    }
    let mut form = what.form;
    if !tail.is_empty() {
        form = (params.len() - 4) as u8;
        params.append(tail);
    }
    let kernel = Kernel::Map {
        kind: what.kind,
        form,
        inputs: views.iter().map(|view| view.dtype).collect(),
        work: what.work,
        out: out.dtype,
        rank,
    };
    let threads = count.div_ceil(per_word(out.dtype) as usize);
    on.emit(kernel, &out, &views, false, params, groups(threads));
}

/// Converts elements.
pub(crate) fn cast(on: &mut Lowering, out: View, x: View) {
    let kind = OpKind::AsType;
    elementwise(on, out, &Numbers { kind, form: 0, work: x.dtype, numbers: [0; 2], inputs: &[x] });
}

/// One number everywhere.
pub(crate) fn fill(on: &mut Lowering, out: View, number: Scalar) {
    let numbers = filled(out.dtype, number);
    let kind = OpKind::Full;
    elementwise(on, out, &Numbers { kind, form: 0, work: out.dtype, numbers, inputs: &[] });
}

/// A number as the two words that a kernel reads it from.
fn filled(dtype: DType, number: Scalar) -> [u32; 2] {
    if dtype.is_float() {
        let number = match number {
            Scalar::Int(number) => number as f32,
            Scalar::Float(number) => number as f32,
            Scalar::Bool(truth) => f32::from(u8::from(truth)),
        };
        return [number.to_bits(), 0];
    }
    // Floats stop at the bounds of their integer, as casts do.
    let whole = match (number, dtype) {
        (Scalar::Int(number), _) => number,
        (Scalar::Bool(truth), _) => truth.into(),
        (Scalar::Float(number), DType::Bool) => (number != 0.0).into(),
        (Scalar::Float(number), DType::U8) => (number as u8).into(),
        (Scalar::Float(number), DType::U16) => (number as u16).into(),
        (Scalar::Float(number), DType::U32) => (number as u32).into(),
        (Scalar::Float(number), DType::U64) => number as u64 as i64,
        (Scalar::Float(number), DType::I8) => (number as i8).into(),
        (Scalar::Float(number), DType::I16) => (number as i16).into(),
        (Scalar::Float(number), DType::I32) => (number as i32).into(),
        (Scalar::Float(number), _) => number as i64,
    };
    if dtype == DType::Bool {
        return [u32::from(whole != 0), 0];
    }
    [whole as u32, (whole >> 32) as u32]
}

/// Numbers from `start` on.
pub(crate) fn range(on: &mut Lowering, out: View, start: i64, step: i64) {
    let numbers = [start as i32 as u32, step as i32 as u32];
    let kind = OpKind::ARange;
    elementwise(on, out, &Numbers { kind, form: 0, work: out.dtype, numbers, inputs: &[] });
}

/// Ones, or the elements of `x`, on one side of a diagonal of the last two axes.
pub(crate) fn triangle(on: &mut Lowering, out: View, kind: OpKind, k: i32, x: Option<View>) {
    let &[.., rows, columns] = out.sizes() else {
        if let Some(x) = x {
            cast(on, out, x);
        }
        return;
    };
    let numbers = [columns as u32, k as u32];
    let mut tail = vec![rows as u32];
    let inputs: Vec<View> = x.into_iter().collect();
    let what = Numbers { kind, form: 0, work: out.dtype, numbers, inputs: &inputs };
    // Elements are counted over all axes, whatever layout the operand has.
    let whole = Layout::row_major(out.sizes()).unwrap_or(out.layout);
    map(on, out.with(whole), &what, 0, &mut tail);
}
