//! Elements from and to plain bytes.

use pteron_kernels::copy::copy;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Layout;

/// All elements in row-major order; `bytes` has room for exactly those.
pub(crate) fn to_bytes(pool: &Pool, from: &View<'_>, bytes: &mut [u8]) {
    let Some(layout) = Layout::row_major(from.sizes()) else { return };
    assert_eq!(bytes.len(), from.len() * from.dtype().size());
    if (bytes.as_ptr() as usize).is_multiple_of(from.dtype().size()) {
        // SAFETY: the bytes hold all elements of a row-major tensor of these sizes, aligned.
        let mut to =
            unsafe { ViewMut::from_raw(bytes.as_mut_ptr(), from.dtype(), layout.sizes(), layout.strides()) };
        copy(pool, &mut to, from);
    } else {
        let mut tensor = vec![0u64; bytes.len().div_ceil(8)];
        let words: &mut [u8] = bytemuck::cast_slice_mut(&mut tensor);
        let len = bytes.len();
        to_bytes(pool, from, &mut words[..len]);
        bytes.copy_from_slice(&words[..len]);
    }
}

/// The elements of a row-major tensor; there are exactly as many bytes as `to` has.
pub(crate) fn from_bytes(pool: &Pool, bytes: &[u8], to: &mut ViewMut<'_>) {
    let Some(layout) = Layout::row_major(to.sizes()) else { return };
    assert_eq!(bytes.len(), to.len() * to.dtype().size());
    if (bytes.as_ptr() as usize).is_multiple_of(to.dtype().size()) {
        // SAFETY: the bytes hold all elements of a row-major tensor of these sizes, aligned.
        let from = unsafe { View::from_raw(bytes.as_ptr(), to.dtype(), layout.sizes(), layout.strides()) };
        copy(pool, to, &from);
    } else {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        from_bytes(pool, &bytemuck::cast_slice::<u64, u8>(&words)[..bytes.len()], to);
    }
}
