//! An image as the numbers that a program takes.

use pteron_companion::{Patches, Pixels, Size};

use crate::resize::resized;
use crate::{Picture, PictureError, Result};

/// One side of an image for programs that take images near their own size, in sides of the other.
const MOST_THIN: usize = 200;

/// What a program takes of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Numbers, row-major.
    pub values: Vec<f32>,
    /// Channels, rows and columns; of patches their number, and numbers of each.
    pub shape: Vec<usize>,
    /// Where patches and rows are, where an image becomes patches.
    pub places: Option<Places>,
}

/// Where the patches of an image and the rows that they become are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of all patches the row, of all the column, of all the number of the window.
    pub patches: Vec<i64>,
    /// Of all rows that patches become the time, of all the row, of all the column.
    pub rows: Vec<i64>,
    /// Positions that the image takes.
    pub advance: usize,
}

/// An image as a program wants it.
///
/// # Errors
/// When it is too thin for one that keeps its form.
pub fn input(picture: &Picture, pixels: &Pixels) -> Result<Input> {
    let [height, width] = size(picture, pixels.size)?;
    let picture = resized(picture, width, height, pixels.filter)?;
    let number = |channel: usize, value: u8| {
        (f32::from(value) * pixels.factor - pixels.mean[channel]) / pixels.deviation[channel]
    };
    let tables: Vec<Vec<f32>> =
        (0..3).map(|channel| (0..=255).map(|value| number(channel, value)).collect()).collect();
    let at = |channel: usize, y: usize, x: usize| {
        tables[channel][usize::from(picture.rgb()[(y * width + x) * 3 + channel])]
    };
    let Some(patches) = pixels.patches else {
        let mut values = Vec::with_capacity(3 * height * width);
        for channel in 0..3 {
            values.extend(
                (0..height).flat_map(|y| (0..width).map(move |x| (y, x))).map(|(y, x)| at(channel, y, x)),
            );
        }
        return Ok(Input { values, shape: vec![3, height, width], places: None });
    };
    let Patches { side, merged, frames, by_pixel, .. } = patches;
    let [rows, columns] = [height / side, width / side];
    let each = 3 * frames * side * side;
    let mut values = Vec::with_capacity(rows * columns * each);
    for (top, left) in squares(rows, columns, merged) {
        if by_pixel {
            let lines = (0..frames).flat_map(|_| top * side..(top + 1) * side);
            let pixels = lines.flat_map(|y| (left * side..(left + 1) * side).map(move |x| (y, x)));
            values.extend(pixels.flat_map(|(y, x)| [0, 1, 2].map(|channel| at(channel, y, x))));
            continue;
        }
        for channel in 0..3 {
            for _ in 0..frames {
                for y in top * side..(top + 1) * side {
                    values.extend((left * side..(left + 1) * side).map(|x| at(channel, y, x)));
                }
            }
        }
    }
    let places = Some(places(rows, columns, patches));
    Ok(Input { values, shape: vec![rows * columns, each], places })
}

fn places(rows: usize, columns: usize, Patches { merged, window, in_line, .. }: Patches) -> Places {
    let span = (merged * window).max(1);
    let across = columns.div_ceil(span);
    let all = || squares(rows, columns, merged);
    let numbers = |of: &dyn Fn((usize, usize)) -> usize| all().map(|at| of(at) as i64).collect::<Vec<_>>();
    let patches =
        [numbers(&|(y, _)| y), numbers(&|(_, x)| x), numbers(&|(y, x)| y / span * across + x / span)];
    let (high, wide) = (rows / merged, columns / merged);
    let cells = || (0..high).flat_map(move |y| (0..wide).map(move |x| (y, x)));
    let times = std::iter::repeat_n(0, high * wide);
    let rows = times.chain(cells().map(|(y, _)| y as i64)).chain(cells().map(|(_, x)| x as i64));
    let advance = if in_line { high * wide } else { high.max(wide) };
    Places { patches: patches.concat(), rows: rows.collect(), advance }
}

/// Patches in the order in which squares of them follow each other.
fn squares(rows: usize, columns: usize, merged: usize) -> impl Iterator<Item = (usize, usize)> {
    let steps = move |to: usize| (0..to).step_by(merged);
    let corners = steps(rows).flat_map(move |top| steps(columns).map(move |left| (top, left)));
    corners.flat_map(move |(top, left)| {
        (top..top + merged).flat_map(move |y| (left..left + merged).map(move |x| (y, x)))
    })
}

/// The largest height and width of an image's form that are of so many squares at most. Of an image that is too thin for a whole
/// one, whatever fits along the longer side.
fn largest(picture: &Picture, multiple: usize, squares: usize) -> [usize; 2] {
    let (height, width) = (picture.height(), picture.width());
    let by = multiple as f64;
    let room = squares as f64 * by * by;
    let grow = (room / (height as f64 * width as f64)).sqrt();
    let whole = |side: usize| (grow * side as f64 / by).floor() as usize;
    let [high, wide] = match [whole(height), whole(width)] {
        [0, 0] => [1, 1],
        [0, _] => [1, (width / height).min(squares)],
        [_, 0] => [(height / width).min(squares), 1],
        both => both,
    };
    [high * multiple, wide * multiple]
}

/// The height and the width that an image is brought to.
fn size(picture: &Picture, size: Size) -> Result<[usize; 2]> {
    let (multiple, least, most) = match size {
        Size::Fixed { height, width } => return Ok([height, width]),
        Size::Largest { multiple, squares } => return Ok(largest(picture, multiple, squares)),
        Size::Near { multiple, least, most } => (multiple, least, most),
    };
    let (height, width) = (picture.height(), picture.width());
    if height.max(width) > MOST_THIN * height.min(width) {
        return Err(PictureError::TooThin { width, height, most: MOST_THIN });
    }
    let by = multiple as f64;
    let (high, wide) = (height as f64, width as f64);
    // Halves go to the even neighbour, as in the reference.
    let near = [high, wide].map(|side| (side / by).round_ties_even() * by);
    let pixels = near[0] * near[1];
    let sides = if pixels > most as f64 {
        let shrink = (high * wide / most as f64).sqrt();
        [high, wide].map(|side| ((side / shrink / by).floor() * by).max(by))
    } else if pixels < least as f64 {
        let grow = (least as f64 / (high * wide)).sqrt();
        [high, wide].map(|side| (side * grow / by).ceil() * by)
    } else {
        near
    };
    Ok(sides.map(|side| side as usize))
}
