//! Which nodes are recognised, and why others are not.

use super::*;
use pteron_ir::op::IntArg;

/// A node with those template arguments; dtypes are given by their codes.
fn node(name: &str, template: &[(&str, i32)], outputs: &[(DType, Vec<i64>)]) -> Op<Ssa> {
    Op::MetalKernel {
        name: name.into(),
        source: "this is not looked at".into(),
        inputs: vec![],
        grid: vec![],
        threadgroup: vec![],
        header: None,
        input_names: None,
        output_names: None,
        ensure_row_contiguous: true,
        atomic_outputs: false,
        output_shapes_flat: Some(
            outputs.iter().flat_map(|output| &output.1).map(|&size| IntArg::Literal(size)).collect(),
        ),
        output_shape_lengths: Some(outputs.iter().map(|output| output.1.len() as i32).collect()),
        output_dtypes: Some(outputs.iter().map(|output| output.0).collect()),
        template_arg_names: Some(template.iter().map(|arg| arg.0.to_owned()).collect()),
        template_arg_kinds: Some(
            template.iter().map(|arg| if arg.0.ends_with('T') { 2 } else { 0 }).collect(),
        ),
        template_arg_values: Some(template.iter().map(|arg| arg.1).collect()),
        init_value: None,
    }
}

const F32: i32 = 6;

/// Known sizes; -1 is a symbol of its own.
fn types(list: &[(DType, &[i64])]) -> Vec<TensorType> {
    let mut symbols = Symbols::default();
    let mut dim = |&size: &i64| if size < 0 { symbols.fresh_size(None) } else { Dim::known(size) };
    list.iter()
        .map(|(dtype, shape)| TensorType { dtype: *dtype, shape: shape.iter().map(&mut dim).collect() })
        .collect()
}

fn verdict(
    name: &str,
    template: &[(&str, i32)],
    inputs: &[(DType, &[i64])],
    outputs: &[(DType, &[i64])],
) -> Result<KnownKernel, String> {
    recognise(&node(name, template, &[]), &types(inputs), &types(outputs))
}

#[test]
fn what_the_exporter_writes_is_recognised() {
    use DType::{F32 as F, I32, I64, U8};
    let gguf = |name: &str, template: &[(&str, i32)], row| {
        verdict(name, template, &[(F, &[-1, 5, 512]), (U8, &[7, row]), (F, &[7])], &[(F, &[-1, 5, 7])])
    };
    let both = [("InT", F32), ("OutT", F32), ("N", 7), ("K", 512), ("NSG", 2)];
    assert_eq!(gguf("gguf_q4k_matvec", &both, 288), Ok(GgufLinear(BlockFormat::Q4K)));
    assert_eq!(gguf("gguf_q5k_matmul", &both[..4], 352), Ok(GgufLinear(BlockFormat::Q5K)));
    let one = [("InT", F32), ("N", 7), ("K", 512), ("NSG", 2)];
    assert_eq!(gguf("gguf_q6k_matvec", &one, 420), Ok(GgufLinear(BlockFormat::Q6K)));
    let rows = [(U8, &[9, 420][..]), (I64, &[2, -1])];
    let got = verdict("gguf_q6k_embedding", &[("OutT", F32), ("K", 512)], &rows, &[(F, &[2, -1, 512])]);
    assert_eq!(got, Ok(GgufEmbedding(BlockFormat::Q6K)));
    let delta = [("InT", F32), ("Dk", 64), ("Dv", 8), ("Hk", 2), ("Hv", 4)];
    let inputs: [(DType, &[i64]); 7] = [
        (F, &[1, -1, 2, 64]),
        (F, &[1, -1, 2, 64]),
        (F, &[1, -1, 4, 8]),
        (F, &[1, -1, 4]),
        (F, &[1, -1, 4]),
        (F, &[1, 4, 8, 64]),
        (I32, &[]),
    ];
    let got = verdict("gated_delta_step", &delta, &inputs, &[(F, &[1, -1, 4, 8]), (F, &[1, 4, 8, 64])]);
    assert_eq!(got, Ok(GatedDeltaStep));
    let got = verdict("tq_norm", &[("InT", F32), ("D", 64)], &[(F, &[-1, 64])], &[(F, &[-1, 1])]);
    assert_eq!(got, Ok(TqNorm));
    let inputs = [(F, &[-1, 64][..]), (F, &[15])];
    let got = verdict("tq4_compress", &[("InT", F32), ("B", 15)], &inputs, &[(U8, &[-1, 32])]);
    assert_eq!(got, Ok(Tq4Compress));
    let inputs = [(U8, &[-1, 32][..]), (F, &[-1, 1]), (F, &[16])];
    let got = verdict("tq_dequant", &[("InT", F32), ("D", 64)], &inputs, &[(F, &[-1, 64])]);
    assert_eq!(got, Ok(TqDequant));
}

#[test]
fn what_differs_in_name_template_or_shape_is_refused() {
    use DType::{F16, F32 as F, U8};
    let norm = |template: &[(&str, i32)], x: (DType, &[i64]), out: (DType, &[i64])| {
        verdict("tq_norm", template, &[x], &[out]).unwrap_err()
    };
    let template = [("InT", F32), ("D", 64)];
    let cases = [
        (verdict("my_kernel", &[], &[], &[]).unwrap_err(), "`my_kernel` is not a known one"),
        (norm(&[("InT", F32)], (F, &[2, 64]), (F, &[2, 1])), "template arguments"),
        (norm(&[("D", 64), ("InT", F32)], (F, &[2, 64]), (F, &[2, 1])), "template arguments"),
        (norm(&[("InT", 3), ("D", 64)], (F, &[2, 64]), (F, &[2, 1])), "InT = 3"),
        (norm(&[("InT", F32), ("D", 33)], (F, &[2, 33]), (F, &[2, 1])), "no multiple of 32"),
        (norm(&template, (F16, &[2, 64]), (F, &[2, 1])), "x of f16 instead of f32"),
        (norm(&template, (F, &[2, 32]), (F, &[2, 1])), "a size 32 of x instead of 64"),
        (norm(&template, (F, &[2, 64]), (F, &[3, 1])), "a size 3 of norms instead of 2"),
        (norm(&template, (F, &[2, 64]), (F, &[2])), "rank 1 of norms instead of 2"),
        (norm(&template, (F, &[]), (F, &[1])), "x of rank 0"),
        (verdict("tq_norm", &template, &[], &[]).unwrap_err(), "number of inputs"),
        (
            verdict(
                "tq4_compress",
                &[("InT", F32), ("B", 15)],
                &[(F, &[2, 5]), (F, &[15])],
                &[(U8, &[2, 2])],
            )
            .unwrap_err(),
            "a size 5 of values instead of 4",
        ),
        (
            verdict(
                "gguf_q6k_matmul",
                &[("InT", F32), ("N", 7), ("K", 500)],
                &[(F, &[1, 500]), (U8, &[7, 420])],
                &[(F, &[1, 7])],
            )
            .unwrap_err(),
            "K = 500",
        ),
    ];
    for (reason, part) in cases {
        assert!(reason.contains(part), "{reason:?} should say {part:?}");
    }
}
