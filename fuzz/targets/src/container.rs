//! Any bytes as each kind of container: an error or sound tables, and a program that was read can be written and read.

use pteron_format::Limits;
use pteron_format::bpte::Bpte;
use pteron_format::ptd::Ptd;
use pteron_format::pte::Pte;
use pteron_tensor::Bytes;

/// One input.
pub fn run(data: &[u8]) {
    let (bytes, limits) = (Bytes::copy_of(data), Limits::untrusted());
    let _ = Ptd::read(bytes.clone(), &limits);
    let _ = Bpte::read(bytes.clone(), &limits);
    let Ok(program) = Pte::read(bytes, &limits) else { return };
    let mut written = vec![];
    // What cannot be written again says so; what was written must be readable.
    if program.rewrite(&mut written).is_ok() {
        Pte::read(Bytes::copy_of(&written), &limits).expect("a rewritten program reads");
    }
}
