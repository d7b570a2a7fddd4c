//! Inputs made of seeds by chance, the same ones in every run: without a fuzzer there is nothing that says which of them led
//! somewhere new, so each is some steps away from a seed.

/// Numbers that readers trip over: ends of ranges, and lengths that are just beyond what is there.
const ODD: [i64; 12] =
    [0, 1, -1, 7, 0x7f, 0xff, 0x7fff, 0xffff, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN];
/// Steps from a seed to an input.
const MOST_STEPS: u64 = 6;
/// Bytes that one step moves.
const MOST_MOVED: usize = 64;

/// Numbers by chance, from a fixed beginning (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// The chain of numbers that begins here.
    pub fn new(beginning: u64) -> Chance {
        Chance(beginning)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// An input of at most so many bytes, some steps away from one of the seeds.
    pub fn input(&mut self, seeds: &[Vec<u8>], longest: usize) -> Vec<u8> {
        let mut input = seeds.get(self.below(seeds.len())).cloned().unwrap_or_default();
        for _ in 0..1 + self.next() % MOST_STEPS {
            self.step(&mut input, seeds);
        }
        input.truncate(longest);
        input
    }

    fn step(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let (at, length) = (self.below(input.len() + 1), 1 + self.below(MOST_MOVED));
        let end = (at + length).min(input.len());
        match self.below(9) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.next() as u8;
                }
            }
            2 | 3 => {
                let odd = ODD[self.below(ODD.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)];
                let to = &mut input[at..];
                let width = width.min(to.len());
                to[..width].copy_from_slice(&odd[..width]);
            }
            4 => drop(input.drain(at..end)),
            5 => {
                let again = input[at..end].to_vec();
                drop(input.splice(at..at, again));
            }
            6 => {
                let new: Vec<u8> = (0..length).map(|_| self.next() as u8).collect();
                drop(input.splice(at..at, new));
            }
            7 => {
                let other = seeds.get(self.below(seeds.len())).map(Vec::as_slice).unwrap_or_default();
                let from = self.below(other.len() + 1);
                let part = &other[from..(from + length).min(other.len())];
                drop(input.splice(at..end, part.iter().copied()));
            }
            _ => input.truncate(at),
        }
    }
}
