//! Graphs on every vector path of this machine give what they give on the reference backend.

use crate::graphs::Trial;
use pteron_cpu::{Cpu, Path};
use pteron_runtime::Value;
use pteron_runtime::backend::Backend;
use pteron_runtime::reference::Reference;
use pteron_tensor::{Bytes, DType, HostTensor};

pub(crate) fn f32s(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), values).unwrap()
}

/// Whole numbers as elements of any integer dtype.
pub(crate) fn ints(dtype: DType, shape: &[usize], values: &[i64]) -> HostTensor {
    let bytes: Vec<u8> =
        values.iter().flat_map(|value| value.to_le_bytes()[..dtype.size()].to_vec()).collect();
    HostTensor::new(dtype, shape.to_vec(), Bytes::copy_of(&bytes)).unwrap()
}

/// Codes of packed weights that follow from a seed.
pub(crate) fn codes(shape: &[usize], seed: u32) -> HostTensor {
    let count: usize = shape.iter().product();
    let codes: Vec<u32> = (0..count as u32).map(|at| (at + seed).wrapping_mul(2_654_435_761)).collect();
    HostTensor::from_slice(shape.to_vec(), &codes).unwrap()
}

pub(crate) fn ramp(shape: &[usize]) -> HostTensor {
    let count: usize = shape.iter().product();
    f32s(shape, &(0..count).map(|at| (at % 13) as f32 * 0.25 - 1.0).collect::<Vec<_>>())
}

/// All paths of this machine, by name, and the reference backend last.
pub(crate) fn backends() -> Vec<(String, Box<dyn Backend>)> {
    let paths = Path::available().into_iter().map(|path| {
        let cpu: Box<dyn Backend> = Box::new(Cpu::new(2, Some(path)).unwrap());
        (path.to_string(), cpu)
    });
    let reference: Box<dyn Backend> = Box::new(Reference::default());
    paths.chain([("reference".to_owned(), reference)]).collect()
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    value.to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
}

fn assert_close(got: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let most = wanted.iter().fold(1f32, |most, number| most.max(number.abs()));
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= 1e-4 * most, "{what}: element {at} is {got}, not {wanted}");
    }
}

/// Runs a graph once on every backend: the outputs are those of the reference backend.
pub(crate) fn assert_agrees(text: &str, constants: &[(&str, HostTensor)], inputs: &[Value]) {
    let run = |backend: &dyn Backend| -> Vec<Vec<f32>> {
        let outputs = Trial::of(&[text], constants, backend).run(0, inputs);
        outputs.unwrap_or_else(|error| panic!("{error}")).iter().map(floats).collect()
    };
    let wanted = run(&Reference::default());
    for (name, backend) in backends() {
        for (at, (got, wanted)) in run(backend.as_ref()).iter().zip(&wanted).enumerate() {
            assert_close(got, wanted, &format!("{name}, output {at} of\n{text}"));
        }
    }
}
