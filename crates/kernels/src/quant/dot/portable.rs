//! Eight lanes of plain Rust.

use super::{Dot, Span, entry};
use crate::quant::layout::{E2M1_OFFSET, Numbers};
use crate::quant::weight::{AsBf16, AsF16, AsF32, Elements, Stored, StoredAs, element};

/// Runs a span with the operations that its weight and layout ask for.
///
/// # Safety
/// The span's rows exist.
pub(super) unsafe fn span(span: &Span<'_>) {
    let (weight, numbers) = (span.product.weight, span.product.layout.lanes.numbers);
    let bits = weight.scheme.bits() as usize;
    // SAFETY: the caller's promises.
    unsafe {
        match numbers {
            Numbers::Int8 => stored(span, Int::<false> { bits }),
            Numbers::Int8Shifted { .. } => stored(span, Int::<true> { bits }),
            Numbers::F32 => stored(span, Float { bits, table: &weight.element_table() }),
        }
    }
}

entry!(stored, rows, block);

type Codes = [u8; 32];

/// Unpacks 32 codes, or as many as so many bytes hold.
#[inline(always)]
unsafe fn unpack(bits: usize, from: *const u8, bytes: usize) -> Codes {
    let mut packed = [0u8; 40];
    // SAFETY: the caller says that so many bytes are readable; a block has at most 32.
    unsafe { std::ptr::copy_nonoverlapping(from, packed.as_mut_ptr(), bytes) };
    let mask = (0xffu32 >> (8 - bits)) as u8;
    std::array::from_fn(|j| {
        let (byte, shift) = (j * bits / 8, j * bits % 8);
        (u16::from_le_bytes([packed[byte], packed[byte + 1]]) >> shift) as u8 & mask
    })
}

/// What plain operations share.
macro_rules! lanes {
    () => {
        type Codes = Codes;
        type Lanes = [f32; 8];
        type Spread = u32;
        const LANES: usize = 8;
        const PER_LANE: usize = 4;

        #[inline(always)]
        fn code_bytes(self) -> usize {
            4 * self.bits
        }

        #[inline(always)]
        fn read_bytes(self) -> usize {
            4 * self.bits
        }

        #[inline(always)]
        unsafe fn codes(self, from: *const u8) -> Codes {
            // SAFETY: a block's bytes are readable.
            unsafe { self.codes_of(from, self.code_bytes()) }
        }

        #[inline(always)]
        unsafe fn spread(self, group_shift: u32) -> u32 {
            group_shift
        }

        #[inline(always)]
        unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize, group_shift: u32) -> [f32; 8] {
            // SAFETY: as promised by the caller; a block of 32 values has at most two groups.
            let scales = unsafe { self.floats::<S>(from, count) };
            std::array::from_fn(|lane| scales[(lane * Self::PER_LANE) >> group_shift])
        }

        #[inline(always)]
        unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> [f32; 8] {
            // SAFETY: the caller says that so many floats are readable.
            let bytes = unsafe { std::slice::from_raw_parts(from, count * S::SIZE) };
            std::array::from_fn(|lane| if lane < count { S::STORED.get(bytes, lane) } else { 0.0 })
        }

        #[inline(always)]
        unsafe fn every(self, value: f32) -> [f32; 8] {
            [value; 8]
        }

        #[inline(always)]
        unsafe fn zero(self) -> [f32; 8] {
            [0.0; 8]
        }

        #[inline(always)]
        unsafe fn multiply_add(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
            std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
        }

        #[inline(always)]
        unsafe fn sum(self, lanes: [f32; 8]) -> f32 {
            lanes.iter().sum()
        }

        #[inline(always)]
        unsafe fn prefetch(self, _from: *const u8) {}
    };
}

/// Codes against bytes. `SHIFTED` looks up e2m1 numbers.
#[derive(Clone, Copy)]
struct Int<const SHIFTED: bool> {
    bits: usize,
}

impl<const SHIFTED: bool> Dot for Int<SHIFTED> {
    const X_BYTES: usize = if SHIFTED { 96 } else { 64 };
    lanes!();

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Codes {
        // SAFETY: as promised by the caller.
        let codes = unsafe { unpack(self.bits, from, bytes) };
        if SHIFTED {
            codes.map(|code| (element(Elements::DoubledE2M1, code) as i32 + i32::from(E2M1_OFFSET)) as u8)
        } else {
            codes
        }
    }

    #[inline(always)]
    unsafe fn products(self, codes: Codes, x: *const u8) -> [f32; 8] {
        // SAFETY: a block of activations has 32 bytes, eight scales and, shifted, eight starts.
        let (quants, scales, starts) = unsafe {
            let starts = if SHIFTED { x.add(64).cast::<[i32; 8]>().read_unaligned() } else { [0; 8] };
            (x.cast::<[i8; 32]>().read_unaligned(), x.add(32).cast::<[f32; 8]>().read_unaligned(), starts)
        };
        std::array::from_fn(|lane| {
            let product = |i: usize| i32::from(codes[4 * lane + i]) * i32::from(quants[4 * lane + i]);
            (starts[lane] + product(0) + product(1) + product(2) + product(3)) as f32 * scales[lane]
        })
    }
}

/// Codes against f32, by looking each up.
#[derive(Clone, Copy)]
struct Float<'a> {
    bits: usize,
    table: &'a [f32; 256],
}

impl Dot for Float<'_> {
    const X_BYTES: usize = 128;
    lanes!();

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Codes {
        // SAFETY: as promised by the caller.
        unsafe { unpack(self.bits, from, bytes) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: Codes, x: *const u8) -> [f32; 8] {
        // SAFETY: a block of activations has four planes of eight floats.
        let planes = unsafe { x.cast::<[[f32; 8]; 4]>().read_unaligned() };
        let value = |lane: usize, i: usize| self.table[usize::from(codes[4 * lane + i])] * planes[i][lane];
        std::array::from_fn(|lane| value(lane, 0) + value(lane, 1) + value(lane, 2) + value(lane, 3))
    }
}
