//! What can be wrong with an image.

/// The result of work on images.
pub type Result<T, E = PictureError> = std::result::Result<T, E>;

/// Why an image is none that can be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum PictureError {
    #[error("it is empty")]
    Empty,
    #[error("it is no image; PNG and JPEG are read")]
    NotAnImage,
    #[error("it is a {0} image; PNG and JPEG are read")]
    Format(&'static str),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("it has {width} by {height} pixels; {most} at most are looked at")]
    TooLarge { width: usize, height: usize, most: usize },
    #[error("it has {width} by {height} pixels; one side may be {most} times the other at most")]
    TooThin { width: usize, height: usize, most: usize },
}
