//! Preprocessors that ExecuTorch's wheel exports, and programs with complex numbers inside, give what its own runtime gives, on the
//! reference backend and here.

#![allow(clippy::unwrap_used)] // helpers fail their test
#![cfg(not(miri))] // it would unpack the cases for an hour

mod packed;

use packed::check_all;

#[test]
fn preprocessors_and_spectra_give_what_executorch_gives() {
    check_all("speech.zip", |program| Ok(program.to_vec()));
}
