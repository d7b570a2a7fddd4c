//! Random graphs that are full of what passes look for, before and after all passes on the reference backend: they give
//! the same.

#![allow(clippy::unwrap_used)] // a test may panic

mod interpret;

use interpret::{Data, Numbers};
use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Builder, Dim, Graph, Op, Output, Ssa, TensorType, Type, ValueId, verify};
use pteron_passes::{PIPELINE, Remarks};
use pteron_tensor::{DType, HostTensor};

const GRAPHS: u64 = 200;
const NODES: usize = 30;

#[test]
fn passes_keep_the_meaning_of_random_graphs() {
    let (mut smaller, mut taken, mut compared) = (0, 0, 0);
    for seed in 1..=GRAPHS {
        let (graph, data) = random_graph(seed);
        verify(&graph).unwrap();
        let (mut made, mut kept) = (graph.clone(), data.clone());
        for pass in PIPELINE {
            let mut remarks = Remarks::default();
            pass.apply(&mut made, &mut kept, &mut remarks);
            verify(&made)
                .unwrap_or_else(|errors| panic!("seed {seed}, {}: {}\n{graph}", pass.name, errors[0]));
            taken += remarks.taken();
            for size in [1, 3, 4] {
                // Not every size broadcasts with every other: that is told when the graph runs.
                let Ok(before) = interpret::run(&graph, &data, seed, size) else { continue };
                compared += 1;
                let after = interpret::run(&made, &kept, seed, size).unwrap();
                if let Err(why) = interpret::same(&before, &after) {
                    panic!("seed {seed}, after {}, size {size}: {why}\n{graph}\nbecame\n{made}", pass.name);
                }
            }
        }
        smaller += usize::from(made.body.nodes.len() < graph.body.nodes.len());
    }
    // The graphs are made so that there is much to do.
    assert!(
        smaller > GRAPHS as usize / 2 && taken > 1000,
        "{smaller} became smaller, {taken} patterns were taken"
    );
    assert!(compared > GRAPHS as usize * PIPELINE.len(), "{compared} runs were compared");
}

fn random_graph(seed: u64) -> (Graph, Data) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut graph = Graph { name: "random".into(), ..Graph::default() };
    let mut data = Data::default();
    let size = Dim::symbol(graph.symbols.add("T", 0, Some(8)));
    let ty = |dtype, shape: &[Dim]| Type::Tensor(TensorType { dtype, shape: shape.to_vec() });
    let known = Dim::known;
    let mut tensors = vec![
        graph.add_input("x", ty(DType::F32, &[known(1), size.clone(), known(4)])),
        graph.add_input("y", ty(DType::F32, &[size.clone(), known(4)])),
        graph.add_input("h", ty(DType::BF16, &[known(1), size.clone(), known(4)])),
        graph.add_input("c", ty(DType::Bool, &[size.clone(), known(4)])),
        graph.add_input("i", ty(DType::I64, &[size])),
    ];
    let constants: [(&str, DType, Vec<usize>, Vec<f32>); 6] = [
        ("zero", DType::F32, vec![], vec![0.0]),
        ("one", DType::F32, vec![4], vec![1.0; 4]),
        ("again", DType::F32, vec![4], vec![1.0; 4]),
        ("half", DType::F32, vec![], vec![0.5]),
        ("eps", DType::F32, vec![], vec![1e-5]),
        ("w", DType::F32, vec![4], vec![0.5, -1.0, 2.0, 0.25]),
    ];
    for (name, dtype, shape, values) in constants {
        let tensor = HostTensor::from_slice(shape.clone(), &values).unwrap();
        tensors.push(graph.add_constant(name, TensorType::known(dtype, &shape)));
        data.0.insert(name.to_owned(), tensor);
    }
    let mut builder = Builder::new(graph);
    for _ in 0..NODES {
        let op = random_op(&mut numbers, builder.graph(), &tensors);
        // An op that does not fit its operands is not appended.
        if let Ok(results) = builder.append(op, None) {
            tensors.extend(results);
        }
    }
    let mut graph = builder.finish();
    let outputs = tensors.iter().rev().take(4).map(|&value| Output {
        name: String::new(),
        value,
        ty: graph.ty(value).unwrap().clone(),
    });
    graph.outputs = outputs.collect();
    (graph, data)
}

fn random_op(numbers: &mut Numbers, graph: &Graph, values: &[ValueId]) -> Op<Ssa> {
    let of_type = |tensor: bool| -> Vec<ValueId> {
        values
            .iter()
            .copied()
            .filter(|value| matches!(graph.ty(*value), Some(Type::Tensor(_))) == tensor)
            .collect()
    };
    let (tensors, ints) = (of_type(true), of_type(false));
    let pick = |numbers: &mut Numbers| tensors[numbers.below(tensors.len())];
    let x = pick(numbers);
    let y = pick(numbers);
    let rank = match graph.ty(x) {
        Some(Type::Tensor(ty)) => ty.shape.len() as i32,
        _ => 0,
    };
    let int = match ints.is_empty() {
        true => IntArg::Literal(4),
        false => IntArg::Value(ints[numbers.below(ints.len())]),
    };
    let is_known = |value: ValueId| match graph.ty(value) {
        Some(Type::Tensor(ty)) => ty.shape.first().is_some_and(|dim| dim.as_known().is_some()),
        _ => false,
    };
    let turned = || (0..rank).rev().collect::<Vec<i32>>();
    let dtypes = [DType::F32, DType::BF16, DType::I64];
    match numbers.below(22) {
        0 | 1 => Op::Add { a: x, b: y },
        2 | 3 => Op::Multiply { a: x, b: y },
        4 => Op::Subtract { a: x, b: y },
        5 => Op::Sigmoid { x },
        6 => Op::Multiply { a: x, b: x },
        7 | 8 => Op::AsType { x, scalar_type: dtypes[numbers.below(3)] },
        9 | 10 => Op::Transpose { x, perm: turned() },
        11 => Op::ExpandDims { x, axis: numbers.below(rank as usize + 1) as i32 },
        // An axis that may turn out to be 1 is squeezed against its type.
        12 if is_known(x) => Op::Squeeze { x, dims: Some(vec![0]) },
        13 => Op::Take { x, index: IndexArg::Literal(0), axis: 0 },
        14 => Op::Reshape { x, shape: vec![IntArg::Literal(-1), IntArg::Literal(4)] },
        15 => Op::Reshape { x, shape: vec![IntArg::Literal(1), int, IntArg::Literal(4)] },
        16 => Op::SymSize { a: x, dim: 0 },
        17 => Op::SymSize { a: x, dim: -1 },
        18 => Op::Slice { x, axis: IntArg::Literal(0), start: IntArg::Literal(0), stop: int, step: 1 },
        19 => Op::Mean { x, axes: Some(vec![-1]), keepdims: true },
        20 => Op::Rsqrt { x },
        _ => Op::Contiguous { x },
    }
}
