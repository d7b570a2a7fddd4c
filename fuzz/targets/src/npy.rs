//! Any bytes as a `.npy` file: an error, or a tensor that is written to bytes which read as the same tensor.

use crate::memory::within;
use pteron_tensor::npy;

/// One input.
pub fn run(data: &[u8]) {
    // The tensor, a copy where the file has the other memory order, and a message.
    let Ok(tensor) = within(3 * data.len() + 4096, "reading", || npy::read(data)) else { return };
    let written = npy::write(&tensor).expect("what NumPy can hold can be written");
    assert_eq!(npy::read(&written).expect("what was written reads"), tensor);
}
