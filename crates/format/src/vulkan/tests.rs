//! Payloads that come back as they were, payloads that must not get through, and what operators make of any arguments.

use pteron_ir::verify::verify_module;
use pteron_tensor::{Bytes, DType};

use super::*;
use crate::{Argument, emit};

fn limits() -> Limits {
    Limits::default()
}

fn tensor(datatype: Datatype, dims: &[u32], constant_id: i32) -> Value {
    Value::Tensor(VkTensor {
        datatype,
        dims: dims.to_vec().into(),
        constant_id,
        mem_obj_id: -1,
        ..VkTensor::default()
    })
}

fn floats(dims: &[u32]) -> Value {
    tensor(Datatype::Float32, dims, -1)
}

fn int(number: i64) -> Value {
    Value::Int(IntValue { int_val: number })
}

fn call(name: &str, args: &[i32]) -> OperatorCall {
    OperatorCall { node_id: 7, name: name.into(), args: args.to_vec().into() }
}

fn payload(values: Vec<Value>, chain: Vec<OperatorCall>, ends: (&[u32], &[u32])) -> Payload {
    let named = VkBytes { offset: BY_KEY, length: 4, named_key: "key".into() };
    let inline = VkBytes { offset: 0, length: 4096, ..VkBytes::default() };
    let graph = VkGraph {
        version: "0".into(),
        chain: chain.into(),
        values: values.into(),
        input_ids: ends.0.to_vec().into(),
        output_ids: ends.1.to_vec().into(),
        constants: vec![named, inline].into(),
        ..VkGraph::default()
    };
    Payload { graph, data: Bytes::copy_of(&[1; 4096]) }
}

/// One value of each kind.
fn every_value() -> Vec<Value> {
    vec![
        Value::Null(Null),
        int(-3),
        Value::Double(DoubleValue { double_val: 0.5 }),
        Value::Bool(BoolValue { bool_val: true }),
        Value::Tensor(VkTensor {
            datatype: Datatype::Int8,
            dims: vec![1, 2, 3].into(),
            constant_id: 1,
            mem_obj_id: 4,
            storage_type: StorageType::Texture3d,
            memory_layout: MemoryLayout::PackedInt8x4C1W,
            staging_datatype: StagingDatatype::Int64,
        }),
        Value::Ints(IntList { items: vec![1, -1].into() }),
        Value::Doubles(DoubleList { items: vec![0.25].into() }),
        Value::Bools(BoolList { items: vec![true, false].into() }),
        Value::Values(ValueList { items: vec![0, 4].into() }),
        Value::Text(StringValue { string_val: "none".into() }),
        Value::SymInt(SymInt { value: 5 }),
    ]
}

fn nothing_named(_: &str) -> Option<Bytes> {
    None
}

#[test]
fn every_value_and_table_comes_back() {
    let mut payload = payload(every_value(), vec![call("add", &[1, 1, 10])], (&[10], &[10]));
    payload.graph.storage_type_override = StorageType::Buffer;
    payload.graph.memory_layout_override = MemoryLayout::ChannelsPacked;
    let bytes = payload.encode().unwrap();
    let again = Payload::decode(&Bytes::copy_of(&bytes), &limits()).unwrap();
    assert_eq!(again, payload);
    assert_eq!(again.encode().unwrap(), bytes);
}

#[test]
fn other_magics_identifiers_and_versions_are_named() {
    let whole = payload(vec![floats(&[2])], vec![], (&[0], &[0]));
    let bytes = whole.encode().unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        Payload::decode(&Bytes::copy_of(&bytes), &limits()).unwrap_err().to_string()
    };
    assert!(refused(&|bytes| bytes[4] = b'X').contains("Vulkan payload"), "no magic");
    assert!(refused(&|bytes| bytes[36..40].copy_from_slice(b"VK09")).contains("VK09"), "a newer identifier");
    assert!(refused(&|bytes| bytes[36..40].copy_from_slice(b"ABCD")).contains("ABCD"), "another format");
    assert!(refused(&|bytes| bytes[8] = 20).contains("20 bytes"), "a short header");
    assert!(refused(&|bytes| bytes[14..18].fill(0xff)).contains("tables"), "tables beyond the end");
    let mut newer = whole;
    newer.graph.version = "1".into();
    let error = Payload::decode(&Bytes::copy_of(&newer.encode().unwrap()), &limits()).unwrap_err();
    assert!(matches!(error, FormatError::NewerVersion { .. }), "{error}");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let values = vec![
        tensor(Datatype::Float32, &[2], 9),
        Value::Values(ValueList { items: vec![0, 77, 1].into() }),
        tensor(Datatype::Float32, &[1; 99], -1),
        int(1),
    ];
    let mut broken =
        payload(values, vec![call("aten.add.Tensor", &[0, 50, -1]), call("x", &[])], (&[3], &[8]));
    broken.graph.version = "zero".into();
    broken.graph.constants.make_mut()[1].length = u64::MAX;
    broken.graph.values.make_mut().push(tensor(Datatype::Float32, &[2], 1));
    broken.graph.values.make_mut().push(floats(&[u32::MAX]));
    broken.graph.shaders = vec![VkBytes::default()].into();
    let error = broken.check(&limits()).unwrap_err().to_string();
    let said = [
        "\"zero\" is not a version number",
        "1 shaders",
        "constant 9, but there are 2",
        "lists value 77",
        "lists value 1, which is a list",
        "exceed the limit `rank`",
        "a size of 4294967295 is more than a program can hold",
        "constant 1 lies outside",
        "names value 50",
        "names value -1",
        "x gives nothing",
        "value 3 is Int, not a tensor",
        "there is no value 8",
    ];
    for text in said {
        assert!(error.contains(text), "{text}: {error}");
    }
}

#[test]
fn damaged_bytes_are_errors_and_never_panics() {
    let values = [every_value(), vec![floats(&[2, 3]), floats(&[2, 3])]].concat();
    let chain = vec![call("aten.relu.default", &[11, 12])];
    let whole = payload(values, chain, (&[11], &[12])).encode().unwrap();
    for at in 0..whole.len().min(2048) {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            let Ok(read) = Payload::decode(&Bytes::copy_of(&bytes), &limits()) else { continue };
            if let Ok(lifted) = lift(&read, "damaged", &[], &nothing_named, &limits()) {
                verify_module(&lifted.module).unwrap();
            }
        }
    }
}

/// Operators that are wrong are all named, and what depends on them is not.
#[test]
fn calls_that_are_wrong_are_all_named() {
    let values = vec![floats(&[2, 3]), floats(&[2, 3]), floats(&[2, 3]), floats(&[2, 3]), int(5)];
    let chain = vec![
        call("aten.frobnicate.default", &[0, 1]),
        call("aten.relu.default", &[1, 2]),
        call("aten.relu.default", &[4, 3]),
    ];
    let payload = payload(values, chain, (&[0], &[2]));
    let error = lift(&payload, "wrong", &[], &nothing_named, &limits()).unwrap_err().to_string();
    assert!(error.contains("chain[0] (aten.frobnicate.default): this operator is not known here"), "{error}");
    assert!(error.contains("chain[2] (aten.relu.default): argument 0 is Int"), "{error}");
    assert!(!error.contains("chain[1]") && !error.contains("output_ids"), "{error}");
}

/// A cache that is written in place lives on; one that does not begin with zeros begins with its constant.
#[test]
fn constants_that_are_written_become_buffers() {
    let values = |constant| {
        vec![
            floats(&[1, 2, 2, 4]),
            tensor(Datatype::Float32, &[1, 8, 2, 4], constant),
            int(3),
            floats(&[1, 8, 2, 4]),
        ]
    };
    for (constant, zeros, buffers) in [(0, true, 1), (0, false, 2), (1, true, 2)] {
        let payload =
            payload(values(constant), vec![call("update_cache.default", &[0, 1, 2, 3])], (&[0], &[3]));
        let named = |_: &str| zeros.then(|| Bytes::zeroed(256));
        let lifted = lift(&payload, "cache", &[], &named, &limits()).unwrap();
        verify_module(&lifted.module).unwrap();
        let main = &lifted.module.main;
        assert_eq!(main.buffers.len(), buffers, "{constant} {zeros}");
        assert!(main.buffers.iter().all(|buffer| buffer.value != buffer.update));
    }
}

/// Sizes of arguments that vary are symbols.
#[test]
fn sizes_of_dynamic_arguments_are_symbols() {
    let payload = payload(
        vec![floats(&[1, 8]), floats(&[1, 8])],
        vec![call("aten.exp.default", &[0, 1])],
        (&[0], &[1]),
    );
    for is_dynamic in [true, false] {
        let argument = Argument { dtype: Some(DType::F32), sizes: vec![1, 8], is_dynamic };
        let lifted =
            lift(&payload, "sizes", &[argument.clone(), argument], &nothing_named, &limits()).unwrap();
        let text = lifted.module.to_string();
        assert_eq!(text.contains("[1, 8]"), !is_dynamic, "{text}");
    }
}

/// Whatever an operator is called with: an error, or a graph that is sound and can be written.
#[test]
fn operators_with_any_arguments_are_errors_or_sound_graphs() {
    let mut values = every_value();
    let shapes: [&[u32]; 7] = [&[], &[4], &[2, 4], &[3, 2, 4], &[1, 4, 6, 6], &[1, 4, 2, 8], &[8, 32]];
    values.extend(shapes.iter().map(|dims| floats(dims)));
    let inputs: Vec<u32> = (11..values.len() as u32).collect();
    values.extend(shapes.iter().map(|dims| tensor(Datatype::Float32, dims, 1)));
    values.extend([tensor(Datatype::Uint8, &[8, 16], 1), tensor(Datatype::Int8, &[8, 32], 1)]);
    values.extend([0, 1, 2, 3, 8, 32].map(int));
    values.push(Value::Text(StringValue { string_val: "relu".into() }));
    values.push(Value::Ints(IntList { items: vec![2, 2].into() }));
    values.push(Value::Ints(IntList { items: vec![0].into() }));
    let pool = values.len() as u64;
    let outs = values.len() as i32;
    values.extend(shapes.iter().map(|dims| floats(dims)));
    values.push(Value::Values(ValueList { items: vec![outs + 2, outs + 2].into() }));
    values.push(Value::SymInt(SymInt { value: 0 }));
    let out_count = values.len() as u64 - outs as u64;

    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut sound = 0;
    let tries = if cfg!(miri) { 2 } else { 400 };
    for name in operators() {
        for _ in 0..tries {
            let mut args: Vec<i32> = (0..next(12)).map(|_| next(pool) as i32).collect();
            args.push(outs + next(out_count) as i32);
            let payload = payload(values.clone(), vec![call(name, &args)], (&inputs, &[]));
            let Ok(lifted) = lift(&payload, "any", &[], &nothing_named, &limits()) else { continue };
            if let Err(errors) = verify_module(&lifted.module) {
                panic!("{name} {args:?}: {}\n{}", errors[0], lifted.module);
            }
            emit(&lifted.module).unwrap_or_else(|error| panic!("{name} {args:?}: {error}"));
            sound += 1;
        }
    }
    assert!(cfg!(miri) || sound > 200, "{sound}");
}
