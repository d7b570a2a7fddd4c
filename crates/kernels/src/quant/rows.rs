//! Rows of floats in somebody else's memory, checked once when made.

use super::LinearError;
use super::error::expect_at_least;
use crate::convert::{f32_to_bf16, f32_to_f16};
use half::{bf16, f16};
use pteron_tensor::DType;
use std::marker::PhantomData;

/// Where rows lie: the part that reading and writing share.
#[derive(Clone, Copy, Debug)]
struct Place {
    dtype: DType,
    rows: usize,
    columns: usize,
    /// Elements from the start of a row to the start of the next.
    stride: usize,
}

impl Place {
    /// Checks the dtype, and that so many bytes at this address hold the rows.
    fn check(self, what: &'static str, address: usize, len: usize) -> Result<Place, LinearError> {
        let place = self.check_address(what, address)?;
        if self.rows > 1 {
            expect_at_least("stride of rows", self.stride, self.columns)?;
        }
        expect_at_least(what, len, place.elements().saturating_mul(self.dtype.size()))?;
        Ok(place)
    }

    /// Checks the dtype, and that its elements can lie at this address.
    fn check_address(self, what: &'static str, address: usize) -> Result<Place, LinearError> {
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(LinearError::DType { what, dtype: self.dtype });
        }
        let size = self.dtype.size();
        if self.elements() > 0 && !address.is_multiple_of(size) {
            return Err(LinearError::Alignment { what, to: size });
        }
        Ok(self)
    }

    /// Elements from the first of the first row to the last of the last, gaps between rows counted.
    fn elements(&self) -> usize {
        match self.rows {
            0 => 0,
            rows => (rows - 1).saturating_mul(self.stride).saturating_add(self.columns),
        }
    }
}

/// Rows of f32, f16 or bf16 to read.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    start: Start,
    place: Place,
    memory: PhantomData<&'a [u8]>,
}

/// Rows of f32, f16 or bf16 to write.
#[derive(Debug)]
pub struct RowsMut<'a> {
    start: Start,
    place: Place,
    memory: PhantomData<&'a mut [u8]>,
}

/// Where rows begin: at even distances from the first, or each where a list says. As long as the rows are borrowed, the
/// list is.
#[derive(Clone, Copy, Debug)]
enum Start {
    Even(*mut u8),
    Listed(*const *mut u8),
}

impl Start {
    /// Where a row begins, of those that there are.
    #[inline(always)]
    fn of(&self, row: usize, place: &Place) -> *mut u8 {
        debug_assert!(row < place.rows);
        match *self {
            Start::Even(data) => data.wrapping_add(row * place.stride * place.dtype.size()),
            // SAFETY: a list has as many addresses as there are rows, and lives as long as who asks.
            Start::Listed(rows) => unsafe { *rows.add(row) },
        }
    }

    /// Rows that a list names, checked.
    fn listed(
        what: &'static str,
        rows: &[*mut u8],
        dtype: DType,
        columns: usize,
    ) -> Result<(Start, Place), LinearError> {
        let place = Place { dtype, rows: rows.len(), columns, stride: columns };
        rows.iter().try_for_each(|&row| place.check_address(what, row as usize).map(drop))?;
        Ok((Start::Listed(rows.as_ptr()), place))
    }
}

// SAFETY: only reads rows that it borrows shared, as slices of them would.
unsafe impl Send for Rows<'_> {}
// SAFETY: as above.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    /// `rows` rows of `columns` elements in `bytes`, each row `stride` elements after the one before.
    pub fn new(
        bytes: &'a [u8],
        dtype: DType,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Rows<'a>, LinearError> {
        let place = Place { dtype, rows, columns, stride };
        let place = place.check("input", bytes.as_ptr() as usize, bytes.len())?;
        Ok(Rows { start: Start::Even(bytes.as_ptr().cast_mut()), place, memory: PhantomData })
    }

    /// Rows in memory that the caller answers for; what lies between them may belong to others, and is not
    /// looked at.
    ///
    /// # Safety
    /// `columns` elements lie at `data` and at every further `stride` elements, `rows` times, in one allocation
    /// that stays readable for `'a`; nobody writes them meanwhile.
    pub unsafe fn from_raw(
        data: *const u8,
        dtype: DType,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Rows<'a>, LinearError> {
        let place = Place { dtype, rows, columns, stride }.check_address("input", data as usize)?;
        Ok(Rows { start: Start::Even(data.cast_mut()), place, memory: PhantomData })
    }

    /// Rows that lie anywhere, each where the list says: those of several tensors, read as one. They are only read.
    ///
    /// # Safety
    /// `columns` elements lie at every address of the list and stay readable for `'a`; nobody writes them meanwhile.
    pub unsafe fn listed(rows: &'a [*mut u8], dtype: DType, columns: usize) -> Result<Rows<'a>, LinearError> {
        let (start, place) = Start::listed("input", rows, dtype, columns)?;
        Ok(Rows { start, place, memory: PhantomData })
    }

    /// Rows without gaps.
    pub fn dense(
        bytes: &'a [u8],
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Result<Rows<'a>, LinearError> {
        Rows::new(bytes, dtype, rows, columns, columns)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.place.dtype
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.place.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.place.columns
    }

    /// Where a row starts.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *const u8 {
        self.start.of(row, &self.place)
    }

    /// Copies elements `first..first + to.len()` of a row.
    #[inline(always)]
    pub(super) fn read(&self, row: usize, first: usize, to: &mut [f32]) {
        debug_assert!(row < self.rows() && first + to.len() <= self.columns());
        let from = self.row(row).wrapping_add(first * self.place.dtype.size());
        let len = to.len();
        // SAFETY: every element of a row is there and aligned: `new` checked it, or `from_raw` was promised it.
        unsafe {
            match self.place.dtype {
                DType::F32 => to.copy_from_slice(std::slice::from_raw_parts(from.cast::<f32>(), len)),
                DType::F16 => {
                    let from = std::slice::from_raw_parts(from.cast::<f16>(), len);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
                }
                _ => {
                    let from = std::slice::from_raw_parts(from.cast::<bf16>(), len);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
                }
            }
        }
    }
}

impl<'a> RowsMut<'a> {
    /// `rows` rows of `columns` elements in `bytes`, each row `stride` elements after the one before.
    pub fn new(
        bytes: &'a mut [u8],
        dtype: DType,
        rows: usize,
        columns: usize,
        stride: usize,
    ) -> Result<RowsMut<'a>, LinearError> {
        let place = Place { dtype, rows, columns, stride };
        let place = place.check("output", bytes.as_ptr() as usize, bytes.len())?;
        Ok(RowsMut { start: Start::Even(bytes.as_mut_ptr()), place, memory: PhantomData })
    }

    /// Rows that lie anywhere, each where the list says: those of several tensors, written as one.
    ///
    /// # Safety
    /// `columns` elements lie at every address of the list, of no two the same, and nobody else uses them for `'a`.
    pub unsafe fn listed(
        rows: &'a [*mut u8],
        dtype: DType,
        columns: usize,
    ) -> Result<RowsMut<'a>, LinearError> {
        let (start, place) = Start::listed("output", rows, dtype, columns)?;
        Ok(RowsMut { start, place, memory: PhantomData })
    }

    /// Rows without gaps.
    pub fn dense(
        bytes: &'a mut [u8],
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Result<RowsMut<'a>, LinearError> {
        RowsMut::new(bytes, dtype, rows, columns, columns)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.place.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.place.columns
    }

    /// The same place for several threads, which must write distinct elements.
    pub(super) fn sink(&mut self) -> Sink {
        Sink { start: self.start, place: self.place }
    }
}

/// Where the threads of one call put their elements.
#[derive(Clone, Copy)]
pub(super) struct Sink {
    start: Start,
    place: Place,
}

// SAFETY: a place and nothing more; writing through it takes `unsafe` and the promise that nobody else writes
// the element.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

impl Sink {
    /// Writes elements from `first` on of a row, rounded to the dtype.
    ///
    /// # Safety
    /// The elements exist, their memory is still borrowed, and nobody else uses them now.
    #[inline]
    pub(super) unsafe fn write(&self, row: usize, first: usize, values: &[f32]) {
        debug_assert!(row < self.place.rows && first + values.len() <= self.place.columns);
        let row = self.start.of(row, &self.place);
        // SAFETY: `RowsMut::new` checked the rows against the memory, and the caller promises the rest.
        unsafe {
            match self.place.dtype {
                DType::F32 => {
                    let to = row.cast::<f32>().add(first);
                    std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
                }
                DType::F16 => {
                    let to = row.cast::<u16>().add(first);
                    values.iter().enumerate().for_each(|(i, &value)| to.add(i).write(f32_to_f16(value)));
                }
                _ => {
                    let to = row.cast::<u16>().add(first);
                    values.iter().enumerate().for_each(|(i, &value)| to.add(i).write(f32_to_bf16(value)));
                }
            }
        }
    }

    /// Writes the elements from `first` on of a row that the mask names, rounded to the dtype.
    ///
    /// # Safety
    /// As for [`Sink::write`], for the elements of the mask.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn write_vector(
        &self,
        row: usize,
        first: usize,
        mask: std::arch::x86_64::__mmask16,
        values: std::arch::x86_64::__m512,
    ) {
        use std::arch::x86_64::*;
        let row = self.start.of(row, &self.place);
        // SAFETY: masked stores touch the named elements only, which the caller promises to be there.
        unsafe {
            match self.place.dtype {
                DType::F32 => _mm512_mask_storeu_ps(row.cast::<f32>().add(first), mask, values),
                DType::F16 => {
                    let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
                    _mm256_mask_storeu_epi16(row.cast::<i16>().add(first), mask, halves);
                }
                _ => {
                    let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(values));
                    _mm256_mask_storeu_epi16(row.cast::<i16>().add(first), mask, halves);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tool like Miri sees: rows that were made as one slice would take the gaps from their owners.
    #[test]
    fn listed_rows_are_read_and_written_each_where_it_lies() {
        let mut apart = [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]];
        let mut rows = apart.each_mut().map(|row| row.as_mut_ptr().cast::<u8>());
        rows.swap(0, 2);
        // SAFETY: three elements lie at each, and nobody else uses them.
        let (from, mut to) = unsafe {
            (Rows::listed(&rows, DType::F32, 3).unwrap(), RowsMut::listed(&rows, DType::F32, 3).unwrap())
        };
        let mut two = [0.0; 2];
        from.read(0, 1, &mut two);
        assert_eq!((from.rows(), two), (3, [8.0, 9.0]));
        // SAFETY: as above.
        unsafe { to.sink().write(1, 2, &[0.5]) };
        assert_eq!(apart[1], [4.0, 5.0, 0.5]);
        let odd = [apart[0].as_mut_ptr().cast::<u8>().wrapping_add(1)];
        // SAFETY: refused before anything is read.
        assert!(matches!(unsafe { Rows::listed(&odd, DType::F32, 1) }, Err(LinearError::Alignment { .. })));
    }

    #[test]
    fn raw_rows_leave_what_lies_between_them_to_others() {
        const WIDTH: usize = 6;
        let mut memory: Vec<f32> = (0..3 * WIDTH as u16).map(f32::from).collect();
        let data = memory.as_mut_ptr();
        // SAFETY: the second half of each row, which the rows below leave out.
        let gaps: [&mut [f32]; 3] = std::array::from_fn(|row| unsafe {
            std::slice::from_raw_parts_mut(data.add(row * WIDTH + 4), WIDTH - 4)
        });
        // SAFETY: four elements in each of three rows, which nobody writes.
        let rows = unsafe { Rows::from_raw(data.cast_const().cast(), DType::F32, 3, 4, WIDTH) }.unwrap();
        std::thread::scope(|scope| {
            for (row, gap) in gaps.into_iter().enumerate() {
                scope.spawn(move || {
                    let mut values = [0.0; 3];
                    gap.fill(-1.0);
                    rows.read(row, 1, &mut values);
                    gap.fill(-2.0);
                    assert_eq!(values, [1.0, 2.0, 3.0].map(|at| at + (row * WIDTH) as f32));
                });
            }
        });
        // SAFETY: no element lies there, and none is read.
        let nothing = unsafe { Rows::from_raw(std::ptr::dangling(), DType::F32, 0, 4, 4) };
        assert_eq!(nothing.unwrap().rows(), 0);
        // SAFETY: refused before anything is read.
        let odd = unsafe { Rows::from_raw(data.cast::<u8>().wrapping_add(1), DType::F32, 1, 4, 4) };
        assert!(matches!(odd, Err(LinearError::Alignment { .. })));
    }
}
