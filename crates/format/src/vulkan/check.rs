//! What the tables of a Vulkan payload must agree on: operators and lists name values that there are, tensors name constants
//! that there are. Everything that is wrong is gathered.

use super::Payload;
use super::tables::{Value, VkTensor};
use crate::draft::size_problem;
use crate::{FormatError, Limits, Place, Result};

/// More is not gathered: a file of a million errors is as wrong as one of a hundred.
const MOST_PROBLEMS: usize = 100;

pub(super) fn check(payload: &Payload, limits: &Limits) -> Result<()> {
    let mut checker = Checker { payload, limits, problems: Vec::new() };
    checker.version();
    checker.values();
    checker.chain();
    checker.ends();
    FormatError::gathered(checker.problems)
}

struct Checker<'p> {
    payload: &'p Payload,
    limits: &'p Limits,
    problems: Vec<FormatError>,
}

impl Checker<'_> {
    fn problem(&mut self, path: impl FnOnce() -> String, problem: impl Into<String>) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(FormatError::table(format!("VkGraph.{}", path()), problem));
        }
    }

    /// The value that an id names.
    fn value(&self, id: i32) -> Option<&Value> {
        usize::try_from(id).ok().and_then(|id| self.payload.graph.values.get(id))
    }

    fn version(&mut self) {
        let graph = &self.payload.graph;
        match graph.version.parse::<u64>() {
            Ok(0) => {}
            Ok(found) => {
                let place = Place::at("VkGraph.version");
                self.problems.push(FormatError::NewerVersion { place, found, known: 0 });
            }
            Err(_) if graph.version.is_empty() => {}
            Err(_) => {
                let text = format!("{:?} is not a version number", &*graph.version);
                self.problem(|| "version".into(), text);
            }
        }
        if !graph.shaders.is_empty() {
            let text = format!("{} shaders; what they compute is not known here", graph.shaders.len());
            self.problem(|| "shaders".into(), text);
        }
    }

    fn values(&mut self) {
        let payload = self.payload;
        for (index, value) in payload.graph.values.iter().enumerate() {
            match value {
                Value::Tensor(tensor) => {
                    if let Some(text) = self.tensor_problem(tensor) {
                        self.problem(|| format!("values[{index}]"), text);
                    }
                }
                Value::Values(list) => {
                    for &id in list.items.iter() {
                        let text = match self.value(id) {
                            None => format!("it lists value {id}, which there is not"),
                            Some(Value::Values(_)) => {
                                format!("it lists value {id}, which is a list of values")
                            }
                            Some(_) => continue,
                        };
                        self.problem(|| format!("values[{index}]"), text);
                    }
                }
                _ => {}
            }
        }
    }

    fn tensor_problem(&self, tensor: &VkTensor) -> Option<String> {
        let rank = tensor.dims.len();
        if rank > self.limits.rank {
            return Some(format!("{rank} dims exceed the limit `rank` of {}", self.limits.rank));
        }
        if let Some(text) = size_problem(tensor.dims.iter().map(|&size| size.into())) {
            return Some(text);
        }
        let index = u32::try_from(tensor.constant_id).ok()?;
        match self.payload.constant(index) {
            Some(_) => None,
            None if (index as usize) < self.payload.graph.constants.len() => {
                Some(format!("constant {index} lies outside the payload's data, and has no key"))
            }
            None => Some(format!("constant {index}, but there are {}", self.payload.graph.constants.len())),
        }
    }

    fn chain(&mut self) {
        let payload = self.payload;
        for (index, call) in payload.graph.chain.iter().enumerate() {
            if call.args.is_empty() {
                self.problem(|| format!("chain[{index}]"), format!("{} gives nothing", &*call.name));
            }
            for &id in call.args.iter().filter(|id| self.value(**id).is_none()).collect::<Vec<_>>() {
                let text = format!("{} names value {id}, which there is not", &*call.name);
                self.problem(|| format!("chain[{index}]"), text);
            }
        }
    }

    fn ends(&mut self) {
        let payload = self.payload;
        for (list, ids) in
            [("input_ids", &payload.graph.input_ids), ("output_ids", &payload.graph.output_ids)]
        {
            for (index, &id) in ids.iter().enumerate() {
                let text = match i32::try_from(id).ok().and_then(|id| self.value(id)) {
                    Some(Value::Tensor(_) | Value::SymInt(_)) => continue,
                    Some(Value::Int(_) | Value::Bool(_) | Value::Double(_)) if list == "output_ids" => {
                        continue;
                    }
                    Some(other) => format!("value {id} is {}, not a tensor", other.kind()),
                    None => format!("there is no value {id}"),
                };
                self.problem(|| format!("{list}[{index}]"), text);
            }
        }
    }
}
