//! An image in memory: three bytes a pixel, row by row.

use crate::decode::decode;
use crate::{PictureError, Result};

/// Pixels that an image may have: more than cameras give, and 192 MiB.
pub(crate) const MOST_PIXELS: usize = 64 << 20;

/// An image, red, green and blue.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Picture {
    /// Reads a PNG or a JPEG. What is transparent lies on white, and what a camera says of how it was held is heeded.
    ///
    /// # Errors
    /// When the bytes are no such image, or one of too many pixels.
    pub fn read(bytes: &[u8]) -> Result<Picture> {
        decode(bytes)
    }

    /// An image of so many pixels.
    ///
    /// # Errors
    /// When there are not three bytes for each pixel, or too many pixels.
    pub fn new(width: usize, height: usize, rgb: Vec<u8>) -> Result<Picture> {
        check(width, height)?;
        match rgb.len() == width * height * 3 {
            true => Ok(Picture { width, height, rgb }),
            false => {
                Err(PictureError::Damaged(format!("{} bytes for {width} by {height} pixels", rgb.len())))
            }
        }
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Red, green and blue of each pixel, row by row.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Picture").field("width", &self.width).field("height", &self.height).finish()
    }
}

/// An error where an image has no pixels or too many.
pub(crate) fn check(width: usize, height: usize) -> Result<()> {
    match width.checked_mul(height) {
        Some(0) => Err(PictureError::Empty),
        Some(pixels) if pixels <= MOST_PIXELS => Ok(()),
        _ => Err(PictureError::TooLarge { width, height, most: MOST_PIXELS }),
    }
}
