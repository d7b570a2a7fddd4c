//! Images of a conversation: as files, so that it can be kept, and as what the model reads.

use crate::seeing::{Image, SeeError};
use crate::{Result, Voice};
use std::sync::Arc;

/// An image that a turn shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhibit {
    file: Arc<[u8]>,
    pub(super) image: Image,
}

impl Exhibit {
    /// Images from the bytes of their files.
    pub(super) fn of(voice: &Voice, files: &[Arc<[u8]>]) -> Result<Vec<Exhibit>> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let eyes = voice.eyes.as_ref().ok_or(SeeError::Blind)?;
        let images = eyes.images(files)?;
        Ok(files.iter().cloned().zip(images).map(|(file, image)| Exhibit { file, image }).collect())
    }

    /// The bytes of its file.
    pub fn file(&self) -> &Arc<[u8]> {
        &self.file
    }
}
