//! Rows in order on the device: equal elements, those that are no numbers, every dtype, along any axis, against the reference backend.

use crate::packed::{agrees, devices, operands, tensor};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_runtime::reference::cast;
use pteron_tensor::{DType, HostTensor};

/// Few different numbers, so that many are equal, with all that is special about floats.
fn rows(dtype: DType, shape: &[usize]) -> HostTensor {
    let count: usize = shape.iter().product();
    let special = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, 1e-42, -1e-42, -f32::NAN];
    let number = |at: usize| match at * 31 % 23 {
        place if place < special.len() && dtype.is_float() => special[place],
        place => (place * 7 % 9) as f32,
    };
    let values: Vec<f32> = (0..count).map(number).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &values).unwrap(), dtype).unwrap()
}

#[test]
fn rows_are_put_in_order_as_on_the_reference_backend() {
    let shapes: [(&[usize], i32); 9] = [
        (&[], 0),
        (&[1], 0),
        (&[3, 2], 1),
        (&[5, 63], -1),
        (&[2, 3, 65], 2),
        (&[7, 4], 0),
        (&[2, 33, 3], 1),
        (&[1, 300], 1),
        (&[2, 1024], 1),
    ];
    for backend in devices() {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::I32, DType::U8, DType::I16, DType::Bool] {
            for (shape, axis) in shapes {
                let given = operands([rows(dtype, shape)]);
                let x = ValueId(0);
                let what = format!("{dtype} {shape:?} along {axis}");
                agrees(&Op::Argsort { x, axis }, &given, backend.as_ref(), &what);
                agrees(&Op::Sort { x, axis }, &given, backend.as_ref(), &what);
            }
        }
        let given = operands([tensor(DType::F32, &[4, 9], 3)]);
        let (x, kth, axis) = (ValueId(0), IntArg::Literal(4), 1);
        agrees(&Op::Partition { x, kth, axis }, &given, backend.as_ref(), "a partition");
        agrees(&Op::ArgPartition { x, kth, axis }, &given, backend.as_ref(), "indices of a partition");
    }
}
