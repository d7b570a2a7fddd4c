//! Payloads that come back as they were, payloads that must not get through, and the graphs that nodes become.

use pteron_ir::verify::verify_module;
use pteron_tensor::{Bytes, DType};

use super::*;
use crate::{Argument, List};

mod sizes;

fn limits() -> Limits {
    Limits::default()
}

/// A value in the middle of the graph.
pub(super) fn inner(id: u32, dims: &[u32]) -> TensorValue {
    TensorValue {
        datatype: Datatype::Fp32,
        num_dims: dims.len() as u32,
        dims: dims.to_vec().into(),
        external_id: NO_ID,
        id_out: id,
        ..TensorValue::default()
    }
}

fn extern_value(id: u32, flags: u32, dims: &[u32]) -> Value {
    Value::Tensor(TensorValue { external_id: id, flags, ..inner(id, dims) })
}

fn constant_value(id: u32, index: u32, dims: &[u32]) -> TensorValue {
    TensorValue { constant_buffer_idx: index, ..inner(id, dims) }
}

fn node(kind: Kind) -> Node {
    Node { kind, debug_handle: 7, output_min_max: None }
}

fn graph(xvalues: Vec<Value>, xnodes: Vec<Node>, num_externs: u32) -> Payload {
    let named = ConstantData { offset: BY_KEY, size: 4, named_key: "key".into() };
    let inline = ConstantData { offset: 0, size: 4096, named_key: "".into() };
    let graph = XnnGraph {
        version: "0".into(),
        xnodes: xnodes.into(),
        xvalues: xvalues.into(),
        num_externs,
        constant_data: vec![ConstantData::default(), named, inline].into(),
        ..XnnGraph::default()
    };
    Payload { graph, data: Some(Bytes::copy_of(&[1; 4096])), ..Payload::default() }
}

/// One table of each kind, its fields all different.
fn filled() -> Vec<Kind> {
    let conv = Convolution {
        padding_top: 1,
        padding_right: 2,
        padding_bottom: 3,
        padding_left: 4,
        kernel_height: 5,
        kernel_width: 6,
        subsampling_height: 7,
        subsampling_width: 8,
        dilation_height: 9,
        dilation_width: 10,
        group_input_channels: 11,
        group_output_channels: 12,
        groups: 13,
        adjustment_height: 14,
        adjustment_width: 15,
        input1_id: 16,
        filter_id: 17,
        bias_id: 18,
        output_id: 19,
        flags: 20,
    };
    let pool = Pooling {
        padding_top: 1,
        padding_right: 2,
        padding_bottom: 3,
        padding_left: 4,
        pooling_height: 5,
        pooling_width: 6,
        stride_height: 7,
        stride_width: 8,
        dilation_height: 9,
        dilation_width: 10,
        input_id: 11,
        output_id: 12,
        flags: 13,
    };
    let list = || vec![1, 2, 3].into();
    let join = Concatenation {
        axis: 1,
        input1_id: 2,
        input2_id: 3,
        input3_id: 4,
        input4_id: 5,
        output_id: 6,
        flags: 7,
        input5_id: 8,
    };
    vec![
        Kind::Abs(Unary { input_id: 1, output_id: 2, flags: 3 }),
        Kind::Div(Binary { input1_id: 1, input2_id: 2, output_id: 3, flags: 4 }),
        Kind::FullyConnected(FullyConnected {
            input1_id: 1,
            filter_id: 2,
            bias_id: NO_ID,
            output_id: 3,
            flags: 4,
        }),
        Kind::StaticTranspose(StaticTranspose {
            num_dims: 3,
            perm: list(),
            input_id: 1,
            output_id: 2,
            flags: 3,
        }),
        Kind::Conv2d(conv),
        Kind::MaxPooling2d(pool),
        Kind::ArgMaxPooling2d(ArgMaxPooling {
            padding_top: 1,
            padding_right: 2,
            padding_bottom: 3,
            padding_left: 4,
            pooling_height: 5,
            pooling_width: 6,
            input_id: 7,
            output_value_id: 8,
            output_index_id: 9,
            flags: 10,
        }),
        Kind::StaticResizeBilinear2D(StaticResizeBilinear2D {
            new_height: 1,
            new_width: 2,
            input_id: 3,
            output_id: 4,
            flags: 5,
        }),
        Kind::StaticConstantPad(StaticConstantPad {
            pre_paddings: list(),
            post_paddings: vec![4, 5].into(),
            padding_value: -0.0,
            input_id: 1,
            output_id: 2,
            flags: 3,
        }),
        Kind::StaticReshape(StaticReshape {
            num_dims: 3,
            new_shape: list(),
            input_id: 1,
            output_id: 2,
            flags: 3,
        }),
        Kind::StaticSlice(StaticSlice {
            num_dims: 3,
            offsets: list(),
            sizes: vec![].into(),
            input_id: 1,
            output_id: 2,
            flags: 3,
        }),
        Kind::ScaledDotProductAttention(Attention {
            query_id: 1,
            key_id: 2,
            value_id: 3,
            scale_id: 4,
            mask_id: 5,
            output_id: 6,
            flags: 7,
        }),
        Kind::Concatenate5(join),
        Kind::ELU(Elu { alpha: 0.5, input_id: 1, output_id: 2, flags: 3 }),
        Kind::LeakyReLU(LeakyRelu { negative_slope: 0.25, input_id: 1, output_id: 2, flags: 3 }),
    ]
}

#[test]
fn every_node_kind_and_table_comes_back() {
    let values = (0..20).map(|id| Value::Tensor(inner(id, &[2]))).collect();
    let mut nodes: Vec<Node> = Kind::all().into_iter().chain(filled()).map(node).collect();
    assert_eq!(Kind::all().len(), 47);
    nodes[0].output_min_max = Some(OutputMinMax { output_min: 0.0, output_max: f32::INFINITY });
    let payload = graph(values, nodes, 0);
    let bytes = Bytes::copy_of(&payload.encode().unwrap());
    assert_eq!(bytes[32 + 4..][..4], *b"XN01");
    let (again, unknown) = Payload::decode_with_remarks(&bytes, &limits()).unwrap();
    assert_eq!(again, payload);
    assert!(unknown.is_empty());
}

/// Values of all kinds of quantisation.
fn quantized() -> Vec<Value> {
    let value = |id, datatype, constant, dims: &[u32], quantization| Value::Quantized {
        tensor: Some(TensorValue { datatype, ..constant_value(id, constant, dims) }),
        quantization,
    };
    let channels = |scale: &[f32], index, count| {
        Quantization::PerChannel(PerChannelQuant {
            scale: scale.to_vec().into(),
            channel_dim: 0,
            scale_buffer_idx: index,
            num_scales: count,
        })
    };
    let groups = |scale: Vec<f32>, index, count| {
        Quantization::PerChannelGroup(PerChannelGroupQuant {
            scale: scale.into(),
            group_size: 32,
            scale_buffer_idx: index,
            num_scales: count,
            ..PerChannelGroupQuant::default()
        })
    };
    let one = |zero_point| Quantization::PerTensor(PerTensorQuant { scale: 0.5, zero_point });
    let rows = Quantization::PerTokenDynamic(PerTokenDynamicQuant { num_nonbatch_dims: 1 });
    vec![
        value(10, Datatype::Qint8, 0, &[3, 64], one(-3)),
        value(11, Datatype::Quint8, 0, &[3, 64], one(200)),
        value(12, Datatype::Qint32, 2, &[4], one(0)),
        value(13, Datatype::Qcint8, 2, &[4, 64], channels(&[], 2, 4)),
        value(14, Datatype::Qcint8, 2, &[4, 64], channels(&[1.0, 2.0, 3.0, 4.0], 0, 0)),
        value(15, Datatype::Qcint4, 2, &[4, 64], channels(&[], 1, 4)),
        value(16, Datatype::Qbint4, 2, &[4, 64], groups(vec![], 1, 8)),
        value(17, Datatype::Qbint4, 2, &[4, 64], groups(vec![0.5; 8], 0, 0)),
        value(18, Datatype::Qdint8, 0, &[3, 64], rows),
        value(19, Datatype::Qint8, 2, &[4, 64], one(0)),
        value(20, Datatype::Qcint8, 2, &[4, 20], channels(&[], 2, 4)),
        value(21, Datatype::Qcint4, 2, &[4, 21], channels(&[], 2, 4)),
    ]
}

#[test]
fn all_forms_of_quantisation_come_back() {
    let payload = graph(quantized(), vec![], 0);
    let bytes = Bytes::copy_of(&payload.encode().unwrap());
    assert_eq!(Payload::decode(&bytes, &limits()).unwrap(), payload);
}

#[test]
fn an_old_file_without_a_header_keeps_its_constants_inside() {
    let mut payload = graph(vec![Value::Tensor(constant_value(3, 1, &[2]))], vec![], 0);
    payload.identifier = *b"XN00";
    payload.data = None;
    payload.graph.constant_data = List::absent();
    let storage = Bytes::copy_of(&[1, 2, 3, 4, 5, 6, 7, 8]);
    payload.graph.constant_buffer =
        vec![Buffer::default(), Buffer { storage: storage.clone().into() }].into();
    let bytes = Bytes::copy_of(&payload.encode().unwrap());
    let again = Payload::decode(&bytes, &limits()).unwrap();
    assert_eq!(again, payload);
    assert_eq!(again.constant(1), Some(Constant::Inline(storage)));
    assert_eq!((again.constant(0), again.constant(2)), (None, None));
}

#[test]
fn another_identifier_and_another_version_are_named() {
    let mut payload = graph(vec![], vec![], 0);
    payload.identifier = *b"XN02";
    let decode = |payload: &Payload| {
        Payload::decode(&Bytes::copy_of(&payload.encode().unwrap()), &limits()).unwrap_err().to_string()
    };
    assert!(decode(&payload).contains("format version `XN02`"), "{}", decode(&payload));
    payload.identifier = *b"ABCD";
    assert!(decode(&payload).contains("not a XNNPACK payload"), "{}", decode(&payload));
    payload.identifier = *b"XN01";
    payload.graph.version = "3".into();
    assert!(decode(&payload).contains("version 3"), "{}", decode(&payload));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let mut values = quantized();
    let Value::Quantized { quantization: Quantization::PerTensor(grid), .. } = &mut values[0] else {
        panic!()
    };
    grid.zero_point = 300;
    let Value::Quantized { quantization: Quantization::PerChannel(grid), .. } = &mut values[3] else {
        panic!()
    };
    grid.num_scales = 5;
    let Value::Quantized { quantization: Quantization::PerChannelGroup(grid), .. } = &mut values[6] else {
        panic!()
    };
    grid.group_size = 48;
    values.push(Value::Tensor(constant_value(99, 77, &[2])));
    values.push(extern_value(9, 1, &[2]));
    values.push(extern_value(0, 1, &[1, u32::MAX]));
    let nodes = vec![node(Kind::Abs(Unary { input_id: 1234, output_id: 10, flags: 0 }))];
    let error = graph(values, nodes, 1).check(&limits()).unwrap_err().to_string();
    for part in [
        "zero point 300",
        "5 scales for 4 channels",
        "groups of 48",
        "constant 77, but there are 3",
        "argument 9 of 1",
        "a size of 4294967295 is more than a program can hold",
        "Abs reads value 1234, which there is not",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn damaged_bytes_are_errors_and_never_panics() {
    let (payload, _) = everything();
    let bytes = payload.encode().unwrap();
    let limits = Limits { tensor_bytes: 1 << 20, decoded_bytes: 1 << 20, ..Limits::default() };
    let tables = bytes.len() - 4096;
    let try_out = |bytes: &[u8]| {
        if let Ok(payload) = Payload::decode(&Bytes::copy_of(bytes), &limits) {
            let _ = lift(&payload, "f", &[], &limits);
        }
    };
    // Miri takes seconds for one of them.
    let (cuts, places) = if cfg!(miri) { (1009, 1511) } else { (41, 11) };
    (0..tables).step_by(cuts).for_each(|end| try_out(&bytes[..end]));
    for at in (0..tables).step_by(places) {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            try_out(&damaged);
        }
    }
}

/// A payload that has every node kind with operands that fit, and how many results it has.
fn everything() -> (Payload, u32) {
    let mut values = vec![extern_value(0, 1, &[1, 6, 6, 4]), extern_value(1, 1, &[3, 64])];
    values.extend(quantized());
    values.push(Value::Tensor(constant_value(30, 2, &[4, 3, 3, 4])));
    values.push(Value::Tensor(constant_value(31, 2, &[1, 3, 3, 4])));
    values.push(Value::Tensor(constant_value(32, 2, &[4])));
    values.push(Value::Tensor(constant_value(33, 2, &[4, 64])));
    values.push(Value::Tensor(constant_value(34, 2, &[6, 6])));
    let (image, rows) = (0, 1);
    let mut nodes = Vec::new();
    let mut next = 100;
    let mut result = |values: &mut Vec<Value>| {
        next += 1;
        values.push(Value::Tensor(inner(next, &[1])));
        next
    };
    for kind in Kind::all() {
        let output_id = result(&mut values);
        let unary = Unary { input_id: image, output_id, flags: 0x40 };
        let binary = Binary { input1_id: image, input2_id: image, output_id, flags: 0 };
        let window = Pooling {
            pooling_height: 3,
            pooling_width: 2,
            stride_height: 2,
            stride_width: 1,
            dilation_height: 1,
            dilation_width: 1,
            padding_top: 1,
            input_id: image,
            output_id,
            ..Pooling::default()
        };
        let conv = |filter_id, groups| Convolution {
            padding_top: 1,
            padding_bottom: 1,
            kernel_height: 3,
            kernel_width: 3,
            subsampling_height: 1,
            subsampling_width: 2,
            dilation_height: 1,
            dilation_width: 1,
            groups,
            input1_id: image,
            filter_id,
            bias_id: 32,
            output_id,
            ..Convolution::default()
        };
        let join = Concatenation {
            axis: 3,
            input1_id: image,
            input2_id: image,
            input3_id: image,
            input4_id: image,
            input5_id: image,
            output_id,
            flags: 0,
        };
        let list = |numbers: &[u32]| numbers.to_vec().into();
        let product =
            |filter_id| FullyConnected { input1_id: rows, filter_id, bias_id: NO_ID, output_id, flags: 0 };
        nodes.push(node(match kind {
            Kind::FullyConnected(_) => Kind::FullyConnected(product(33)),
            Kind::StaticTranspose(_) => Kind::StaticTranspose(StaticTranspose {
                num_dims: 4,
                perm: list(&[0, 3, 1, 2]),
                input_id: image,
                output_id,
                flags: 0,
            }),
            Kind::Conv2d(_) => Kind::Conv2d(conv(30, 1)),
            Kind::DepthwiseConv2d(_) => Kind::DepthwiseConv2d(conv(31, 4)),
            Kind::ConvTranspose2d(_) => Kind::ConvTranspose2d(conv(30, 1)),
            Kind::MaxPooling2d(_) => Kind::MaxPooling2d(window),
            Kind::AvgPooling2d(_) => Kind::AvgPooling2d(window),
            Kind::ArgMaxPooling2d(_) => {
                let output_index_id = result(&mut values);
                Kind::ArgMaxPooling2d(ArgMaxPooling {
                    pooling_height: 6,
                    pooling_width: 1,
                    input_id: image,
                    output_value_id: output_id,
                    output_index_id,
                    ..ArgMaxPooling::default()
                })
            }
            Kind::StaticResizeBilinear2D(_) => Kind::StaticResizeBilinear2D(StaticResizeBilinear2D {
                new_height: 9,
                new_width: 3,
                input_id: image,
                output_id,
                flags: 0,
            }),
            Kind::StaticConstantPad(_) => Kind::StaticConstantPad(StaticConstantPad {
                pre_paddings: list(&[0, 1, 0, 0]),
                post_paddings: list(&[0, 0, 2, 0]),
                padding_value: 1.5,
                input_id: image,
                output_id,
                flags: 0,
            }),
            Kind::StaticReshape(_) => Kind::StaticReshape(StaticReshape {
                num_dims: 2,
                new_shape: list(&[0, 4]),
                input_id: image,
                output_id,
                flags: 0,
            }),
            Kind::StaticSlice(_) => Kind::StaticSlice(StaticSlice {
                num_dims: 4,
                offsets: list(&[0, 1, 2, 0]),
                sizes: list(&[1, 3, 0, 4]),
                input_id: image,
                output_id,
                flags: 0,
            }),
            Kind::ScaledDotProductAttention(_) => Kind::ScaledDotProductAttention(Attention {
                query_id: image,
                key_id: image,
                value_id: image,
                scale_id: 32,
                mask_id: 34,
                output_id,
                flags: 0,
            }),
            Kind::BatchMatrixMultiply(_) => Kind::BatchMatrixMultiply(Binary { flags: 1, ..binary }),
            Kind::PReLU(_) => Kind::PReLU(Binary { input2_id: 32, ..binary }),
            Kind::Concatenate2(_) => Kind::Concatenate2(join),
            Kind::Concatenate3(_) => Kind::Concatenate3(join),
            Kind::Concatenate4(_) => Kind::Concatenate4(join),
            Kind::Concatenate5(_) => Kind::Concatenate5(join),
            Kind::ELU(_) => Kind::ELU(Elu { alpha: 2.0, input_id: image, output_id, flags: 0 }),
            Kind::LeakyReLU(_) => {
                Kind::LeakyReLU(LeakyRelu { negative_slope: 0.5, input_id: image, output_id, flags: 0 })
            }
            Kind::Add(_) => Kind::Add(binary),
            Kind::Div(_) => Kind::Div(binary),
            Kind::Minimum(_) => Kind::Minimum(binary),
            Kind::Maximum(_) => Kind::Maximum(binary),
            Kind::Multiply(_) => Kind::Multiply(binary),
            Kind::Subtract(_) => Kind::Subtract(binary),
            Kind::Softmax(_) => Kind::Softmax(unary),
            Kind::Sigmoid(_) => Kind::Sigmoid(unary),
            Kind::Clamp(_) => Kind::Clamp(unary),
            Kind::Floor(_) => Kind::Floor(unary),
            Kind::Convert(_) => Kind::Convert(unary),
            Kind::GlobalAvgPooling2d(_) => Kind::GlobalAvgPooling2d(unary),
            Kind::SquareRoot(_) => Kind::SquareRoot(unary),
            Kind::Ceiling(_) => Kind::Ceiling(unary),
            Kind::Hardswish(_) => Kind::Hardswish(unary),
            Kind::Negate(_) => Kind::Negate(unary),
            Kind::Square(_) => Kind::Square(unary),
            Kind::Abs(_) => Kind::Abs(unary),
            Kind::ReciprocalSquareRoot(_) => Kind::ReciprocalSquareRoot(unary),
            Kind::Log(_) => Kind::Log(unary),
            Kind::Gelu(_) => Kind::Gelu(unary),
            Kind::Tanh(_) => Kind::Tanh(unary),
            Kind::Exp(_) => Kind::Exp(unary),
            Kind::Sin(_) => Kind::Sin(unary),
            Kind::Copy(_) => Kind::Copy(unary),
            Kind::Cos(_) => Kind::Cos(unary),
        }));
    }
    // Codes of all kinds: activations of three, weights of every form.
    for output_id in [10, 11, 18] {
        nodes.push(node(Kind::Convert(Unary { input_id: rows, output_id, flags: 0 })));
    }
    for filter_id in [13, 14, 15, 16, 17, 19] {
        for input1_id in [10, 18] {
            let output_id = result(&mut values);
            let product = FullyConnected { input1_id, filter_id, bias_id: 12, output_id, flags: 0 };
            nodes.push(node(Kind::FullyConnected(product)));
        }
    }
    for filter_id in [20, 21] {
        // Rows that are no multiple of 32 become plain numbers.
        let output_id = result(&mut values);
        nodes.push(node(Kind::Copy(Unary { input_id: filter_id, output_id, flags: 0 })));
    }
    // What is asked for leaves by the last argument.
    let last = values.iter().position(|value| value.tensor().unwrap().id_out == 101).unwrap();
    values[last] = Value::Tensor(TensorValue { external_id: 2, flags: 2, ..inner(101, &[1, 6, 6, 4]) });
    (graph(values, nodes, 3), 2)
}

#[test]
fn every_node_kind_becomes_a_sound_graph() {
    let (payload, inputs) = everything();
    let lifted = lift(&payload, "f", &[], &limits()).unwrap();
    verify_module(&lifted.module).unwrap();
    assert_eq!(lifted.module.main.inputs.len(), inputs as usize);
    assert_eq!(lifted.module.main.outputs.len(), 1);
    // 4-bit weights are read where they lie, by the words of the packed layout.
    let text = lifted.module.main.to_string();
    assert!(text.contains("bits=4") && text.contains("bits=8"), "{text}");
}

#[test]
fn nodes_that_are_wrong_are_all_named_and_what_depends_on_them_is_not() {
    let values = vec![
        extern_value(0, 1, &[2, 3]),
        extern_value(1, 2, &[2, 3]),
        Value::Tensor(inner(2, &[2, 3])),
        Value::Tensor(inner(3, &[5])),
        Value::Tensor(inner(4, &[5])),
    ];
    let unary = |input_id, output_id| Unary { input_id, output_id, flags: 0 };
    let nodes = vec![
        node(Kind::Abs(unary(3, 2))),
        node(Kind::Exp(unary(2, 1))),
        node(Kind::StaticReshape(StaticReshape {
            num_dims: 2,
            new_shape: vec![0, 0].into(),
            input_id: 0,
            output_id: 4,
            flags: 0,
        })),
    ];
    let error = lift(&graph(values, nodes, 2), "f", &[], &limits()).unwrap_err().to_string();
    assert!(error.contains("xnodes[0] (Abs): it reads value 3, which nothing has set before"), "{error}");
    assert!(error.contains("xnodes[2] (StaticReshape): more than one size"), "{error}");
    assert!(!error.contains("xnodes[1]"), "{error}");
}
