//! How long a method of any program takes: runs of one session on the same inputs, the first one apart, because plans are made and
//! weights are packed there.

use super::about::About;
use super::figures::{Figures, seconds};
use super::machine;
use super::profile::{self, Kind, Profile};
use crate::failure::Failure;
use crate::output::{Align, Output, Table, size};
use pteron_runtime::{ArgumentKind, MethodInfo, Precision, Program, RunControl, Session, Value};
use pteron_tensor::{Bytes, DType, HostTensor, element_count};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Runs before those that count.
const WARM_UP: usize = 2;
/// Runs that a profile takes its median of.
const LISTENED: usize = 7;
/// The most elements of an input that is made up.
const MOST_ELEMENTS: usize = 1 << 28;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    about: About,
    method: String,
    inputs: Vec<String>,
    first_run_ms: f64,
    run_ms: Option<Figures>,
    weights_bytes: u64,
    packed_bytes: u64,
    state_bytes: u64,
    run_bytes: u64,
    peak_bytes: Option<u64>,
    profile: Option<Vec<Kind>>,
}

/// What is measured.
pub(crate) struct Measured<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) program: &'a Program,
    pub(crate) method: &'a MethodInfo,
    pub(crate) inputs: Vec<Value>,
    pub(crate) precision: Precision,
    pub(crate) threads: usize,
    pub(crate) load_s: f64,
}

/// Who is told of a profile.
pub(crate) type Told<'a> = &'a dyn Fn(&Profile, &[Kind]) -> Result<(), Failure>;

/// Measures so many runs, and takes some more apart where somebody wants to be told of them.
pub(crate) fn measure(
    measured: &Measured<'_>,
    repeats: usize,
    profiles: Option<Told<'_>>,
    session: &mut Session,
) -> Result<Report, Failure> {
    let &Measured { name, path, program, method, ref inputs, precision, threads, load_s } = measured;
    let mut outputs = Vec::new();
    let mut once = |control: &RunControl| -> Result<f64, Failure> {
        let begin = Instant::now();
        session.run_into(&method.name, inputs, control, &mut outputs)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    let first_run_ms = once(&RunControl::default())?;
    for _ in 0..WARM_UP {
        once(&RunControl::default())?;
    }
    let runs = (0..repeats).map(|_| once(&RunControl::default())).collect::<Result<Vec<f64>, _>>()?;
    let profile = match profiles {
        Some(told) => {
            let found = profile::listen(program, LISTENED, |control| once(control).map(|_| ()))?;
            let kinds = found.kinds(None);
            told(&found, &kinds)?;
            Some(kinds)
        }
        None => None,
    };
    let memory = program.memory();
    Ok(Report {
        about: About::of(name, path, program, precision, threads, load_s),
        method: method.name.clone(),
        inputs: inputs.iter().map(Value::describe).collect(),
        first_run_ms,
        run_ms: Figures::of(runs),
        weights_bytes: memory.mapped_bytes,
        packed_bytes: memory.packed_bytes,
        state_bytes: program.state_bytes(),
        run_bytes: memory.run_bytes,
        peak_bytes: machine::peak_bytes(),
        profile,
    })
}

/// Inputs for a method: numbers between -1 and 1 that are the same every time, integers and truths 0. A size that is open is the
/// least that the program declares.
pub(crate) fn made_up(method: &MethodInfo) -> Result<Vec<Value>, Failure> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let refused = |position: usize, what: String| {
        Failure::usage(format!("input {position} of `{}` {what}", method.name))
            .hint("give inputs with --input, once each in order")
    };
    let inputs = method.inputs.iter().enumerate().map(|(position, input)| match &input.kind {
        ArgumentKind::Int => Ok(Value::Int(0)),
        ArgumentKind::Fixed(text) => Err(refused(position, format!("is always {text}"))),
        ArgumentKind::Tensor { dtype, dims } => {
            let shape: Vec<usize> = dims.iter().map(|dim| dim.min.max(1)).collect();
            let count = element_count(&shape).filter(|&count| count <= MOST_ELEMENTS);
            let count = count.ok_or_else(|| refused(position, format!("has the size {shape:?}")))?;
            let made = match dtype {
                DType::F32 => {
                    let numbers: Vec<f32> = (0..count).map(|_| next()).collect();
                    HostTensor::from_slice(shape, &numbers)
                }
                DType::F16 | DType::BF16 => {
                    let bits = |number: f32| match dtype {
                        DType::F16 => half::f16::from_f32(number).to_bits(),
                        _ => half::bf16::from_f32(number).to_bits(),
                    };
                    let bytes: Vec<u8> = (0..count).flat_map(|_| bits(next()).to_le_bytes()).collect();
                    HostTensor::new(*dtype, shape, Bytes::copy_of(&bytes))
                }
                dtype => HostTensor::zeros(*dtype, shape),
            };
            made.map(Value::from).map_err(Failure::new)
        }
    });
    inputs.collect()
}

impl Report {
    pub(crate) fn render(&self, out: &mut Output) -> Result<(), Failure> {
        let (About { model, backend, device, precision, .. }, method) = (&self.about, &self.method);
        out.line(format!("{model} on {backend} ({device}), {precision}"))?;
        let mut about = Table::new(&[Align::Left, Align::Left]);
        about.row(["method", &format!("{method}({})", self.inputs.join(", "))]);
        about.row(["load", &format!("{}, {}", self.about.load, seconds(self.about.load_s))]);
        about.row(["weights, mapped", &size(self.weights_bytes)]);
        about.row(["weights, packed", &size(self.packed_bytes)]);
        about.row(["memory of runs", &size(self.run_bytes)]);
        if let Some(peak) = self.peak_bytes {
            about.row(["peak resident", &size(peak)]);
        }
        about.row(["first run", &seconds(self.first_run_ms / 1e3)]);
        if let Some(figures) = &self.run_ms {
            about.row(["run", &format!("{} ms with {} threads", figures.show(), self.about.threads)]);
        }
        out.line(about.render(2))?;
        if let Some(kinds) = &self.profile {
            let mut table = Table::new(&[Align::Left, Align::Right, Align::Right, Align::Right]);
            table.row(["step", "count", "time", "share"]);
            for kind in kinds {
                table.row([
                    kind.kind.to_owned(),
                    kind.steps.to_string(),
                    seconds(kind.seconds),
                    format!("{:.1} %", kind.share * 100.0),
                ]);
            }
            out.section("one run", &table)?;
        }
        Ok(())
    }
}
