//! What a pickle may name, and what naming it means: torch's functions that rebuild tensors, its storages and
//! dtypes, and the four tensor subclasses of exported models.
//!
//! The list is closed. "Calling" an entry checks its arguments and makes a value of ours; Python is nowhere
//! near.

use super::argument::ScalarType;
use super::tensor::StridedTensor;
use super::weights::{Attribute, Subclass, SubclassKind, Weight};
use indexmap::IndexMap;
use pteron_format::Limits;
use pteron_tensor::Bytes;
use std::sync::Arc;

/// A value's number on the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(u32);

/// A dtype by torch's name; those without a number in the schema (`int4`) are labels only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TorchType {
    name: &'static str,
    scalar: Option<ScalarType>,
}

/// What a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    RebuildFromType,
    RebuildWrapper,
    RebuildTensor,
    RebuildTypedTensor,
    RebuildParameter,
    OrderedDict,
    Layout,
    Device,
    PlainTensor,
    Type(TorchType),
    /// Untyped where there is no element type.
    Storage(Option<ScalarType>),
    Subclass(SubclassKind),
}

/// A value of a pickle. Copies are cheap, since a pickle may ask for as many as it has steps.
#[derive(Clone, Debug)]
pub(super) enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    /// A device or layout, of which nothing is kept.
    Ignored,
    Storage {
        dtype: Option<ScalarType>,
        bytes: Bytes,
    },
    Tensor(Arc<StridedTensor>),
    Subclass(Arc<Subclass>),
}

const TYPES: &[(&str, Option<ScalarType>)] = &[
    ("bool", Some(ScalarType::Bool)),
    ("uint8", Some(ScalarType::U8)),
    ("uint16", Some(ScalarType::U16)),
    ("uint32", Some(ScalarType::U32)),
    ("uint64", Some(ScalarType::U64)),
    ("int8", Some(ScalarType::I8)),
    ("int16", Some(ScalarType::I16)),
    ("int32", Some(ScalarType::I32)),
    ("int64", Some(ScalarType::I64)),
    ("float16", Some(ScalarType::F16)),
    ("bfloat16", Some(ScalarType::BF16)),
    ("float32", Some(ScalarType::F32)),
    ("float64", Some(ScalarType::F64)),
    ("float8_e4m3fn", Some(ScalarType::F8E4M3Fn)),
    ("float8_e5m2", Some(ScalarType::F8E5M2)),
    ("float8_e4m3fnuz", Some(ScalarType::F8E4M3FnUz)),
    ("float8_e5m2fnuz", Some(ScalarType::F8E5M2FnUz)),
    ("float8_e8m0fnu", Some(ScalarType::F8E8M0FnU)),
    ("int1", None),
    ("int2", None),
    ("int3", None),
    ("int4", None),
    ("int5", None),
    ("int6", None),
    ("int7", None),
    ("uint1", None),
    ("uint2", None),
    ("uint3", None),
    ("uint4", None),
    ("uint5", None),
    ("uint6", None),
    ("uint7", None),
];

const STORAGES: &[(&str, ScalarType)] = &[
    ("BoolStorage", ScalarType::Bool),
    ("ByteStorage", ScalarType::U8),
    ("CharStorage", ScalarType::I8),
    ("ShortStorage", ScalarType::I16),
    ("IntStorage", ScalarType::I32),
    ("LongStorage", ScalarType::I64),
    ("HalfStorage", ScalarType::F16),
    ("BFloat16Storage", ScalarType::BF16),
    ("FloatStorage", ScalarType::F32),
    ("DoubleStorage", ScalarType::F64),
];

impl Global {
    /// The entry of that module and name, if the list has it.
    pub(super) fn find(module: &str, name: &str) -> Option<Global> {
        Some(match (module, name) {
            ("torch._tensor", "_rebuild_from_type_v2") => Global::RebuildFromType,
            ("torch._utils", "_rebuild_wrapper_subclass") => Global::RebuildWrapper,
            ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensor,
            ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTypedTensor,
            ("torch._utils", "_rebuild_parameter") => Global::RebuildParameter,
            ("collections", "OrderedDict") => Global::OrderedDict,
            ("torch.serialization", "_get_layout") => Global::Layout,
            ("torch", "device") => Global::Device,
            ("torch", "Tensor") | ("torch.nn.parameter", "Parameter") => Global::PlainTensor,
            ("torch.storage", "UntypedStorage") => Global::Storage(None),
            ("torch", _) if name.ends_with("Storage") => {
                Global::Storage(Some(STORAGES.iter().find(|row| row.0 == name)?.1))
            }
            ("torch", _) => {
                let &(name, scalar) = TYPES.iter().find(|row| row.0 == name)?;
                Global::Type(TorchType { name, scalar })
            }
            _ => Global::Subclass(SubclassKind::all().find(|kind| kind.global() == (module, name))?),
        })
    }
}

/// The values that a pickle has made so far.
pub(super) struct Heap<'a> {
    limits: &'a Limits,
    storage: &'a dyn Fn(&str) -> Option<Bytes>,
    objects: Vec<Object>,
}

type Built<T> = Result<T, String>;

impl<'a> Heap<'a> {
    pub(super) fn new(limits: &'a Limits, storage: &'a dyn Fn(&str) -> Option<Bytes>) -> Heap<'a> {
        Heap { limits, storage, objects: Vec::new() }
    }

    pub(super) fn add(&mut self, object: Object) -> Id {
        self.objects.push(object);
        Id((self.objects.len() - 1) as u32)
    }

    // Ids come from `add` of the same heap alone, so that they are always inside it.
    pub(super) fn get(&self, id: Id) -> &Object {
        &self.objects[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: Id) -> &mut Object {
        &mut self.objects[id.0 as usize]
    }

    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Object::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What a pickle came to, if that is a tensor of either kind.
    pub(super) fn finish(&self, id: Id) -> Built<Weight> {
        match self.get(id) {
            Object::Tensor(tensor) => Ok(Weight::Tensor((**tensor).clone())),
            Object::Subclass(subclass) => Ok(Weight::Subclass((**subclass).clone())),
            _ => Err("the pickle holds no tensor".into()),
        }
    }

    /// What calling a function or class of the list gives.
    pub(super) fn call(&self, function: Id, arguments: Id) -> Built<Object> {
        let (Object::Global(function), Object::Tuple(arguments)) = (self.get(function), self.get(arguments))
        else {
            return Err("calls what is no function of the list".into());
        };
        self.apply(*function, arguments)
    }

    fn apply(&self, function: Global, arguments: &[Id]) -> Built<Object> {
        match (function, arguments) {
            (Global::OrderedDict, []) => Ok(Object::Dict(Vec::new())),
            (Global::Layout, &[layout]) => match self.text(layout) {
                Some("torch.strided") => Ok(Object::Ignored),
                _ => Err("a layout other than torch.strided".into()),
            },
            (Global::Device, [_] | [_, _]) => Ok(Object::Ignored),
            (Global::RebuildTensor, &[storage, offset, size, stride, _, _, ..]) if arguments.len() <= 7 => {
                self.tensor(storage, None, offset, size, stride)
            }
            (Global::RebuildTypedTensor, &[storage, offset, size, stride, _, _, dtype, ..])
                if arguments.len() <= 8 =>
            {
                let Object::Global(Global::Type(TorchType { scalar: Some(dtype), .. })) = self.get(dtype)
                else {
                    return Err("a tensor of a dtype that has no storage".into());
                };
                self.tensor(storage, Some(*dtype), offset, size, stride)
            }
            (Global::RebuildParameter, &[tensor, _, _]) => match self.get(tensor) {
                tensor @ (Object::Tensor(_) | Object::Subclass(_)) => Ok(tensor.clone()),
                _ => Err("a parameter of what is no tensor".into()),
            },
            (Global::RebuildFromType, &[function, class, arguments, state]) => {
                self.retyped(function, class, arguments, state)
            }
            _ => Err(format!("{function:?} called with {} arguments", arguments.len())),
        }
    }

    /// `("storage", class, key, device, elements)`.
    pub(super) fn persistent(&self, id: Id) -> Built<Object> {
        let Object::Tuple(parts) = self.get(id) else {
            return Err("a persistent id that is no tuple".into());
        };
        let &[tag, class, key, _, count] = &parts[..] else {
            return Err("a persistent id of other than five parts".into());
        };
        let (Some("storage"), Object::Global(Global::Storage(dtype)), Some(key), Object::Int(count)) =
            (self.text(tag), self.get(class), self.text(key), self.get(count))
        else {
            return Err("a persistent id that is no storage".into());
        };
        let bytes = (self.storage)(key)
            .ok_or_else(|| format!("storage `{}` is not there", super::error::clip(key)))?;
        let size = dtype.map_or(1, ScalarType::size);
        let len = usize::try_from(*count).ok().and_then(|count| count.checked_mul(size));
        let bytes = len.and_then(|len| bytes.slice(0..len));
        let bytes = bytes.ok_or_else(|| format!("storage `{key}` is shorter than its {count} elements"))?;
        Ok(Object::Storage { dtype: *dtype, bytes })
    }

    fn tensor(
        &self,
        storage: Id,
        dtype: Option<ScalarType>,
        offset: Id,
        size: Id,
        stride: Id,
    ) -> Built<Object> {
        let Object::Storage { dtype: stored, bytes } = self.get(storage) else {
            return Err("a tensor over what is no storage".into());
        };
        let dtype = dtype.or(*stored).ok_or("a tensor of unknown dtype")?;
        let Object::Int(offset) = *self.get(offset) else {
            return Err("an offset that is no integer".into());
        };
        let (sizes, strides) = (self.integers(size)?, self.integers(stride)?);
        let tensor = StridedTensor::new(dtype, &sizes, &strides, offset, bytes.clone(), self.limits)?;
        Ok(Object::Tensor(Arc::new(tensor)))
    }

    fn integers(&self, id: Id) -> Built<Vec<i64>> {
        let Object::Tuple(items) = self.get(id) else { return Err("sizes that are no tuple".into()) };
        if items.len() > self.limits.rank {
            return Err(format!("{} dims exceed the limit `rank` of {}", items.len(), self.limits.rank));
        }
        let integer = |id: &Id| match self.get(*id) {
            Object::Int(value) => Ok(*value),
            _ => Err("a size that is no integer".to_owned()),
        };
        items.iter().map(integer).collect()
    }

    fn retyped(&self, function: Id, class: Id, arguments: Id, state: Id) -> Built<Object> {
        let (Object::Global(function), Object::Global(class), Object::Tuple(arguments)) =
            (self.get(function), self.get(class), self.get(arguments))
        else {
            return Err("rebuilds a type by what is not on the list".into());
        };
        match (function, class) {
            (Global::RebuildTensor | Global::RebuildTypedTensor, Global::PlainTensor) => {
                self.apply(*function, arguments)
            }
            (Global::RebuildWrapper, Global::Subclass(kind)) => self.subclass(*kind, arguments, state),
            _ => Err(format!("{class:?} rebuilt by {function:?}")),
        }
    }

    /// The outer shape from the arguments, the parts from the state.
    fn subclass(&self, kind: SubclassKind, arguments: &[Id], state: Id) -> Built<Object> {
        let &[class, dtype, size, _stride, _offset, _layout, _device, _grad] = arguments else {
            return Err(format!("a wrapper of {} parts", arguments.len()));
        };
        let (
            Object::Global(Global::Subclass(inner)),
            Object::Global(Global::Type(dtype)),
            Object::Dict(entries),
        ) = (self.get(class), self.get(dtype), self.get(state))
        else {
            return Err("a wrapper without class, dtype or state".into());
        };
        if *inner != kind {
            return Err(format!("a {} inside a {}", inner.name(), kind.name()));
        }
        let dtype = dtype.scalar.ok_or("a wrapper of a dtype without a number")?;
        let sizes = self.integers(size)?.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
        let sizes = sizes.map_err(|_| "a size is negative")?;
        // The last of two equal keys counts, as in Python.
        let find = |name: &str| {
            entries.iter().rev().find(|(key, _)| self.text(*key) == Some(name)).map(|pair| pair.1)
        };
        let mut tensors = IndexMap::new();
        for &name in kind.tensors() {
            let id = find(name).ok_or_else(|| format!("{} without `{name}`", kind.name()))?;
            let Object::Tensor(tensor) = self.get(id) else {
                return Err(format!("`{name}` of {} is no tensor", kind.name()));
            };
            tensors.insert(name, (**tensor).clone());
        }
        let mut attributes = IndexMap::new();
        for &name in kind.attributes() {
            let id = find(name).ok_or_else(|| format!("{} without `{name}`", kind.name()))?;
            attributes.insert(name, self.attribute(id)?);
        }
        Ok(Object::Subclass(Arc::new(Subclass { kind, dtype, sizes, tensors, attributes })))
    }

    /// A plain value. Nothing of the known classes nests deeper than a tuple of integers, and what could be
    /// shared without end is never expanded.
    fn attribute(&self, id: Id) -> Built<Attribute> {
        match self.get(id) {
            Object::None => Ok(Attribute::None),
            Object::Bool(value) => Ok(Attribute::Bool(*value)),
            Object::Int(value) => Ok(Attribute::Int(*value)),
            Object::Float(value) => Ok(Attribute::Float(*value)),
            Object::Text(text) => Ok(Attribute::Text(text.clone())),
            Object::Global(Global::Type(dtype)) => Ok(Attribute::Type(dtype.name)),
            Object::Tuple(_) => self.integers(id).map(Attribute::Ints),
            _ => Err("an attribute that is no plain value".into()),
        }
    }
}
