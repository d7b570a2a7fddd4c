//! Rows in order on the device: equal elements, those that are no numbers, every dtype, along any axis, against the reference backend.

use crate::differential;
use crate::packed::{agrees, devices, operands, tensor};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, TensorType, Type, TypeSource, ValueId, parse_graph};
use pteron_runtime::backend::Support;
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

/// Longer rows than shared memory holds run elsewhere.
#[test]
fn rows_that_are_too_long_have_no_kernel() {
    struct Long(Type);
    impl TypeSource for Long {
        fn type_of(&self, _: ValueId) -> Option<&Type> {
            Some(&self.0)
        }
    }
    for backend in devices() {
        let long = Long(Type::Tensor(TensorType::known(DType::F32, &[1, 1025])));
        let support = backend.supports(&Op::Argsort { x: ValueId(0), axis: 1 }, &long);
        assert!(matches!(support, Support::No(_)), "{support:?}");
    }
}

/// A grid is whole rows of groups: those that are too many write nothing beside the result.
#[test]
fn more_groups_than_a_row_of_a_grid_change_nothing_else() {
    let count = 40_000;
    let text = format!(
        r#"
graph "forward"
  input %0 "a": f32[{count}, 1, 1]
  input %1 "b": f32[{count}, 1, 1]
{{
  %2: f32[{count}, 1, 1] = square(x=%0)
  %3: f32[{count}, 1, 1] = square(x=%1)
  %4: f32[{count}, 1, 1] = addmm(mat1=%0, mat2=%1)
  %5: f32[{count}, 1, 1] = add(a=%2, b=%3)
  %6: f32[{count}, 1, 1] = add(a=%4, b=%5)
}}
output %6 "out": f32[{count}, 1, 1]
"#
    );
    let (a, b) = (tensor(DType::F32, &[count, 1, 1], 1), tensor(DType::F32, &[count, 1, 1], 2));
    let (x, y) = (a.as_slice::<f32>().unwrap().to_vec(), b.as_slice::<f32>().unwrap().to_vec());
    for backend in devices() {
        let inputs = [a.clone().into(), b.clone().into()];
        let outputs =
            differential::run_graph(parse_graph(&text).unwrap(), &inputs, backend.as_ref()).unwrap();
        let got = outputs[0].to_tensor().unwrap().unwrap();
        for (at, got) in got.as_slice::<f32>().unwrap().iter().enumerate() {
            let want = x[at] * y[at] + (x[at] * x[at] + y[at] * y[at]);
            assert!((got - want).abs() <= 1e-5, "element {at} is {got}, not {want}");
        }
    }
}
