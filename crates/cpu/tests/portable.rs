//! Programs without a delegate, with operators that other sets have not or not over free sizes, give what ExecuTorch's own runtime
//! gives, on the reference backend and here.

#![allow(clippy::unwrap_used)] // helpers fail their test
#![cfg(not(miri))] // it would unpack the cases for an hour

mod packed;

use packed::check_all;

#[test]
fn programs_without_a_delegate_give_what_executorch_gives() {
    check_all("portable.zip", |program| Ok(program.to_vec()));
}
