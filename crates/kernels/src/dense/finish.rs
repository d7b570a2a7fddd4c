//! The ends of every product: operands converted to f32 on the way in, sums scaled, biased and rounded on the way
//! out.

use super::{One, Plane};
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use pteron_tensor::DType;

impl Plane {
    /// One element as f32.
    ///
    /// # Safety
    /// It is inside the matrix.
    #[inline(always)]
    pub(super) unsafe fn read(&self, row: usize, column: usize) -> f32 {
        let at = self.at(row, column);
        // SAFETY: the caller's promise; a plane has one of these dtypes.
        unsafe {
            match self.dtype {
                DType::F16 => crate::convert::f16_to_f32(at.cast::<u16>().read()),
                DType::BF16 => f32::from_bits(u32::from(at.cast::<u16>().read()) << 16),
                _ => at.cast::<f32>().read(),
            }
        }
    }

    /// # Safety
    /// The element is inside the matrix, and nobody else touches it.
    #[inline(always)]
    unsafe fn write(&self, row: usize, column: usize, value: f32) {
        let at = self.at(row, column);
        // SAFETY: the caller's promise; a plane has one of these dtypes.
        unsafe {
            match self.dtype {
                DType::F16 => at.cast::<u16>().write(crate::convert::f32_to_f16(value)),
                DType::BF16 => at.cast::<u16>().write(crate::convert::f32_to_bf16(value)),
                _ => at.cast::<f32>().write(value),
            }
        }
    }
}

impl One {
    /// Writes one element of the result from its sum.
    ///
    /// # Safety
    /// It is inside the output, and nobody else writes it.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, row: usize, column: usize, sum: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut value = sum * self.alpha;
            if let Some(bias) = &self.bias {
                value += self.beta * bias.read(row, column);
            }
            self.out.write(row, column, value);
        }
    }

    /// Writes `count` neighbours of a row from their sums.
    ///
    /// # Safety
    /// They are inside the output, as many floats lie at `sums`, and nobody else writes them.
    pub(super) unsafe fn finish_row(&self, row: usize, column: usize, sums: *const f32, count: usize) {
        let dense = self.out.strides[1] == 1 && self.bias.is_none_or(|bias| bias.strides[1] == 1);
        // SAFETY: the caller's promise.
        unsafe {
            if !dense {
                for i in 0..count {
                    self.finish(row, column + i, sums.add(i).read());
                }
                return;
            }
            let (alpha, beta) = (self.alpha, self.beta);
            let bias_dtype = self.bias.map_or(DType::F32, |bias| bias.dtype);
            with_float!(self.out.dtype, O => with_float!(bias_dtype, B => on(self.path, Finish::<O, B> {
                out: self.out.at(row, column).cast(),
                bias: self.bias.map(|bias| bias.at(row, column).cast_const().cast()),
                sums,
                count,
                alpha,
                beta,
            })));
        }
    }
}

struct Finish<O, B> {
    out: *mut O,
    bias: Option<*const B>,
    sums: *const f32,
    count: usize,
    alpha: f32,
    beta: f32,
}

impl<O: Stored, B: Stored> Kernel for Finish<O, B> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `count` elements lie at every pointer, as whoever made this kernel says.
        unsafe {
            let (alpha, beta) = (S::splat(self.alpha), S::splat(self.beta));
            let mut at = 0;
            while at + S::LANES <= self.count {
                let mut value = S::mul(S::load(self.sums.add(at)), alpha);
                if let Some(bias) = self.bias {
                    value = S::fma(B::load::<S>(bias.add(at)), beta, value);
                }
                O::store::<S>(self.out.add(at), value);
                at += S::LANES;
            }
            while at < self.count {
                let mut value = self.sums.add(at).read() * self.alpha;
                if let Some(bias) = self.bias {
                    value += self.beta * bias.add(at).read().to_f32();
                }
                self.out.add(at).write(O::from_f32(value));
                at += 1;
            }
        }
    }
}

impl Plane {
    /// Converts `count` elements of a row, from a column on, to f32.
    ///
    /// # Safety
    /// They are inside the matrix, and there is room for them at `to`.
    pub(super) unsafe fn widen_row(
        &self,
        path: crate::path::Path,
        row: usize,
        column: usize,
        to: *mut f32,
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.strides[1] == 1 || count == 1 {
                return crate::convert::widen(path, self.at(row, column), self.dtype, to, count);
            }
            for i in 0..count {
                to.add(i).write(self.read(row, column + i));
            }
        }
    }
}
