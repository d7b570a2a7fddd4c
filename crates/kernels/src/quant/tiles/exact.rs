//! Exact.
use super::{Job, Part, Scratch};
pub(super) unsafe fn multiply(job: &Job<'_>, part: &Part, scratch: &mut Scratch) {
    unsafe { super::fast::multiply(job, part, scratch) }
}
