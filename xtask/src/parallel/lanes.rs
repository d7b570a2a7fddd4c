//! `cargo xtask parallel --lanes 1,2,..`: model cases in several sessions that run together, against each alone. Lanes begin
//! their case in different rounds and read its tokens in another order each, so that what runs together has other positions,
//! other lengths and other text.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pteron_cpu::{Cpu, Path, PathError};
use pteron_ir::Op;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Lane, Options, Precision, Program, RunControl, Session, SessionOptions, Value};
use pteron_tensor::{DType, HostTensor};

use super::{failed, flat};
use crate::Outcome;
use crate::cache::Cache;
use crate::case::{self, Case};
use crate::error::{Error, Result};
use crate::start::{Start, Step};

/// What is compared.
pub(super) struct Wanted<'a> {
    pub(super) numbers: &'a [usize],
    /// Only these cases; all where there are none.
    pub(super) models: &'a [String],
    /// Only these vector paths; all that the machine has where there are none.
    pub(super) paths: &'a [String],
    pub(super) invariant: bool,
}

/// Rounds between the first lane's beginning and the last one's.
pub(super) const DELAYS: usize = 3;

/// What came of one call: the outputs, or why there are none.
pub(super) type Given = std::result::Result<Vec<HostTensor>, String>;

/// The kinds of caches that the cases must have among them.
const KINDS: [&str; 6] = ["in the graph", "rings", "outside", "recurrent", "turboquant", "flat"];

/// The kinds of caches of a program, told by what its graphs do with state.
fn kinds(program: &Program) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    if program.needs_cache() {
        kinds.push("outside");
    }
    for delegate in program.methods().iter().flat_map(|method| &method.delegates) {
        let graph = &delegate.module.main;
        if graph.buffers.iter().all(|buffer| buffer.update == buffer.value) {
            continue;
        }
        let mut own = "in the graph";
        graph.for_each_node(|node, _| match &node.op {
            Op::ModInt { .. } if own == "in the graph" => own = "rings",
            Op::MetalKernel { name, .. } if name.contains("tq") || name.contains("turbo") => {
                own = "turboquant"
            }
            Op::MetalKernel { name, .. } if name.contains("delta") => own = "recurrent",
            _ => {}
        });
        kinds.push(own);
    }
    kinds
}

/// What was found for one case on one path.
#[derive(Default)]
struct Tally {
    runs: usize,
    /// Runs that gave other bytes, all the same within the bound.
    near: usize,
    differ: usize,
    largest: f64,
}

pub(super) fn run(wanted: &Wanted<'_>) -> Result<Outcome> {
    let mut cases = case::find(&Cache::locate()?.set("models"))?;
    if !wanted.models.is_empty() {
        cases.retain(|case| wanted.models.iter().any(|name| case::matches(name, case.name())));
    }
    if cases.is_empty() {
        return Err(Error::message("no such case"));
    }
    let paths = match wanted.paths {
        [] => Path::available(),
        names => {
            let failed = |error: PathError| Error::message(error.to_string());
            let named = names.iter().map(|name| Path::parse(name).and_then(Path::check).map_err(failed));
            named.collect::<Result<_>>()?
        }
    };
    let (mut runs, mut near, mut differ) = (0, 0, 0);
    let mut covered = BTreeSet::new();
    println!(
        "{:<24} {:<11} {:>7} {:>6} {:>7} {:>9} {:>9}",
        "case", "path", "runs", "near", "differ", "largest", "bound"
    );
    for case in &cases {
        let start = Start::read(case)?;
        for &path in &paths {
            let open = |precision| Opened::new(case, path, precision, wanted.invariant);
            let (exact, fast) = (open(Precision::Exact)?, open(Precision::Fast)?);
            let most = wanted.numbers.iter().max().copied().unwrap_or(0);
            let alone = |program: &Opened| {
                (0..most).map(|lane| program.alone(&start, lane)).collect::<Result<Vec<_>>>()
            };
            let (of_exact, of_fast) = (alone(&exact)?, alone(&fast)?);
            // Where matrices are so small that fast is exact, what the case itself allows.
            let rounding = largest_difference(&of_exact, &of_fast);
            let bound = if rounding > 0.0 { rounding } else { start.atol };
            let bound = if wanted.invariant { 0.0 } else { bound };
            let both = [(&exact, &of_exact), (&fast, &of_fast)];
            let mut tally = Tally::default();
            for (&lanes, (program, alone)) in wanted.numbers.iter().flat_map(|n| both.map(|both| (n, both))) {
                tally.add(&program.together(&start, lanes)?, alone, bound);
            }
            let mut tallies = vec![(case.name().to_owned(), tally)];
            let mut kinds = kinds(&exact.program);
            if let Some(flat) = flat::Batches::of(&exact.program, &start) {
                let mut tally = Tally::default();
                for (&lanes, (program, alone)) in
                    wanted.numbers.iter().flat_map(|n| both.map(|both| (n, both)))
                {
                    let mut sessions = (0..lanes).map(|_| program.session()).collect::<Result<Vec<_>>>()?;
                    // Prompts are rounded as `fast` does it alone, and as tiles do beside others: the sum of both.
                    tally.add(&flat.run(&mut sessions, &start), alone, 2.0 * bound);
                }
                tallies.push((format!("{} (flat)", case.name()), tally));
                kinds.push("flat");
            }
            covered.extend(kinds);
            for (name, Tally { runs: all, near: close, differ: other, largest }) in tallies {
                let path = path.name();
                println!(
                    "{name:<24} {path:<11} {all:>7} {close:>6} {other:>7} {largest:>9.2e} {bound:>9.2e}"
                );
                (runs, near, differ) = (runs + all, near + close, differ + other);
            }
        }
    }
    println!("caches: {}", covered.iter().copied().collect::<Vec<_>>().join(", "));
    // A set that has lost a kind of cache proves nothing of it.
    if let Some(missing) = KINDS.iter().find(|kind| wanted.models.is_empty() && !covered.contains(**kind)) {
        return Err(Error::message(format!("no case has a cache of the kind: {missing}")));
    }
    println!("{runs} runs, {near} within rounding, {differ} differ");
    Ok(if differ == 0 { Outcome::Good } else { Outcome::Bad })
}

/// A case's program on one path.
struct Opened {
    program: Program,
    cache: SessionOptions,
}

impl Opened {
    fn new(case: &Case, path: Path, precision: Precision, batch_invariant: bool) -> Result<Opened> {
        let mut registry = Registry::default();
        let cpu = Cpu::new(2, Some(path)).map_err(|error| Error::message(error.to_string()))?;
        registry.add(Arc::new(cpu));
        let options = Options { registry, precision, batch_invariant, ..Options::default() };
        let data: Vec<_> = case.description.data.iter().map(|name| case.folder.join(name)).collect();
        let data: Vec<&std::path::Path> = data.iter().map(AsRef::as_ref).collect();
        let program = Program::open(&case.program(), &data, &options).map_err(failed)?;
        Ok(Opened {
            program,
            cache: SessionOptions { cache: Start::read(case)?.cache, ..SessionOptions::default() },
        })
    }

    fn session(&self) -> Result<Session> {
        self.program.session_with(&self.cache).map_err(failed)
    }

    /// What every step of the case gives in a session of its own.
    fn alone(&self, start: &Start, lane: usize) -> Result<Vec<Given>> {
        let mut session = self.session()?;
        let steps = start.steps.iter().map(|step| {
            let outputs = session.run(&step.method, &varied(start, step, lane));
            outputs.map(|outputs| tensors(&outputs)).map_err(|error| error.to_string())
        });
        Ok(steps.collect())
    }

    /// What every step gives in each of so many sessions that run together.
    fn together(&self, start: &Start, lanes: usize) -> Result<Vec<Vec<Given>>> {
        let mut sessions = (0..lanes).map(|_| self.session()).collect::<Result<Vec<_>>>()?;
        let mut outputs = vec![Vec::new(); lanes];
        let mut given = vec![Vec::new(); lanes];
        let control = RunControl::default();
        for round in 0..start.steps.len() + DELAYS - 1 {
            let step_of = |lane: usize| start.steps.get(round.checked_sub(lane % DELAYS)?);
            let mut methods: HashMap<&str, Vec<usize>> = HashMap::new();
            for lane in 0..lanes {
                if let Some(step) = step_of(lane) {
                    methods.entry(&step.method).or_default().push(lane);
                }
            }
            for (method, members) in methods {
                let inputs: Vec<Vec<Value>> = (0..lanes)
                    .map(|lane| step_of(lane).map(|step| varied(start, step, lane)).unwrap_or_default())
                    .collect();
                let each = sessions.iter_mut().zip(&mut outputs).zip(&inputs).enumerate();
                let mut riding: Vec<Lane<'_>> = each
                    .filter(|(lane, _)| members.contains(lane))
                    .map(|(_, ((session, outputs), inputs))| Lane::new(session, inputs, &control, outputs))
                    .collect();
                Session::run_together(method, &mut riding).map_err(failed)?;
                let results: Vec<_> = riding.into_iter().map(|lane| lane.result).collect();
                for (&lane, result) in members.iter().zip(results) {
                    let outcome = result.map(|()| tensors(&outputs[lane])).map_err(|error| error.to_string());
                    given[lane].push(outcome);
                }
            }
        }
        Ok(given)
    }
}

/// A step's inputs for one lane: the tokens of a text in another order, and a single token in place of another one. All are
/// tokens that the case itself has.
pub(super) fn varied(start: &Start, step: &Step, lane: usize) -> Vec<Value> {
    let ids = |value: &Value| match value {
        Value::Tensor(tensor) if tensor.dtype() == DType::I64 && tensor.rank() == 2 => {
            tensor.as_slice::<i64>().ok().map(<[i64]>::to_vec)
        }
        _ => None,
    };
    let first = start.steps.first().and_then(|step| ids(step.inputs.first()?)).unwrap_or_default();
    let mut inputs = step.inputs.clone();
    let Some(place) = inputs.first_mut() else { return inputs };
    let Some(mut tokens) = ids(place) else { return inputs };
    match tokens.as_mut_slice() {
        [token] => {
            *token = first.get(lane % first.len().max(1)).copied().filter(|_| lane > 0).unwrap_or(*token)
        }
        tokens => {
            let by = lane % tokens.len().max(1);
            tokens.rotate_left(by);
        }
    }
    let shape = place.as_tensor().map(|tensor| tensor.shape().to_vec()).unwrap_or_default();
    if let Ok(tensor) = HostTensor::from_slice(shape, &tokens) {
        *place = Value::Tensor(tensor);
    }
    inputs
}

fn tensors(outputs: &[Value]) -> Vec<HostTensor> {
    // Held here, their memory is not lent to the next call.
    outputs.iter().filter_map(Value::as_tensor).cloned().collect()
}

impl Tally {
    fn add(&mut self, together: &[Vec<Given>], alone: &[Vec<Given>], bound: f64) {
        for (given, wanted) in together.iter().zip(alone).flat_map(|(given, wanted)| given.iter().zip(wanted))
        {
            self.runs += 1;
            match difference(given, wanted) {
                None => {}
                Some(apart) => {
                    self.largest = self.largest.max(apart);
                    if apart <= bound { self.near += 1 } else { self.differ += 1 }
                }
            }
        }
    }
}

/// How far two results are apart; `None` where they are the same bytes.
fn difference(a: &Given, b: &Given) -> Option<f64> {
    let (Ok(a), Ok(b)) = (a, b) else {
        let same = a.as_ref().err() == b.as_ref().err();
        return (!same).then_some(f64::INFINITY);
    };
    if a.len() != b.len() {
        return Some(f64::INFINITY);
    }
    let mut largest: Option<f64> = None;
    for (a, b) in a.iter().zip(b) {
        if (a.dtype(), a.shape(), a.bytes()) == (b.dtype(), b.shape(), b.bytes()) {
            continue;
        }
        let apart = match (numbers(a), numbers(b)) {
            (Some(x), Some(y)) if x.len() == y.len() => {
                x.iter().zip(&y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
            }
            _ => f64::INFINITY,
        };
        largest = Some(largest.unwrap_or(0.0).max(apart));
    }
    largest
}

/// The elements of a tensor of floats.
fn numbers(tensor: &HostTensor) -> Option<Vec<f64>> {
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DType::F32 => Some(tensor.as_slice::<f32>().ok()?.iter().map(|&value| value.into()).collect()),
        // The upper half of an f32.
        DType::BF16 => {
            let halves = bytes.chunks_exact(2).map(|two| u32::from(two[0]) << 16 | u32::from(two[1]) << 24);
            Some(halves.map(|bits| f64::from(f32::from_bits(bits))).collect())
        }
        _ => None,
    }
}

fn largest_difference(a: &[Vec<Given>], b: &[Vec<Given>]) -> f64 {
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.iter().zip(b));
    pairs.filter_map(|(a, b)| difference(a, b)).filter(|apart| apart.is_finite()).fold(0.0, f64::max)
}
