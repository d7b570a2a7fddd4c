//! MLX's random bits: threefry-2x32 over a counter, by keys that split. The same key gives the same bits as MLX,
//! bit for bit.

use super::{Computed, KernelError, Operands, ResultType};
use pteron_ir::ValueId;
use pteron_tensor::{HostTensor, Scalar};

/// A key of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32, u32);

impl Key {
    /// The key of a seed: its upper and its lower half.
    pub(crate) fn new(seed: u64) -> Key {
        Key((seed >> 32) as u32, seed as u32)
    }

    /// What a generator does at every draw without a seed: the key that it keeps, and the one to draw with.
    pub(crate) fn split(self) -> (Key, Key) {
        let mut words = [0; 4];
        self.fill(&mut words);
        (Key(words[0], words[1]), Key(words[2], words[3]))
    }

    /// Random words. Each hash of two counters gives two words, one for each half of the sequence; of an odd
    /// number, the word in the middle is half of a hash whose second counter is 0.
    fn fill(self, words: &mut [u32]) {
        let half = words.len() / 2;
        let odd = words.len() % 2;
        let (first, second) = words.split_at_mut(half + odd);
        for (j, (a, b)) in first.iter_mut().zip(second).enumerate() {
            (*a, *b) = self.hash(j as u32, (half + odd + j) as u32);
        }
        if odd == 1 {
            first[half] = self.hash(half as u32, 0).0;
        }
    }

    /// Threefry-2x32 with 20 rounds.
    fn hash(self, a: u32, b: u32) -> (u32, u32) {
        const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        let keys = [self.0, self.1, self.0 ^ self.1 ^ 0x1BD1_1BDA];
        let (mut a, mut b) = (a.wrapping_add(keys[0]), b.wrapping_add(keys[1]));
        for block in 0..5 {
            for rotation in ROTATIONS[block % 2] {
                a = a.wrapping_add(b);
                b = b.rotate_left(rotation) ^ a;
            }
            a = a.wrapping_add(keys[(block + 1) % 3]);
            b = b.wrapping_add(keys[(block + 2) % 3]).wrapping_add(block as u32 + 1);
        }
        (a, b)
    }
}

/// RandomBits with a seed.
pub(super) fn seeded(operands: &Operands<'_>, seed: ValueId) -> Computed {
    match operands.scalar(seed)? {
        // A seed is 32 bits wide and its sign reaches into the key's upper half.
        Scalar::Int(seed) => bits(Key::new(seed as u64), operands.out()),
        other => Err(KernelError::Invalid(format!("seed {other:?} is not an integer"))),
    }
}

/// Random bits in the shape and width (1, 2 or 4 bytes) of `out`: one stream of bytes, whose last word may be
/// cut.
pub(crate) fn bits(key: Key, out: &ResultType) -> Computed {
    let mut tensor = HostTensor::zeros(out.dtype, out.shape.clone())?;
    let bytes = tensor.bytes_mut();
    let mut words = vec![0; bytes.len().div_ceil(4)];
    key.fill(&mut words);
    for (bytes, word) in bytes.chunks_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_tensor::DType;

    fn drawn(seed: u64, dtype: DType, count: usize) -> HostTensor {
        bits(Key::new(seed), &ResultType { dtype, shape: vec![count] }).unwrap()
    }

    /// Measured with mlx 0.32.4.
    #[test]
    fn words_are_those_of_mlx() {
        let cases: [(u64, &[u32]); 5] = [
            (0, &[0xf71f4ea9, 0x39a405d9, 0xa20e4081, 0x4bdfae2f]),
            (0, &[0xf71f4ea9, 0x508efb2c, 0xa20e4081]),
            (0, &[0x6b200159]),
            (42, &[0x03d7b32d, 0xadd083f4]),
            (7, &[]),
        ];
        for (seed, want) in cases {
            assert_eq!(drawn(seed, DType::U32, want.len()).as_slice::<u32>().unwrap(), want, "seed {seed}");
        }
    }

    #[test]
    fn narrow_draws_read_the_same_bytes() {
        // Five bytes are two words, of which the last is cut.
        let words = drawn(9, DType::U32, 2);
        assert_eq!(drawn(9, DType::U8, 5).bytes()[..], words.bytes()[..5]);
        assert_eq!(drawn(9, DType::U16, 3).bytes()[..], words.bytes()[..6]);
    }

    #[test]
    fn a_split_gives_the_first_two_pairs_of_words() {
        let (kept, used) = Key::new(0).split();
        assert_eq!(kept, Key(0xf71f4ea9, 0x39a405d9));
        assert_eq!(used, Key(0xa20e4081, 0x4bdfae2f));
        assert_eq!(Key::new((-1i64) as u64), Key(u32::MAX, u32::MAX));
    }
}
