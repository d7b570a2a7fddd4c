//! The small floats of quantised weights: e2m1 elements, e4m3fn elements and scales, e8m0 scales.
//!
//! Decoding is exact for every code. Encoding takes the nearest code, ties to the even one, and saturates: a
//! quantiser has already scaled its group to the range.

/// The magnitudes of e2m1, by the low three bits of the code; bit 3 is the sign.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The magnitudes of e4m3fn below its NaN, by the low seven bits of the code.
const E4M3FN: [f32; 127] = {
    let mut table = [0.0; 127];
    let mut code = 0;
    while code < table.len() {
        let (exponent, mantissa) = (code as u32 >> 3, code as u32 & 7);
        table[code] = if exponent == 0 {
            mantissa as f32 / 512.0
        } else {
            // Bias 7 becomes f32's bias 127; the three mantissa bits are the upper ones of 23.
            f32::from_bits((exponent + 120) << 23 | mantissa << 20)
        };
        code += 1;
    }
    table
};

/// The value of an e2m1 code; only the low four bits count.
pub fn e2m1(code: u8) -> f32 {
    signed(E2M1[usize::from(code & 7)], code & 8 != 0)
}

/// The e2m1 code nearest to a value; NaN gives 0.
pub fn e2m1_nearest(value: f32) -> u8 {
    nearest(&E2M1, value.abs()) | u8::from(value.is_sign_negative()) << 3
}

/// The value of an e4m3fn code: no infinities, NaN only at all ones.
pub fn e4m3fn(code: u8) -> f32 {
    let magnitude = E4M3FN.get(usize::from(code & 0x7f)).copied().unwrap_or(f32::NAN);
    signed(magnitude, code & 0x80 != 0)
}

/// The e4m3fn code nearest to a value; beyond 448 it saturates, NaN stays NaN.
pub fn e4m3fn_nearest(value: f32) -> u8 {
    let magnitude = if value.is_nan() { 0x7f } else { nearest(&E4M3FN, value.abs()) };
    magnitude | u8::from(value.is_sign_negative()) << 7
}

/// The value of an e8m0 code, a power of two. Code 255 is NaN, as OCP and PyTorch have it; MLX 0.32 on a CPU
/// gives infinity.
pub fn e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22), // 2^-127 is below f32's normal range
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

fn signed(magnitude: f32, negative: bool) -> f32 {
    if negative { -magnitude } else { magnitude }
}

/// Index of the entry of an ascending table that is nearest to a magnitude, ties to the even index, which is
/// the even mantissa.
fn nearest(table: &[f32], magnitude: f32) -> u8 {
    let above = table.partition_point(|&entry| entry < magnitude);
    let index = if above == 0 {
        0
    } else if above == table.len() {
        above - 1
    } else {
        let (low, high) = (magnitude - table[above - 1], table[above] - magnitude);
        if low < high || (low == high && above % 2 == 1) { above - 1 } else { above }
    };
    index as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_have_their_values() {
        let cases = [
            (e2m1 as fn(u8) -> f32, 0x7, 6.0),
            (e2m1, 0x9, -0.5),
            (e4m3fn, 0x38, 1.0),
            (e4m3fn, 0x7e, 448.0),
            (e4m3fn, 0x01, 2f32.powi(-9)),
            (e4m3fn, 0x08, 2f32.powi(-6)),
            (e4m3fn, 0xb8, -1.0),
            (e8m0, 127, 1.0),
            (e8m0, 0, 2f32.powi(-127)),
            (e8m0, 1, 2f32.powi(-126)),
            (e8m0, 254, 2f32.powi(127)),
        ];
        for (decode, code, want) in cases {
            assert_eq!(decode(code), want, "code {code:#x}");
        }
        assert!(e4m3fn(0x7f).is_nan() && e4m3fn(0xff).is_nan() && e8m0(255).is_nan());
    }

    #[test]
    fn every_code_comes_back() {
        for code in 0..16u8 {
            assert_eq!(e2m1_nearest(e2m1(code)), code);
        }
        for code in 0..=255u8 {
            assert_eq!(e4m3fn_nearest(e4m3fn(code)), code);
        }
    }

    #[test]
    fn ties_go_to_the_even_code_and_the_rest_to_the_nearer() {
        // Between 1 (code 2) and 1.5 (code 3), 1.5 and 2 (code 4), 4 (code 6) and 6 (code 7).
        for (value, want) in [(1.25, 2), (1.75, 4), (5.0, 6), (5.1, 7), (100.0, 7), (-0.3, 9), (0.25, 0)] {
            assert_eq!(e2m1_nearest(value), want, "{value}");
        }
        assert_eq!(e4m3fn_nearest(1e9), 0x7e);
        assert_eq!(e4m3fn_nearest(1.0625), 0x38);
        assert_eq!(e4m3fn_nearest(1.1875), 0x3a);
    }
}
