//! A decoder that is asked for what follows one more token allocates nothing.

#![allow(clippy::unwrap_used, unsafe_code)] // helpers fail their test; an allocator is unsafe by nature

mod support;

use pteron_llm::{Draw, Next};
use pteron_runtime::RunControl;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{decoder, models, text};

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

#[test]
fn a_token_allocates_nothing() {
    let on_cpu = models().filter(|(name, _)| name.ends_with("on cpu"));
    for (name, model) in on_cpu {
        let mut decoder = decoder(&model);
        let (draw, control) = (Draw::default(), RunControl::default());
        decoder.read(&text(20, 1), &draw, &control).unwrap();
        let mut counts = Vec::with_capacity(40);
        for token in 0..40 {
            let before = COUNT.load(Ordering::Relaxed);
            let next = decoder.read(&[token], &draw, &control).unwrap();
            assert!(matches!(next, Next::Scores(_)));
            counts.push(COUNT.load(Ordering::Relaxed) - before);
        }
        // The first tokens make the plan and the places that later ones use.
        assert!(counts[2..].iter().all(|&count| count == 0), "{name}: {counts:?}");
    }
}
