//! What the tables of an XNNPACK payload must agree on: nodes name values that there are, values name constants that there
//! are, and quantisation parameters fit what they are for. Everything that is wrong is gathered.

use std::collections::HashSet;

use super::tables::{Datatype, NO_ID, Quantization, TensorValue, Value};
use super::{MOST_EXTERNS, Payload};
use crate::draft::size_problem;
use crate::{FormatError, Limits, Place, Result};

/// Bits of a value: input and output.
const VALUE_FLAGS: u32 = 3;

/// More is not gathered: a file of a million errors is as wrong as one of a hundred.
const MOST_PROBLEMS: usize = 100;

pub(super) fn check(payload: &Payload, limits: &Limits) -> Result<()> {
    let mut checker = Checker { payload, limits, ids: HashSet::new(), problems: Vec::new() };
    checker.version();
    checker.values();
    checker.nodes();
    FormatError::gathered(checker.problems)
}

struct Checker<'p> {
    payload: &'p Payload,
    limits: &'p Limits,
    ids: HashSet<u32>,
    problems: Vec<FormatError>,
}

impl Checker<'_> {
    fn problem(&mut self, path: impl FnOnce() -> String, problem: impl Into<String>) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(FormatError::table(format!("XNNGraph.{}", path()), problem));
        }
    }

    fn version(&mut self) {
        let graph = &self.payload.graph;
        match graph.version.parse::<u64>() {
            Ok(0) => {}
            Ok(found) => {
                let place = Place::at("XNNGraph.version");
                self.problems.push(FormatError::NewerVersion { place, found, known: 0 });
            }
            Err(_) if graph.version.is_empty() => {}
            Err(_) => {
                let text = format!("{:?} is not a version number", &*graph.version);
                self.problem(|| "version".into(), text);
            }
        }
        if graph.num_externs > MOST_EXTERNS {
            let text = format!("{} arguments; XNNPACK takes up to {MOST_EXTERNS}", graph.num_externs);
            self.problem(|| "num_externs".into(), text);
        }
    }

    fn values(&mut self) {
        let mut externs = HashSet::new();
        for (index, value) in self.payload.graph.xvalues.iter().enumerate() {
            let Some(tensor) = value.tensor() else {
                self.problem(|| format!("xvalues[{index}]"), "it has no tensor");
                continue;
            };
            if !self.ids.insert(tensor.id_out) {
                let text = format!("another value has the id {}", tensor.id_out);
                self.problem(|| format!("xvalues[{index}].id_out"), text);
            }
            if tensor.external_id != NO_ID && !externs.insert(tensor.external_id) {
                let text = format!("another value is argument {}", tensor.external_id);
                self.problem(|| format!("xvalues[{index}].external_id"), text);
            }
            if let Some(text) = self.tensor_problem(tensor) {
                self.problem(|| format!("xvalues[{index}]"), text);
            } else if let Some(text) = self.quantization_problem(value, tensor) {
                self.problem(|| format!("xvalues[{index}].quant_params"), text);
            }
        }
    }

    fn tensor_problem(&self, tensor: &TensorValue) -> Option<String> {
        let rank = tensor.dims.len();
        let external = tensor.external_id != NO_ID;
        if tensor.datatype == Datatype::Invalid {
            return Some("it has no element type".into());
        }
        if rank != tensor.num_dims as usize {
            return Some(format!("it has {} dims and {rank} sizes", tensor.num_dims));
        }
        if rank > self.limits.rank {
            return Some(format!("{rank} dims exceed the limit `rank` of {}", self.limits.rank));
        }
        if let Some(text) = size_problem(tensor.dims.iter().map(|&size| size.into())) {
            return Some(text);
        }
        if tensor.flags & !VALUE_FLAGS != 0 || tensor.flags == VALUE_FLAGS {
            return Some(format!("it has the unknown flags {:#x}", tensor.flags));
        }
        if external != (tensor.flags != 0) {
            return Some(match external {
                true => "it is an argument, but neither input nor output".into(),
                false => "it is an input or output, but no argument".into(),
            });
        }
        if external && tensor.external_id >= self.payload.graph.num_externs {
            return Some(format!(
                "it is argument {} of {}",
                tensor.external_id, self.payload.graph.num_externs
            ));
        }
        if external && tensor.constant_buffer_idx != 0 {
            return Some("it is an argument and a constant".into());
        }
        self.constant_problem(tensor.constant_buffer_idx)
    }

    fn constant_problem(&self, index: u32) -> Option<String> {
        if index == 0 {
            return None;
        }
        match self.payload.constant(index) {
            Some(_) => None,
            None if (index as usize) < self.payload.constants() => {
                Some(format!("constant {index} lies outside the payload's data, and has no key"))
            }
            None => Some(format!("constant {index}, but there are {}", self.payload.constants())),
        }
    }

    fn quantization_problem(&self, value: &Value, tensor: &TensorValue) -> Option<String> {
        use Datatype::{Qbint4, Qcint4, Qcint8, Qcint32, Qdint8, Qint8, Qint32, Qpint8, Quint8};
        let kind = tensor.datatype;
        let misfit = || Some(format!("these parameters are not for {}", kind.name()));
        let is_quantized =
            matches!(kind, Qbint4 | Qcint4 | Qcint8 | Qcint32 | Qdint8 | Qint8 | Qint32 | Qpint8 | Quint8);
        let Some(quantization) = value.quantization() else {
            return is_quantized.then(|| format!("{} without quantisation parameters", kind.name()));
        };
        let axis = |dim: i32| usize::try_from(dim).ok().and_then(|dim| tensor.dims.get(dim)).copied();
        match quantization {
            Quantization::PerTensor(one) => {
                let codes = match kind {
                    Qint8 => -128..=127,
                    Quint8 => 0..=255,
                    Qint32 => 0..=0,
                    _ => return misfit(),
                };
                if !codes.contains(&one.zero_point) {
                    return Some(format!("the zero point {} is no code of {}", one.zero_point, kind.name()));
                }
                scale_problem(&[one.scale])
            }
            Quantization::PerChannel(each) => {
                if !matches!(kind, Qcint8 | Qcint32 | Qcint4) {
                    return misfit();
                }
                let Some(channels) = axis(each.channel_dim) else {
                    return Some(format!("there is no axis {}", each.channel_dim));
                };
                let count = match each.scale_buffer_idx {
                    0 => each.scale.len() as u64,
                    _ => each.num_scales.into(),
                };
                if count != u64::from(channels) {
                    return Some(format!("{count} scales for {channels} channels"));
                }
                self.constant_problem(each.scale_buffer_idx).or_else(|| scale_problem(&each.scale))
            }
            Quantization::PerChannelGroup(each) => {
                if kind != Qbint4 {
                    return misfit();
                }
                let [rows, columns] = tensor.dims[..] else {
                    return Some(format!("groups of a tensor of {} dims", tensor.dims.len()));
                };
                let Some(size) = u32::try_from(each.group_size).ok().filter(|size| *size > 0) else {
                    return Some(format!("groups of {} elements", each.group_size));
                };
                if size % 32 != 0 || columns % size != 0 || each.channel_dim != 0 {
                    return Some(format!(
                        "groups of {size} on axis {} of {rows} rows of {columns}",
                        each.channel_dim
                    ));
                }
                let wanted = u64::from(rows) * u64::from(columns / size);
                let count = match each.scale_buffer_idx {
                    0 => each.scale.len() as u64,
                    _ => each.num_scales.into(),
                };
                if count != wanted {
                    return Some(format!("{count} scales for {wanted} groups"));
                }
                self.constant_problem(each.scale_buffer_idx).or_else(|| scale_problem(&each.scale))
            }
            Quantization::PerTokenDynamic(each) => {
                if !matches!(kind, Qdint8 | Qpint8) {
                    return misfit();
                }
                if tensor.constant_buffer_idx != 0 {
                    return Some("a constant is not quantised at run time".into());
                }
                let inner = usize::try_from(each.num_nonbatch_dims).ok();
                let fits = inner.is_some_and(|inner| (1..=tensor.dims.len()).contains(&inner));
                (!fits).then(|| {
                    format!("{} of {} axes share a scale", each.num_nonbatch_dims, tensor.dims.len())
                })
            }
        }
    }

    fn nodes(&mut self) {
        for (index, node) in self.payload.graph.xnodes.iter().enumerate() {
            let kind = &node.kind;
            let ends = [("reads", kind.inputs()), ("writes", kind.outputs())];
            for (does, ids) in ends {
                for id in ids.into_iter().filter(|id| !self.ids.contains(id)).collect::<Vec<_>>() {
                    let text = format!("{} {does} value {id}, which there is not", kind.name());
                    self.problem(|| format!("xnodes[{index}]"), text);
                }
            }
            if let Some(bounds) = &node.output_min_max
                && (bounds.output_min.is_nan() || bounds.output_max.is_nan())
            {
                self.problem(|| format!("xnodes[{index}].output_min_max"), "a bound is not a number");
            }
        }
    }
}

fn scale_problem(scales: &[f32]) -> Option<String> {
    let wrong = scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0))?;
    Some(format!("a scale of {wrong}"))
}
