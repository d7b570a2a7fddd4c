//! Any bytes as a GGUF file: an error, or metadata that can be walked and tensors that can be decoded.

use pteron_gguf::{Gguf, Limits};
use pteron_tensor::Bytes;

/// Elements decoded of a tensor; more only take longer.
const DECODED: usize = 4096;

/// One input.
pub fn run(data: &[u8]) {
    let Ok(file) = Gguf::read(Bytes::copy_of(data), &Limits::default()) else { return };
    for (_, value) in file.metadata().iter() {
        if let Some(array) = value.as_array() {
            let _ = array.values().count();
        }
    }
    for tensor in file.tensors() {
        let count = tensor.elements().min(DECODED);
        let _ = file.decode(tensor, tensor.elements() - count..tensor.elements(), &mut vec![0.0; count]);
    }
}
