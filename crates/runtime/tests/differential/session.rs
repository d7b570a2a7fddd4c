//! The life of one session on two backends at once: runs that are kept, taken back or fail, snapshots and what goes back
//! to them, buffers that somebody writes. Outputs are compared after every run, buffers whenever nothing is pending.

use super::graphs::{Trial, buffer};
use super::programs::{HEAD, PACKED, POSITIONS};
use super::{Source, close, of_numbers};
use pteron_ir::{Graph, Type};
use pteron_runtime::backend::{Backend, GraphId, RunControl, Snapshot, StateOptions, Step, Trace};
use pteron_runtime::reference::Reference;
use pteron_runtime::{CacheLayer, CacheSpec, Value};
use pteron_tensor::{DType, HostTensor};
use std::sync::Arc;

/// Dtypes that rows are named in.
pub(super) const INTEGERS: [DType; 8] =
    [DType::I64, DType::I32, DType::U32, DType::U8, DType::I8, DType::U16, DType::I16, DType::U64];

/// Things that happen in one session.
const MOST_EVENTS: usize = 8;
/// A row that no tensor has.
const NOWHERE: i64 = 99;

/// What the delegates of a program share.
pub(super) struct Constants(Vec<(&'static str, HostTensor)>);

impl Constants {
    /// Words of any bits, scales that are powers of two.
    pub(super) fn new(dtype: DType) -> Constants {
        let [rows, words] = PACKED;
        let codes: Vec<u32> =
            (0..rows * words).map(|at| (at as u32 + 1).wrapping_mul(2_654_435_761)).collect();
        let w = codes.iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<u8>>();
        let w = HostTensor::new(DType::U32, vec![rows, words], pteron_tensor::Bytes::copy_of(&w));
        let scales = of_numbers(dtype, &[rows, 2], |at| [0.5, 0.25, 0.125][at % 3]);
        let biases = of_numbers(dtype, &[rows, 2], |at| at as f64 * 0.5 - 2.0);
        Constants(vec![
            ("w", w.unwrap_or_else(|error| panic!("{error}"))),
            ("scales", scales),
            ("biases", biases),
        ])
    }
}

/// What came of it.
#[derive(Default)]
pub(super) struct Led {
    /// Runs that both sides ended.
    pub(super) runs: usize,
    pub(super) failed: bool,
    pub(super) restored: bool,
}

/// Hears everything: a backend that runs several ops as one takes them one by one then.
struct Listener;

impl Trace for Listener {
    fn step(&self, _: &Step<'_>) {}
}

/// One backend's part.
struct Side {
    trial: Trial,
    /// By graph: the outputs of its last run, which lend their memory to the next.
    outputs: Vec<Vec<Value>>,
    snapshot: Option<Arc<dyn Snapshot>>,
}

/// Leads a session of a program on the reference backend and on another; what they do not agree on.
pub(super) fn lead(
    source: &mut Source<'_>,
    graphs: &[Graph],
    constants: &Constants,
    backend: &dyn Backend,
) -> Result<Led, String> {
    let layers = vec![CacheLayer { kv_heads: 2, head_dim: HEAD, window: None }];
    let cache = Some(CacheSpec { capacity: POSITIONS, layers, max_write: None, dtype: None });
    let options = StateOptions { cache, seed: 7 };
    let side = |backend: &dyn Backend| {
        let trial = Trial::new(graphs, &constants.0, backend, &options).map_err(|error| error.to_string())?;
        Ok::<Side, String>(Side { trial, outputs: vec![Vec::new(); graphs.len()], snapshot: None })
    };
    let mut sides = [side(&Reference::default())?, side(backend)?];
    let mut led = Led::default();
    for event in 0..MOST_EVENTS {
        let what = source.below(10);
        match what {
            0..=3 => runs(source, graphs, &mut sides, &mut led, Runs { fails: false, kept: true }),
            4 => runs(source, graphs, &mut sides, &mut led, Runs { fails: false, kept: false }),
            5..=6 => runs(source, graphs, &mut sides, &mut led, Runs { fails: true, kept: true }),
            7 => snapshots(&mut sides),
            8 => restores(&mut sides, &mut led),
            _ => writes(source, graphs, &mut sides),
        }
        .and_then(|()| compare_buffers(graphs, &sides))
        .map_err(|problem| format!("event {event} of kind {what}: {problem}"))?;
    }
    Ok(led)
}

/// How the runs of a method go.
#[derive(Clone, Copy)]
struct Runs {
    /// The last graph is given rows that are nowhere; it may not look at them.
    fails: bool,
    kept: bool,
}

/// One method: all graphs in order, as a whole or not at all.
fn runs(
    source: &mut Source<'_>,
    graphs: &[Graph],
    sides: &mut [Side; 2],
    led: &mut Led,
    way: Runs,
) -> Result<(), String> {
    let mut failed = false;
    for (at, graph) in graphs.iter().enumerate() {
        let fails = way.fails && at + 1 == graphs.len();
        let position = sides[0].trial.state.cached_tokens().unwrap_or(0);
        let inputs = inputs(source, graph, position, fails);
        let trace: Option<Arc<dyn Trace>> =
            if source.byte() % 4 == 1 { Some(Arc::new(Listener)) } else { None };
        let control = RunControl { trace, ..RunControl::default() };
        let [wanted, got] = sides.each_mut().map(|side| {
            let (trial, outputs) = (&mut side.trial, &mut side.outputs[at]);
            trial.loaded.run(GraphId(at), trial.state.as_mut(), &inputs, &control, outputs)
        });
        match (wanted, got) {
            (Ok(()), Ok(())) => {
                led.runs += 1;
                compare_outputs(&sides[0].outputs[at], &sides[1].outputs[at])
                    .map_err(|problem| format!("graph {at}: {problem}"))?;
            }
            (Err(_), Err(_)) => {
                failed = true;
                break;
            }
            (Ok(()), Err(error)) => return Err(format!("graph {at}: refused: {error}")),
            (Err(error), Ok(())) => return Err(format!("graph {at}: not refused, though {error}")),
        }
    }
    led.failed |= failed;
    for side in sides {
        match way.kept && !failed {
            true => side.trial.state.commit().unwrap(),
            false => side.trial.state.rollback(),
        }
    }
    Ok(())
}

fn snapshots(sides: &mut [Side; 2]) -> Result<(), String> {
    for side in sides {
        side.snapshot = Some(side.trial.state.snapshot().map_err(|error| error.to_string())?);
    }
    Ok(())
}

fn restores(sides: &mut [Side; 2], led: &mut Led) -> Result<(), String> {
    for side in sides {
        let Some(snapshot) = &side.snapshot else { return Ok(()) };
        side.trial.state.restore(snapshot.as_ref()).map_err(|error| error.to_string())?;
    }
    led.restored = true;
    Ok(())
}

/// Somebody writes the first buffer there is.
fn writes(source: &mut Source<'_>, graphs: &[Graph], sides: &mut [Side; 2]) -> Result<(), String> {
    for (at, graph) in graphs.iter().enumerate() {
        let Some(kept) = graph.buffers.first() else { continue };
        let Some(Type::Tensor(ty)) = graph.ty(kept.value) else { continue };
        let tensor = whole_numbers(source, ty.dtype, &ty.known_shape().unwrap_or_default());
        for side in sides.iter_mut() {
            let written = side.trial.state.write(&buffer(at, &kept.name), &tensor);
            written.map_err(|error| error.to_string())?;
        }
        break;
    }
    Ok(())
}

fn compare_outputs(wanted: &[Value], got: &[Value]) -> Result<(), String> {
    if wanted.len() != got.len() {
        return Err(format!("{} outputs for {}", got.len(), wanted.len()));
    }
    for (at, (wanted, got)) in wanted.iter().zip(got).enumerate() {
        let [wanted, got] = [wanted, got].map(|value| value.to_tensor().ok().flatten());
        let (Some(wanted), Some(got)) = (wanted, got) else {
            return Err(format!("output {at} is no tensor"));
        };
        close(&wanted, &got, 1e-3).map_err(|problem| format!("output {at}: {problem}"))?;
    }
    Ok(())
}

fn compare_buffers(graphs: &[Graph], sides: &[Side; 2]) -> Result<(), String> {
    for (at, graph) in graphs.iter().enumerate() {
        for kept in &graph.buffers {
            let [wanted, got] = sides.each_ref().map(|side| side.trial.buffer(at, &kept.name));
            close(&wanted, &got, 1e-3)
                .map_err(|problem| format!("buffer `{}` of graph {at}: {problem}", kept.name))?;
        }
    }
    let [wanted, got] = sides.each_ref().map(|side| side.trial.state.cached_tokens());
    if wanted != got { Err(format!("{got:?} positions for {wanted:?}")) } else { Ok(()) }
}

/// Inputs in the order that the generator declares them in.
fn inputs(source: &mut Source<'_>, graph: &Graph, position: usize, fails: bool) -> Vec<Value> {
    let of = |input: &pteron_ir::Input| {
        let Some(Type::Tensor(ty)) = graph.ty(input.value) else {
            return Value::Int(i64::from(source.byte() % 2));
        };
        let (dtype, shape) = (ty.dtype, ty.known_shape().unwrap_or_default());
        match input.name.as_str() {
            "places" if fails => of_numbers(dtype, &shape, |_| NOWHERE as f64),
            // From the end too, where the dtype can say so.
            "places" => {
                let back =
                    f64::from(source.byte() % 8 == 1 && matches!(dtype, DType::I8 | DType::I16 | DType::I64));
                let turn = source.below(2);
                of_numbers(dtype, &shape, |at| {
                    if at == 0 && back == 1.0 { -1.0 } else { ((at + turn) % 2) as f64 }
                })
            }
            "ids" => {
                let turn = source.below(PACKED[0]);
                of_numbers(dtype, &shape, |at| ((at + turn) % PACKED[0]) as f64)
            }
            "position" => of_numbers(dtype, &shape, |_| position as f64),
            _ => whole_numbers(source, dtype, &shape),
        }
        .into()
    };
    graph.inputs.iter().map(of).collect()
}

fn whole_numbers(source: &mut Source<'_>, dtype: DType, shape: &[usize]) -> HostTensor {
    let (start, step) = (source.below(11), 1 + source.below(7));
    of_numbers(dtype, shape, |at| ((start + at * step) % 11) as f64 - 5.0)
}
