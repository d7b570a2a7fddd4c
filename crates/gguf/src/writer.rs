//! Files written: the tokenizer that travels inside a program, and what tests read.

use indexmap::IndexMap;

use crate::metadata::{Array, Value};
use crate::reader::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT};
use crate::{GgufError, TensorType, ValueType};

/// The version that is written.
const VERSION: u32 = 3;

/// A file in the making. Small ones only: everything is held in memory.
#[derive(Clone, Debug)]
pub struct Writer {
    alignment: u64,
    entries: IndexMap<String, (ValueType, Vec<u8>)>,
    tensors: IndexMap<String, (Vec<usize>, TensorType, Vec<u8>)>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { alignment: DEFAULT_ALIGNMENT, entries: IndexMap::new(), tensors: IndexMap::new() }
    }
}

impl Writer {
    /// An empty file.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// An empty file whose tensors are aligned otherwise: to a power of two.
    pub fn with_alignment(alignment: u32) -> Result<Writer, GgufError> {
        if !alignment.is_power_of_two() {
            return Err(GgufError::invalid("alignment", format!("{alignment} is no power of two")));
        }
        let mut writer = Writer { alignment: alignment.into(), ..Writer::default() };
        writer.insert(ALIGNMENT_KEY, ValueType::U32, alignment.to_le_bytes().to_vec())?;
        Ok(writer)
    }

    /// Adds a value: one made up, or one of another file as it is.
    pub fn put(&mut self, key: &str, value: Value<'_>) -> Result<(), GgufError> {
        if key == ALIGNMENT_KEY {
            return Err(GgufError::invalid(ALIGNMENT_KEY, "the writer has its own"));
        }
        let mut bytes = Vec::new();
        encode(value, &mut bytes);
        self.insert(key, value.ty(), bytes)
    }

    /// Adds an array of values of one type.
    pub fn put_array(
        &mut self,
        key: &str,
        element: ValueType,
        values: &[Value<'_>],
    ) -> Result<(), GgufError> {
        let mut body = Vec::new();
        for value in values {
            if value.ty() != element {
                let problem = format!("a value of type {} in an array of {element}", value.ty());
                return Err(GgufError::invalid(format!("metadata {key:?}"), problem));
            }
            encode(*value, &mut body);
        }
        self.put(key, Value::Array(Array { element, len: values.len(), body: &body }))
    }

    /// Adds a tensor; sizes the outermost first.
    pub fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        ty: TensorType,
        data: Vec<u8>,
    ) -> Result<(), GgufError> {
        let place = || format!("tensor {name}");
        let rows: usize = shape.iter().rev().skip(1).product();
        let wanted = ty.row_bytes(shape.last().copied().unwrap_or(1)).and_then(|row| row.checked_mul(rows));
        if wanted != Some(data.len()) {
            let problem = format!("{} bytes are not the {ty} blocks of {shape:?}", data.len());
            return Err(GgufError::invalid(place(), problem));
        }
        match self.tensors.insert(name.to_owned(), (shape.to_vec(), ty, data)) {
            None => Ok(()),
            Some(_) => Err(GgufError::invalid(place(), "it is there twice")),
        }
    }

    fn insert(&mut self, key: &str, ty: ValueType, bytes: Vec<u8>) -> Result<(), GgufError> {
        match self.entries.insert(key.to_owned(), (ty, bytes)) {
            None => Ok(()),
            Some(_) => Err(GgufError::invalid(format!("metadata {key:?}"), "the key is there twice")),
        }
    }

    /// The bytes of the file.
    pub fn finish(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, (ty, bytes)) in &self.entries {
            encode_string(key.as_bytes(), &mut out);
            out.extend(ty.number().to_le_bytes());
            out.extend(bytes);
        }
        let mut offset = 0u64;
        for (name, (shape, ty, data)) in &self.tensors {
            encode_string(name.as_bytes(), &mut out);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&size| out.extend((size as u64).to_le_bytes()));
            out.extend(ty.number().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + data.len() as u64).next_multiple_of(self.alignment);
        }
        for (_, _, data) in self.tensors.values() {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(data);
        }
        out
    }
}

fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn encode(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::U8(number) => out.extend(number.to_le_bytes()),
        Value::I8(number) => out.extend(number.to_le_bytes()),
        Value::U16(number) => out.extend(number.to_le_bytes()),
        Value::I16(number) => out.extend(number.to_le_bytes()),
        Value::U32(number) => out.extend(number.to_le_bytes()),
        Value::I32(number) => out.extend(number.to_le_bytes()),
        Value::U64(number) => out.extend(number.to_le_bytes()),
        Value::I64(number) => out.extend(number.to_le_bytes()),
        Value::F32(number) => out.extend(number.to_le_bytes()),
        Value::F64(number) => out.extend(number.to_le_bytes()),
        Value::Bool(truth) => out.push(truth.into()),
        Value::String(bytes) => encode_string(bytes, out),
        Value::Array(array) => {
            out.extend(array.element.number().to_le_bytes());
            out.extend((array.len as u64).to_le_bytes());
            out.extend(array.body);
        }
    }
}
