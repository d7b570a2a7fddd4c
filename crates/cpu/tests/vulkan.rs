//! Programs that ExecuTorch exported for Vulkan give what PyTorch gives, on the reference backend and here, as they are and
//! with MLX bytecode or portable operators in place of Vulkan's payloads.

#![allow(clippy::unwrap_used)] // helpers fail their test
#![cfg(not(miri))] // it would unpack the cases for an hour

mod packed;

use packed::{cases, check_all, with_mlx, with_portable};
use pteron_format::vulkan::{Payload, VULKAN_BACKEND};
use pteron_format::{Limits, pte::Pte};
use pteron_tensor::Bytes;

const SET: &str = "vulkan.zip";

#[test]
fn programs_for_vulkan_give_what_pytorch_gives() {
    check_all(SET, |program| Ok(program.to_vec()));
}

#[test]
fn with_mlx_bytecode_they_give_the_same() {
    check_all(SET, with_mlx);
}

#[test]
fn with_portable_operators_they_give_the_same() {
    check_all(SET, with_portable);
}

/// Every payload of the set is written as it was read, table by table.
#[test]
fn payloads_come_back_as_they_were() {
    let limits = Limits::default();
    let mut seen = 0;
    for (name, files) in cases(SET) {
        let pte = Pte::read(Bytes::copy_of(&files["model.pte"]), &limits).unwrap();
        for delegate in pte.program.execution_plan.iter().flat_map(|plan| plan.delegates.iter()) {
            assert_eq!(&*delegate.id, VULKAN_BACKEND, "{name}");
            let (payload, unknown) =
                Payload::decode_with_remarks(&pte.payload(delegate).unwrap(), &limits).unwrap();
            assert!(unknown.is_empty(), "{name}: {unknown:?}");
            let again = Payload::decode(&Bytes::copy_of(&payload.encode().unwrap()), &limits).unwrap();
            assert_eq!(again, payload, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}
