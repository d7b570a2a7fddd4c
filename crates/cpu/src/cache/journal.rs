//! What runs have written over in the pages of a cache, so that a run that fails leaves them as they were.

use super::layer::Layer;
use crate::pages::{Page, PageLayout};
use pteron_tensor::DType;
use std::ops::Range;

/// What runs since the last commit wrote over, oldest first, and the pages that they made. Its memory is kept from run
/// to run.
#[derive(Default)]
pub(super) struct Journal {
    entries: Vec<Entry>,
    held: Vec<usize>,
    bytes: Vec<u8>,
    /// Layers that grew, with the pages that they had.
    grown: Vec<(usize, usize)>,
}

impl Clone for Journal {
    /// Snapshots are taken between runs, when there is nothing to undo.
    fn clone(&self) -> Journal {
        Journal::default()
    }
}

/// Rows of a page of a layer as they were: where the journal has what they held, and where their bytes lie, if they had
/// any.
struct Entry {
    layer: usize,
    page: usize,
    rows: Range<usize>,
    held_at: usize,
    bytes: Option<Range<usize>>,
}

impl Journal {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.held.clear();
        self.bytes.clear();
        self.grown.clear();
    }

    /// Keeps rows of a page that are about to be written.
    pub(super) fn save(
        &mut self,
        (layer, page): (usize, usize),
        contents: &Page,
        layout: PageLayout,
        rows: Range<usize>,
    ) {
        let held = &contents.held[rows.clone()];
        let (held_at, bytes_at) = (self.held.len(), self.bytes.len());
        let had_any = held.iter().any(|&held| held > 0);
        self.held.extend_from_slice(held);
        if had_any {
            contents.parts(layout, rows.clone()).for_each(|part| self.bytes.extend_from_slice(part));
        }
        let bytes = had_any.then_some(bytes_at..self.bytes.len());
        self.entries.push(Entry { layer, page, rows, held_at, bytes });
    }

    /// Notes that a layer makes pages behind those that it has.
    pub(super) fn grown(&mut self, layer: usize, pages: usize) {
        self.grown.push((layer, pages));
    }

    /// Puts back what was written over, newest first, and gives up the pages that were made.
    pub(super) fn put_back(&mut self, layers: &mut [Layer], dtype: Option<DType>) {
        for &(layer, pages) in self.grown.iter().rev() {
            layers[layer].pages.truncate(pages);
        }
        for entry in self.entries.iter().rev() {
            let (layer, Some(dtype)) = (&mut layers[entry.layer], dtype) else { continue };
            let layout = layer.layout(dtype);
            // One that is gone was made by these runs; one that is there was their own when they wrote it.
            let Some(page) = layer.pages.get_mut(entry.page).and_then(Page::own) else { continue };
            let held = &self.held[entry.held_at..][..entry.rows.len()];
            page.held[entry.rows.clone()].copy_from_slice(held);
            match &entry.bytes {
                Some(bytes) => page.put_back(layout, entry.rows.clone(), &self.bytes[bytes.clone()]),
                None => page.clear(layout, entry.rows.clone()),
            }
        }
        self.clear();
    }
}
