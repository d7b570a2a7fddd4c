//! How the methods of a program are called that look at images and read what was seen. Read off the types that the file declares.

use super::Image;
use crate::Result;
use pteron_runtime::{ArgumentKind, Bound, BufferId, Error, MethodInfo, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::ops::Range;

/// The buffer in which a program is told what is added to positions behind images.
const SHIFT: &str = "position_shift";

/// The calls of a program that sees.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    /// What an image is as pixels.
    pub(super) pixels: Vec<Bound>,
    /// Whether patches come with their places.
    pub(super) has_places: bool,
    /// Whether rows come with positions along three axes. They are then read in any parts.
    pub(super) has_axes: bool,
    /// The dtype of rows, and numbers of each.
    rows: (DType, usize),
    /// Rows of every image, where all have as many.
    fixed: Option<usize>,
    /// Rows of one call at most.
    longest: usize,
    shift: Vec<BufferId>,
}

impl Sight {
    /// The method that looks at an image.
    pub(crate) const LOOK: &'static str = "vision_encoder";
    /// The method that reads what was seen.
    pub(crate) const READ: &'static str = "text_decoder";

    /// Those of a program; `None` where it has none that can be called.
    pub(crate) fn of(program: &Program) -> Option<Sight> {
        let method = |name| program.methods().iter().find(|method: &&MethodInfo| method.name == name);
        let (look, read) = (method(Sight::LOOK)?, method(Sight::READ)?);
        let (pixels, has_places) = match look.inputs.as_slice() {
            [pixels] => (dims(&pixels.kind, DType::F32)?, false),
            [pixels, places] => {
                let places = dims(&places.kind, DType::I64)?;
                (dims(&pixels.kind, DType::F32)?, places.first().is_some_and(|axes| axes.max == Some(3)))
            }
            _ => return None,
        };
        let [rows, position, axes @ ..] = read.inputs.as_slice() else { return None };
        let ArgumentKind::Tensor { dtype, dims: shape } = &rows.kind else { return None };
        let [_, count, width] = shape.as_slice() else { return None };
        let (true, longest, width) = (position.kind == ArgumentKind::Int, count.max?, width.max?) else {
            return None;
        };
        let has_axes = match axes {
            [] => false,
            [positions] => dims(&positions.kind, DType::I64)?.len() == 2,
            _ => return None,
        };
        let is_shift = |id: &&BufferId| id.name == SHIFT;
        let shift: Vec<BufferId> =
            program.buffers().iter().map(|buffer| &buffer.id).filter(is_shift).cloned().collect();
        // Positions along axes are those of patches, and behind them others are shifted.
        let is_known = has_axes != shift.is_empty() && (has_places || !has_axes) && longest > 0 && width > 0;
        is_known.then(|| Sight {
            pixels,
            has_places,
            has_axes,
            rows: (*dtype, width),
            fixed: (!has_places).then_some(longest),
            longest,
            shift,
        })
    }

    /// Rows of every image, where all have as many.
    pub(super) fn fixed(&self) -> Option<usize> {
        self.fixed
    }

    /// Whether an image of so many rows is read at once: they may see those behind them.
    pub(crate) fn is_whole(&self, rows: usize) -> bool {
        !self.has_axes && rows <= self.longest
    }

    /// Rows of one call at most.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The buffers in which a program is told what is added to positions; none where that is nothing.
    pub(crate) fn shift_buffers(&self) -> &[BufferId] {
        &self.shift
    }

    /// The dtype and the shape of so many rows.
    pub(super) fn rows_of(&self, count: usize) -> (DType, [usize; 3]) {
        (self.rows.0, [1, count, self.rows.1])
    }

    /// What a call takes that reads some rows of an image, the first of which is at that position; `first` is where the image's
    /// first row turns.
    pub(crate) fn inputs(
        &self,
        image: &Image,
        rows: &HostTensor,
        part: Range<usize>,
        position: usize,
        first: i64,
    ) -> Result<Vec<Value>> {
        let (dtype, shape) = self.rows_of(part.len());
        let row = self.rows.1 * dtype.size();
        let outside = || Error::Invalid(format!("no rows {part:?} in {:?}", rows.shape()));
        let bytes = rows.bytes().get(part.start * row..part.end * row).ok_or_else(outside)?;
        let given = HostTensor::new(dtype, shape.to_vec(), Bytes::copy_of(bytes)).map_err(Error::from)?;
        let mut inputs = vec![Value::Tensor(given), Value::Int(position as i64)];
        if self.has_axes {
            let positions = image.positions(part.clone(), first);
            let positions = HostTensor::from_slice(vec![3, part.len()], &positions).map_err(Error::from)?;
            inputs.push(Value::Tensor(positions));
        }
        Ok(inputs)
    }
}

/// The dims of a tensor of that dtype.
fn dims(kind: &ArgumentKind, wanted: DType) -> Option<Vec<Bound>> {
    match kind {
        ArgumentKind::Tensor { dtype, dims } if *dtype == wanted => Some(dims.clone()),
        _ => None,
    }
}

#[cfg(test)]
impl Sight {
    /// That of a program which takes pixels of these sizes.
    pub(super) fn taking(sizes: &[usize], has_places: bool, has_axes: bool) -> Sight {
        let pixels = sizes.iter().map(|&size| Bound { min: 1, max: Some(size) }).collect();
        let (rows, fixed, longest, shift) = ((DType::F32, 8), None, 1, Vec::new());
        Sight { pixels, has_places, has_axes, rows, fixed, longest, shift }
    }
}
