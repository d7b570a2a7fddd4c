//! One image as a program reads it: pixels at first, rows once somebody has looked at it.

use super::{SeeError, Sight};
use crate::Result;
use pteron_runtime::{Error, RunControl, Session, Value};
use pteron_tensor::HostTensor;
use pteron_vision::{Input, Places};
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An image as the program of one model reads it. Clones share it; two are the same if their pixels are.
#[derive(Clone)]
pub struct Image(Arc<Inner>);

struct Inner {
    id: [u8; 32],
    /// What stands in a prompt for each row.
    mark: u32,
    rows: usize,
    places: Option<Places>,
    seen: Mutex<Seen>,
}

/// What there is of an image.
enum Seen {
    Pixels { pixels: HostTensor, places: Option<HostTensor> },
    Rows(HostTensor),
}

impl Image {
    pub(super) fn new(input: Input, rows: usize, mark: u32) -> Result<Image> {
        let failed = Error::from;
        let mut hash = Sha256::new();
        input.shape.iter().for_each(|&size| hash.update((size as u64).to_le_bytes()));
        let Input { values, mut shape, places } = input;
        let along = places.iter().flat_map(|places| &places.patches);
        along.for_each(|place| hash.update(place.to_le_bytes()));
        if places.is_none() {
            // One image at a time.
            shape.insert(0, 1);
        }
        let pixels = HostTensor::from_slice(shape, &values).map_err(failed)?;
        hash.update(&**pixels.bytes());
        let patches = places.as_ref().map(|places| {
            HostTensor::from_slice(vec![3, places.patches.len() / 3], &places.patches).map_err(failed)
        });
        let seen = Mutex::new(Seen::Pixels { pixels, places: patches.transpose()? });
        Ok(Image(Arc::new(Inner { id: hash.finalize().into(), mark, rows, places, seen })))
    }

    /// How many rows it becomes, each of which takes a position of the context.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// What stands in a prompt for each row.
    pub(crate) fn mark(&self) -> u32 {
        self.0.mark
    }

    /// What is added to positions behind it, where it takes other positions than it has rows.
    pub(crate) fn shift(&self) -> i64 {
        self.0.places.as_ref().map_or(0, |places| places.advance as i64 - self.0.rows as i64)
    }

    /// The positions of some of its rows along the axes of time, rows and columns, where the first is at `first`.
    pub(super) fn positions(&self, rows: Range<usize>, first: i64) -> Vec<i64> {
        let Some(places) = &self.0.places else { return Vec::new() };
        let along = places.rows.chunks(self.0.rows.max(1)).filter_map(|axis| axis.get(rows.clone()));
        along.flatten().map(|place| place + first).collect()
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.seen() {
            Seen::Pixels { pixels, .. } => pixels.bytes().len() as u64,
            Seen::Rows(rows) => rows.bytes().len() as u64,
        }
    }

    /// What there is of it is whole after every change.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its rows, `[1, rows, width]`: looks at it where nobody has yet.
    pub(crate) fn look(
        &self,
        session: &mut Session,
        sight: &Sight,
        control: &RunControl,
    ) -> Result<HostTensor> {
        let mut seen = self.seen();
        let (pixels, places) = match &*seen {
            Seen::Rows(rows) => return Ok(rows.clone()),
            Seen::Pixels { pixels, places } => (pixels, places),
        };
        let inputs: Vec<Value> =
            [Some(pixels), places.as_ref()].into_iter().flatten().cloned().map(Value::Tensor).collect();
        let mut outputs = Vec::new();
        session.run_into(Sight::LOOK, &inputs, control, &mut outputs)?;
        let made = outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let wanted = sight.rows_of(self.0.rows);
        let found = made.filter(|rows| rows.dtype() == wanted.0 && rows.shape() == wanted.1);
        let Some(rows) = found else {
            let found = outputs.first().map_or_else(|| "nothing".to_owned(), |made| format!("{made:?}"));
            let found = found.chars().take(60).collect();
            let wanted = format!("{} {:?}", wanted.0, wanted.1);
            return Err(SeeError::Rows { found, wanted }.into());
        };
        *seen = Seen::Rows(rows.clone());
        Ok(rows)
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("rows", &self.0.rows).finish_non_exhaustive()
    }
}
