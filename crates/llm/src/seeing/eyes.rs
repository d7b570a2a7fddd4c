//! What is known of a program's eyes: how images become what it takes, and how they stand in a prompt.

use super::{Image, ImageError, SeeError, Sight};
use crate::{LanguageModel, LlmError, Result};
use pteron_companion::{Marks, Patches, Pixels, Size, VISION, Vision};
use pteron_format::pte::Pte;
use pteron_vision::{Picture, input};
use std::sync::Arc;

/// Bytes that an image file may have.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of what stands around an image.
const MOST_AROUND: usize = 1 << 10;
/// Pixels that the images of one conversation may have before they are resized: what looking at them takes.
const MOST_PIXELS: usize = 256_000_000;

/// The eyes of a model. Clones share them.
#[derive(Clone, Debug)]
pub struct Eyes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vision: Vision,
    sight: Sight,
}

impl Eyes {
    /// Bytes that an image file may have.
    pub const MOST_BYTES: usize = MOST_BYTES;

    /// What a program carries that sees; `None` where it does not.
    ///
    /// # Errors
    /// When what it says of itself is not what its methods take.
    pub fn inside(pte: &Pte, model: &LanguageModel) -> Result<Option<Eyes>> {
        let Some(json) = pte.named(VISION) else { return Ok(None) };
        let wrong = |problem: String| LlmError::NamedData { key: VISION, problem };
        let vision: Vision = serde_json::from_slice(&json).map_err(|error| wrong(error.to_string()))?;
        let Some(sight) = model.sight().cloned() else {
            return Err(wrong("the program has no methods that look at images and read them".to_owned()));
        };
        check(&vision, &sight).map_err(wrong)?;
        Ok(Some(Eyes(Arc::new(Inner { vision, sight }))))
    }

    /// How images stand in a prompt.
    pub(super) fn marks(&self) -> &Marks {
        &self.0.vision.marks
    }

    /// An image from the bytes of its file. Nothing has been seen of it yet but its pixels, of which there may be so many.
    fn image(&self, bytes: &[u8], room: &mut usize) -> Result<Image> {
        let problem = |problem: ImageError| SeeError::Image { number: 1, problem };
        if bytes.len() > MOST_BYTES {
            return Err(problem(ImageError::TooLong { most: MOST_BYTES }).into());
        }
        let Inner { vision, sight } = &*self.0;
        let picture = Picture::read(bytes).map_err(|error| problem(error.into()))?;
        let left = room.checked_sub(picture.width() * picture.height());
        *room = left.ok_or_else(|| problem(ImageError::TooMuch { most: MOST_PIXELS }))?;
        let input = input(&picture, &vision.pixels).map_err(|error| problem(error.into()))?;
        let rows = match (&input.places, sight.fixed()) {
            (Some(places), _) => places.rows.len() / 3,
            (None, Some(rows)) => rows,
            (None, None) => return Err(SeeError::Blind.into()),
        };
        let found = input.shape.first().copied().unwrap_or(0);
        if let (Some(_), Some(most)) = (&input.places, most_patches(sight).filter(|&most| found > most)) {
            return Err(problem(ImageError::Patches { found, most }).into());
        }
        Image::new(input, rows, vision.marks.row)
    }

    /// Images from the bytes of their files, PNG or JPEG.
    ///
    /// # Errors
    /// When one is no image, or too large; which one is told.
    pub fn images<B: AsRef<[u8]>>(&self, files: impl IntoIterator<Item = B>) -> Result<Vec<Image>> {
        let (numbered, mut room) = ((1..).zip(files), MOST_PIXELS);
        let read = |(number, bytes): (usize, B)| match self.image(bytes.as_ref(), &mut room) {
            Err(LlmError::See(SeeError::Image { problem, .. })) => {
                Err(SeeError::Image { number, problem }.into())
            }
            read => read,
        };
        numbered.map(read).collect()
    }
}

/// Patches that the program takes in one call.
fn most_patches(sight: &Sight) -> Option<usize> {
    sight.pixels.first()?.max
}

/// Whether what a file says fits the methods that it has: sizes are a stranger's until they have been compared.
fn check(vision: &Vision, sight: &Sight) -> Result<(), String> {
    let Pixels { size, patches, mean, deviation, factor, .. } = &vision.pixels;
    let numbers = mean.iter().chain(deviation).chain([factor]);
    if !numbers.clone().all(|number| number.is_finite()) || deviation.contains(&0.0) {
        return Err("its numbers make no pixels".to_owned());
    }
    if vision.marks.around.len() > MOST_AROUND {
        return Err("more stands around an image than any text needs".to_owned());
    }
    let declared: Vec<Option<usize>> = sight.pixels.iter().map(|dim| dim.max).collect();
    let fits = match (*size, *patches) {
        (Size::Fixed { height, width }, None) => {
            !sight.has_places && declared == [Some(1), Some(3), Some(height), Some(width)]
        }
        (_, Some(patches)) => are_taken(*size, patches, sight, &declared),
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => Err("images become other pixels than the program takes".to_owned()),
    }
}

/// Whether patches of images of such sizes are what a method declares to take.
fn are_taken(size: Size, patches: Patches, sight: &Sight, declared: &[Option<usize>]) -> bool {
    let Patches { side, merged, frames, window, in_line, .. } = patches;
    let Some((multiple, least, most)) = bounds(size) else { return false };
    let square = side.checked_mul(merged).filter(|&square| square == multiple && square > 0);
    let area = square.and_then(|square| square.checked_mul(square));
    let numbers = side.checked_mul(side).and_then(|area| area.checked_mul(frames)?.checked_mul(3));
    let room = match *declared {
        [Some(count), Some(each)] if numbers == Some(each) => {
            side.checked_mul(side).and_then(|area| area.checked_mul(count))
        }
        _ => None,
    };
    sight.has_places
        && sight.has_axes != in_line
        && window > 0
        && merged.checked_mul(window).is_some()
        && area.is_some_and(|area| area <= most)
        && least <= most
        && room.is_some_and(|room| most <= room)
}

/// The side of the squares of images that keep their form, and their least and most pixels.
fn bounds(size: Size) -> Option<(usize, usize, usize)> {
    match size {
        Size::Fixed { .. } => None,
        Size::Near { multiple, least, most } => Some((multiple, least, most)),
        Size::Largest { multiple, squares } => {
            Some((multiple, 0, multiple.checked_mul(multiple)?.checked_mul(squares)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(pixels: Value, sizes: &[usize], around: &str) -> Result<(), String> {
        checked_for(pixels, sizes, around, sizes.len() == 2)
    }

    fn checked_for(pixels: Value, sizes: &[usize], around: &str, has_axes: bool) -> Result<(), String> {
        let mut whole =
            json!({"filter": "bicubic", "factor": 1.0, "mean": [0, 0, 0], "deviation": [1, 1, 1]});
        let more = pixels.as_object().cloned().unwrap_or_default();
        whole.as_object_mut().unwrap().extend(more);
        let marks = json!({"placeholder": 1, "row": 2, "around": around});
        let vision = serde_json::from_value(json!({"pixels": whole, "marks": marks})).unwrap();
        check(&vision, &Sight::taking(sizes, sizes.len() == 2, has_axes))
    }

    #[test]
    fn what_a_file_says_of_images_is_what_its_program_takes() {
        let fixed = |height: u64, width: u64| json!({"size": {"fixed": {"height": height, "width": width}}});
        assert_eq!(checked(fixed(4, 6), &[1, 3, 4, 6], "\n"), Ok(()));
        for (wrong, sizes) in [
            (fixed(4, 7), &[1, 3, 4, 6][..]),
            (fixed(u64::MAX, 1), &[1, 3, 4, 6]),
            (fixed(4, 6), &[4, 6]),
            (fixed(4, 6), &[]),
        ] {
            assert!(checked(wrong.clone(), sizes, "").is_err(), "{wrong}");
        }
        assert!(checked(fixed(4, 6), &[1, 3, 4, 6], &"a".repeat(2000)).is_err());
        let near = |multiple: u64, most: u64, side: u64, merged: u64, frames: u64, window: u64| {
            json!({
                "size": {"near": {"multiple": multiple, "least": 16, "most": most}},
                "patches": {"side": side, "merged": merged, "frames": frames, "window": window},
            })
        };
        assert_eq!(checked(near(8, 640, 4, 2, 2, 4), &[40, 96], ""), Ok(()));
        let huge = u64::MAX;
        for wrong in [
            near(8, 656, 4, 2, 2, 4),
            near(8, huge, 4, 2, 2, 4),
            near(8, 8, 4, 2, 2, 4),
            near(8, 48, 4, 2, 2, 4),
            near(0, 640, 0, 2, 2, 4),
            near(0, 640, 4, 0, 2, 4),
            near(4, 640, 4, 2, 2, 4),
            near(8, 640, 4, 2, 1, 4),
            near(8, 640, 4, 2, 0, 4),
            near(8, 640, 4, 2, 2, 0),
            near(8, 640, 4, 2, 2, huge),
            near(huge, 640, huge, 1, 2, 4),
            near(8, 640, 4, 2, huge, 4),
        ] {
            assert!(checked(wrong.clone(), &[40, 96], "").is_err(), "{wrong}");
        }
        let largest = |multiple: u64, squares: u64, side: u64, merged: u64, in_line: bool| {
            json!({
                "size": {"largest": {"multiple": multiple, "squares": squares}},
                "patches": {"side": side, "merged": merged, "frames": 1, "window": 1, "in_line": in_line},
            })
        };
        assert_eq!(checked_for(largest(8, 10, 4, 2, true), &[40, 48], "", false), Ok(()));
        assert!(checked_for(largest(8, 10, 4, 2, true), &[40, 48], "", true).is_err());
        for wrong in [
            largest(8, 11, 4, 2, true),
            largest(8, 0, 4, 2, true),
            largest(0, 10, 4, 2, true),
            largest(8, 10, 2, 2, true),
            largest(8, huge, 4, 2, true),
            largest(huge, 10, huge, 1, true),
            largest(8, 10, 4, 2, false),
        ] {
            assert!(checked_for(wrong.clone(), &[40, 48], "", false).is_err(), "{wrong}");
        }
        for wrong in [json!({"deviation": [1, 0, 1]}), json!({"factor": 1e40})] {
            let mut pixels = fixed(4, 6);
            pixels.as_object_mut().unwrap().extend(wrong.as_object().cloned().unwrap());
            assert!(checked(pixels, &[1, 3, 4, 6], "").is_err(), "{wrong}");
        }
    }
}
