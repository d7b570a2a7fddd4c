//! The families, each by what makes it differ from Llama or from another row.
//!
//! To add one: its row in `near`, `gpt`, `experts` or `hybrids` and in [`ROWS`], its layout in `layouts` where its files keep weights
//! otherwise, and its case in `conformance/family_configs.py`.

mod experts;
mod gpt;
mod hybrids;
mod near;

use experts::*;
use gpt::*;
use hybrids::*;
use near::*;

use super::row::LLAMA;
pub use super::row::Row;

/// All families of one decoder.
pub const ROWS: &[Row] = &[
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    VAULT_GEMMA,
    GEMMA3,
    PHI,
    PHI3,
    SMOLLM3,
    OLMO,
    OLMO2,
    OLMO3,
    GRANITE,
    COHERE,
    COHERE2,
    STABLELM,
    STARCODER2,
    GPT2,
    BIGCODE,
    GPT_NEO,
    GPTJ,
    NEOX,
    OPT,
    BLOOM,
    FALCON,
    GLM,
    GLM4,
    EXAONE4,
    NEMOTRON,
    HELIUM,
    HUNYUAN,
    SEED_OSS,
    APERTUS,
    ARCEE,
    ERNIE,
    NANOCHAT,
    BITNET,
    MINISTRAL,
    MINISTRAL3,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    OLMOE,
    PHIMOE,
    GRANITE_MOE,
    GPT_OSS,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    GLM4_MOE,
    LLAMA4,
    LFM2,
    LFM2_MOE,
    MAMBA2,
    MAMBA,
    FALCON_MAMBA,
    JAMBA,
    GRANITE_HYBRID,
    BAMBA,
    FALCON_H1,
    NEMOTRON_H,
    QWEN3_NEXT,
    QWEN3_5,
    QWEN3_5_MOE,
    RECURRENT_GEMMA,
];
