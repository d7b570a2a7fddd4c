//! The lists of four or eight values that the IQ formats refer to, as `conformance/make_gguf_blocks.py` writes them.

/// All lists, one behind the other.
static LISTS: &[u8] = include_bytes!("grids.bin");

/// A list of entries, each a few bits a value that count in the list's own levels.
pub(super) struct Grid {
    first: usize,
    entries: usize,
    levels: [i8; 8],
}

const TWO: [i8; 8] = [8, 25, 43, 0, 0, 0, 0, 0];

pub(super) const IQ2_XXS: Grid = Grid { first: 0, entries: 256, levels: TWO };
pub(super) const IQ2_XS: Grid = Grid { first: 512, entries: 512, levels: TWO };
pub(super) const IQ2_S: Grid = Grid { first: 1536, entries: 1024, levels: TWO };
pub(super) const IQ1_S: Grid = Grid { first: 3584, entries: 2048, levels: [-1, 0, 1, 0, 0, 0, 0, 0] };
pub(super) const IQ3_XXS: Grid = Grid { first: 7680, entries: 256, levels: [4, 12, 20, 28, 36, 44, 52, 62] };
pub(super) const IQ3_S: Grid = Grid { first: 8192, entries: 512, levels: [1, 3, 5, 7, 9, 11, 13, 15] };

impl Grid {
    /// An entry: two bytes.
    fn entry(&self, place: usize) -> u16 {
        let at = self.first + 2 * (place % self.entries);
        u16::from_le_bytes([LISTS[at], LISTS[at + 1]])
    }

    /// An entry of eight values, 2 bits each.
    pub(super) fn eight(&self, place: usize) -> impl Iterator<Item = i8> {
        let entry = self.entry(place);
        (0..8).map(move |i| self.levels[usize::from(entry >> (2 * i) & 3)])
    }

    /// An entry of four values, 4 bits each.
    pub(super) fn four(&self, place: usize) -> impl Iterator<Item = i8> {
        let entry = self.entry(place);
        (0..4).map(move |i| self.levels[usize::from(entry >> (4 * i) & 7)])
    }
}
