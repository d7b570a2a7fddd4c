//! Sizes of arguments and of what nodes make of them, and constants that several values name.

use super::*;

/// Sizes that come in are held to what programs hold, and so are those that nodes make of them.
#[test]
fn results_larger_than_programs_hold_are_refused() {
    let most = i32::MAX as u32;
    let values = vec![extern_value(0, 1, &[most]), extern_value(1, 2, &[most])];
    let both =
        Concatenation { axis: 0, input1_id: 0, input2_id: 0, output_id: 1, ..Concatenation::default() };
    let nodes = vec![node(Kind::Concatenate2(both))];
    let error = lift(&graph(values, nodes, 2), "f", &[], &limits()).unwrap_err().to_string();
    assert!(error.contains("a size of 4294967294 is more than a program can hold"), "{error}");
}

#[test]
fn sizes_of_dynamic_arguments_are_symbols_and_those_of_others_are_not() {
    let values = vec![extern_value(0, 1, &[1, 8]), extern_value(1, 2, &[1, 8])];
    let nodes = vec![node(Kind::Abs(Unary { input_id: 0, output_id: 1, flags: 0 }))];
    let payload = graph(values, nodes, 2);
    let of = |is_dynamic| {
        let argument = Argument { dtype: Some(DType::F32), sizes: vec![1, 8], is_dynamic };
        lift(&payload, "f", &[argument.clone(), argument], &limits()).unwrap().module.main
    };
    let fixed = of(false);
    assert!(fixed.symbols.is_empty());
    let free = of(true);
    // A dim of at most one is known.
    let bounds: Vec<_> = free.symbols.iter().map(|(_, info)| info.max).collect();
    assert_eq!(bounds, [Some(8)]);
}

#[test]
fn a_number_without_dims_is_a_tensor_of_one_element_inside() {
    let values = vec![extern_value(0, 1, &[1]), extern_value(1, 2, &[1])];
    let nodes = vec![node(Kind::Abs(Unary { input_id: 0, output_id: 1, flags: 0 }))];
    let argument = Argument { dtype: Some(DType::F32), sizes: vec![], is_dynamic: false };
    let arguments = [argument.clone(), argument];
    let lifted = lift(&graph(values, nodes, 2), "f", &arguments, &limits()).unwrap();
    verify_module(&lifted.module).unwrap();
    let main = &lifted.module.main;
    let rank = |value| match main.ty(value) {
        Some(pteron_ir::Type::Tensor(ty)) => ty.shape.len(),
        _ => panic!(),
    };
    assert_eq!((rank(main.inputs[0].value), rank(main.outputs[0].value)), (0, 0));
}

#[test]
fn the_same_bytes_under_two_types_are_two_constants_with_one_key() {
    let values = vec![
        extern_value(0, 2, &[2]),
        Value::Tensor(constant_value(1, 1, &[2])),
        Value::Tensor(constant_value(2, 1, &[2, 1])),
    ];
    let sum = Binary { input1_id: 1, input2_id: 2, output_id: 0, flags: 0 };
    let lifted = lift(&graph(values, vec![node(Kind::Add(sum))], 1), "f", &[], &limits()).unwrap();
    assert_eq!(lifted.data.len(), 2);
    assert!(lifted.data.values().all(|data| *data == Constant::Named("key".into())));
}
