//! How a file is damaged: truncations, flipped bits, set bytes, edited integers, splices with another file. Pure and
//! deterministic: the same files and the same random numbers give the same bytes on every machine.

use std::ops::Range;

/// SplitMix64: small, well mixed, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one mutant: neighbours in `index` share nothing.
    pub(crate) fn of(seed: u64, index: u64) -> Random {
        let mut mixed = Random(seed);
        let start = mixed.next() ^ index.wrapping_mul(0xd134_2543_de82_ef95);
        Random(start)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..count`; 0 when there is none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        if count == 0 { 0 } else { (self.next() % count as u64) as usize }
    }

    fn pick<T: Copy>(&mut self, items: &[T], otherwise: T) -> T {
        items.get(self.below(items.len())).copied().unwrap_or(otherwise)
    }
}

/// A damaged file, and in words what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) bytes: Vec<u8>,
    pub(crate) how: String,
}

/// Damages a file one to four times; `other` is what splices are taken from.
pub(crate) fn mutate(original: &[u8], other: &[u8], random: &mut Random) -> Mutant {
    let tables = tables(original);
    let mut bytes = original.to_vec();
    let mut how = vec![];
    // Mostly one: a second fault often hides what lies behind the first.
    let faults = [1, 1, 1, 1, 2, 2, 3, 4][random.below(8)];
    for _ in 0..faults {
        how.push(damage(&mut bytes, other, &tables, random));
    }
    Mutant { bytes, how: how.join(", ") }
}

fn damage(bytes: &mut Vec<u8>, other: &[u8], tables: &[Range<usize>], random: &mut Random) -> String {
    let at = place(bytes.len(), tables, random);
    match random.below(20) {
        0..=1 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        2..=6 => flip(bytes, at, random),
        7..=9 => set(bytes, at, random),
        10..=15 => edit(bytes, at, random),
        16..=17 => overwrite(bytes, at, other, random),
        18 => {
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
            format!("joined at {at} with another file from {from}")
        }
        _ => shift(bytes, at, random),
    }
}

/// Mostly in the tables: in what is left, which is weights, any bytes will do.
fn place(length: usize, tables: &[Range<usize>], random: &mut Random) -> usize {
    let table = tables.get(random.below(tables.len())).cloned();
    let range = match table {
        Some(table) if random.below(4) > 0 => table.start.min(length)..table.end.min(length),
        _ => 0..length,
    };
    range.start + random.below(range.len())
}

fn flip(bytes: &mut [u8], at: usize, random: &mut Random) -> String {
    let bits = [1, 1, 1, 2, 4, 8][random.below(6)];
    for _ in 0..bits {
        let place = at + random.below(16.min(bytes.len().saturating_sub(at)));
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << random.below(8);
        }
    }
    format!("{bits} bits flipped from {at}")
}

fn set(bytes: &mut [u8], at: usize, random: &mut Random) -> String {
    let value = match random.below(2) {
        0 => random.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff], 0),
        _ => random.next() as u8,
    };
    let end = bytes.len().min(at + 1 + random.below(8));
    bytes[at.min(end)..end].fill(value);
    format!("bytes {at}..{end} set to {value}")
}

/// Replaces a little-endian integer by one that trips arithmetic, by a near one, or by another of the file.
fn edit(bytes: &mut [u8], at: usize, random: &mut Random) -> String {
    const SPECIAL: [u64; 20] = [
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        16,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0000,
        u64::MAX,
    ];
    let width = random.pick(&[1, 2, 4, 4, 4, 8], 4);
    let at = at / width * width; // where FlatBuffers keep integers of that width
    let Some(old) = integer(bytes, at, width) else { return format!("nothing at {at}") };
    let new = match random.below(8) {
        0..=2 => random.pick(&SPECIAL, 0),
        3..=4 => old.wrapping_add(1 + random.below(16) as u64),
        5 => old.wrapping_sub(1 + random.below(16) as u64),
        6 => old << random.below(8 * width),
        _ => {
            let from = random.below(bytes.len()) / width * width;
            integer(bytes, from, width).unwrap_or(u64::MAX)
        }
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("{width}-byte integer at {at} from {old:#x} to {new:#x}")
}

fn integer(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let field = bytes.get(at..at + width)?;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(field);
    Some(u64::from_le_bytes(wide))
}

fn overwrite(bytes: &mut [u8], at: usize, other: &[u8], random: &mut Random) -> String {
    let (at, from) = (at / 4 * 4, random.below(other.len()) / 4 * 4);
    let length = (4 + random.below(512)).min(bytes.len().saturating_sub(at)).min(other.len() - from);
    bytes[at..at + length].copy_from_slice(&other[from..from + length]);
    format!("{length} bytes at {at} from {from} of another file")
}

/// Takes bytes out or doubles them, so that everything behind is somewhere else.
fn shift(bytes: &mut Vec<u8>, at: usize, random: &mut Random) -> String {
    let end = bytes.len().min(at + 1 + random.below(64));
    if random.below(2) == 0 {
        bytes.drain(at..end);
        return format!("bytes {at}..{end} taken out");
    }
    let block = bytes[at..end].to_vec();
    bytes.splice(at..at, block);
    format!("bytes {at}..{end} doubled")
}

/// Where the tables are: the program of a `.pte` or `.ptd`, and the graph of every MLX payload in it.
fn tables(bytes: &[u8]) -> Vec<Range<usize>> {
    let clamp = |start: usize, length: u64| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        start..start.saturating_add(length).min(bytes.len())
    };
    // An extended header is "eh00", its length, then the size of the program.
    let extended = bytes.get(8..12) == Some(b"eh00");
    let program = if extended { integer(bytes, 16, 8).unwrap_or(u64::MAX) } else { 4096 };
    let mut tables = vec![clamp(0, program)];
    for at in 4..bytes.len().saturating_sub(20) {
        // Four bytes, the magic, then where the payload's data begins.
        if &bytes[at..at + 4] == b"MLX0" {
            tables.push(clamp(at - 4, integer(bytes, at + 4, 8).unwrap_or(0)));
        }
    }
    tables.retain(|table| !table.is_empty());
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(length: usize, seed: u64) -> Vec<u8> {
        let mut random = Random(seed);
        (0..length).map(|_| random.next() as u8).collect()
    }

    #[test]
    fn the_same_seed_and_index_give_the_same_mutant() {
        let (a, b) = (file(3000, 1), file(2000, 2));
        for index in 0..2000 {
            let first = mutate(&a, &b, &mut Random::of(7, index));
            assert_eq!(first, mutate(&a, &b, &mut Random::of(7, index)), "mutant {index}");
        }
        let bytes = |seed, index| mutate(&a, &b, &mut Random::of(seed, index)).bytes;
        assert!((0..50).any(|index| bytes(7, index) != bytes(8, index)), "the seed counts");
        assert!((0..50).any(|index| bytes(7, index) != bytes(7, index + 1)), "the index counts");
    }

    #[test]
    fn mutants_of_a_known_seed_stay_what_they_are() {
        // A reproducer names seed and index; a change of the mutator must be a decision.
        let (a, b) = (file(300, 1), file(200, 2));
        let sum = (0..500).fold(0u64, |sum, index| {
            let mutant = mutate(&a, &b, &mut Random::of(42, index));
            mutant.bytes.iter().fold(sum, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte))
        });
        assert_eq!(sum, KNOWN_SUM);
    }

    const KNOWN_SUM: u64 = 8_648_250_070_281_141_249;

    #[test]
    fn every_kind_of_damage_occurs_and_most_mutants_differ() {
        let (a, b) = (file(3000, 1), file(2000, 2));
        let mutants: Vec<Mutant> = (0..2000).map(|index| mutate(&a, &b, &mut Random::of(1, index))).collect();
        for word in
            ["cut at", "flipped", "set to", "integer", "of another file", "joined", "taken out", "doubled"]
        {
            assert!(mutants.iter().any(|mutant| mutant.how.contains(word)), "{word}");
        }
        let same = mutants.iter().filter(|mutant| mutant.bytes == a).count();
        assert!(same < 100, "{same} of 2000 are the original");
    }

    #[test]
    fn tiny_and_empty_files_are_damaged_without_fuss() {
        for length in 0..40 {
            let (a, b) = (file(length, 3), file(length / 2, 4));
            for index in 0..500 {
                mutate(&a, &b, &mut Random::of(length as u64, index));
                mutate(&a, &[], &mut Random::of(length as u64, index));
            }
        }
    }

    #[test]
    fn tables_are_the_program_and_the_payload_graphs() {
        let mut bytes = vec![0u8; 400];
        bytes[8..12].copy_from_slice(b"eh00");
        bytes[16..24].copy_from_slice(&96u64.to_le_bytes());
        bytes[132..136].copy_from_slice(b"MLX0");
        bytes[136..144].copy_from_slice(&64u64.to_le_bytes());
        assert_eq!(tables(&bytes), [0..96, 128..192]);
    }
}
