//! Graphs without nested blocks, run node by node on the reference backend, so that what a graph gives before and after
//! a pass can be compared.

use pteron_ir::{Dim, Graph, Type, ValueId};
use pteron_passes::Weights;
use pteron_runtime::Value;
use pteron_runtime::backend::RunControl;
use pteron_runtime::reference::run_op;
use pteron_tensor::{DType, HostTensor};
use std::collections::HashMap;

/// Constants of a test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data(pub(crate) HashMap<String, HostTensor>);

impl Weights for Data {
    fn get(&self, name: &str) -> Option<&HostTensor> {
        self.0.get(name)
    }

    fn add(&mut self, name: &str, tensor: HostTensor) {
        assert!(self.0.insert(name.to_owned(), tensor).is_none(), "two constants are called {name}");
    }
}

/// Numbers that follow from a seed alone.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count.max(1)
    }

    /// A tensor of small numbers: floats in -2..2, integers in 0..3.
    pub(crate) fn tensor(&mut self, dtype: DType, shape: Vec<usize>) -> HostTensor {
        let count = pteron_tensor::element_count(&shape).unwrap();
        let floats: Vec<f32> = (0..count).map(|_| self.below(4001) as f32 / 1000.0 - 2.0).collect();
        let whole: Vec<u64> = floats.iter().map(|value| value.abs() as u64).collect();
        match dtype {
            DType::F32 => HostTensor::from_slice(shape, &floats),
            DType::BF16 => {
                let values: Vec<half::bf16> =
                    floats.iter().map(|value| half::bf16::from_f32(*value)).collect();
                HostTensor::from_slice(shape, &values)
            }
            DType::I64 => HostTensor::from_slice(shape, &whole.iter().map(|v| *v as i64).collect::<Vec<_>>()),
            DType::I32 => HostTensor::from_slice(shape, &whole.iter().map(|v| *v as i32).collect::<Vec<_>>()),
            DType::U32 => {
                // All bits of packed words.
                let words: Vec<u32> =
                    floats.iter().map(|value| value.to_bits().wrapping_mul(2_654_435_761)).collect();
                HostTensor::from_slice(shape, &words)
            }
            DType::U8 => {
                HostTensor::from_slice(shape, &whole.iter().map(|v| 120 + *v as u8).collect::<Vec<_>>())
            }
            DType::Bool => HostTensor::from_bools(shape, &whole.iter().map(|v| *v > 0).collect::<Vec<_>>()),
            other => panic!("no test needs {other}"),
        }
        .unwrap()
    }
}

/// Runs a graph: its outputs, then its buffers. Every symbol is `size`.
pub(crate) fn run(graph: &Graph, data: &Data, seed: u64, size: i64) -> Result<Vec<Value>, String> {
    let mut numbers = Numbers(seed | 1);
    let known = |dim: &Dim| dim.evaluate(|_| Some(size)).unwrap();
    let mut values: HashMap<ValueId, Value> = HashMap::new();
    let given = |ty: &Type, numbers: &mut Numbers| match ty {
        Type::Int(dim) => Value::Int(known(dim)),
        Type::Tensor(ty) => {
            let shape = ty.shape.iter().map(|dim| known(dim) as usize).collect();
            Value::Tensor(numbers.tensor(ty.dtype, shape))
        }
        other => panic!("no test takes {other:?}"),
    };
    for value in graph.inputs.iter().map(|input| input.value).chain(graph.buffers.iter().map(|b| b.value)) {
        values.insert(value, given(graph.ty(value).unwrap(), &mut numbers));
    }
    for constant in &graph.constants {
        values.insert(constant.value, Value::Tensor(data.0[&constant.name].clone()));
    }
    for node in &graph.body.nodes {
        let mut operands = Vec::new();
        node.for_each_operand(|value| operands.push((value, values[&value].clone())));
        let results = run_op(&node.op, &operands, &Default::default(), &RunControl::default());
        let results = results.map_err(|error| format!("{:?}: {error}", node.op))?;
        values.extend(node.results.iter().copied().zip(results));
    }
    let wanted = graph.outputs.iter().map(|output| output.value);
    let wanted = wanted.chain(graph.buffers.iter().map(|buffer| buffer.update));
    Ok(wanted.map(|value| values[&value].clone()).collect())
}

/// Refuses results that differ by more than rounding.
pub(crate) fn same(before: &[Value], after: &[Value]) -> Result<(), String> {
    for (position, (before, after)) in before.iter().zip(after).enumerate() {
        let (Ok(Some(a)), Ok(Some(b))) = (before.to_tensor(), after.to_tensor()) else {
            if before.as_int() != after.as_int() {
                return Err(format!("result {position}: {after:?} for {before:?}"));
            }
            continue;
        };
        if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
            return Err(format!(
                "result {position}: {:?} {:?} for {:?} {:?}",
                b.dtype(),
                b.shape(),
                a.dtype(),
                a.shape()
            ));
        }
        let slack = if a.dtype() == DType::BF16 { 3e-2 } else { 1e-5 };
        for (x, y) in elements(&a).iter().zip(elements(&b)) {
            let close = (x - y).abs() <= slack * x.abs().max(1.0) || x == &y || (x.is_nan() && y.is_nan());
            if !close {
                return Err(format!("result {position}: {y} for {x}"));
            }
        }
    }
    Ok(())
}

/// All elements as f64.
pub(crate) fn elements(tensor: &HostTensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        DType::BF16 => tensor.as_slice::<half::bf16>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        DType::I64 => tensor.as_slice::<i64>().unwrap().iter().map(|v| *v as f64).collect(),
        DType::I32 => tensor.as_slice::<i32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        DType::U32 => tensor.as_slice::<u32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        _ => tensor.bytes().iter().map(|byte| f64::from(*byte)).collect(),
    }
}
