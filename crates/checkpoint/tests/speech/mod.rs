//! Programs of tiny models that hear, and the numbers that they are held to.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; whatever cannot be had fails its test

use std::path::{Path, PathBuf};

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::Bytes;
use safetensors::SafeTensors;

/// A file or folder of the tests.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A file of what transformers computed.
pub(crate) struct Expected(pub(crate) &'static [u8]);

impl Expected {
    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let file = SafeTensors::deserialize(self.0).unwrap();
        let bytes = file.tensor(name).unwrap().data().as_chunks::<4>().0.to_vec();
        bytes.into_iter().map(f32::from_le_bytes).collect()
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<i64> {
        let file = SafeTensors::deserialize(self.0).unwrap();
        let bytes = file.tensor(name).unwrap().data().as_chunks::<8>().0.to_vec();
        bytes.into_iter().map(i64::from_le_bytes).collect()
    }
}

/// What is exported without a remark.
pub(crate) fn exported(checkpoint: &Checkpoint, options: &ExportOptions) -> Program {
    let export = Export::new(checkpoint, options).unwrap();
    assert_eq!(export.remarks(), &[] as &[String]);
    let mut bytes = Vec::new();
    export.write(&mut bytes, &mut |_| ()).unwrap();
    Program::load("speech.pte", Bytes::copy_of(&bytes), &[], &Options::default()).unwrap()
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    value.to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// The largest distance; what is no number is infinitely far.
pub(crate) fn difference(made: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(made.len(), wanted.len());
    made.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, |most, x| if x <= most { most } else { x })
}
