//! Tensors in files as people have them: `.safetensors`, several by key. (`.npy`, one tensor each: `pteron_tensor::npy`.)
//!
//! Bytes flow in and [`HostTensor`]s flow out, and the other way round. Files are hostile until checked; nothing
//! here knows what a tensor is for.

use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;

/// The two libraries' names for the same types.
const DTYPES: [(DType, Dtype); 13] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

/// All tensors of a `.safetensors` file by key, or what is wrong with the file.
pub(crate) fn read_safetensors(file: &[u8]) -> Result<BTreeMap<String, HostTensor>, String> {
    let tensors =
        SafeTensors::deserialize(file).map_err(|error| format!("not a sound .safetensors: {error}"))?;
    let tensors = tensors.iter().map(|(key, view)| Ok((key.to_owned(), tensor_of(key, &view)?)));
    tensors.collect()
}

fn tensor_of(key: &str, view: &TensorView<'_>) -> Result<HostTensor, String> {
    let dtype = DTYPES.iter().find(|(_, theirs)| *theirs == view.dtype());
    let Some((dtype, _)) = dtype else {
        return Err(format!("tensor `{key}` holds {:?}, which programs do not take", view.dtype()));
    };
    if *dtype == DType::Bool && view.data().iter().any(|&byte| byte > 1) {
        return Err(format!("a bool of tensor `{key}` is neither 0 nor 1"));
    }
    HostTensor::new(*dtype, view.shape().to_vec(), Bytes::copy_of(view.data()))
        .map_err(|error| format!("tensor `{key}`: {error}"))
}

/// The bytes of a `.safetensors` file; the same tensors give the same bytes.
pub(crate) fn write_safetensors(tensors: &BTreeMap<String, HostTensor>) -> Result<Vec<u8>, String> {
    let views = tensors.iter().map(|(key, tensor)| {
        // The table has a row for every dtype.
        let dtype = DTYPES.iter().find(|(ours, _)| *ours == tensor.dtype()).map_or(Dtype::U8, |row| row.1);
        let view = TensorView::new(dtype, tensor.shape().to_vec(), tensor.bytes());
        Ok((key.as_str(), view.map_err(|error| error.to_string())?))
    });
    let views: Vec<_> = views.collect::<Result<_, String>>()?;
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_survives_a_safetensors_file() {
        let tensors = DType::all()
            .map(|dtype| (dtype.name().to_owned(), HostTensor::zeros(dtype, vec![2, dtype.size()]).unwrap()));
        let tensors: BTreeMap<_, _> = tensors.collect();
        let file = write_safetensors(&tensors).unwrap();
        assert_eq!(read_safetensors(&file).unwrap(), tensors);
        assert_eq!(write_safetensors(&tensors).unwrap(), file);
        assert!(read_safetensors(&file[..file.len() - 1]).is_err());
        assert!(read_safetensors(b"").unwrap_err().starts_with("not a sound .safetensors"));
    }
}
