//! What a program that sees says of itself: how images become pixels, and how they stand in a prompt.

use serde::{Deserialize, Serialize};

/// A program that sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vision {
    /// How an image becomes what the program takes.
    pub pixels: Pixels,
    /// How it stands in a prompt.
    pub marks: Marks,
}

/// How an image becomes pixels: a size, a filter, and each channel's numbers as `(value * factor - mean) / deviation`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pixels {
    /// The size that images are brought to.
    pub size: Size,
    /// The filter that does it.
    pub filter: Filter,
    /// What values from 0 to 255 are multiplied by.
    pub factor: f32,
    /// Of each channel.
    pub mean: [f32; 3],
    /// Of each channel.
    pub deviation: [f32; 3],
    /// How pixels are laid out as patches; without, they stay an image, channel by channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<Patches>,
}

/// The size of images for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// The same for all.
    Fixed {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// Near an image's own, of whole squares, with pixels between two bounds.
    Near {
        /// The side of a square.
        multiple: usize,
        /// Pixels at least.
        least: usize,
        /// Pixels at most.
        most: usize,
    },
    /// The largest of an image's form, of whole squares.
    Largest {
        /// The side of a square.
        multiple: usize,
        /// Squares at most.
        squares: usize,
    },
}

/// A filter by which images are resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names of the field
pub enum Filter {
    Nearest,
    Lanczos,
    Bilinear,
    Bicubic,
    Box,
    Hamming,
}

impl Filter {
    /// The filter of a number in published files.
    pub fn numbered(number: u64) -> Option<Filter> {
        let all = [
            Filter::Nearest,
            Filter::Lanczos,
            Filter::Bilinear,
            Filter::Bicubic,
            Filter::Box,
            Filter::Hamming,
        ];
        all.get(usize::try_from(number).ok()?).copied()
    }
}

/// Pixels as patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patches {
    /// Pixels of a side.
    pub side: usize,
    /// Patches of a side of the square that becomes one row; its patches follow each other.
    pub merged: usize,
    /// Frames of a patch; an image is repeated.
    pub frames: usize,
    /// Merged squares of a side of a window.
    pub window: usize,
    /// Whether the three numbers of a pixel follow each other (channels last), where else all pixels of a channel do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_pixel: bool,
    /// Whether rows have positions as tokens have them, one behind the other, where else they have them along three axes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_line: bool,
}

/// How an image stands in a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// What templates write for an image.
    pub placeholder: u32,
    /// What stands in the prompt for each row of it.
    pub row: u32,
    /// What stands before the rows in place of the placeholder, where that does not stand there itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u32>,
    /// What stands behind the rows, where something stands before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// Text before and behind all of that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub around: String,
}
