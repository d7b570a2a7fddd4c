//! Compiled kernels that stay in a folder: what is there serves, and what is damaged there harms nobody.

use crate::{backend, device, differential};
use pteron_ir::parse_graph;
use pteron_tensor::HostTensor;
use pteron_vulkan::VulkanOptions;
use std::fs;
use std::path::Path;

/// Computes on a backend of its own, which keeps kernels in this folder, and is gone afterwards; `false` without a device.
fn runs(folder: &Path) -> bool {
    let options = VulkanOptions { kept_in: Some(folder.to_owned()), ..VulkanOptions::default() };
    let Some(backend) = backend(device::open_with(&options)) else { return false };
    let text = r#"
graph "forward"
  input %0 "x": f32[3, 40]
{
  %1: f32[3, 40] = exp(x=%0)
  %2: f32[3] = sum(x=%1, axes=[1], keepdims=false)
}
output %2 "out": f32[3]
"#;
    let x = HostTensor::from_slice(vec![3, 40], &[0.5f32; 120]).unwrap();
    differential::run_graph(parse_graph(text).unwrap(), &[x.into()], &backend).unwrap();
    true
}

#[test]
fn kernels_stay_and_damaged_ones_are_compiled_anew() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("kernels");
    if !runs(&folder) {
        return;
    }
    let files = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let kept = files();
    assert!(!kept.is_empty(), "nothing was kept");
    let whole: Vec<_> = kept.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(runs(&folder));
    for damaged in [b"".to_vec(), whole[0][..whole[0].len() - 1].to_vec(), vec![0xff; 100_000]] {
        kept.iter().for_each(|file| fs::write(file, &damaged).unwrap());
        assert!(runs(&folder));
        assert!(kept.iter().all(|file| fs::read(file).unwrap() != damaged), "a damaged file was left");
        assert_eq!(files(), kept, "something else was left beside");
    }
}

#[test]
fn a_folder_that_cannot_be_made_keeps_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("file");
    fs::write(&folder, b"in the way").unwrap();
    if runs(&folder) {
        assert_eq!(fs::read(&folder).unwrap(), b"in the way");
    }
}
