//! Metadata: typed values by key. Arrays and strings stay in the file and are looked at when asked for.

use std::ops::Range;

use indexmap::IndexMap;

use crate::cursor::{Cursor, Place};
use crate::{GgufError, Limits, ValueType};

/// A value of metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the types say it
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Bytes that are text in every sound file; vocabularies of some hold broken UTF-8 in single tokens.
    String(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Its type.
    pub fn ty(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// A whole number of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(number) => Some(number.into()),
            Value::U16(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::U64(number) => Some(number),
            _ => self.as_i64().and_then(|number| number.try_into().ok()),
        }
    }

    /// A whole number of any width that 64 bits with a sign can hold.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::U8(number) => Some(number.into()),
            Value::I8(number) => Some(number.into()),
            Value::U16(number) => Some(number.into()),
            Value::I16(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::I32(number) => Some(number.into()),
            Value::U64(number) => number.try_into().ok(),
            Value::I64(number) => Some(number),
            _ => None,
        }
    }

    /// A float of either width.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(number) => Some(number.into()),
            Value::F64(number) => Some(number),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// The bytes of a string.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Value::String(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A string that is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// An array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// In words, for errors.
    fn describe(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {} {}", array.len, array.element),
            other => format!("of type {}", other.ty()),
        }
    }
}

/// An array of metadata, where it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    pub(crate) element: ValueType,
    pub(crate) len: usize,
    /// The elements as the file has them.
    pub(crate) body: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of its elements.
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, one after another.
    pub fn values(&self) -> Values<'a> {
        Values { element: self.element, left: self.len, cursor: Cursor::new(self.body, 0) }
    }

    /// The bytes of each string; nothing unless this is an array of strings.
    pub fn strings(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        (self.element == ValueType::String).then(|| self.values().filter_map(|value| value.as_bytes()))
    }

    /// The whole numbers; nothing unless all elements are such.
    pub fn integers(&self) -> Option<impl Iterator<Item = i64> + use<'a>> {
        self.values().all(|value| value.as_i64().is_some()).then(|| self.values().filter_map(|v| v.as_i64()))
    }

    /// The floats; nothing unless this is an array of such.
    pub fn floats(&self) -> Option<impl Iterator<Item = f64> + use<'a>> {
        matches!(self.element, ValueType::F32 | ValueType::F64)
            .then(|| self.values().filter_map(|value| value.as_f64()))
    }

    /// The truth values; nothing unless this is an array of such.
    pub fn bools(&self) -> Option<impl Iterator<Item = bool> + use<'a>> {
        (self.element == ValueType::Bool).then(|| self.values().filter_map(|value| value.as_bool()))
    }
}

/// The elements of an array.
#[derive(Clone)]
pub struct Values<'a> {
    element: ValueType,
    left: usize,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The array was walked when the file was read; only one that changed under us fails here, and then ends.
        value(&mut self.cursor, self.element, &String::new).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// No bound of the caller's lets arrays nest deeper: reading them recurses.
const DEEPEST: u32 = 64;

/// A value that has been checked.
fn value<'a>(cursor: &mut Cursor<'a>, ty: ValueType, place: Place<'_>) -> Result<Value<'a>, GgufError> {
    let any =
        Limits { string_bytes: u64::MAX, array_len: u64::MAX, array_depth: DEEPEST, ..Limits::default() };
    checked(cursor, ty, &any, 0, place)
}

/// Reads a value and checks all of it, elements of arrays included.
pub(crate) fn checked<'a>(
    cursor: &mut Cursor<'a>,
    ty: ValueType,
    limits: &Limits,
    depth: u32,
    place: Place<'_>,
) -> Result<Value<'a>, GgufError> {
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(fixed(cursor, place)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(fixed(cursor, place)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(fixed(cursor, place)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(fixed(cursor, place)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(fixed(cursor, place)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(fixed(cursor, place)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(fixed(cursor, place)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(fixed(cursor, place)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(fixed(cursor, place)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(fixed(cursor, place)?)),
        ValueType::Bool => match fixed(cursor, place)? {
            [byte @ (0 | 1)] => Value::Bool(byte == 1),
            [byte] => return Err(GgufError::invalid(place(), format!("a bool of {byte}"))),
        },
        ValueType::String => Value::String(cursor.string("string_bytes", limits.string_bytes, place)?),
        ValueType::Array => Value::Array(array(cursor, limits, depth + 1, place)?),
    })
}

fn fixed<const N: usize>(cursor: &mut Cursor<'_>, place: Place<'_>) -> Result<[u8; N], GgufError> {
    let mut out = [0; N];
    out.copy_from_slice(cursor.take(N as u64, place)?);
    Ok(out)
}

fn array<'a>(
    cursor: &mut Cursor<'a>,
    limits: &Limits,
    depth: u32,
    place: Place<'_>,
) -> Result<Array<'a>, GgufError> {
    GgufError::check_limit("array_depth", depth.into(), limits.array_depth.min(DEEPEST).into(), place)?;
    let number = cursor.u32(place)?;
    let element =
        ValueType::from_number(number).ok_or_else(|| GgufError::ValueType { place: place(), number })?;
    let len = cursor.u64(place)?;
    GgufError::check_limit("array_len", len, limits.array_len, place)?;
    // Before the elements are walked: a count alone must not cost time.
    let least = len.saturating_mul(element.least_size() as u64);
    if least > cursor.left() as u64 {
        return Err(GgufError::Truncated { place: place(), wanted: least - cursor.left() as u64 });
    }
    let mut body = *cursor;
    match element.size() {
        Some(size) if element != ValueType::Bool => {
            cursor.take(len * size as u64, place)?;
        }
        _ => {
            for _ in 0..len {
                checked(cursor, element, limits, depth, place)?;
            }
        }
    }
    let body = body.take((cursor.position() - body.position()) as u64, place)?;
    Ok(Array { element, len: len as usize, body })
}

/// Where a value lies in the file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) ty: ValueType,
    pub(crate) range: Range<usize>,
}

/// The metadata of a file, in its order.
#[derive(Clone, Copy)]
pub struct Metadata<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) entries: &'a IndexMap<String, Entry>,
}

impl<'a> Metadata<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.value(self.entries.get(key)?)
    }

    fn value(&self, entry: &Entry) -> Option<Value<'a>> {
        let mut cursor = Cursor::new(self.bytes, entry.range.start);
        value(&mut cursor, entry.ty, &String::new).ok()
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let this = *self;
        this.entries
            .iter()
            .filter_map(move |(key, entry)| this.value(entry).map(|value| (key.as_str(), value)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A value in the type that a reader needs; nothing where the key is absent, an error where it is of another type.
    fn typed<T>(
        &self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let mismatch = || GgufError::KeyType { key: key.to_owned(), found: value.describe(), wanted };
        convert(&value).map(Some).ok_or_else(mismatch)
    }

    /// A whole number.
    pub fn integer(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a whole number", Value::as_u64)
    }

    /// A float.
    pub fn float(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "a float", Value::as_f64)
    }

    /// A truth value.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// Text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, GgufError> {
        self.typed(key, "UTF-8 text", Value::as_str)
    }

    /// An array.
    pub fn array(&self, key: &str) -> Result<Option<Array<'a>>, GgufError> {
        self.typed(key, "an array", Value::as_array)
    }
}
