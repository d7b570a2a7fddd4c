//! The weights of a folder under the names that architectures ask for.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use pteron_models::architectures::{Place, Places};
use pteron_models::{Form, Packing, Part, Wanted, WeightError, WeightSource};
use pteron_tensor::DType;
use safetensors::tensor::Dtype;

use super::adapter::Adapter;
use super::names::Names;
use super::pieces::{Pieces, Selected};
use super::safetensors::{Stored, Tensors};
use super::{Quantization, mlx, mxfp4, published, small_floats, torchao, whole};
use crate::saved::same_shape;

/// What stands in place of `weight` in the names of a matrix's parts, whoever packed it.
const PARTS: [&str; 6] =
    ["weight", "scales", "biases", "_weight_qdata", "_weight_scale", "_weight_zero_point"];
/// Old files store the frequencies of positions, which the configuration says as well, and masks.
const IDLE: [&str; 3] = ["rotary_emb.inv_freq", "attn.bias", "attn.masked_bias"];

/// The weights of a folder.
pub(super) struct FolderWeights {
    tensors: Tensors,
    names: Names,
    places: Places,
    quantization: Quantization,
    /// What is added to some of them.
    adapter: Option<Adapter>,
    /// The last matrix of numbers with scales, by its name in the files: its scales serve all reads of it.
    last: Mutex<Option<(String, Arc<Coded>)>>,
    /// The last matrix that is stored on its side, read whole: its columns are the rows that are asked for.
    turned: Mutex<Option<Turned>>,
}

/// A part of a tensor that is stored on its side: the tensor's name, which part, and all of it.
type Turned = (String, usize, Arc<Vec<f32>>);

/// How a tensor lies in the files.
enum Held<'t> {
    Plain(&'t Stored),
    Mlx(mlx::Matrix<'t>),
    Mxfp4(mxfp4::Matrix<'t>),
    Coded(Arc<Coded>),
}

/// Numbers of few bits with scales.
enum Coded {
    Whole(whole::Matrix),
    Floats(small_floats::Matrix),
}

impl Coded {
    fn has_shape(&self, shape: &[usize]) -> bool {
        match self {
            Coded::Whole(matrix) => matrix.has_shape(shape),
            Coded::Floats(matrix) => matrix.has_shape(shape),
        }
    }

    fn form(&self) -> Form {
        match self {
            Coded::Whole(matrix) => matrix.packing().map_or(Form::Floats, Form::Packed),
            Coded::Floats(_) => Form::Floats,
        }
    }
}

impl FolderWeights {
    pub(super) fn new(
        tensors: Tensors,
        names: Names,
        places: Places,
        quantization: Quantization,
        adapter: Option<Adapter>,
    ) -> FolderWeights {
        let (last, turned) = (Mutex::new(None), Mutex::new(None));
        FolderWeights { tensors, names, places, quantization, adapter, last, turned }
    }

    /// The names that a weight, or the parts that it is packed in, may have in the files.
    fn parts(&self, name: &str) -> Vec<String> {
        let place = self.places.place(name);
        let tensors = if place.is_apart() { place.parts } else { 1 };
        let names = (0..tensors).map(|part| self.names.stored(&place.tensor_of(part)));
        let parts = names.flat_map(|stored| {
            let is_weight = stored.ends_with("weight");
            let kinds = if is_weight { &PARTS[..] } else { &["", "_blocks", "_scales"] };
            let others = if is_weight { &published::PARTS[..] } else { &[] };
            let named = |kind: &&str| format!("{}{kind}", stored.strip_suffix("weight").unwrap_or(&stored));
            let behind = small_floats::SUFFIXES.iter().map(|suffix| format!("{stored}{suffix}"));
            kinds.iter().chain(others).map(named).chain(behind).collect::<Vec<_>>()
        });
        parts.collect()
    }

    /// Where a weight lies, and in which pieces.
    fn pieces(&self, Wanted { name, shape }: Wanted<'_>) -> Result<(Place, Pieces), WeightError> {
        let mut place = self.places.place(name);
        // Outputs are rows there, whatever the floats have.
        if place.transposed && mxfp4::Matrix::is_there(&self.tensors, &self.names.stored(&place.tensor)) {
            place.transposed = false;
        }
        let pieces = Pieces::new(&place, shape).ok_or_else(|| WeightError::Read {
            name: name.to_owned(),
            problem: format!("{shape:?} is not {} parts of it", place.parts),
        })?;
        Ok((place, pieces))
    }

    /// The tensor of that name in the files, which has that shape there.
    fn find(&self, stored_name: &str, shape: &[usize]) -> Result<Held<'_>, WeightError> {
        if let Some(matrix) = self.coded(stored_name, shape)? {
            return Ok(Held::Coded(matrix));
        }
        if let Quantization::Mlx(settings) = &self.quantization
            && let Some(matrix) = mlx::Matrix::find(&self.tensors, settings, stored_name, shape)?
        {
            return Ok(Held::Mlx(matrix));
        }
        if let Some(matrix) = mxfp4::Matrix::find(&self.tensors, stored_name, shape)? {
            return Ok(Held::Mxfp4(matrix));
        }
        let problem = |problem: String| WeightError::Read { name: stored_name.to_owned(), problem };
        let stored = self.tensors.get(stored_name);
        let floats = stored.filter(|stored| float_dtype(stored.dtype).is_some());
        let stored = match (floats, stored, &self.quantization) {
            (Some(stored), ..) => stored,
            (None, _, Quantization::Other(method)) => {
                return Err(problem(format!(
                    "weights quantised by `{method}` are not read; take the original model, or one that MLX, torchao, \
                     GPTQ, AWQ, compressed-tensors or bitsandbytes quantised, or in 8-bit floats"
                )));
            }
            (None, Some(stored), _) => {
                let dtype = stored.dtype;
                return Err(problem(format!("it is stored as {dtype}; f32, f16 and bf16 are read")));
            }
            (None, None, _) => return Err(WeightError::Missing { name: stored_name.to_owned() }),
        };
        // A number may be stored as a vector of one, and the other way round; so may a row.
        let same = |a: &[usize], b: &[usize]| {
            a.iter().filter(|&&size| size != 1).eq(b.iter().filter(|&&size| size != 1))
        };
        let may_differ = stored.shape.first().is_none_or(|&first| first == 1) || shape.first() == Some(&1);
        if !(same_shape(&stored.shape, shape) || may_differ && same(&stored.shape, shape)) {
            return Err(WeightError::Shape {
                name: stored_name.to_owned(),
                found: stored.shape.clone(),
                wanted: shape.to_vec(),
            });
        }
        Ok(Held::Plain(stored))
    }

    fn coded(&self, name: &str, shape: &[usize]) -> Result<Option<Arc<Coded>>, WeightError> {
        // A panic elsewhere leaves a whole matrix here, or none.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, matrix)) =
            last.as_ref().filter(|(known, matrix)| known == name && matrix.has_shape(shape))
        {
            return Ok(Some(matrix.clone()));
        }
        let by_transformers = matches!(self.quantization, Quantization::Torchao);
        let mut found = torchao::find(&self.tensors, name, shape, by_transformers)?.map(Coded::Whole);
        if let (None, Quantization::Published(settings)) = (&found, &self.quantization) {
            found = settings.find(&self.tensors, name, shape)?.map(Coded::Whole);
            if found.is_none() {
                let floats = small_floats::Matrix::find(&self.tensors, name, shape, settings.block())?;
                found = floats.map(Coded::Floats);
            }
        }
        let found = found.map(Arc::new);
        if let Some(matrix) = &found {
            *last = Some((name.to_owned(), matrix.clone()));
        }
        Ok(found)
    }

    /// Neighbouring elements of a tensor as the files have it.
    fn floats(
        &self,
        stored_name: &str,
        held: &Held<'_>,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), WeightError> {
        let problem =
            |problem: &str| WeightError::Read { name: stored_name.to_owned(), problem: problem.to_owned() };
        match held {
            Held::Plain(stored) => {
                let size = stored.dtype.bitsize() / 8;
                let mut bytes = vec![0; elements.len() * size];
                self.tensors.read(stored_name, stored, (elements.start * size) as u64, &mut bytes)?;
                let floats = widen(stored.dtype, &bytes).ok_or_else(|| problem("it holds no floats"))?;
                out.iter_mut().zip(floats).for_each(|(out, value)| *out = value);
            }
            Held::Coded(matrix) => match matrix.as_ref() {
                Coded::Whole(matrix) => matrix.floats(&self.tensors, elements.clone(), out)?,
                Coded::Floats(matrix) => matrix.floats(&self.tensors, elements.clone(), out)?,
            },
            Held::Mlx(_) | Held::Mxfp4(_) => return Err(problem("it is packed, and is taken as it is")),
        }
        if let Some(adapter) = &self.adapter {
            adapter.add(stored_name, elements, out);
        }
        Ok(())
    }

    /// One part of a tensor that is stored on its side, whole, as the files have it.
    fn turned(
        &self,
        stored_name: &str,
        held: &Held<'_>,
        part: usize,
        elements: Range<usize>,
    ) -> Result<Arc<Vec<f32>>, WeightError> {
        // A panic elsewhere leaves a whole matrix here, or none.
        let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, at, matrix)) = turned.as_ref()
            && (name == stored_name && *at == part)
        {
            return Ok(matrix.clone());
        }
        // The old one goes first: memory holds one of them.
        *turned = None;
        let mut whole = vec![0.0; elements.len()];
        self.floats(stored_name, held, elements, &mut whole)?;
        let whole = Arc::new(whole);
        *turned = Some((stored_name.to_owned(), part, whole.clone()));
        Ok(whole)
    }
}

impl WeightSource for FolderWeights {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        let (place, pieces) = self.pieces(wanted)?;
        let tensors = if place.is_apart() { place.parts } else { 1 };
        let mut form = None;
        for part in 0..tensors {
            let stored_name = self.names.stored(&place.tensor_of(part));
            let is_changed = self.adapter.as_ref().is_some_and(|adapter| adapter.changes(&stored_name));
            let of_part = match self.find(&stored_name, &pieces.stored_shape())? {
                Held::Plain(_) => Form::Floats,
                Held::Mlx(_) | Held::Mxfp4(_) if is_changed => {
                    let problem =
                        "it is packed, and an adapter is added to floats; take the original model".to_owned();
                    return Err(WeightError::Read { name: stored_name, problem });
                }
                Held::Coded(_) if is_changed => Form::Floats,
                Held::Mlx(matrix) => Form::Packed(matrix.packing),
                Held::Mxfp4(matrix) => Form::Packed(matrix.packing),
                Held::Coded(matrix) => matrix.form(),
            };
            if *form.get_or_insert(of_part) != of_part {
                let problem = "it is packed otherwise than the others of its layer".to_owned();
                return Err(WeightError::Read { name: stored_name, problem });
            }
            if of_part != Form::Floats && place.transposed {
                let problem = "it is packed on its side, which is not supported".to_owned();
                return Err(WeightError::Read { name: stored_name, problem });
            }
        }
        form.ok_or_else(|| WeightError::Missing { name: wanted.name.to_owned() })
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let (place, pieces) = self.pieces(wanted)?;
        let shape = pieces.stored_shape();
        let mut done = 0;
        while done < out.len() {
            let piece = pieces.at(elements.start + done, out.len() - done);
            let stored_name = self.names.stored(&place.tensor_of(piece.part));
            let held = self.find(&stored_name, &shape)?;
            let into = &mut out[done..done + piece.len];
            match piece.step {
                1 => self.floats(&stored_name, &held, piece.start..piece.start + piece.len, into)?,
                step => {
                    let whole = pieces.whole_of(piece.part);
                    let first = piece.start - whole.start;
                    let matrix = self.turned(&stored_name, &held, piece.part, whole)?;
                    let column = matrix.iter().skip(first).step_by(step);
                    into.iter_mut().zip(column).for_each(|(out, value)| *out = *value);
                }
            }
            done += piece.len;
        }
        Ok(())
    }

    fn packed(
        &self,
        wanted: Wanted<'_>,
        packing: Packing,
        part: Part,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (place, pieces) = self.pieces(wanted).map_err(io::Error::other)?;
        let shape = pieces.stored_shape();
        let tensors = if place.is_apart() { place.parts } else { 1 };
        for number in 0..tensors {
            let stored_name = self.names.stored(&place.tensor_of(number));
            let held = self.find(&stored_name, &shape).map_err(io::Error::other)?;
            let mut selected = Selected::new(out, &pieces, packing, part);
            match held {
                Held::Mlx(matrix) => matrix.write(&self.tensors, part, &mut selected)?,
                Held::Mxfp4(matrix) => matrix.write(&self.tensors, part, &mut selected)?,
                Held::Coded(matrix) => match matrix.as_ref() {
                    Coded::Whole(matrix) => matrix.write(&self.tensors, packing, part, &mut selected)?,
                    Coded::Floats(_) => {
                        return Err(io::Error::other(format!("{stored_name}: it is not packed")));
                    }
                },
                Held::Plain(_) => return Err(io::Error::other(format!("{stored_name}: it is not packed"))),
            }
            if part == Part::TensorScale {
                break;
            }
        }
        Ok(())
    }

    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let taken: HashSet<String> = weights.iter().flat_map(|name| self.parts(name)).collect();
        // A head that nobody asks for is the embedding again.
        let has_head = weights.iter().any(|name| name.starts_with("lm_head."));
        let is_copy = |name: &str| !has_head && self.names.is_head(name);
        let is_idle = |name: &str| IDLE.iter().any(|idle| name.ends_with(idle));
        let left =
            self.tensors.names().filter(|&name| !taken.contains(name) && !is_idle(name) && !is_copy(name));
        let mut left: Vec<String> = left.map(str::to_owned).collect();
        left.sort_unstable();
        left
    }

    fn stored_bytes(&self, name: &str) -> Option<u64> {
        let names = self.parts(name);
        Some(names.iter().filter_map(|name| self.tensors.get(name)).map(Stored::len).sum())
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
