//! What goes along axes on the device against the reference backend: running sums, long rows in order, medians, updates that add up,
//! circles, repeated edges, matrices that indices pick on the left, random bits.

use crate::differential::check_op;
use crate::packed::{FORMS, agrees, devices, operands, tensor};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_runtime::Value;
use pteron_runtime::reference::cast;
use pteron_tensor::{DType, HostTensor};

const X: ValueId = ValueId(0);
const DTYPES: [DType; 9] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::U32,
    DType::Bool,
];

/// Whole numbers of both signs where a dtype has them, few enough for sums of them to be exact.
fn whole(dtype: DType, shape: &[usize], seed: usize) -> HostTensor {
    let count: usize = shape.iter().product();
    let least = if matches!(dtype, DType::U8 | DType::U32 | DType::Bool) { 0.0 } else { -1.0 };
    let values: Vec<f32> = (0..count).map(|at| ((at * 7 + seed) % 3) as f32 + least).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &values).unwrap(), dtype).unwrap()
}

#[test]
fn running_sums_agree_with_the_reference_backend() {
    let shapes: [(&[usize], i32); 10] = [
        (&[], 0),
        (&[1], 0),
        (&[3, 31], 1),
        (&[5, 63], -1),
        (&[2, 513, 3], 1),
        (&[700, 4], 0),
        (&[2, 1100], 1),
        (&[3, 0, 2], 1),
        (&[3, 0, 2], 0),
        (&[20000, 3], 1),
    ];
    for backend in devices() {
        for (shape, axis) in shapes {
            for dtype in DTYPES {
                for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
                    let op = Op::Cumsum { x: X, axis, reverse, inclusive };
                    let what = format!("{dtype} {shape:?} along {axis}, {reverse} {inclusive}");
                    agrees(&op, &operands([whole(dtype, shape, 1)]), backend.as_ref(), &what);
                }
            }
        }
    }
}

/// Few different numbers with all that is special, so that many are equal.
fn special(dtype: DType, shape: &[usize]) -> HostTensor {
    let count: usize = shape.iter().product();
    let special = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
    let number = |at: usize| match at * 7919 % 4093 {
        place if place < special.len() && dtype.is_float() => special[place],
        place => (place * 31 % 97) as f32,
    };
    let values: Vec<f32> = (0..count).map(number).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &values).unwrap(), dtype).unwrap()
}

/// Rows that shared memory does not hold: a power of two, one less, one more, several of them, along another axis.
#[test]
fn long_rows_are_put_in_order_as_on_the_reference_backend() {
    let shapes: [(&[usize], i32); 6] = [
        (&[1025], 0),
        (&[2, 2048], 1),
        (&[2047, 2], 0),
        (&[2, 3, 1500], -1),
        (&[5000], 0),
        (&[2, 1100, 3], 1),
    ];
    for backend in devices() {
        for (shape, axis) in shapes {
            for dtype in DTYPES {
                let given = operands([special(dtype, shape)]);
                let what = format!("{dtype} {shape:?} along {axis}");
                agrees(&Op::Argsort { x: X, axis }, &given, backend.as_ref(), &what);
                agrees(&Op::Sort { x: X, axis }, &given, backend.as_ref(), &what);
            }
        }
    }
    let Some(backend) = crate::device::open() else { return };
    let wide: Vec<i64> = (0..3000).map(|at: i64| (at * 7919 % 4093 - 2000) * 3_000_000_000).collect();
    let given = operands([HostTensor::from_slice(vec![2, 1500], &wide).unwrap()]);
    agrees(&Op::Sort { x: X, axis: 1 }, &given, backend.as_ref(), "integers of 64 bits");
}

#[test]
fn medians_agree_with_the_reference_backend() {
    let shapes: [(&[usize], Option<Vec<i32>>); 8] = [
        (&[], None),
        (&[7], None),
        (&[4, 6], Some(vec![1])),
        (&[5, 6], Some(vec![0])),
        (&[3, 4, 5], Some(vec![0, 2])),
        (&[3, 4, 5], None),
        (&[2, 1300], Some(vec![1])),
        (&[0, 3], Some(vec![1])),
    ];
    for backend in devices() {
        for (shape, axes) in &shapes {
            for dtype in DTYPES {
                for keepdims in [false, true] {
                    let op = Op::Median { x: X, axes: axes.clone(), keepdims };
                    let what = format!("{dtype} {shape:?} over {axes:?}");
                    agrees(&op, &operands([special(dtype, shape)]), backend.as_ref(), &what);
                }
            }
        }
    }
}

#[test]
fn updates_add_up_as_on_the_reference_backend() {
    let (indices, updates) = (ValueId(1), ValueId(2));
    // What they are added to, indices, updates, axis.
    type Shapes = (&'static [usize], &'static [usize], &'static [usize], i32);
    let shapes: [Shapes; 8] = [
        (&[5], &[9], &[9], 0),
        (&[4, 6], &[9, 6], &[9, 6], 0),
        (&[4, 6], &[3, 11], &[3, 11], -1),
        (&[4, 6], &[5, 1], &[5, 6], 0),
        (&[4, 6], &[7, 2], &[1, 2], 0),
        (&[2, 3, 5], &[2, 4, 3], &[2, 4, 3], 1),
        (&[3, 5], &[0, 5], &[0, 5], 0),
        (&[300, 130], &[40, 130], &[40, 130], 0),
    ];
    for backend in devices() {
        for (x, places, added, axis) in shapes {
            let size = x[axis.rem_euclid(x.len() as i32) as usize] as i64;
            for (dtype, of_indices) in
                DTYPES.into_iter().zip([DType::I32, DType::I64, DType::U8].into_iter().cycle())
            {
                let count: usize = places.iter().product();
                let chosen: Vec<i32> = (0..count as i64)
                    .map(|at| {
                        (at * 5 % size - if of_indices == DType::U8 { 0 } else { at % 2 * size }) as i32
                    })
                    .collect();
                let chosen =
                    cast(&HostTensor::from_slice(places.to_vec(), &chosen).unwrap(), of_indices).unwrap();
                let given = operands([whole(dtype, x, 1), chosen, whole(dtype, added, 2)]);
                let op = Op::ScatterAdd { x: X, indices, updates, axis };
                agrees(&op, &given, backend.as_ref(), &format!("{dtype} {x:?} {places:?} {added:?}"));
            }
        }
        let beyond = HostTensor::from_slice(vec![2], &[0i32, 5]).unwrap();
        let given = operands([whole(DType::F32, &[5], 1), beyond, whole(DType::F32, &[2], 1)]);
        let found = check_op(&Op::ScatterAdd { x: X, indices, updates, axis: 0 }, &given, backend.as_ref());
        assert!(matches!(found, Ok(None)), "an index beyond its axis is refused by both: {found:?}");
    }
}

#[test]
fn circles_and_repeated_edges_agree_with_the_reference_backend() {
    let literals =
        |numbers: &[i64]| numbers.iter().map(|&number| IntArg::Literal(number)).collect::<Vec<_>>();
    let rolls: [(&[i64], &[i32]); 6] = [
        (&[1], &[0]),
        (&[-2, 5], &[1, 0]),
        (&[3], &[]),
        (&[0], &[1]),
        (&[7, 1, -1], &[2, 2, 0]),
        (&[3], &[-1]),
    ];
    let pads: [[i64; 6]; 4] = [[1, 2, 0, 0, 3, 1], [0; 6], [0, 0, 2, 0, 0, 0], [0, 1, 1, 1, 0, 5]];
    for backend in devices() {
        for dtype in DTYPES {
            for shape in [[3, 4, 5], [1, 1, 7], [2, 0, 3]] {
                let given = operands([tensor(dtype, &shape, 5)]);
                for (shift, axes) in rolls {
                    let op = Op::Roll { x: X, shift: literals(shift), axes: axes.to_vec() };
                    agrees(&op, &given, backend.as_ref(), &format!("{dtype} {shape:?} by {shift:?}"));
                }
                for widths in pads {
                    let (pad_width, mode) = (literals(&widths), "edge".to_owned());
                    let op = Op::Pad { x: X, pad_width, mode, constant_value: 0.0 };
                    let what = format!("{dtype} {shape:?} by {widths:?}");
                    match shape.contains(&0) {
                        // Of nothing there is no edge: both refuse, or both give nothing.
                        true => assert!(check_op(&op, &given, backend.as_ref()).is_ok(), "{what}"),
                        false => agrees(&op, &given, backend.as_ref(), &what),
                    }
                }
            }
        }
    }
}

/// Slices by none to four index tensors.
#[test]
fn slices_by_many_indices_agree_with_the_reference_backend() {
    for backend in devices() {
        for count in 0..=4usize {
            let shape = [3, 4, 2, 5];
            let mut given = vec![tensor(DType::BF16, &shape, 3)];
            given.extend((0..count).map(|axis| {
                let size = shape[axis] as i32;
                HostTensor::from_slice(vec![2, 3], &[0, size - 1, -1, 1 % size, -size, 0]).unwrap()
            }));
            let op = Op::Gather {
                x: X,
                indices: (1..=count as u32).map(ValueId).collect(),
                axes: (0..count as i32).collect(),
                slice_sizes: (0..4)
                    .map(|axis| if axis < count { 1 } else { shape[axis] as i32 - 1 })
                    .collect(),
            };
            agrees(&op, &operands(given), backend.as_ref(), &format!("{count} index tensors"));
        }
    }
}

/// Matrices of the left operand, and of both.
#[test]
fn matrices_that_indices_pick_on_the_left_agree_with_the_reference_backend() {
    let [a, b, left, right] = [0, 1, 2, 3].map(ValueId);
    let picks = |shape: &[usize], numbers: &[i32]| HostTensor::from_slice(shape.to_vec(), numbers).unwrap();
    for backend in devices() {
        for dtype in [DType::F32, DType::F16] {
            let lefts = tensor(dtype, &[2, 3, 4, 64], 1);
            let rights = tensor(dtype, &[3, 64, 10], 2);
            let op = |lhs_indices, rhs_indices| Op::GatherMm {
                a,
                b,
                lhs_indices,
                rhs_indices,
                sorted_indices: false,
                sorted_indices_flag: None,
            };
            let chosen = picks(&[2, 3], &[5, 0, 2, 2, 4, 1]);
            let given = [lefts.clone(), rights.clone(), chosen.clone(), picks(&[3], &[2, 0, 2])];
            agrees(&op(Some(left), Some(right)), &operands(given), backend.as_ref(), "both sides");
            let given = [lefts.clone(), rights.clone(), chosen.clone()];
            agrees(&op(Some(left), None), &operands(given), backend.as_ref(), "the left side");
            let wrong = [lefts.clone(), rights, picks(&[1, 3], &[0, -1, 6])];
            let found = check_op(&op(Some(left), None), &operands(wrong), backend.as_ref());
            assert!(matches!(found, Ok(None)), "a number beyond the stack is refused by both: {found:?}");
            for form in FORMS {
                let mut given = vec![lefts.clone(), chosen.clone(), picks(&[3], &[2, 0, 2])];
                given.extend(form.weights(dtype, &[3, 10, 128], 4));
                given[0] = tensor(dtype, &[6, 4, 128], 1);
                let biases = (given.len() == 6).then_some(ValueId(5));
                let op = Op::GatherQmm {
                    x: X,
                    w: ValueId(3),
                    scales: ValueId(4),
                    mode: form.mode.to_owned(),
                    biases,
                    lhs_indices: Some(ValueId(1)),
                    rhs_indices: Some(ValueId(2)),
                    transpose: true,
                    group_size: form.group,
                    bits: form.bits,
                    sorted_indices: false,
                    sorted_indices_flag: None,
                };
                agrees(&op, &operands(given), backend.as_ref(), &format!("{form:?} {dtype}"));
            }
        }
    }
}

/// Floats of few bits with a scale for all of them.
#[test]
fn numbers_with_a_scale_for_all_agree_with_the_reference_backend() {
    let form = FORMS.into_iter().find(|form| form.mode == "nvfp4").unwrap();
    for backend in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let mut given = form.weights(dtype, &[6, 64], 4);
            given.push(HostTensor::from_slice(vec![1], &[700.0f32]).unwrap());
            let op = Op::Dequantize {
                w: X,
                scales: ValueId(1),
                biases: None,
                group_size: form.group,
                bits: form.bits,
                mode: form.mode.to_owned(),
                global_scale: Some(ValueId(2)),
                dtype: Some(dtype),
            };
            agrees(&op, &operands(given), backend.as_ref(), &format!("{dtype}"));
        }
    }
}

/// The same bits as on the host: of any number of bytes, cut in the middle of a word too.
#[test]
fn random_bits_of_a_seed_are_those_of_the_reference_backend() {
    for backend in devices() {
        for seed in [0, 7, -1, i64::from(i32::MIN)] {
            for (width, size) in [(4, 1), (4, 2), (4, 3), (4, 1001), (2, 7), (1, 5), (1, 130), (4, 0)] {
                let shape = vec![IntArg::Literal(size)];
                let op = Op::RandomBits { shape, seed: Some(X), width };
                let found = check_op(&op, &[(X, Value::Int(seed))], backend.as_ref());
                assert!(matches!(found, Ok(Some(_))), "{size} of {width} bytes of seed {seed}: {found:?}");
            }
        }
    }
}
