//! A matrix that is at hand as floats, packed as a [`Quantization`] says: for graphs that are built by other means than
//! the blocks here.

use std::ops::Range;

use pteron_tensor::quant::Scheme;
use pteron_tensor::{Bytes, DType, HostTensor};

use super::{Deviation, Packing, PackingError, Quantization, Task, quantise};
use crate::{Form, Part, Wanted, WeightError, WeightSource, encode};

/// A packed matrix, part by part.
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    /// Mode, width and group.
    pub scheme: Scheme,
    /// Codes, rows of 32-bit words.
    pub codes: HostTensor,
    /// A scale a group.
    pub scales: HostTensor,
    /// A bias a group, in the affine mode.
    pub biases: Option<HostTensor>,
    /// One factor for the whole tensor, where the scheme has one.
    pub tensor_scale: Option<HostTensor>,
    /// How far the packed numbers are off.
    pub deviation: Deviation,
}

impl Quantization {
    /// A matrix packed, with scales of that float type; nothing where it stays as it is.
    pub fn pack(
        &self,
        name: &str,
        matrix: &HostTensor,
        scales: DType,
    ) -> Result<Option<PackedMatrix>, PackingError> {
        let &[rows, columns] = matrix.shape() else { return Ok(None) };
        let Some(plan) = self.plan(name, Form::Floats, columns, scales)? else { return Ok(None) };
        let packing = plan.packing;
        let source = Floats(matrix);
        let task = Task {
            source: &source,
            name,
            shape: [rows, columns],
            from: Form::Floats,
            packing,
            method: self.method,
        };
        let failed = |problem: &dyn std::fmt::Display| PackingError::Matrix(format!("{name}: {problem}"));
        let (packed, deviation) = quantise(&task).map_err(|error| failed(&error))?;
        let part = |part: Part| {
            let Some((dtype, shape)) = packing.part(rows, columns, part) else { return Ok(None) };
            let tensor = HostTensor::new(dtype, shape, Bytes::copy_of(packed.part(part)));
            tensor.map(Some).map_err(|error| failed(&error))
        };
        let whole =
            |tensor: Option<HostTensor>| tensor.ok_or_else(|| failed(&"a packing without codes or scales"));
        let scales = whole(part(Part::Scales)?)?;
        let biases = match packing.is_centred() {
            true => Some(centred_biases(packing, &scales).map_err(|error| failed(&error))?),
            false => part(Part::Biases)?,
        };
        Ok(Some(PackedMatrix {
            scheme: packing.scheme(),
            codes: whole(part(Part::Codes)?)?,
            scales,
            biases,
            tensor_scale: part(Part::TensorScale)?,
            deviation,
        }))
    }
}

/// What is added to a code times its scale so that the middle code stands for zero.
fn centred_biases(packing: Packing, scales: &HostTensor) -> Result<HostTensor, WeightError> {
    let mut values = vec![0.0; scales.len()];
    read(scales, 0..scales.len(), &mut values)?;
    values.iter_mut().for_each(|value| *value *= -packing.half());
    let mut bytes = Vec::new();
    encode(&values, scales.dtype(), &mut bytes);
    HostTensor::new(scales.dtype(), scales.shape().to_vec(), Bytes::copy_of(&bytes))
        .map_err(|error| problem(&error))
}

fn problem(problem: &dyn std::fmt::Display) -> WeightError {
    WeightError::Read { name: "matrix".to_owned(), problem: problem.to_string() }
}

/// A tensor in memory as a source of one weight.
struct Floats<'a>(&'a HostTensor);

fn read(tensor: &HostTensor, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
    let size = tensor.dtype().size();
    let bytes: &[u8] = tensor.bytes();
    let Some(bytes) = bytes.get(elements.start * size..elements.end * size) else {
        return Err(problem(&"elements beyond its end"));
    };
    for (value, bytes) in out.iter_mut().zip(bytes.chunks_exact(size)) {
        *value = match (tensor.dtype(), bytes) {
            (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f32(),
            (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f32(),
            (other, _) => return Err(problem(&format!("{other} is no float that can be packed"))),
        };
    }
    Ok(())
}

impl WeightSource for Floats<'_> {
    fn form(&self, _: Wanted<'_>) -> Result<Form, WeightError> {
        Ok(Form::Floats)
    }

    fn read(&self, _: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        read(self.0, elements, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_tensor::quant::Mode;

    #[test]
    fn a_matrix_is_packed_as_a_rule_says() {
        let values: Vec<f32> = (0..128).map(|at| (at as f32 - 64.0) / 64.0).collect();
        let matrix = HostTensor::from_slice(vec![2, 64], &values).unwrap();
        let all = Quantization::of("4w".parse().unwrap());
        let packed = all.pack("layer.weight", &matrix, DType::F32).unwrap().unwrap();
        assert_eq!(packed.scheme.mode(), Mode::Affine);
        assert_eq!((packed.codes.shape(), packed.scales.shape()), (&[2, 8][..], &[2, 2][..]));
        let (scales, biases) = (packed.scales.as_slice::<f32>().unwrap(), packed.biases.unwrap());
        let expected: Vec<f32> = scales.iter().map(|scale| scale * -8.0).collect();
        assert_eq!(biases.as_slice::<f32>().unwrap(), expected);
        assert!(packed.deviation.relative_rms < 0.1);
        let none = Quantization { rules: vec!["layer=none".parse().unwrap()], ..all };
        assert!(none.pack("layer.weight", &matrix, DType::F32).unwrap().is_none());
    }
}
