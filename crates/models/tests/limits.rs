//! A user's own model is held to what the machine has; the same file of a stranger is refused before anything is allocated.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod small;

use std::ops::Range;
use std::sync::Arc;

use pteron_format::Limits;
use pteron_models::architectures::Llama;
use pteron_models::{Form, KvCache, ModelOptions, Wanted, WeightError, WeightSource, shapes};
use pteron_runtime::{Error, Options, Program};
use pteron_tensor::DType;
use small::*;

const CONTEXT: usize = 64 << 10;

/// Weights that cost no time.
struct Zeros;

impl WeightSource for Zeros {
    fn form(&self, _: Wanted<'_>) -> Result<Form, WeightError> {
        Ok(Form::Floats)
    }

    fn read(&self, _: Wanted<'_>, _: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        out.fill(0.0);
        Ok(())
    }
}

fn options(kv: KvCache) -> ModelOptions {
    ModelOptions {
        activations: DType::BF16,
        cache: DType::BF16,
        context: CONTEXT,
        chunk: 512,
        kv,
        ..small::options(1)
    }
}

/// The layers, heads and context of Llama 3.1 8B over a narrow stream: its caches in full, a small file.
fn narrow_8b() -> Llama {
    Llama {
        hidden_size: 8,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: 8,
        head_dim: 128,
        max_position_embeddings: 128 << 10,
        ..llama()
    }
}

#[test]
fn an_8b_llama_with_64k_tokens_is_within_the_limits_of_ones_own_models() {
    let caches = 32 * 2 * 8 * 128 * CONTEXT as u64 * 2;
    let whole = build(
        shapes::find("llama-3.1-8b").unwrap().architecture().unwrap().as_ref(),
        Arc::new(Zeros),
        options(KvCache::InGraph),
    );
    pteron_ir::verify_module(whole.module()).unwrap();
    let file = file(&build(&narrow_8b(), Arc::new(Zeros), options(KvCache::InGraph)));
    let load = |limits: Limits| {
        let options = Options { limits, ..Options::default() };
        Program::load("model.pte", file.clone(), &[], &options).unwrap()
    };
    let own = load(Limits::own());
    assert_eq!(own.state_bytes(), caches);
    own.check_state().unwrap();
    assert!(own.run_bytes("forward").unwrap().is_some());
    let refused = load(Limits::untrusted()).session().unwrap_err();
    let Error::Limit { limit: "live_bytes", found, allowed, .. } = refused else { panic!("{refused}") };
    assert_eq!((found, allowed), (caches, 4 << 30));
}
