//! How owned tables mirror tables on the wire: one declaration gives the type, its reading and its writing.
//!
//! `mirror_table!` lists fields by slot; [`Field`] says how each type of field is read and
//! written. Absent and empty stay different, since C++ readers see a null pointer for the one and not for the
//! other. Knows no schema; checks what one field can be wrong about, never what two tables must agree on.

use std::cell::RefCell;
use std::ops::Deref;

use pteron_tensor::Bytes;

use crate::flatbuffer::{Buffer, Builder, Offset, Table, TableFields};
use crate::{FormatError, Limits, Result};

/// Fields that a newer schema has are reported up to this many; one is enough to warn.
const REPORTED_UNKNOWN: usize = 16;

/// What decoding needs beside the tables: the file for blobs that are borrowed, and a place for remarks.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Bytes,
    pub(crate) limits: &'a Limits,
    unknown: RefCell<Vec<String>>,
}

impl<'a> Source<'a> {
    /// `file` must share rather than own its bytes (see [`crate::map::shared`]), or every blob is a copy.
    pub(crate) fn new(file: &'a Bytes, limits: &'a Limits) -> Source<'a> {
        Source { file, limits, unknown: RefCell::default() }
    }

    /// Decodes the root of a buffer that starts where the file does.
    pub(crate) fn root<T: Mirror>(&self, buffer: &Buffer<'_>) -> Result<T> {
        read_table(self, &buffer.root(T::NAME)?)
    }

    /// Paths of fields that no schema we know has; a rewrite would lose them.
    pub(crate) fn into_unknown(self) -> Vec<String> {
        self.unknown.into_inner()
    }
}

/// An owned table.
pub(crate) trait Mirror: Sized {
    /// The table's name in the schema.
    const NAME: &'static str;
    /// How many slots the known schema has.
    const SLOTS: u16;

    /// The limit that bounds a vector of these, by name and value.
    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("entries", limits.entries)
    }

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<Self>;
    fn write(&self, builder: &mut Builder) -> Offset;
}

pub(crate) fn read_table<T: Mirror>(source: &Source<'_>, table: &Table<'_>) -> Result<T> {
    let newer = (T::SLOTS..table.slots()).find(|slot| table.has(*slot));
    if let Some(slot) = newer
        && source.unknown.borrow().len() < REPORTED_UNKNOWN
    {
        source.unknown.borrow_mut().push(format!("{}: field {slot} of {}", table.path(), T::NAME));
    }
    T::read(source, table)
}

/// Something a field can hold.
pub(crate) trait Field: Sized {
    fn read(source: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self>;
    fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16);
}

macro_rules! scalar_fields {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<$type> {
                table.scalar(slot, name, <$type>::default())
            }

            fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
                fields.scalar_unless(slot, *self, <$type>::default());
            }
        }
    )*};
}

scalar_fields!(bool i8 i32 i64 u32 u64 f32 f64);

/// A vector that may be absent; reads as a slice either way.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T>(Option<Vec<T>>);

impl<T> List<T> {
    /// No vector at all.
    pub const fn absent() -> List<T> {
        List(None)
    }

    /// Whether there is no vector, not even an empty one.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// The vector, made present if it was absent.
    pub fn make_mut(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_with(Vec::new)
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List::absent()
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or(&[])
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> List<T> {
        List(Some(items))
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> List<T> {
        List(Some(items.into_iter().collect()))
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> std::slice::Iter<'a, T> {
        self.iter()
    }
}

macro_rules! scalar_lists {
    ($($type:ty)*) => {$(
        impl Field for List<$type> {
            fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self> {
                Ok(List(table.vector(slot, name)?))
            }

            fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16) {
                fields.optional(slot, self.0.as_deref().map(|items| builder.vector(items)));
            }
        }
    )*};
}

scalar_lists!(bool u8 u16 u32 i32 i64 u64 f32 f64);

impl<T: Mirror> Field for List<T> {
    fn read(source: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self> {
        let Some(tables) = table.tables(slot, name)? else { return Ok(List::absent()) };
        let (limit, allowed) = T::limit(source.limits);
        tables.check_limit(limit, allowed)?;
        let items: Result<Vec<T>> = tables.iter().map(|item| read_table(source, &item?)).collect();
        Ok(List(Some(items?)))
    }

    fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16) {
        let Some(items) = &self.0 else { return };
        let offsets: Vec<Offset> = items.iter().map(|item| item.write(builder)).collect();
        fields.offset(slot, builder.offsets(&offsets));
    }
}

impl<T: Mirror> Field for Option<T> {
    fn read(source: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self> {
        table.table(slot, name)?.map(|table| read_table(source, &table)).transpose()
    }

    fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.optional(slot, self.as_ref().map(|table| table.write(builder)));
    }
}

/// A string that may be absent; reads as text either way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Option<String>);

impl Text {
    /// No string at all.
    pub const fn absent() -> Text {
        Text(None)
    }

    /// Whether there is no string, not even an empty one.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Some(text.into()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Some(text))
    }
}

impl Field for Text {
    fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Text> {
        Ok(Text(table.string(slot, name)?.map(str::to_owned)))
    }

    fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.optional(slot, self.0.as_deref().map(|text| builder.string(text)));
    }
}

/// Bytes inside the tables that may be absent; borrowed from the file, and written with that alignment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blob<const ALIGN: usize>(Option<Bytes>);

impl<const ALIGN: usize> Blob<ALIGN> {
    /// The bytes, or `None` where there is no vector, not even an empty one.
    pub fn get(&self) -> Option<&Bytes> {
        self.0.as_ref()
    }
}

impl<const ALIGN: usize> Deref for Blob<ALIGN> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

impl<const ALIGN: usize> From<Bytes> for Blob<ALIGN> {
    fn from(bytes: Bytes) -> Self {
        Blob(Some(bytes))
    }
}

impl<const ALIGN: usize> Field for Blob<ALIGN> {
    fn read(source: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self> {
        let Some(range) = table.byte_range(slot, name)? else { return Ok(Blob(None)) };
        match source.file.slice(range) {
            Some(bytes) => Ok(Blob(Some(bytes))),
            None => Err(table.problem(name, "the bytes lie outside the file")),
        }
    }

    fn write(&self, builder: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.optional(slot, self.0.as_deref().map(|bytes| builder.bytes(bytes, ALIGN)));
    }
}

/// A union whose member has a tag in `slot` and a table in the slot after it.
pub(crate) fn write_union(fields: &mut TableFields, slot: u16, tag: u8, member: Offset) {
    fields.scalar(slot, tag);
    fields.offset(slot + 1, member);
}

/// The error for a union that is tagged 0 or not at all.
pub(crate) fn empty_union(table: &Table<'_>, name: &'static str) -> FormatError {
    table.problem(name, "the union is empty, which no reader accepts")
}

/// Writes a table of one field.
pub(crate) fn write_single(builder: &mut Builder, value: &impl Field) -> Offset {
    let mut fields = TableFields::new();
    value.write(builder, &mut fields, 0);
    builder.table(&fields)
}

/// Declares owned tables: their fields by slot, how they are read and how they are written.
macro_rules! mirror_table {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident $(limited by $limit:ident)? {
            $( $(#[$field_meta:meta])* $slot:literal $field:ident: $type:ty, )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::mirror::Mirror for $name {
            const NAME: &'static str = stringify!($name);
            const SLOTS: u16 = [$($slot as u16),*].len() as u16;

            $(fn limit(limits: &$crate::Limits) -> (&'static str, u64) {
                (stringify!($limit), limits.$limit)
            })?

            fn read(
                source: &$crate::mirror::Source<'_>,
                table: &$crate::flatbuffer::Table<'_>,
            ) -> $crate::Result<$name> {
                Ok($name {
                    $( $field: $crate::mirror::Field::read(source, table, $slot, stringify!($field))?, )*
                })
            }

            fn write(&self, builder: &mut $crate::flatbuffer::Builder) -> $crate::flatbuffer::Offset {
                let mut fields = $crate::flatbuffer::TableFields::new();
                $( $crate::mirror::Field::write(&self.$field, builder, &mut fields, $slot); )*
                builder.table(&fields)
            }
        }
    )*};
}

/// Declares an enumeration of one byte: unknown values are typed errors, the first is the default.
macro_rules! mirror_enum {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$value_meta:meta])* $value:ident = $code:literal, )* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$value_meta])* $value = $code, )* }

        impl Default for $name {
            fn default() -> $name {
                [$($name::$value),*][0]
            }
        }

        impl $crate::mirror::Field for $name {
            fn read(
                _: &$crate::mirror::Source<'_>,
                table: &$crate::flatbuffer::Table<'_>,
                slot: u16,
                name: &'static str,
            ) -> $crate::Result<$name> {
                match table.scalar(slot, name, 0i8)? {
                    $( $code => Ok($name::$value), )*
                    value => Err($crate::FormatError::UnknownValue {
                        place: table.place(name),
                        enum_name: stringify!($name),
                        value: value.into(),
                    }),
                }
            }

            fn write(
                &self,
                _: &mut $crate::flatbuffer::Builder,
                fields: &mut $crate::flatbuffer::TableFields,
                slot: u16,
            ) {
                fields.scalar_unless(slot, *self as i8, 0);
            }
        }
    )*};
}

pub(crate) use {mirror_enum, mirror_table};
