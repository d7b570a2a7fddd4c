//! A decoder that is asked for what follows one more token allocates nothing.

#![allow(clippy::unwrap_used, unsafe_code)] // helpers fail their test; an allocator is unsafe by nature

mod support;

use pteron_llm::{Draw, LanguageModel, Next};
use pteron_models::shapes::tiny;
use pteron_models::{Architecture, KvCache, Quantization};
use pteron_runtime::RunControl;
use pteron_tensor::DType;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{decoder, models, packed, text};

/// The system's allocator, with a count of what it was asked for.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(data, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of every token of a text, once the plan and the places are made.
fn count(name: &str, model: &LanguageModel) {
    let mut decoder = decoder(model);
    let (draw, control) = (Draw::default(), RunControl::default());
    // The smallest vocabulary has 40 tokens.
    let prompt: Vec<u32> = text(20, 1).iter().map(|token| token % 40).collect();
    decoder.read(&prompt, &draw, &control).unwrap();
    let mut counts = Vec::with_capacity(40);
    for token in 0..40 {
        let before = COUNT.load(Ordering::Relaxed);
        let next = match token % 2 {
            0 => decoder.read(&[token], &draw, &control).unwrap(),
            _ => decoder.read_greedily(&[token], true, &control).unwrap(),
        };
        assert!(matches!(next, Next::Scores(_)));
        counts.push(COUNT.load(Ordering::Relaxed) - before);
    }
    assert!(counts[2..].iter().all(|&count| count == 0), "{name}: {counts:?}");
}

/// One test: a second one would allocate meanwhile.
#[test]
fn a_token_allocates_nothing() {
    // Models with states have steps that no kernel runs in place yet: their values are made anew for every token.
    let keeps =
        |name: &str| name.ends_with("on cpu") && !name.starts_with("States") && !name.starts_with("Delta");
    for (name, model) in models().filter(|(name, _)| keeps(name)) {
        count(&name, &model);
    }
    // What `export` writes: every family, packed in several ways, embeddings too, in the dtypes that it offers.
    let families: [(&str, Box<dyn Architecture>); 6] = [
        ("llama", Box::new(tiny::llama())),
        ("qwen2", Box::new(tiny::qwen(false))),
        ("qwen3", Box::new(tiny::qwen(true))),
        ("gemma3", Box::new(tiny::gemma3())),
        ("gemma4", Box::new(tiny::gemma4())),
        ("gemma4 small", Box::new(tiny::gemma4_small())),
    ];
    for (family, architecture) in &families {
        for packing in ["4w", "8w", "mxfp4"] {
            for (activations, kv) in [(DType::BF16, KvCache::InGraph), (DType::F32, KvCache::OffGraph)] {
                let quantization = Quantization::of(packing.parse().unwrap());
                let model = packed(architecture.as_ref(), quantization, activations, kv);
                count(&format!("{family} {packing} {activations} {kv:?}"), &model);
            }
        }
    }
}
