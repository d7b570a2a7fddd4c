//! A row of unsigned codes as one little-endian bit stream in 32-bit words: code `j` is the bits
//! `[j * bits, (j + 1) * bits)`, least significant first. Codes of 3, 5 and 6 bits straddle words.

use super::{QuantError, expect_length};

/// Number of words that a row of `len` codes fills; an error where the last one would not be full.
pub fn words(len: usize, bits: u32) -> Result<usize, QuantError> {
    match len.checked_mul(bits as usize) {
        Some(total) if total % 32 == 0 => Ok(total / 32),
        _ => Err(QuantError::Row { len, what: format!("{bits} bits each") }),
    }
}

/// Number of codes in a row of `words`.
pub fn len(words: usize, bits: u32) -> usize {
    // In u64, because 32 * words may not fit a 32-bit usize.
    (words as u64 * 32 / u64::from(bits)) as usize
}

/// Reads a row of codes of 1 to 8 bits.
pub fn unpack(row: &[u32], bits: u32, codes: &mut [u8]) -> Result<(), QuantError> {
    expect_length("words", row.len(), words(codes.len(), bits)?)?;
    match bits {
        // Whole codes in every word: with the width a constant, the compiler unpacks with vectors.
        1 => unpack_words::<1>(row, codes),
        2 => unpack_words::<2>(row, codes),
        4 => unpack_words::<4>(row, codes),
        8 => unpack_words::<8>(row, codes),
        _ => unpack_stream(row, bits, codes),
    }
    Ok(())
}

fn unpack_words<const BITS: usize>(row: &[u32], codes: &mut [u8]) {
    let mask = u8::MAX >> (8 - BITS);
    for (word, codes) in row.iter().zip(codes.chunks_exact_mut(32 / BITS)) {
        for (byte, codes) in word.to_le_bytes().into_iter().zip(codes.chunks_exact_mut(8 / BITS)) {
            for (i, code) in codes.iter_mut().enumerate() {
                *code = byte >> (i * BITS) & mask;
            }
        }
    }
}

fn unpack_stream(row: &[u32], bits: u32, codes: &mut [u8]) {
    let mask = (1u64 << bits) - 1;
    let (mut buffer, mut held, mut row) = (0u64, 0, row.iter());
    for code in codes {
        if held < bits {
            // The lengths agree, so there is a word for every code that needs one.
            buffer |= u64::from(row.next().copied().unwrap_or(0)) << held;
            held += 32;
        }
        *code = (buffer & mask) as u8;
        buffer >>= bits;
        held -= bits;
    }
}

/// Writes a row of codes of 1 to 8 bits; bits above are cut off.
pub fn pack(codes: &[u8], bits: u32) -> Result<Vec<u32>, QuantError> {
    let mut row = Vec::with_capacity(words(codes.len(), bits)?);
    let (mut buffer, mut held) = (0u64, 0);
    for &code in codes {
        buffer |= (u64::from(code) & ((1 << bits) - 1)) << held;
        held += bits;
        if held >= 32 {
            row.push(buffer as u32);
            buffer >>= 32;
            held -= 32;
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_lie_as_mlx_puts_them() {
        // 0, 1, 2, .. in 3 bits: 0o76543210 repeated; the eleventh code straddles the first two words.
        let codes: Vec<u8> = (0..32).map(|j| j % 8).collect();
        let stream = (0..32u128).fold(0u128, |bits, j| bits | (j % 8) << (3 * j));
        let want = [stream as u32, (stream >> 32) as u32, (stream >> 64) as u32];
        assert_eq!(pack(&codes, 3).unwrap(), want);
        // 4 bits: the low nibble first.
        assert_eq!(pack(&[1, 2, 3, 4, 5, 6, 7, 8], 4).unwrap(), [0x8765_4321]);
    }

    #[test]
    fn rows_that_do_not_fill_words_are_refused() {
        assert!(words(16, 3).is_err());
        assert!(words(usize::MAX, 8).is_err());
        assert!(unpack(&[0, 0], 4, &mut [0; 8]).is_err());
        assert!(pack(&[0; 5], 8).is_err());
    }

    proptest! {
        #[test]
        fn unpacking_gives_back_what_was_packed(
            bits in 1u32..=8,
            seeds in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            // 32 codes of any width fill whole words.
            let code = |seed: u8, j: u8| seed.wrapping_mul(j) >> (8 - bits);
            let codes: Vec<u8> = seeds.iter().flat_map(|&seed| (0..32).map(move |j| code(seed, j))).collect();
            let row = pack(&codes, bits).unwrap();
            prop_assert_eq!(len(row.len(), bits), codes.len());
            let mut back = vec![0; codes.len()];
            unpack(&row, bits, &mut back).unwrap();
            prop_assert_eq!(back, codes);
        }
    }
}
