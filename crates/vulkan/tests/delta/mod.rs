//! The gated delta rule on the device against the reference backend: heads that share keys, ends of groups, one token and many, every
//! float dtype.

use crate::packed::{agrees, devices, operands, tensor};
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_models::blocks::DeltaDims;
use pteron_runtime::reference::cast;
use pteron_tensor::{DType, HostTensor};

/// Vectors short enough for states to stay where they are, as norms make them.
fn short(dtype: DType, shape: &[usize], seed: usize) -> HostTensor {
    let long = tensor(DType::F32, shape, seed);
    let size = shape.last().map_or(1.0, |&features| (features as f32).sqrt());
    let numbers: Vec<f32> = long.as_slice::<f32>().unwrap().iter().map(|x| x / size).collect();
    cast(&HostTensor::from_slice(shape.to_vec(), &numbers).unwrap(), dtype).unwrap()
}

#[test]
fn the_gated_delta_rule_agrees_with_the_reference_backend() {
    // Texts, tokens, heads of keys and of values, features of keys and values.
    let sizes = [
        [1, 1, 1, 1, 32, 1],
        [2, 5, 2, 4, 32, 7],
        [1, 33, 2, 6, 64, 16],
        [1, 3, 4, 4, 128, 5],
        [1, 0, 1, 2, 32, 4],
    ];
    for backend in devices() {
        for [batch, tokens, key_heads, value_heads, key_dim, value_dim] in sizes {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let dims = DeltaDims {
                    batch: IntArg::Literal(batch as i64),
                    tokens: IntArg::Literal(tokens as i64),
                    states: IntArg::Literal((batch * value_heads) as i64),
                    key_heads,
                    value_heads,
                    key_dim,
                    value_dim,
                };
                let op = dims.op([0, 1, 2, 3, 4, 5].map(ValueId), ValueId(6), dtype).unwrap();
                let keys = [batch, tokens, key_heads, key_dim];
                let (values, gates) = ([batch, tokens, value_heads, value_dim], [batch, tokens, value_heads]);
                let given = [
                    short(dtype, &keys, 1),
                    short(dtype, &keys, 2),
                    tensor(dtype, &values, 3),
                    tensor(DType::F32, &gates, 4),
                    tensor(dtype, &gates, 5),
                    tensor(DType::F32, &[batch, value_heads, value_dim, key_dim], 6),
                    HostTensor::from_slice(vec![], &[tokens as i32]).unwrap(),
                ];
                let what = format!("{dtype} {keys:?} {values:?}");
                agrees(&op, &operands(given), backend.as_ref(), &what);
            }
        }
    }
}
