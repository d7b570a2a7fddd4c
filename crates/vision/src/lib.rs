//! From image files to what models take. Bytes of a file flow in, [`Input`]s for a program flow out, as its
//! [`Pixels`](pteron_companion::Pixels) want them; whatever the bytes are, memory stays bounded.
//!
//! No model is known here, and no file is opened.

mod decode;
mod error;
mod input;
mod orientation;
mod picture;
mod resize;

pub use error::{PictureError, Result};
pub use input::{Input, Places, input};
pub use picture::Picture;
