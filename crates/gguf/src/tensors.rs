//! The list of tensors: names, shapes, types, and where their blocks lie.

use std::ops::Range;

use indexmap::IndexMap;

use crate::cursor::Cursor;
use crate::{GgufError, Limits, TensorType};

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    name: String,
    shape: Vec<usize>,
    ty: TensorType,
    range: Range<usize>,
}

impl Tensor {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its sizes, the outermost first: the file lists them the other way round.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of its blocks.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Where its blocks lie, in bytes from the start of the file.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        // Checked when the file was read.
        self.shape.iter().product()
    }
}

/// A tensor as its entry describes it, before it is known where data starts.
struct Described {
    name: String,
    shape: Vec<usize>,
    ty: TensorType,
    offset: u64,
    bytes: u64,
}

/// Reads `count` entries and places their data behind the last one.
pub(crate) fn read(
    cursor: &mut Cursor<'_>,
    count: u64,
    alignment: u64,
    limits: &Limits,
) -> Result<IndexMap<String, Tensor>, GgufError> {
    let mut described = Vec::new();
    for number in 0..count {
        described.push(describe(cursor, number, limits)?);
    }
    let (end, position) = (cursor.position() as u64 + cursor.left() as u64, cursor.position() as u64);
    let data = position.next_multiple_of(alignment);
    let mut tensors = IndexMap::with_capacity(described.len());
    for Described { name, shape, ty, offset, bytes } in described {
        let place = || format!("tensor {name}");
        if !offset.is_multiple_of(alignment) {
            let problem = format!("its data at {offset} is not aligned to {alignment}");
            return Err(GgufError::invalid(place(), problem));
        }
        let stop = data.checked_add(offset).and_then(|start| start.checked_add(bytes));
        let Some(stop) = stop.filter(|&stop| stop <= end || bytes == 0) else {
            let wanted = stop.map_or(u64::MAX, |stop| stop - end);
            return Err(GgufError::Truncated { place: place(), wanted });
        };
        let range = match bytes {
            // Nothing to point at, wherever the entry points.
            0 => 0..0,
            // Within the file, which is in memory.
            _ => (stop - bytes) as usize..stop as usize,
        };
        if tensors.contains_key(&name) {
            return Err(GgufError::invalid(place(), "it is there twice"));
        }
        tensors.insert(name.clone(), Tensor { name, shape, ty, range });
    }
    check_overlap(&tensors)?;
    Ok(tensors)
}

fn describe(cursor: &mut Cursor<'_>, number: u64, limits: &Limits) -> Result<Described, GgufError> {
    let place = || format!("tensor number {number}");
    let name = cursor.name(limits, &place)?.to_owned();
    let place = || format!("tensor {name}");
    let rank = cursor.u32(&place)?;
    GgufError::check_limit("rank", rank.into(), limits.rank.into(), &place)?;
    let mut shape = Vec::new();
    let mut elements = 1u64;
    for _ in 0..rank {
        let size = cursor.u64(&place)?;
        let beyond = || GgufError::invalid(place(), "it has more elements than memory has bytes");
        // Elements fit even where another size is 0.
        elements = elements.checked_mul(size.max(1)).filter(|&n| n <= i64::MAX as u64).ok_or_else(beyond)?;
        shape.insert(0, usize::try_from(size).map_err(|_| beyond())?);
    }
    let number = cursor.u32(&place)?;
    let ty = TensorType::from_number(number)
        .ok_or_else(|| GgufError::UnknownTensorType { name: name.clone(), number })?;
    let columns = shape.last().copied().unwrap_or(1);
    let row = ty.row_bytes(columns).ok_or_else(|| {
        let blocks = ty.block_len();
        GgufError::invalid(
            place(),
            format!("rows of {columns} are no whole blocks of {blocks}, as {ty} needs"),
        )
    })?;
    let rows: usize = shape.iter().rev().skip(1).product();
    let bytes = (row as u64)
        .checked_mul(rows as u64)
        .ok_or_else(|| GgufError::invalid(place(), "it has more bytes than numbers can count"))?;
    let offset = cursor.u64(&place)?;
    Ok(Described { name, shape, ty, offset, bytes })
}

/// `Err` where two tensors share bytes.
fn check_overlap(tensors: &IndexMap<String, Tensor>) -> Result<(), GgufError> {
    let mut placed: Vec<&Tensor> = tensors.values().filter(|tensor| !tensor.range.is_empty()).collect();
    placed.sort_by_key(|tensor| tensor.range.start);
    match placed.windows(2).find(|pair| pair[0].range.end > pair[1].range.start) {
        None => Ok(()),
        Some(pair) => {
            let place = format!("tensor {}", pair[1].name);
            Err(GgufError::invalid(place, format!("its data overlaps that of {}", pair[0].name)))
        }
    }
}
