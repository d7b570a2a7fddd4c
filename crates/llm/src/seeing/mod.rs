//! Images among the tokens of a text: what is known of a program's eyes, images as rows that it reads, and where they stand in a
//! prompt.
//!
//! Bytes of image files flow in and become [`Image`]s, which hold what the program takes; they are looked at when a decoder comes
//! to read them, once. In a prompt an image is as many marks as it has rows, so that whatever counts tokens counts them too.

mod eyes;
mod image;
mod places;
mod sight;

pub use eyes::Eyes;
pub use image::Image;
pub(crate) use sight::Sight;

use pteron_vision::PictureError;

/// Why an image is not seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum SeeError {
    #[error("this model does not see images")]
    Blind,
    #[error("image {number}: {problem}")]
    Image { number: usize, problem: ImageError },
    #[error("{images} images are shown, and the model's chat template has places for {places} of them")]
    Places { images: usize, places: usize },
    #[error("the tokenizer does not know the marks of images; is this the model's tokenizer?")]
    Marks,
    #[error("the program makes {found} of an image, where it reads {wanted}")]
    Rows { found: String, wanted: String },
    #[error("an image of {rows} rows is read at once, and {given} of them were given")]
    Torn { rows: usize, given: usize },
}

/// What can be wrong with an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum ImageError {
    #[error("its file has more than {} MiB", most >> 20)]
    TooLong { most: usize },
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("with those before it, it has more than {} million pixels", most / 1_000_000)]
    TooMuch { most: usize },
    #[error("it becomes {found} patches; the model takes {most} at most")]
    Patches { found: usize, most: usize },
}

/// An image at its place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number of the token that stands for its first row.
    pub at: usize,
    /// The image.
    pub image: Image,
}

impl Shown {
    /// The number of the token behind its last row.
    pub fn end(&self) -> usize {
        self.at + self.image.rows()
    }

    /// Whether a place is behind its first row and before its end.
    pub(crate) fn holds(&self, place: usize) -> bool {
        self.at < place && place < self.end()
    }
}

/// A text that is to be read: all of its tokens, and the images that some of them stand for, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptRef<'p> {
    /// The tokens.
    pub tokens: &'p [u32],
    /// The images.
    pub images: &'p [Shown],
}

impl<'p> From<&'p [u32]> for PromptRef<'p> {
    fn from(tokens: &'p [u32]) -> PromptRef<'p> {
        PromptRef { tokens, images: &[] }
    }
}

impl<'p, const N: usize> From<&'p [u32; N]> for PromptRef<'p> {
    fn from(tokens: &'p [u32; N]) -> PromptRef<'p> {
        tokens.as_slice().into()
    }
}

impl<'p> From<&'p Vec<u32>> for PromptRef<'p> {
    fn from(tokens: &'p Vec<u32>) -> PromptRef<'p> {
        tokens.as_slice().into()
    }
}

impl<'p> From<&'p crate::Prompt> for PromptRef<'p> {
    fn from(prompt: &'p crate::Prompt) -> PromptRef<'p> {
        PromptRef { tokens: &prompt.tokens, images: &prompt.images }
    }
}

impl PromptRef<'_> {
    /// Tokens at the beginning that it has in common with another text: an image is the same only if all of its pixels are.
    pub(crate) fn shared(&self, tokens: &[u32], images: &[Shown]) -> usize {
        let same = self.tokens.iter().zip(tokens).take_while(|(one, other)| one == other).count();
        let only = |images: &[Shown], others: &[Shown]| {
            images.iter().find(|shown| !others.contains(shown)).map_or(usize::MAX, |shown| shown.at)
        };
        same.min(only(self.images, images)).min(only(images, self.images))
    }
}
