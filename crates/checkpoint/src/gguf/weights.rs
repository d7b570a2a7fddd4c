//! The weights of a GGUF file, as architectures ask for them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pteron_gguf::{GgufError, Tensor};
use pteron_models::parallel::{over_rows, threads_for};
use pteron_models::{Form, Packing, Part, Wanted, WeightError, WeightSource, encode};
use pteron_tensor::DType;
use pteron_tensor::quant::{BlockFormat, Groups, GroupsMut, Mode, packed};

use super::names::{Family, Place, is_rope};
use super::parts::{Found, Parts};

/// Bytes of blocks taken apart at a time, and a little more where rows have to be moved.
const CHUNK_BYTES: usize = 4 << 20;

/// Query and key/value heads, where rows have to be moved within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) queries: usize,
    pub(super) keys: usize,
}

/// The weights of a file. Blocks are read, not mapped: an export then needs memory for what it holds at the moment, and a
/// file that somebody cuts short is an error and not the end of the process.
pub(super) struct GgufWeights {
    parts: Parts,
    /// One for each part.
    files: Vec<Mutex<File>>,
    family: Family,
    heads: Heads,
}

impl GgufWeights {
    pub(super) fn new(parts: Parts, files: Vec<File>, family: Family, heads: Heads) -> GgufWeights {
        let files = files.into_iter().map(Mutex::new).collect();
        GgufWeights { parts, files, family, heads }
    }

    /// Some bytes of a tensor.
    fn bytes(&self, found: Found<'_>, bytes: Range<usize>) -> io::Result<Vec<u8>> {
        let whole = found.tensor.range();
        if bytes.start > bytes.end || bytes.end > whole.len() {
            return Err(io::Error::other("a read past its end"));
        }
        let mut out = vec![0; bytes.len()];
        // A panic elsewhere leaves the file at another place, and every read seeks first.
        let mut file = self.files[found.part].lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start((whole.start + bytes.start) as u64))?;
        file.read_exact(&mut out)?;
        Ok(out)
    }

    /// Neighbouring elements as the file has them.
    fn decode(
        &self,
        found: Found<'_>,
        format: BlockFormat,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> io::Result<()> {
        let (len, size) = (format.block_len(), format.block_bytes());
        let blocks = elements.start / len..elements.end.div_ceil(len);
        let bytes = self.bytes(found, blocks.start * size..blocks.end * size)?;
        let mut whole = vec![0.0; blocks.len() * len];
        format.dequantise(&bytes, &mut whole).map_err(io::Error::other)?;
        out.copy_from_slice(&whole[elements.start - blocks.start * len..][..elements.len()]);
        Ok(())
    }

    /// The tensor of that name, in that shape and of a type that is read.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<(Found<'_>, BlockFormat), WeightError> {
        let place = self.family.place(name);
        let found = place.as_ref().and_then(|place| self.parts.find(&place.tensor));
        let (Some(place), Some(found)) = (place, found) else {
            return Err(WeightError::Missing { name: self.both_names(name) });
        };
        let tensor = found.tensor;
        let stored = as_matrix(tensor.shape());
        let wanted = as_matrix(shape);
        let fits = match place.of {
            [] => stored == wanted,
            _ => stored.1 == wanted.1 && self.first_row(name, &place, stored.0, wanted.0).is_some(),
        };
        if !fits {
            let (name, found) = (self.both_names(name), tensor.shape().to_vec());
            return Err(WeightError::Shape { name, found, wanted: shape.to_vec() });
        }
        match tensor.ty().format() {
            Some(format) => Ok((found, format)),
            None => {
                let ty = tensor.ty();
                let problem = GgufError::UnsupportedTensorType { name: tensor.name().to_owned(), ty };
                Err(WeightError::Read { name: name.to_owned(), problem: problem.to_string() })
            }
        }
    }

    /// The first row of a module that has a tensor together with others; nothing where they do not fill it.
    fn first_row(&self, name: &str, place: &Place, stored: usize, own: usize) -> Option<usize> {
        let Heads { queries, keys } = self.heads;
        let parts = |module: &str| match (module.ends_with("q_proj"), module.starts_with("self_attn.")) {
            (true, _) => queries,
            (false, true) => keys,
            (false, false) => 1,
        };
        let (module, _) = name.rsplit_once('.')?;
        let (own_parts, all) = (parts(module.rsplit_once("layers.")?.1.split_once('.')?.1), place.of);
        let unit = own.checked_div(own_parts).filter(|unit| unit * own_parts == own)?;
        let rows = |modules: &[&str]| modules.iter().map(|module| parts(module)).sum::<usize>() * unit;
        (rows(all) == stored).then(|| rows(place.before))
    }

    /// A weight's name, with its name in the file.
    fn both_names(&self, name: &str) -> String {
        match self.family.tensor_name(name) {
            Some(stored) => format!("{stored} ({name})"),
            None => name.to_owned(),
        }
    }

    /// Where the rows of a weight lie in the file.
    fn rows(&self, name: &str, shape: &[usize]) -> Result<Rows, WeightError> {
        let (rows, _) = as_matrix(shape);
        if !self.family.pairs_rows(name) {
            let place = self.family.place(name).filter(|place| !place.of.is_empty());
            let first = place.and_then(|place| {
                let (stored, _) = as_matrix(self.parts.tensor(&place.tensor)?.shape());
                self.first_row(name, &place, stored, rows)
            });
            return Ok(Rows { first: first.unwrap_or(0), head: None });
        }
        let heads = if name.contains(".q_proj.") { self.heads.queries } else { self.heads.keys };
        if heads == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
            let problem = format!("{rows} rows are not {heads} heads of neighbouring pairs");
            return Err(WeightError::Read { name: name.to_owned(), problem });
        }
        Ok(Rows { first: 0, head: Some(rows / heads) })
    }

    fn read_error(&self, name: &str, problem: impl ToString) -> WeightError {
        WeightError::Read { name: self.both_names(name), problem: problem.to_string() }
    }
}

/// Where the rows of a weight lie in the file.
#[derive(Clone, Copy)]
struct Rows {
    /// Rows of other weights before them.
    first: usize,
    /// Rows of a head, where they lie in neighbouring pairs.
    head: Option<usize>,
}

impl Rows {
    /// The place in the file of a row as published: row `i` of the first half of a head and row `i` of the second are
    /// neighbours there.
    fn stored(self, row: usize) -> usize {
        let Some(size) = self.head else { return self.first + row };
        let (head, within) = (row / size, row % size);
        let half = size / 2;
        head * size + within % half * 2 + within / half
    }
}

/// Rows and columns: a vector and one row are a column, and of several matrices the rows lie behind each other.
fn as_matrix(shape: &[usize]) -> (usize, usize) {
    match shape {
        [1, len] | [len] => (*len, 1),
        [rows @ .., columns] => (rows.iter().product(), *columns),
        [] => (1, 1),
    }
}

/// The packing that holds blocks of a format without loss.
fn held_as(format: BlockFormat) -> Option<Packing> {
    if format == BlockFormat::MXFP4 {
        return "mxfp4".parse().ok();
    }
    let Groups { bits, group, is_centred, has_half_scales } = format.groups()?;
    let scales = if has_half_scales { DType::F16 } else { DType::F32 };
    Packing::affine(bits, group, !is_centred, scales).ok()
}

impl WeightSource for GgufWeights {
    fn form(&self, Wanted { name, shape }: Wanted<'_>) -> Result<Form, WeightError> {
        let (_, format) = self.tensor(name, shape)?;
        self.rows(name, shape)?;
        Ok(match (held_as(format), shape) {
            (Some(packing), [_, _]) => Form::Packed(packing),
            _ => Form::Floats,
        })
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let Wanted { name, shape } = wanted;
        let (found, format) = self.tensor(name, shape)?;
        let rows = self.rows(name, shape)?;
        // A vector's elements are moved like rows.
        let columns = match shape {
            [_, columns] => *columns,
            _ => 1,
        };
        let mut done = 0;
        while done < out.len() {
            let at = elements.start + done;
            let (start, len) = match rows.head {
                None => (rows.first * columns + at, out.len() - done),
                Some(_) => {
                    let within = at % columns;
                    let len = (out.len() - done).min(columns - within);
                    (rows.stored(at / columns) * columns + within, len)
                }
            };
            self.decode(found, format, start..start + len, &mut out[done..done + len])
                .map_err(|error| self.read_error(name, error))?;
            done += len;
        }
        if self.family.adds_one(name) {
            out.iter_mut().for_each(|value| *value -= 1.0);
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
        let Wanted { name, shape } = wanted;
        let refused = |problem: &dyn ToString| io::Error::other(self.read_error(name, problem.to_string()));
        let (found, format) = self.tensor(name, shape).map_err(io::Error::other)?;
        let rows = self.rows(name, shape).map_err(io::Error::other)?;
        let (&[count, columns], true) = (shape, held_as(format) == Some(packing)) else {
            return Err(refused(&format!("it is not held as {packing}")));
        };
        let row_bytes = format.row_bytes(columns).map_err(|error| refused(&error))?;
        // Rows move within heads only: whole heads at a time have all their rows.
        let step = (CHUNK_BYTES / row_bytes.max(1)).max(1).next_multiple_of(rows.head.unwrap_or(1));
        for start in (0..count).step_by(step) {
            let chunk = start..count.min(start + step);
            let first = rows.first + start;
            let blocks = self
                .bytes(found, first * row_bytes..(first + chunk.len()) * row_bytes)
                .map_err(|error| refused(&error))?;
            let row = |at: usize| &blocks[(rows.stored(start + at) - first) * row_bytes..][..row_bytes];
            let parts = over_rows(chunk.len(), threads_for(chunk.len() * columns), |range| {
                repacked(format, packing, part, columns, range.map(row))
            });
            for bytes in parts.map_err(|problem: String| refused(&problem))? {
                out.write_all(&bytes)?;
            }
        }
        Ok(())
    }

    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let taken: HashSet<String> =
            weights.iter().filter_map(|name| self.family.tensor_name(name)).collect();
        let names = self.parts.tensors().map(Tensor::name);
        let mut left: Vec<String> =
            names.filter(|&name| !taken.contains(name) && !is_rope(name)).map(str::to_owned).collect();
        left.sort_unstable();
        left
    }

    fn stored_bytes(&self, name: &str) -> Option<u64> {
        let tensor = self.parts.tensor(&self.family.tensor_name(name)?)?;
        Some(tensor.range().len() as u64)
    }
}

/// One part of some rows of blocks, as the program stores it.
fn repacked<'b>(
    format: BlockFormat,
    packing: Packing,
    part: Part,
    columns: usize,
    rows: impl Iterator<Item = &'b [u8]>,
) -> Result<Vec<u8>, String> {
    let groups = columns / packing.scheme().group();
    let mut codes = vec![0; columns];
    let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
    let mut out = Vec::new();
    if packing.scheme().mode() == Mode::MxFp4 {
        let mut powers = vec![0; groups];
        for blocks in rows {
            BlockFormat::split_floats(blocks, &mut codes, &mut powers).map_err(|error| error.to_string())?;
            match part {
                Part::Codes => pack(&codes, packing, &mut out)?,
                Part::Scales => out.extend(&powers),
                Part::Biases | Part::TensorScale => {}
            }
        }
        return Ok(out);
    }
    for blocks in rows {
        let mut into = GroupsMut { codes: &mut codes, scales: &mut scales, biases: &mut biases };
        format.split(blocks, &mut into).map_err(|error| error.to_string())?;
        match part {
            Part::Codes => pack(&codes, packing, &mut out)?,
            Part::Scales => {
                check_biases(packing, &biases)?;
                encode(&scales, packing.scale_dtype(), &mut out);
            }
            Part::Biases => encode(&biases, packing.scale_dtype(), &mut out),
            Part::TensorScale => {}
        }
    }
    Ok(out)
}

fn pack(codes: &[u8], packing: Packing, out: &mut Vec<u8>) -> Result<(), String> {
    let words = packed::pack(codes, packing.scheme().bits()).map_err(|error| error.to_string())?;
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    Ok(())
}

/// Biases that follow from f16 scales are made in f16 when the program is loaded; scales of no sane size would turn them
/// into infinities there.
fn check_biases(packing: Packing, biases: &[f32]) -> Result<(), String> {
    let overflows = |bias: &&f32| bias.is_finite() && half::f16::from_f32(**bias).is_infinite();
    match biases.iter().find(overflows) {
        Some(bias) if packing.is_centred() && packing.scale_dtype() == DType::F16 => {
            Err(format!("a block has the bias {bias}, which f16 cannot hold; the file is damaged"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_from_both_halves_of_a_head() {
        let rows = Rows { first: 0, head: Some(6) };
        // Two heads: the file has rows 0 3 1 4 2 5 of each.
        let file = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11];
        let published: Vec<usize> = (0..12).map(|row| file[rows.stored(row)]).collect();
        assert_eq!(published, (0..12).collect::<Vec<_>>());
        assert_eq!(Rows { first: 4, head: None }.stored(7), 11);
    }
}
