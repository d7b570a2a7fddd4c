//! WGSL to SPIR-V, and what has to be put right in it.
//!
//! naga decorates every sized array with a stride, those in workgroup and function memory too, where SPIR-V forbids it: some
//! drivers refuse such a module and one crashes. Storage buffers of our kernels hold runtime arrays only, so the strides of
//! all sized arrays go.

use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Text that is no kernel: an error of ours, never of a file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpirvError {
    /// It does not parse.
    #[error("a kernel does not parse: {0}")]
    Parse(String),
    /// It parses and means nothing.
    #[error("a kernel is not valid: {0}")]
    Invalid(String),
    /// It cannot be written.
    #[error("a kernel cannot be written: {0}")]
    Write(String),
}

const MAGIC_WORDS: usize = 5;
const OP_TYPE_ARRAY: u32 = 28;
const OP_DECORATE: u32 = 71;
const ARRAY_STRIDE: u32 = 6;

/// The words of a module whose entry point is `main`.
pub fn spirv(wgsl: &str) -> Result<Vec<u32>, SpirvError> {
    let module =
        naga::front::wgsl::parse_str(wgsl).map_err(|error| SpirvError::Parse(error.emit_to_string(wgsl)))?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::COOPERATIVE_MATRIX
        | Capabilities::SUBGROUP;
    // What shared memory holds counts as different from thread to thread there; barriers stand where all threads come.
    let flags = ValidationFlags::all() - ValidationFlags::CONTROL_FLOW_UNIFORMITY;
    let info = Validator::new(flags, capabilities)
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| SpirvError::Invalid(error.emit_to_string(wgsl)))?;
    // Indices come from sizes that were checked; the kernels look at indices from data themselves.
    let unchecked = naga::proc::BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: naga::proc::BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let pipeline =
        spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".to_owned() };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline))
        .map_err(|error| SpirvError::Write(error.to_string()))?;
    Ok(without_strides(&words))
}

/// The module without strides of sized arrays.
fn without_strides(words: &[u32]) -> Vec<u32> {
    let instructions = || Instructions { words: words.get(MAGIC_WORDS..).unwrap_or_default() };
    let arrays: Vec<u32> = instructions()
        .filter(|words| words[0] & 0xffff == OP_TYPE_ARRAY)
        .filter_map(|words| words.get(1).copied())
        .collect();
    let is_stride = |words: &[u32]| {
        words[0] & 0xffff == OP_DECORATE
            && words.get(2) == Some(&ARRAY_STRIDE)
            && words.get(1).is_some_and(|target| arrays.contains(target))
    };
    let mut kept = words.get(..MAGIC_WORDS).unwrap_or_default().to_vec();
    instructions().filter(|words| !is_stride(words)).for_each(|words| kept.extend(words));
    kept
}

/// The instructions of a module, each with its first word.
struct Instructions<'w> {
    words: &'w [u32],
}

impl<'w> Iterator for Instructions<'w> {
    type Item = &'w [u32];

    fn next(&mut self) -> Option<&'w [u32]> {
        let length = (*self.words.first()? >> 16) as usize;
        let (instruction, rest) = self.words.split_at_checked(length.max(1))?;
        self.words = rest;
        Some(instruction)
    }
}
