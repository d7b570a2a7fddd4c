//! Reading: tables, vectors, strings and unions of one buffer, each checked when it is touched.
//!
//! Sound offsets can still alias: a vector of a million offsets to one table is four megabytes of file and a
//! million owned tables. So every table and every copied element is charged to a budget of the buffer, and
//! depth is counted. Nothing here knows what a table means.

use std::cell::{Cell, RefCell};
use std::fmt::Write;

use super::Scalar;
use super::vectors::{StringVector, StructVector, TableVector};
use crate::{FormatError, Limits, Place, Result};

/// Offsets are signed in places, so that a buffer ends at 2 GiB.
pub(super) const LARGEST_BUFFER: usize = i32::MAX as usize;

/// How a table was reached: for the paths in errors, without text until one is needed.
struct Step {
    parent: u32,
    name: &'static str,
    index: Option<u32>,
}

/// Bytes that hold one tree of tables, with the budget that reading it may spend.
pub struct Buffer<'a> {
    bytes: &'a [u8],
    base: u64,
    limits: &'a Limits,
    tables_left: Cell<u64>,
    bytes_left: Cell<u64>,
    steps: RefCell<Vec<Step>>,
}

impl<'a> Buffer<'a> {
    /// A buffer whose byte 0 is byte `base` of the file (or payload) that errors should speak of.
    pub fn new(bytes: &'a [u8], base: u64, limits: &'a Limits) -> Buffer<'a> {
        // Beyond 2 GiB no sound offset leads, whatever the file appends there.
        let bytes = &bytes[..bytes.len().min(LARGEST_BUFFER)];
        Buffer {
            bytes,
            base,
            limits,
            tables_left: Cell::new(limits.tables),
            bytes_left: Cell::new(limits.decoded_bytes),
            steps: RefCell::default(),
        }
    }

    /// Bytes 4 to 8, where a file identifier stands if the format has one.
    pub fn identifier(&self) -> Option<[u8; 4]> {
        self.bytes.get(4..8)?.first_chunk().copied()
    }

    /// The limits that this buffer is read under.
    pub fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// The table that byte 0 points to; `name` opens the paths in errors.
    pub fn root(&self, name: &'static str) -> Result<Table<'_>> {
        let step = self.step(u32::MAX, name, None);
        let Some(offset) = self.bytes.get(..4).map(u32::from_wire) else {
            return Err(self.problem(step, 0, "the buffer has no root offset"));
        };
        Table::open(self, offset as usize, step, 1)
    }

    fn step(&self, parent: u32, name: &'static str, index: Option<u32>) -> u32 {
        let mut steps = self.steps.borrow_mut();
        steps.push(Step { parent, name, index });
        // At most one a table, and a table takes at least one of a budget; u32 cannot overflow unless the
        // budget is raised beyond it, and then only paths in errors are wrong.
        (steps.len() - 1) as u32
    }

    fn path(&self, step: u32) -> String {
        let steps = self.steps.borrow();
        let mut chain = Vec::new();
        let mut next = step;
        while let Some(step) = steps.get(next as usize) {
            chain.push(step);
            next = step.parent;
        }
        let mut path = String::new();
        for step in chain.iter().rev() {
            extend_path(&mut path, step.name, step.index);
        }
        path
    }

    fn problem(&self, step: u32, at: usize, problem: impl Into<String>) -> FormatError {
        FormatError::Table { place: self.place(self.path(step), at), problem: problem.into() }
    }

    fn place(&self, path: String, at: usize) -> Place {
        Place { path, offset: Some(self.base.saturating_add(at as u64)) }
    }
}

fn extend_path(path: &mut String, name: &str, index: Option<u32>) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
    if let Some(index) = index {
        // Writing to a String cannot fail.
        let _ = write!(path, "[{index}]");
    }
}

/// One table: a place in the buffer whose own extent and vtable are known to be sound.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    len: usize,
    vtable: &'a [u8],
    step: u32,
    depth: u32,
}

impl<'a> Table<'a> {
    fn open(buffer: &'a Buffer<'a>, at: usize, step: u32, depth: u32) -> Result<Table<'a>> {
        let fail = |problem: &str| Err(buffer.problem(step, at, problem));
        let limits = buffer.limits;
        if depth > limits.table_depth {
            let (found, allowed) = (depth.into(), limits.table_depth.into());
            let place = buffer.place(buffer.path(step), at);
            return Err(FormatError::Limit { place, limit: "table_depth", found, allowed });
        }
        let Some(left) = buffer.tables_left.get().checked_sub(1) else {
            let (found, allowed) = (limits.tables.saturating_add(1), limits.tables);
            let place = buffer.place(buffer.path(step), at);
            return Err(FormatError::Limit { place, limit: "tables", found, allowed });
        };
        buffer.tables_left.set(left);

        let bytes = buffer.bytes;
        let Some(back) = bytes.get(at..).and_then(|rest| rest.get(..4)).map(i32::from_wire) else {
            return fail("a table lies outside the buffer");
        };
        if !at.is_multiple_of(4) {
            return fail("a table is not aligned to 4 bytes");
        }
        let Ok(vtable_at) = usize::try_from(at as i64 - i64::from(back)) else {
            return fail("a vtable lies before the buffer");
        };
        let Some(head) = bytes.get(vtable_at..).and_then(|rest| rest.get(..4)) else {
            return fail("a vtable lies outside the buffer");
        };
        let (vtable_len, len) = (u16::from_wire(head) as usize, u16::from_wire(&head[2..]) as usize);
        if vtable_at % 2 != 0 || vtable_len % 2 != 0 || vtable_len < 4 {
            return fail("a vtable is malformed");
        }
        let Some(vtable) = bytes[vtable_at..].get(..vtable_len) else {
            return fail("a vtable runs past the buffer");
        };
        if len < 4 || len > bytes.len() - at {
            return fail("a table runs past the buffer");
        }
        Ok(Table { buffer, at, len, vtable, step, depth })
    }

    /// Path of the table, such as `Program.execution_plan[0]`.
    pub fn path(&self) -> String {
        self.buffer.path(self.step)
    }

    /// The place of a field of this table, for errors.
    pub fn place(&self, field: &'static str) -> Place {
        self.place_of(field, None, self.at)
    }

    /// An error about a field of this table.
    pub fn problem(&self, field: &'static str, problem: impl Into<String>) -> FormatError {
        FormatError::Table { place: self.place(field), problem: problem.into() }
    }

    fn place_of(&self, field: &str, index: Option<u32>, at: usize) -> Place {
        let mut path = self.path();
        extend_path(&mut path, field, index);
        self.buffer.place(path, at)
    }

    pub(super) fn fail<T>(&self, field: &str, at: usize, problem: &str) -> Result<T> {
        Err(FormatError::Table { place: self.place_of(field, None, at), problem: problem.into() })
    }

    /// Whether the field is written out, even if as its default.
    pub fn has(&self, slot: u16) -> bool {
        self.voffset(slot) != 0
    }

    /// How many fields the writer's schema had at least: slots from here on are absent.
    pub fn slots(&self) -> u16 {
        ((self.vtable.len() - 4) / 2) as u16
    }

    fn voffset(&self, slot: u16) -> usize {
        let at = 4 + 2 * slot as usize;
        self.vtable.get(at..).filter(|rest| rest.len() >= 2).map_or(0, |rest| u16::from_wire(rest).into())
    }

    /// The place of a field of `size` bytes, or `None` where it is absent.
    fn field(&self, slot: u16, name: &'static str, size: usize, align: usize) -> Result<Option<usize>> {
        let offset = self.voffset(slot);
        if offset == 0 {
            return Ok(None);
        }
        let at = self.at + offset;
        if offset < 4 || offset.saturating_add(size) > self.len {
            return self.fail(name, self.at, "the field lies outside its table");
        }
        if !at.is_multiple_of(align) {
            return self.fail(name, at, "the field is not aligned");
        }
        Ok(Some(at))
    }

    /// A number, or its default where the field is absent.
    pub fn scalar<T: Scalar>(&self, slot: u16, name: &'static str, default: T) -> Result<T> {
        Ok(self.optional_scalar(slot, name)?.unwrap_or(default))
    }

    /// A number, or `None` where the field is absent.
    pub fn optional_scalar<T: Scalar>(&self, slot: u16, name: &'static str) -> Result<Option<T>> {
        let at = self.field(slot, name, T::SIZE, T::SIZE)?;
        Ok(at.map(|at| T::from_wire(&self.buffer.bytes[at..])))
    }

    /// The bytes of an inline struct.
    pub fn structure(
        &self,
        slot: u16,
        name: &'static str,
        size: usize,
        align: usize,
    ) -> Result<Option<&'a [u8]>> {
        let at = self.field(slot, name, size, align.max(1))?;
        Ok(at.map(|at| &self.buffer.bytes[at..at + size]))
    }

    /// Follows the offset stored at `at`, which is inside the buffer.
    pub(super) fn follow(&self, at: usize, name: &'static str) -> Result<usize> {
        let bytes = self.buffer.bytes;
        let offset = u32::from_wire(&bytes[at..]) as usize;
        match at.checked_add(offset) {
            Some(target) if offset != 0 && target < bytes.len() => Ok(target),
            _ => self.fail(name, at, "an offset leads outside the buffer"),
        }
    }

    fn offset_field(&self, slot: u16, name: &'static str) -> Result<Option<usize>> {
        let at = self.field(slot, name, 4, 4)?;
        at.map(|at| self.follow(at, name)).transpose()
    }

    /// The elements of the vector at `at`: where they start and how many there are.
    fn elements(&self, at: usize, name: &'static str, size: usize, align: usize) -> Result<(usize, usize)> {
        let bytes = self.buffer.bytes;
        let Some(count) = bytes[at..].get(..4).map(|head| u32::from_wire(head) as usize) else {
            return self.fail(name, at, "a vector's length lies outside the buffer");
        };
        let start = at + 4;
        if !at.is_multiple_of(4) || (count > 0 && !start.is_multiple_of(align)) {
            return self.fail(name, at, "a vector is not aligned");
        }
        match count.checked_mul(size) {
            Some(total) if total <= bytes.len() - start => Ok((start, count)),
            _ => self.fail(name, at, &format!("a vector of {count} elements runs past the buffer")),
        }
    }

    fn vector_field(
        &self,
        slot: u16,
        name: &'static str,
        size: usize,
        align: usize,
    ) -> Result<Option<(usize, usize)>> {
        let Some(at) = self.offset_field(slot, name)? else { return Ok(None) };
        self.elements(at, name, size, align).map(Some)
    }

    pub(super) fn charge(&self, name: &'static str, at: usize, bytes: usize) -> Result<()> {
        let left = &self.buffer.bytes_left;
        match left.get().checked_sub(bytes as u64) {
            Some(rest) => left.set(rest),
            None => {
                let allowed = self.buffer.limits.decoded_bytes;
                let found = (allowed - left.get()).saturating_add(bytes as u64);
                let place = self.place_of(name, None, at);
                return Err(FormatError::Limit { place, limit: "decoded_bytes", found, allowed });
            }
        }
        Ok(())
    }

    /// A vector of numbers, copied.
    pub fn vector<T: Scalar>(&self, slot: u16, name: &'static str) -> Result<Option<Vec<T>>> {
        let Some((start, count)) = self.vector_field(slot, name, T::SIZE, T::SIZE)? else { return Ok(None) };
        self.charge(name, start, count * T::SIZE)?;
        let bytes = &self.buffer.bytes[start..start + count * T::SIZE];
        Ok(Some(bytes.chunks_exact(T::SIZE).map(T::from_wire).collect()))
    }

    /// A vector of bytes, borrowed.
    pub fn bytes(&self, slot: u16, name: &'static str) -> Result<Option<&'a [u8]>> {
        let field = self.vector_field(slot, name, 1, 1)?;
        Ok(field.map(|(start, count)| &self.buffer.bytes[start..start + count]))
    }

    /// A vector of bytes, as a range of the buffer.
    pub fn byte_range(&self, slot: u16, name: &'static str) -> Result<Option<std::ops::Range<usize>>> {
        let field = self.vector_field(slot, name, 1, 1)?;
        Ok(field.map(|(start, count)| start..start + count))
    }

    /// A vector of inline structs of `size` bytes each, borrowed.
    pub fn structures(
        &self,
        slot: u16,
        name: &'static str,
        size: usize,
        align: usize,
    ) -> Result<Option<StructVector<'a>>> {
        let Some((start, count)) = self.vector_field(slot, name, size, align.max(1))? else {
            return Ok(None);
        };
        self.charge(name, start, count * size)?;
        Ok(Some(StructVector { bytes: &self.buffer.bytes[start..start + count * size], size }))
    }

    /// A string, borrowed and known to be UTF-8.
    pub fn string(&self, slot: u16, name: &'static str) -> Result<Option<&'a str>> {
        let Some(at) = self.offset_field(slot, name)? else { return Ok(None) };
        self.string_at(at, name, None).map(Some)
    }

    pub(super) fn string_at(&self, at: usize, name: &'static str, index: Option<u32>) -> Result<&'a str> {
        let (start, count) = self.elements(at, name, 1, 1)?;
        let allowed = self.buffer.limits.string_bytes;
        FormatError::check_limit("string_bytes", count as u64, allowed, || self.place_of(name, index, at))?;
        self.charge(name, at, count)?;
        std::str::from_utf8(&self.buffer.bytes[start..start + count]).map_err(|error| FormatError::Table {
            place: self.place_of(name, index, at),
            problem: format!("a string is not UTF-8: {error}"),
        })
    }

    /// A table in a field.
    pub fn table(&self, slot: u16, name: &'static str) -> Result<Option<Table<'a>>> {
        let Some(at) = self.offset_field(slot, name)? else { return Ok(None) };
        self.child(at, name, None).map(Some)
    }

    pub(super) fn child(&self, at: usize, name: &'static str, index: Option<u32>) -> Result<Table<'a>> {
        let step = self.buffer.step(self.step, name, index);
        Table::open(self.buffer, at, step, self.depth + 1)
    }

    /// A vector of tables, each opened when it is asked for.
    pub fn tables(&self, slot: u16, name: &'static str) -> Result<Option<TableVector<'a>>> {
        let field = self.vector_field(slot, name, 4, 4)?;
        Ok(field.map(|(start, len)| TableVector { parent: *self, name, start, len }))
    }

    /// A vector of strings, each checked when it is asked for.
    pub fn strings(&self, slot: u16, name: &'static str) -> Result<Option<StringVector<'a>>> {
        let field = self.vector_field(slot, name, 4, 4)?;
        Ok(field.map(|(start, len)| StringVector { parent: *self, name, start, len }))
    }

    /// A union of tables whose tag is in `slot` and whose member is in the slot after it. `None` where the tag
    /// is absent or 0; a tag without a member is an error.
    pub fn union(&self, slot: u16, name: &'static str) -> Result<Option<(u8, Table<'a>)>> {
        let tag = self.scalar(slot, name, 0u8)?;
        match (tag, self.table(slot + 1, name)?) {
            (0, _) => Ok(None),
            (tag, Some(member)) => Ok(Some((tag, member))),
            (tag, None) => self.fail(name, self.at, &format!("kind {tag} has no table")),
        }
    }
}
