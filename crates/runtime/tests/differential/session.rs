//! The life of one session on two backends at once: runs that are kept, taken back or fail, snapshots and what goes back
//! to them, buffers that somebody writes. Outputs are compared after every run, buffers whenever nothing is pending.

use super::graphs::{Trial, buffer};
use super::programs::{HEAD, PACKED, POSITIONS};
use super::{Source, close, of_numbers};
use pteron_ir::{Graph, Type};
use pteron_runtime::backend::{Backend, Call, GraphId, RunControl, Snapshot, StateOptions, Step, Trace};
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

/// How two backends agree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Up to a share of the largest element.
    Close,
    /// In every bit.
    Exact,
}

fn options() -> StateOptions {
    let layers = vec![CacheLayer { kv_heads: 2, head_dim: HEAD, window: None }];
    let cache = Some(CacheSpec { capacity: POSITIONS, layers, max_write: None, dtype: None });
    StateOptions { cache, seed: 7 }
}

/// Leads a session of a program on two backends; what they do not agree on.
pub(super) fn lead(
    source: &mut Source<'_>,
    graphs: &[Graph],
    constants: &Constants,
    (way, backends): (Way, [&dyn Backend; 2]),
) -> Result<Led, String> {
    let side = |backend: &dyn Backend| {
        let trial =
            Trial::new(graphs, &constants.0, backend, &options()).map_err(|error| error.to_string())?;
        Ok::<Side, String>(Side { trial, outputs: vec![Vec::new(); graphs.len()], snapshot: None })
    };
    let mut sides = [side(backends[0])?, side(backends[1])?];
    let mut led = Led::default();
    for event in 0..MOST_EVENTS {
        let what = source.below(10);
        match what {
            0..=3 => runs(source, graphs, &mut sides, &mut led, Runs { fails: false, kept: true, way }),
            4 => runs(source, graphs, &mut sides, &mut led, Runs { fails: false, kept: false, way }),
            5..=6 => runs(source, graphs, &mut sides, &mut led, Runs { fails: true, kept: true, way }),
            7 => snapshots(&mut sides),
            8 => restores(&mut sides, &mut led),
            _ => writes(source, graphs, &mut sides),
        }
        .and_then(|()| compare_buffers(graphs, &sides, way))
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
    way: Way,
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
                compare_outputs(&sides[0].outputs[at], &sides[1].outputs[at], way.way)
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

fn compare(wanted: &HostTensor, got: &HostTensor, way: Way) -> Result<(), String> {
    match way {
        Way::Close => close(wanted, got, 1e-3),
        Way::Exact if wanted == got => Ok(()),
        Way::Exact => close(wanted, got, 0.0).and(Err("only close".to_owned())),
    }
}

/// Sessions of a program on one backend, one after the other and together: each gives and keeps the same, and one that fails
/// leaves the others alone.
pub(super) fn side_by_side(
    source: &mut Source<'_>,
    graphs: &[Graph],
    constants: &Constants,
    backend: &dyn Backend,
) -> Result<(), String> {
    const LANES: usize = 3;
    let show = |error: pteron_runtime::Error| error.to_string();
    let trial = Trial::new(graphs, &constants.0, backend, &options()).map_err(show)?;
    let open =
        || (0..LANES).map(|_| trial.loaded.new_state(&options())).collect::<pteron_runtime::Result<Vec<_>>>();
    let (mut alone, mut together) = (open().map_err(show)?, open().map_err(show)?);
    let control = RunControl::default();
    for (at, graph) in graphs.iter().enumerate() {
        // The second one of the last graph looks at rows that are nowhere, if it looks.
        let fails = |lane: usize| lane == 1 && at + 1 == graphs.len();
        let given: Vec<Vec<Value>> = (0..LANES)
            .map(|lane| inputs(source, graph, together[lane].cached_tokens().unwrap_or(0), fails(lane)))
            .collect();
        let (mut wanted, mut got) = (vec![Vec::new(); LANES], vec![Vec::new(); LANES]);
        let mut results = Vec::new();
        for ((state, given), outputs) in alone.iter_mut().zip(&given).zip(&mut wanted) {
            results.push(trial.loaded.run(GraphId(at), state.as_mut(), given, &control, outputs));
        }
        let lanes = together.iter_mut().zip(&given).zip(&mut got);
        let mut calls: Vec<Call<'_>> = lanes
            .map(|((state, inputs), outputs)| Call {
                state: state.as_mut(),
                inputs,
                outputs,
                control: &control,
                result: Ok(()),
            })
            .collect();
        let ticket = trial.loaded.submit(GraphId(at), &mut calls).map_err(show)?;
        let mut ran: Vec<_> = calls.into_iter().map(|call| call.result).collect();
        ticket.wait().into_iter().for_each(|(lane, error)| ran[lane] = Err(error));
        for lane in 0..LANES {
            match (&results[lane], &ran[lane]) {
                (Ok(()), Ok(())) => {
                    compare_outputs(&wanted[lane], &got[lane], Way::Exact)?;
                    alone[lane].commit().and_then(|()| together[lane].commit()).map_err(show)?;
                }
                (Err(_), Err(_)) => {}
                (alone, together) => {
                    return Err(format!("lane {lane} alone: {alone:?}, and together: {together:?}"));
                }
            }
        }
        for (lane, (alone, together)) in alone.iter().zip(&together).enumerate() {
            for kept in &graph.buffers {
                let [wanted, got] = [alone, together].map(|state| state.read(&buffer(at, &kept.name)));
                compare(&wanted.map_err(show)?, &got.map_err(show)?, Way::Exact)
                    .map_err(|problem| format!("buffer `{}` of lane {lane}: {problem}", kept.name))?;
            }
        }
    }
    Ok(())
}

fn compare_outputs(wanted: &[Value], got: &[Value], way: Way) -> Result<(), String> {
    if wanted.len() != got.len() {
        return Err(format!("{} outputs for {}", got.len(), wanted.len()));
    }
    for (at, (wanted, got)) in wanted.iter().zip(got).enumerate() {
        let [wanted, got] = [wanted, got].map(|value| value.to_tensor().ok().flatten());
        let (Some(wanted), Some(got)) = (wanted, got) else {
            return Err(format!("output {at} is no tensor"));
        };
        compare(&wanted, &got, way).map_err(|problem| format!("output {at}: {problem}"))?;
    }
    Ok(())
}

fn compare_buffers(graphs: &[Graph], sides: &[Side; 2], way: Way) -> Result<(), String> {
    for (at, graph) in graphs.iter().enumerate() {
        for kept in &graph.buffers {
            let [wanted, got] = sides.each_ref().map(|side| side.trial.buffer(at, &kept.name));
            compare(&wanted, &got, way)
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
