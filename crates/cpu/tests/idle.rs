//! Sessions that wait hold their state and nothing else: what runs compute in is the program's, and they take turns with it.

#![allow(clippy::unwrap_used, unsafe_code)] // helpers fail their test; an allocator is unsafe by nature

use pteron_cpu::Cpu;
use pteron_ir::parse_module;
use pteron_runtime::backend::{
    Backend, DelegateGraph, DeviceId, GraphId, LoadOptions, Loaded, ProgramGraphs, RunControl, State,
    StateOptions,
};
use pteron_runtime::{Value, VerifiedGraphs, VerifiedProgram, Weights};
use pteron_tensor::HostTensor;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the bytes that are held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(data, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Elements of the state, and a run has as many rows of them: Miri takes long for each.
const SIDE: usize = if cfg!(miri) { 32 } else { 256 };
const SESSIONS: usize = if cfg!(miri) { 4 } else { 64 };

/// A state of 1 KiB, and a run that needs hundreds of KiB for what lies between input and output.
const WIDE: &str = r#"graph "forward"
  input %0 "x": f32[256]
  buffer %1 "kept": f32[256] -> %2
{
  %2: f32[256] = add(a=%1, b=%0)
  %3: f32[256, 1] = reshape(x=%2, shape=[256, 1])
  %4: f32[256, 256] = multiply(a=%3, b=%0)
  %5: f32[256, 256] = sort(x=%4, axis=-1)
  %6: f32[256] = sum(x=%5, axes=[0], keepdims=false)
}
output %6 "y": f32[256]
"#;

/// Bytes of what lies between.
const BETWEEN: u64 = (SIDE * SIDE * 4) as u64;

fn load() -> Arc<dyn Loaded> {
    let module = Arc::new(parse_module(&WIDE.replace("256", &SIDE.to_string())).unwrap());
    let delegate = DelegateGraph::new("forward".into(), 0, module);
    let graphs = ProgramGraphs { file: "wide".into(), graphs: vec![delegate] };
    let program =
        VerifiedProgram::new(VerifiedGraphs::new(graphs).unwrap(), Arc::new(Weights::default())).unwrap();
    Cpu::new(1, None).unwrap().load(DeviceId(0), &program, &LoadOptions::default()).unwrap()
}

fn run(loaded: &dyn Loaded, state: &mut dyn State) {
    let x = Value::Tensor(HostTensor::from_slice(vec![SIDE], &[0.5f32; SIDE]).unwrap());
    loaded.run(GraphId(0), state, &[x], &RunControl::default(), &mut Vec::new()).unwrap();
    state.commit().unwrap();
}

#[test]
fn sessions_that_wait_hold_their_state_only() {
    let loaded = load();
    assert_eq!(loaded.memory().run_bytes, 0);
    let mut first = loaded.new_state(&StateOptions::default()).unwrap();
    run(&*loaded, first.as_mut());
    let of_runs = loaded.memory().run_bytes;
    assert!((BETWEEN..4 * BETWEEN).contains(&of_runs), "{of_runs}");
    // What a run writes over is kept until it is committed, in memory that the session holds on to.
    let state = 4 * SIDE as u64;
    assert!((state..=4 * state).contains(&first.bytes()), "{}", first.bytes());

    let before = HELD.load(Ordering::Relaxed);
    let mut states: Vec<Box<dyn State>> =
        (0..SESSIONS).map(|_| loaded.new_state(&StateOptions::default()).unwrap()).collect();
    for state in &mut states {
        run(&*loaded, state.as_mut());
    }
    let each = (HELD.load(Ordering::Relaxed) - before) / SESSIONS;
    assert!(each < 8192, "{each} bytes a session");
    assert_eq!(loaded.memory().run_bytes, of_runs, "one workspace served them all");
}
