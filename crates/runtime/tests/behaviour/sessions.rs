//! State of sessions: kept from run to run, taken back on an error, copied, rewound, and never shared.

use crate::pte::{File, Method, f32s, i64s};
use pteron_format::Limits;
use pteron_format::pte::EValue;
use pteron_runtime::backend::Rewind;
use pteron_runtime::{
    BufferId, CacheLayer, CacheSpec, Error, Options, Program, RunControl, Scope, Session, SessionOptions,
    Value,
};
use pteron_tensor::{DType, HostTensor};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Adds its input to a buffer and gives the buffer; an index outside an axis of size 3 fails after the update.
const COUNTER: &str = r#"
graph "forward"
  input %0 "x": f32[2]
  input %1 "index": i64[1]
  constant %2 "table": f32[3, 2]
  buffer %3 "sum": f32[2] -> %4
{
  %4: f32[2] = add(a=%3, b=%0)
  %5: f32[1, 2] = take(x=%2, index=%1, axis=0)
  %6: f32[1, 2] = add(a=%5, b=%4)
}
output %6 "out": f32[1, 2]
"#;

fn counter() -> Program {
    let mut file = File::default();
    file.name("table", &f32s(&[3, 2], &[0.0, 0.0, 10.0, 10.0, 20.0, 20.0]));
    let mut method = Method::new("forward");
    let (x, index) = (method.tensor(DType::F32, &[2]), method.tensor(DType::I64, &[1]));
    let out = method.tensor(DType::F32, &[1, 2]);
    method.input(x);
    method.input(index);
    method.output(out);
    method.delegate(&mut file, COUNTER, &[x, index, out]);
    file.add(method);
    file.load().unwrap()
}

fn step(session: &mut Session, x: f32, index: i64) -> Result<Vec<f32>, Error> {
    let outputs = session.run("forward", &[f32s(&[2], &[x, -x]).into(), i64s(&[1], &[index]).into()])?;
    Ok(outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec())
}

fn sum_buffer() -> BufferId {
    BufferId { scope: Scope::Method("forward".into()), delegate: Some(0), name: "sum".into() }
}

#[test]
fn buffers_stay_from_run_to_run_and_start_at_zero() {
    let program = counter();
    let (mut a, mut b) = (program.session().unwrap(), program.session().unwrap());
    assert_eq!(step(&mut a, 1.0, 1).unwrap(), [11.0, 9.0]);
    assert_eq!(step(&mut a, 2.0, 0).unwrap(), [3.0, -3.0]);
    assert_eq!(step(&mut b, 5.0, 0).unwrap(), [5.0, -5.0]);
    a.reset().unwrap();
    assert_eq!(step(&mut a, 1.0, 0).unwrap(), [1.0, -1.0]);
    assert_eq!(program.state_bytes(), 8);
}

#[test]
fn an_error_in_mid_run_leaves_the_state_as_it_was() {
    let program = counter();
    let mut session = program.session().unwrap();
    step(&mut session, 1.0, 0).unwrap();
    let error = step(&mut session, 7.0, 3).unwrap_err().to_string();
    assert!(error.contains("take(") && error.contains("index 3") && error.contains("forward"), "{error}");
    assert_eq!(session.read(&sum_buffer()).unwrap(), f32s(&[2], &[1.0, -1.0]));
    assert_eq!(step(&mut session, 1.0, 0).unwrap(), [2.0, -2.0]);
}

#[test]
fn state_is_read_and_written_by_name() {
    let mut session = counter().session().unwrap();
    session.write(&sum_buffer(), &f32s(&[2], &[4.0, 5.0])).unwrap();
    assert_eq!(step(&mut session, 1.0, 0).unwrap(), [5.0, 4.0]);
    assert!(matches!(session.write(&sum_buffer(), &f32s(&[1], &[4.0])), Err(Error::BufferType { .. })));
    let other = BufferId { name: "other".into(), ..sum_buffer() };
    assert!(matches!(session.read(&other), Err(Error::UnknownBuffer(_))));
}

#[test]
fn snapshots_and_forks_go_their_own_ways() {
    let program = counter();
    let mut session = program.session().unwrap();
    step(&mut session, 1.0, 0).unwrap();
    let snapshot = session.snapshot().unwrap();
    let mut fork = session.fork().unwrap();
    assert_eq!(step(&mut session, 1.0, 0).unwrap(), [2.0, -2.0]);
    assert_eq!(step(&mut fork, 10.0, 0).unwrap(), [11.0, -11.0]);
    session.restore(&snapshot).unwrap();
    assert_eq!(step(&mut session, 2.0, 0).unwrap(), [3.0, -3.0]);
    assert!(matches!(counter().session().unwrap().restore(&snapshot), Err(Error::ForeignSnapshot)));
}

#[test]
fn buffers_in_the_graph_ask_for_a_replay() {
    let mut session = counter().session().unwrap();
    step(&mut session, 1.0, 0).unwrap();
    assert!(matches!(session.rewind_to(0).unwrap(), Rewind::Replay { from: 0, .. }));
}

#[test]
fn runs_can_be_cancelled_and_have_deadlines() {
    let mut session = counter().session().unwrap();
    let inputs = [f32s(&[2], &[1.0, 1.0]).into(), i64s(&[1], &[0]).into()];
    let cancel = RunControl { cancel: Some(Arc::new(AtomicBool::new(true))), ..RunControl::default() };
    assert!(matches!(session.run_with("forward", &inputs, &cancel), Err(Error::Cancelled)));
    let late = RunControl { deadline: Some(Instant::now()), ..RunControl::default() };
    assert!(matches!(session.run_with("forward", &inputs, &late), Err(Error::Deadline)));
    assert_eq!(step(&mut session, 1.0, 0).unwrap(), [1.0, -1.0]);
}

#[test]
fn sessions_of_64_threads_give_what_one_gives() {
    let program = counter();
    let alone: Vec<Vec<f32>> = {
        let mut session = program.session().unwrap();
        (0..20).map(|n| step(&mut session, n as f32 * 0.1, n % 3).unwrap()).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..if cfg!(miri) { 4 } else { 64 })
            .map(|_| {
                scope.spawn(|| {
                    let mut session = program.session().unwrap();
                    (0..20).map(|n| step(&mut session, n as f32 * 0.1, n % 3).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), alone);
        }
    });
}

#[test]
fn programs_are_shared_and_sessions_move() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Program>();
    moved::<Session>();
}

/// `put` keeps its input in a place that `get` adds to its own input: an arena of equal size in both.
#[test]
fn methods_with_a_second_arena_of_equal_size_share_its_places() {
    let mut file = File::default();
    let mut get = Method::new("get");
    let (kept, x) = (get.placed(DType::F32, &[2], 2, 16), get.tensor(DType::F32, &[2]));
    let (one, sum) = (get.int(1), get.tensor(DType::F32, &[2]));
    get.input(x);
    get.kernel("aten::add", "out", &[kept, x, one, sum, sum]);
    get.output(sum);
    file.add(get);
    let mut put = Method::new("put");
    let (kept, x) = (put.placed(DType::F32, &[2], 2, 16), put.tensor(DType::F32, &[2]));
    let blocking = put.value(EValue::Bool(false));
    put.input(x);
    put.kernel("aten::copy_", "", &[kept, x, blocking, kept]);
    put.output(x);
    file.add(put);
    let program = file.load().unwrap();
    let mut session = program.session().unwrap();
    let mut run = |method: &str, x: f32| {
        let outputs = session.run(method, &[f32s(&[2], &[x, x]).into()]).unwrap();
        outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap()[0]
    };
    assert_eq!(run("get", 1.0), 1.0);
    run("put", 5.0);
    assert_eq!(run("get", 1.0), 6.0);
    let id = BufferId { scope: Scope::Shared, delegate: None, name: "arena2+16".into() };
    assert_eq!(session.read(&id).unwrap(), f32s(&[2], &[5.0, 5.0]));
    assert_eq!(program.buffers().len(), 1);
}

/// A planned tensor that is read before it is written lives on; one that is written first does not.
#[test]
fn planned_tensors_that_are_read_first_are_buffers() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (state, x) = (method.tensor(DType::I64, &[]), method.tensor(DType::I64, &[]));
    let (one, sum) = (method.int(1), method.tensor(DType::I64, &[]));
    let blocking = method.value(EValue::Bool(false));
    method.input(x);
    method.kernel("aten::add", "out", &[state, x, one, sum, sum]);
    method.kernel("aten::copy_", "", &[state, sum, blocking, state]);
    method.output(sum);
    file.add(method);
    let program = file.load().unwrap();
    assert_eq!(program.buffers().len(), 1);
    let mut session = program.session().unwrap();
    for want in [3, 6, 9] {
        let outputs = session.run("forward", &[i64s(&[], &[3]).into()]).unwrap();
        assert_eq!(outputs[0].to_tensor().unwrap().unwrap().as_slice::<i64>().unwrap(), [want]);
    }
    assert!(matches!(session.rewind_to(1).unwrap(), Rewind::Replay { .. }));
}

const ATTEND: &str = r#"
graph "forward"
  symbol T in 1..=4
  input %0 "q": f32[1, 1, T, 2]
  input %1 "position": i64[1]
{
  %2: f32[1, 1, T, 2] = update_and_attend(q=%0, k=%0, v=%0, position=%1, layer_id=0, scale=1.0)
}
output %2 "out": f32[1, 1, T, 2]
"#;

fn attention(metadata: bool) -> Program {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (q, position) = (method.dynamic(DType::F32, &[1, 1, 4, 2]), method.tensor(DType::I64, &[1]));
    let out = method.dynamic(DType::F32, &[1, 1, 4, 2]);
    method.input(q);
    method.input(position);
    method.output(out);
    method.delegate(&mut file, ATTEND, &[q, position, out]);
    file.add(method);
    if metadata {
        for (name, value) in [
            ("get_n_caches", 1),
            ("get_kv_heads", 1),
            ("get_head_dims", 2),
            ("get_windows", 0),
            ("get_max_ctx_len", 8),
        ] {
            file.metadata(name, EValue::Int(value));
        }
    }
    file.load().unwrap()
}

fn attend(session: &mut Session, tokens: &[f32], position: i64) -> Result<Vec<f32>, Error> {
    let rows: Vec<f32> = tokens.iter().flat_map(|&token| [token, 1.0]).collect();
    let q = f32s(&[1, 1, tokens.len(), 2], &rows);
    let outputs = session.run("forward", &[q.into(), i64s(&[1], &[position]).into()])?;
    Ok(outputs[0].to_tensor().unwrap().unwrap().as_slice::<f32>().unwrap().to_vec())
}

#[test]
fn the_off_graph_cache_comes_from_metadata_or_from_the_caller() {
    let program = attention(true);
    assert_eq!(program.cache_spec().map(|spec| spec.capacity), Some(8));
    let mut session = program.session().unwrap();
    attend(&mut session, &[1.0, 2.0], 0).unwrap();
    assert_eq!(session.cached_tokens(), Some(2));
    // Without metadata the nodes know the layers, but not how long the cache is.
    let bare = attention(false);
    assert_eq!(bare.cache_spec(), None);
    let error = attend(&mut bare.session().unwrap(), &[1.0], 0).unwrap_err().to_string();
    assert!(error.contains("context"), "{error}");
    let with_context = SessionOptions { context: Some(2), ..SessionOptions::default() };
    let mut session = bare.session_with(&with_context).unwrap();
    attend(&mut session, &[1.0, 2.0], 0).unwrap();
    let error = attend(&mut session, &[1.0], 2).unwrap_err().to_string();
    assert!(error.contains("capacity"), "{error}");
    assert_eq!(session.cached_tokens(), Some(2));
    let layer = CacheLayer { kv_heads: 1, head_dim: 2, window: None };
    let spec = CacheSpec { capacity: 4, layers: vec![layer], max_write: None, dtype: Some(DType::F32) };
    let explicit = SessionOptions { cache: Some(spec), ..SessionOptions::default() };
    attend(&mut bare.session_with(&explicit).unwrap(), &[1.0, 2.0, 3.0], 1).unwrap();
}

#[test]
fn the_off_graph_cache_rewinds_to_any_position() {
    let mut session = attention(true).session().unwrap();
    attend(&mut session, &[1.0, 2.0, 3.0], 0).unwrap();
    let kept = session.snapshot().unwrap();
    let straight = attend(&mut session, &[4.0], 3).unwrap();
    assert_eq!(session.rewind_to(2).unwrap(), Rewind::Done);
    attend(&mut session, &[-3.0], 2).unwrap();
    assert_ne!(attend(&mut session, &[4.0], 3).unwrap(), straight);
    assert_eq!(session.rewind_to(2).unwrap(), Rewind::Done);
    attend(&mut session, &[3.0], 2).unwrap();
    assert_eq!(attend(&mut session, &[4.0], 3).unwrap(), straight);
    assert!(session.rewind_to(9).is_err());
    session.restore(&kept).unwrap();
    assert_eq!(session.cached_tokens(), Some(3));
    assert_eq!(attend(&mut session, &[4.0], 3).unwrap(), straight);
}

#[test]
fn unseeded_draws_follow_the_session_seed() {
    let mut file = File::default();
    let mut method = Method::new("forward");
    let out = method.tensor(DType::I64, &[4]);
    let x = method.tensor(DType::F32, &[1]);
    method.input(x);
    let graph = r#"
graph "forward"
  input %0 "x": f32[1]
{
  %1: u32[4] = random_bits(shape=[4])
}
output %1 "bits": i64[4]
"#;
    method.delegate(&mut file, graph, &[x, out]);
    method.output(out);
    file.add(method);
    let program = file.load().unwrap();
    let draw = |session: &mut Session| {
        session.run("forward", &[f32s(&[1], &[0.0]).into()]).unwrap()[0].describe_bits()
    };
    let seeded = |seed| program.session_with(&SessionOptions { seed, ..SessionOptions::default() }).unwrap();
    let (mut a, mut b, mut c) = (seeded(7), seeded(7), seeded(8));
    let first = draw(&mut a);
    assert_eq!(first, draw(&mut b));
    assert_ne!(first, draw(&mut a));
    assert_ne!(first, draw(&mut c));
}

trait Bits {
    fn describe_bits(&self) -> Vec<i64>;
}

impl Bits for Value {
    fn describe_bits(&self) -> Vec<i64> {
        let tensor: HostTensor = self.to_tensor().unwrap().unwrap();
        tensor.as_slice::<i64>().unwrap().to_vec()
    }
}

#[test]
fn memory_and_work_are_limited() {
    // Miri takes a minute for a million numbers.
    const SIDE: usize = if cfg!(miri) { 64 } else { 1024 };
    const NUMBERS: u64 = (SIDE * SIDE) as u64;
    let graph = r#"
graph "forward"
  input %0 "x": f32[1]
{
  %1: f32[1024, 1024] = full(shape=[1024, 1024], v=1.0, scalar_type=f32)
  %2: f32[1024, 1024] = add(a=%1, b=%0)
}
output %2 "out": f32[1024, 1024]
"#;
    let graph = &graph.replace("1024", &SIDE.to_string());
    let run = |limits: Limits| {
        let mut file = File::default();
        let mut method = Method::new("forward");
        let (x, out) = (method.tensor(DType::F32, &[1]), method.tensor(DType::F32, &[SIDE as i32; 2]));
        method.input(x);
        method.delegate(&mut file, graph, &[x, out]);
        method.output(out);
        file.add(method);
        let program = file.load_with(&[], &Options { limits, ..Options::default() })?;
        program.session()?.run("forward", &[f32s(&[1], &[1.0]).into()])
    };
    run(Limits::default()).unwrap();
    let error = run(Limits { live_bytes: 6 * NUMBERS, ..Limits::default() }).unwrap_err().to_string();
    assert!(error.contains("live_bytes"), "{error}");
    let error = run(Limits { work: NUMBERS, ..Limits::default() }).unwrap_err().to_string();
    assert!(error.contains("`work`"), "{error}");
}

/// A view costs nothing where it stands; as an output it is memory.
#[test]
fn a_broadcast_output_is_held_to_the_limit_of_a_tensor() {
    let graph = r#"
graph "forward"
  input %0 "x": f32[1]
{
  %1: f32[1073741824, 1073741824] = broadcast_to(x=%0, shape=[1073741824, 1073741824])
}
output %1 "out": f32[1073741824, 1073741824]
"#;
    let mut file = File::default();
    let mut method = Method::new("forward");
    let (x, out) = (method.tensor(DType::F32, &[1]), method.tensor(DType::F32, &[1]));
    method.input(x);
    method.delegate(&mut file, graph, &[x, out]);
    method.output(out);
    file.add(method);
    let options = Options { limits: Limits { work: u64::MAX, ..Limits::default() }, ..Options::default() };
    let run = || file.load_with(&[], &options)?.session()?.run("forward", &[f32s(&[1], &[1.0]).into()]);
    let error = run().unwrap_err().to_string();
    assert!(error.contains("tensor_bytes"), "{error}");
}

/// Each branch looks at a constant in its own way; a session takes one branch, then the other.
#[test]
fn a_branch_may_be_taken_for_the_first_time_in_a_later_run() {
    let graph = r#"
graph "forward"
  symbol s0 in i32
  input %0 "flag": i64[1]
  constant %1 "table": f32[2, 2]
{
  %2: int(s0) = item_int(x=%0)
  %3: f32[2, 2] = if(cond=%2) then {
    %4: f32[2, 2] = transpose(x=%1, perm=[1, 0])
    yield %4
  } else {
    %5: f32[2, 2] = flip(x=%1, axes=[0])
    yield %5
  }
}
output %3 "out": f32[2, 2]
"#;
    let mut file = File::default();
    file.name("table", &f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));
    let mut method = Method::new("forward");
    let (flag, out) = (method.tensor(DType::I64, &[1]), method.tensor(DType::F32, &[2, 2]));
    method.input(flag);
    method.output(out);
    method.delegate(&mut file, graph, &[flag, out]);
    file.add(method);
    let mut session = file.load().unwrap().session().unwrap();
    for (flag, want) in [(1, [1.0, 3.0, 2.0, 4.0]), (0, [3.0, 4.0, 1.0, 2.0]), (1, [1.0, 3.0, 2.0, 4.0])] {
        let outputs = session.run("forward", &[i64s(&[1], &[flag]).into()]).unwrap();
        let got = outputs[0].to_tensor().unwrap().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), want);
    }
}
