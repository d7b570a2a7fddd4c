//! The weights of a folder under the names that architectures ask for.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use pteron_models::{Form, Packing, Part, Wanted, WeightError, WeightSource};
use pteron_tensor::DType;
use safetensors::tensor::Dtype;

use super::names::Names;
use super::safetensors::{Stored, Tensors};
use super::{Quantization, mlx, torchao};

/// What stands in place of `weight` in the names of a matrix's parts, whoever packed it.
const PARTS: [&str; 6] =
    ["weight", "scales", "biases", "_weight_qdata", "_weight_scale", "_weight_zero_point"];
/// Old files store the frequencies of positions, which the configuration says as well.
const FREQUENCIES: &str = "rotary_emb.inv_freq";

/// The weights of a folder.
pub(super) struct FolderWeights {
    tensors: Tensors,
    names: Names,
    quantization: Quantization,
    /// The last matrix of torchao's, by its name in the files: its scales serve all reads of it.
    last: Mutex<Option<(String, Arc<torchao::Matrix>)>>,
}

/// How a weight lies in the files.
enum Held<'t> {
    Plain(&'t Stored),
    Mlx(mlx::Matrix<'t>),
    Torchao(Arc<torchao::Matrix>),
}

impl FolderWeights {
    pub(super) fn new(tensors: Tensors, names: Names, quantization: Quantization) -> FolderWeights {
        FolderWeights { tensors, names, quantization, last: Mutex::new(None) }
    }

    /// The names that a weight, or the parts that it is packed in, may have in the files.
    fn parts(&self, name: &str) -> impl Iterator<Item = String> + use<> {
        let stored = self.names.stored(name);
        let parts = if stored.ends_with("weight") { &PARTS[..] } else { &[""] };
        parts.iter().map(move |part| format!("{}{part}", stored.strip_suffix("weight").unwrap_or(&stored)))
    }

    /// The weight of that name, with its name in the files.
    fn find(&self, Wanted { name, shape }: Wanted<'_>) -> Result<(String, Held<'_>), WeightError> {
        let stored_name = self.names.stored(name);
        if let Some(matrix) = self.torchao(&stored_name, shape)? {
            return Ok((stored_name, Held::Torchao(matrix)));
        }
        if let Quantization::Mlx(settings) = &self.quantization
            && let Some(matrix) = mlx::Matrix::find(&self.tensors, settings, &stored_name, shape)?
        {
            return Ok((stored_name, Held::Mlx(matrix)));
        }
        let problem = |problem: String| WeightError::Read { name: stored_name.clone(), problem };
        let stored = self.tensors.get(&stored_name);
        let floats = stored.filter(|stored| float_dtype(stored.dtype).is_some());
        let stored = match (floats, stored, &self.quantization) {
            (Some(stored), ..) => stored,
            (None, _, Quantization::Other(method)) => {
                return Err(problem(format!(
                    "weights quantised by `{method}` are not read; take the original model, or one that MLX or \
                     torchao quantised"
                )));
            }
            (None, Some(stored), _) => {
                let dtype = stored.dtype;
                return Err(problem(format!("it is stored as {dtype}; f32, f16 and bf16 are read")));
            }
            (None, None, _) => return Err(WeightError::Missing { name: stored_name }),
        };
        // A number may be stored as a vector of one, and the other way round.
        let is_number = stored.shape.is_empty() && shape == [1];
        if stored.shape != shape && !is_number {
            return Err(WeightError::Shape {
                name: stored_name,
                found: stored.shape.clone(),
                wanted: shape.to_vec(),
            });
        }
        Ok((stored_name, Held::Plain(stored)))
    }

    fn torchao(&self, name: &str, shape: &[usize]) -> Result<Option<Arc<torchao::Matrix>>, WeightError> {
        // A panic elsewhere leaves a whole matrix here, or none.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, matrix)) =
            last.as_ref().filter(|(known, matrix)| known == name && matrix.has_shape(shape))
        {
            return Ok(Some(matrix.clone()));
        }
        let by_transformers = matches!(self.quantization, Quantization::Torchao);
        let found = torchao::Matrix::find(&self.tensors, name, shape, by_transformers)?.map(Arc::new);
        if let Some(matrix) = &found {
            *last = Some((name.to_owned(), matrix.clone()));
        }
        Ok(found)
    }
}

impl WeightSource for FolderWeights {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        let (_, held) = self.find(wanted)?;
        Ok(match held {
            Held::Plain(_) => Form::Floats,
            Held::Mlx(matrix) => Form::Packed(matrix.packing),
            Held::Torchao(matrix) => matrix.packing().map_or(Form::Floats, Form::Packed),
        })
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let (stored_name, held) = self.find(wanted)?;
        let problem =
            |problem: &str| WeightError::Read { name: stored_name.clone(), problem: problem.to_owned() };
        match held {
            Held::Plain(stored) => {
                let size = stored.dtype.bitsize() / 8;
                let mut bytes = vec![0; elements.len() * size];
                self.tensors.read(&stored_name, stored, (elements.start * size) as u64, &mut bytes)?;
                let floats = widen(stored.dtype, &bytes).ok_or_else(|| problem("it holds no floats"))?;
                out.iter_mut().zip(floats).for_each(|(out, value)| *out = value);
                Ok(())
            }
            Held::Torchao(matrix) => matrix.floats(&self.tensors, elements, out),
            Held::Mlx(_) => Err(problem("it is packed, and is taken as it is")),
        }
    }

    fn packed(
        &self,
        wanted: Wanted<'_>,
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (stored_name, held) = self.find(wanted).map_err(io::Error::other)?;
        match held {
            Held::Mlx(matrix) => matrix.write(&self.tensors, part, out),
            Held::Torchao(matrix) => matrix.write(&self.tensors, packing, part, out),
            Held::Plain(_) => Err(io::Error::other(format!("{stored_name}: it is not packed"))),
        }
    }

    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let taken: HashSet<String> = weights.iter().flat_map(|name| self.parts(name)).collect();
        // A head that nobody asks for is the embedding again.
        let has_head = weights.iter().any(|name| name.starts_with("lm_head."));
        let is_copy = |name: &str| !has_head && self.names.is_head(name);
        let left = self
            .tensors
            .names()
            .filter(|&name| !taken.contains(name) && !name.ends_with(FREQUENCIES) && !is_copy(name));
        let mut left: Vec<String> = left.map(str::to_owned).collect();
        left.sort_unstable();
        left
    }

    fn stored_bytes(&self, name: &str) -> Option<u64> {
        Some(self.parts(name).filter_map(|name| self.tensors.get(&name)).map(Stored::len).sum())
    }
}

/// The type of floats that are read.
pub(super) fn float_dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        _ => return None,
    })
}

/// Numbers as f32; `None` for types that no weight has.
pub(super) fn widen(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let (words, _) = bytes.as_chunks::<4>();
    let (halves, _) = bytes.as_chunks::<2>();
    Some(match dtype {
        Dtype::F32 => words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => halves.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::BF16 => halves.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::I8 => bytes.iter().map(|&byte| f32::from(byte as i8)).collect(),
        Dtype::U8 => bytes.iter().map(|&byte| f32::from(byte)).collect(),
        Dtype::I32 => words.iter().map(|bytes| i32::from_le_bytes(*bytes) as f32).collect(),
        _ => return None,
    })
}
