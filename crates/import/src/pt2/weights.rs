//! Weights and constants of a program: the lists that name them, and the payloads behind the names.
//!
//! Lists (JSON) and members flow in; tensors that borrow the file flow out, plain or as one of the known
//! subclasses. Payloads under several names are read once. Objects that only custom operators understand stay
//! bytes.

use super::archive::Archive;
use super::argument::{Layout, ScalarType, SymInt, TensorMeta};
use super::error::{Pt2Error, Result, clip};
use super::json::{self, Named};
use super::pickle;
use super::tensor::StridedTensor;
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_tensor::Bytes;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;

/// A value that a program was saved with.
#[derive(Clone, Debug, PartialEq)]
pub enum Weight {
    /// A plain tensor.
    Tensor(StridedTensor),
    /// A tensor made of several.
    Subclass(Subclass),
    /// A pickled object of a custom class, of which only the bytes are known.
    Object(Bytes),
}

/// A tensor subclass that exported models hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubclassKind {
    /// torchao's integers of few bits, one to a byte, with scales and zero points by block.
    Intx,
    /// ExecuTorch's GGUF blocks, as in the source file.
    Gguf,
    /// ExecuTorch's nvfp4: eight values to a u32, scales by block and one for all.
    Nvfp4,
    /// ExecuTorch's int4: two values to a byte, scales and zero points by group.
    Int4,
}

impl SubclassKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = SubclassKind> {
        [SubclassKind::Intx, SubclassKind::Gguf, SubclassKind::Nvfp4, SubclassKind::Int4].into_iter()
    }

    /// Python's module and name.
    pub(super) fn global(self) -> (&'static str, &'static str) {
        match self {
            SubclassKind::Intx => ("torchao.quantization", "IntxUnpackedToInt8Tensor"),
            SubclassKind::Gguf => ("executorch.extension.llm.export.gguf", "ExportableGGUFTensor"),
            SubclassKind::Nvfp4 => ("executorch.extension.llm.export.nvfp4", "ExportableNVFP4Tensor"),
            SubclassKind::Int4 => ("executorch.extension.llm.export.int4", "ExportableInt4Tensor"),
        }
    }

    /// Python's name of the class.
    pub fn name(self) -> &'static str {
        self.global().1
    }

    /// The tensors that each has.
    pub fn tensors(self) -> &'static [&'static str] {
        match self {
            SubclassKind::Intx | SubclassKind::Int4 => &["qdata", "scale", "zero_point"],
            SubclassKind::Gguf => &["raw"],
            SubclassKind::Nvfp4 => &["qdata", "scale", "per_tensor_scale"],
        }
    }

    /// The plain values that each has.
    pub fn attributes(self) -> &'static [&'static str] {
        match self {
            SubclassKind::Intx => &["target_dtype", "block_size", "activation_quantization"],
            SubclassKind::Gguf => &["ggml_type", "orig_dtype"],
            SubclassKind::Nvfp4 => &["block_size", "orig_dtype"],
            SubclassKind::Int4 => &["group_size", "orig_dtype"],
        }
    }
}

/// A plain value of a subclass.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the types say it
pub enum Attribute {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    /// A dtype by torch's name, since `int4` has no other.
    Type(&'static str),
    Ints(Vec<i64>),
}

/// A tensor made of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Subclass {
    /// Which class.
    pub kind: SubclassKind,
    /// What it pretends to be.
    pub dtype: ScalarType,
    /// The shape that it pretends to have.
    pub sizes: Vec<usize>,
    /// Its parts.
    pub tensors: IndexMap<&'static str, StridedTensor>,
    /// How the parts are to be read.
    pub attributes: IndexMap<&'static str, Attribute>,
}

impl Weight {
    /// The plain tensors of which it consists.
    pub fn parts(&self) -> Vec<&StridedTensor> {
        match self {
            Weight::Tensor(tensor) => vec![tensor],
            Weight::Subclass(subclass) => subclass.tensors.values().collect(),
            Weight::Object(_) => Vec::new(),
        }
    }

    /// The type of its elements to the graph; objects have none.
    pub fn dtype(&self) -> Option<ScalarType> {
        match self {
            Weight::Tensor(tensor) => Some(tensor.dtype()),
            Weight::Subclass(subclass) => Some(subclass.dtype),
            Weight::Object(_) => None,
        }
    }

    /// Its shape to the graph; objects have none.
    pub fn sizes(&self) -> Option<&[usize]> {
        match self {
            Weight::Tensor(tensor) => Some(tensor.sizes()),
            Weight::Subclass(subclass) => Some(&subclass.sizes),
            Weight::Object(_) => None,
        }
    }
}

/// One list, as the archive has it.
#[derive(Deserialize)]
struct Config {
    config: Named<PayloadMeta>,
}

#[derive(Deserialize)]
struct PayloadMeta {
    path_name: String,
    use_pickle: bool,
    tensor_meta: Option<TensorMeta>,
}

/// Reads the weights that `folder/<config>` lists. Without the list there are none.
pub(super) fn read(
    archive: &Archive,
    root: &str,
    folder: &str,
    config: &str,
    limits: &Limits,
) -> Result<Named<Weight>> {
    let config = format!("{folder}{config}");
    let Some(text) = archive.get(&format!("{root}{config}")) else { return Ok(Named::default()) };
    let config: Config = json::parse(&config, &text, limits)?;
    let mut pickled: HashMap<&str, Weight> = HashMap::new();
    let mut weights = IndexMap::new();
    for (name, meta) in config.config.iter() {
        let path = &meta.path_name;
        let member = || {
            let bytes = archive.get(&format!("{root}{folder}{path}"));
            bytes
                .ok_or_else(|| Pt2Error::weight(name, format!("the archive has no `{folder}{}`", clip(path))))
        };
        let weight = match (&meta.tensor_meta, meta.use_pickle) {
            (Some(tensor), false) => Weight::Tensor(raw(name, tensor, member()?, limits)?),
            (Some(_), true) => match pickled.get(path.as_str()) {
                Some(weight) => weight.clone(),
                None => {
                    let weight = unpickle(name, member()?, limits)?;
                    pickled.insert(path, weight.clone());
                    weight
                }
            },
            (None, _) => Weight::Object(member()?),
        };
        weights.insert(name.clone(), weight);
    }
    Ok(weights.into())
}

fn raw(name: &str, meta: &TensorMeta, storage: Bytes, limits: &Limits) -> Result<StridedTensor> {
    let fail = |problem: String| Pt2Error::weight(name, problem);
    if meta.layout != Layout::Strided {
        return Err(fail(format!("its layout is {:?}; only strided ones are read", meta.layout)));
    }
    let number = |value: &SymInt| match value {
        SymInt::Int(value) => Ok(*value),
        SymInt::Expr(_) => Err(fail("its shape is symbolic".into())),
    };
    let sizes = meta.sizes.iter().map(number).collect::<Result<Vec<_>>>()?;
    let strides = meta.strides.iter().map(number).collect::<Result<Vec<_>>>()?;
    let offset = number(&meta.storage_offset)?;
    StridedTensor::new(meta.dtype, &sizes, &strides, offset, storage, limits).map_err(fail)
}

/// What `torch.save` wrote: an archive in the archive, with one pickle and its storages.
fn unpickle(name: &str, bytes: Bytes, limits: &Limits) -> Result<Weight> {
    let archive = Archive::read(&format!("weight `{}`", clip(name)), bytes, limits)?;
    let root = archive.root("data.pkl")?;
    check_byte_order(&archive, &root)?;
    let Some(data) = archive.get(&format!("{root}data.pkl")) else {
        return Err(Pt2Error::weight(name, "it has no pickle"));
    };
    let storage = |key: &str| archive.get(&format!("{root}data/{key}"));
    let (heap, result) = pickle::run(name, &data, limits, &storage)?;
    heap.finish(result).map_err(|problem| Pt2Error::weight(name, problem))
}

/// Payloads are read in place, so that they must be in our order; archives without the member are of this
/// order.
pub(super) fn check_byte_order(archive: &Archive, root: &str) -> Result<()> {
    match archive.get(&format!("{root}byteorder")).as_deref() {
        None | Some(b"little") => Ok(()),
        Some(b"big") => Err(Pt2Error::member("byteorder", "weights in big-endian order are not read")),
        Some(_) => Err(Pt2Error::member("byteorder", "it is neither `little` nor `big`")),
    }
}
