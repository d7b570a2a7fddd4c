//! The tables that a method's tensors and arguments become.

use super::{AssembleError, TensorSpec};
use crate::pte::{AllocationDetails, ContainerMetadata, ExtraTensorInfo, Tensor, TensorShapeDynamism};

pub(super) fn place(memory_id: u32, offset: u64) -> AllocationDetails {
    let (memory_offset_low, memory_offset_high) = (offset as u32, (offset >> 32) as u32);
    AllocationDetails { memory_id, memory_offset_low, memory_offset_high }
}

pub(super) fn named(name: &str) -> ExtraTensorInfo {
    ExtraTensorInfo { fully_qualified_name: name.into(), ..ExtraTensorInfo::default() }
}

pub(super) fn table(method: &str, value: i32, spec: &TensorSpec) -> Result<Tensor, AssembleError> {
    let problem = |problem: String| AssembleError::Size { method: method.to_owned(), value, problem };
    let sizes =
        spec.sizes.iter().map(|&size| i32::try_from(size).map_err(|_| problem(format!("{size} in a dim"))));
    let rank = u8::try_from(spec.sizes.len()).map_err(|_| problem(format!("{} dims", spec.sizes.len())))?;
    Ok(Tensor {
        scalar_type: spec.dtype.into(),
        sizes: sizes.collect::<Result<Vec<i32>, _>>()?.into(),
        dim_order: (0..rank).collect(),
        shape_dynamism: match spec.dynamic {
            true => TensorShapeDynamism::DynamicBound,
            false => TensorShapeDynamism::Static,
        },
        ..Tensor::default()
    })
}

/// Torch's pytree of flat arguments: a tuple of inputs with no keywords, and one output or a tuple of them.
pub(super) fn containers(inputs: usize, outputs: usize) -> ContainerMetadata {
    const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;
    let tuple = |children: Vec<&str>| {
        let children = children.join(", ");
        format!(r#"{{"type": "builtins.tuple", "context": "null", "children_spec": [{children}]}}"#)
    };
    let keywords = r#"{"type": "builtins.dict", "context": "[]", "children_spec": []}"#;
    let arguments = tuple(vec![LEAF; inputs]);
    let results = match outputs {
        1 => LEAF.to_owned(),
        _ => tuple(vec![LEAF; outputs]),
    };
    ContainerMetadata {
        encoded_inp_str: format!("[1, {}]", tuple(vec![arguments.as_str(), keywords])).into(),
        encoded_out_str: format!("[1, {results}]").into(),
    }
}
