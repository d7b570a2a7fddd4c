//! From one delegate to another: a program whose XNNPACK and Vulkan payloads become MLX bytecode. Each delegate stays one, called with
//! the same values; what stands beside delegates stays what it is.
//!
//! A checked [`Pte`] flows in; tables and segments that can be written flow out. All that cannot be turned is said at once.

use std::collections::{HashMap, HashSet};

use pteron_ir::{Graph, Module, verify_module};
use pteron_tensor::Bytes;

use crate::assemble::{MLX_BACKEND, placeholders};
use crate::delegate::{delegate_arguments, lift_delegate};
use crate::draft::{Argument, Constant, Lifted};
use crate::pte::{
    self, BackendDelegate, BackendDelegateDataReference, BackendDelegateInlineData, DataLocation, NamedData,
    Pte,
};
use crate::vulkan::VULKAN_BACKEND;
use crate::xnnpack::XNNPACK_BACKEND;
use crate::{Limits, Segment, emit};

/// What a payload and what every stored tensor starts at a multiple of.
const ALIGNMENT: u64 = 16;

/// Tables and segments of a program.
pub(crate) type Tables = (pte::Program, Vec<Segment<'static>>);

/// The program with MLX bytecode in place of XNNPACK and Vulkan payloads; or all that stands in the way.
pub fn to_mlx(pte: &Pte, limits: &Limits) -> Result<Tables, Vec<String>> {
    let (mut program, segments) = (pte.program.clone(), pte.segments());
    let named = program.named_data.iter().map(|named| (named.key.to_string(), named.segment_index));
    let mut crossing = Crossing { named: named.collect(), segments, added: Vec::new(), payloads: 0 };
    let mut problems = Vec::new();
    let mut known: HashMap<(DataLocation, u32, Vec<Argument>), (DataLocation, u32)> = HashMap::new();
    let mut inline = std::mem::take(&mut program.backend_delegate_data);
    for plan in program.execution_plan.make_mut() {
        let old = plan.clone();
        for (number, delegate) in plan.delegates.make_mut().iter_mut().enumerate() {
            let here = |problem: String| format!("method `{}`, delegate {number}: {problem}", &*old.name);
            match &*delegate.id {
                XNNPACK_BACKEND | VULKAN_BACKEND => {}
                MLX_BACKEND => continue,
                other => {
                    problems.push(here(format!("what `{other}` computes is not known here")));
                    continue;
                }
            }
            let Some(at) = delegate.processed.clone() else {
                problems.push(here("it has no payload".into()));
                continue;
            };
            let key = (at.location, at.index, delegate_arguments(&old, number));
            let place = match known.get(&key) {
                Some(place) => *place,
                None => {
                    let lifted = lift_delegate(pte, &old, number, limits).map_err(|error| error.to_string());
                    let bytes = match lifted.and_then(|lifted| crossing.payload(lifted)) {
                        Ok(bytes) => bytes,
                        Err(problem) => {
                            problems.push(here(problem));
                            continue;
                        }
                    };
                    let place = match at.location {
                        DataLocation::Inline => {
                            let list = inline.make_mut();
                            list.push(BackendDelegateInlineData { data: bytes.into() });
                            (DataLocation::Inline, list.len() as u32 - 1)
                        }
                        DataLocation::Segment => (DataLocation::Segment, crossing.store(bytes)),
                    };
                    known.insert(key, place);
                    place
                }
            };
            point(delegate, place);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    program.backend_delegate_data = inline;
    program.named_data.make_mut().extend(crossing.added);
    Ok(without_unused((program, crossing.segments)))
}

fn point(delegate: &mut BackendDelegate, (location, index): (DataLocation, u32)) {
    delegate.id = MLX_BACKEND.into();
    delegate.processed = Some(BackendDelegateDataReference { location, index });
}

/// The program on its way.
struct Crossing {
    /// Segments of named data by key.
    named: HashMap<String, u32>,
    segments: Vec<Segment<'static>>,
    added: Vec<NamedData>,
    /// Payloads so far.
    payloads: usize,
}

impl Crossing {
    fn store(&mut self, bytes: Bytes) -> u32 {
        self.segments.push(Segment::shared(bytes).aligned_to(ALIGNMENT));
        self.segments.len() as u32 - 1
    }

    /// A lifted payload as bytecode. Bytecode finds constants by name among those of the whole program: each gets one of its
    /// own, for the bytes that lie there already.
    fn payload(&mut self, lifted: Lifted) -> Result<Bytes, String> {
        let Lifted { mut module, data } = lifted;
        let prefix = format!("x{}_", self.payloads);
        self.payloads += 1;
        for (name, constant) in data {
            let segment_index = match constant {
                Constant::Inline(bytes) => self.store(bytes),
                Constant::Named(key) => *self.named.get(&key).ok_or_else(|| {
                    format!("constant `{key}` is not in the program (a .ptd file may have it)")
                })?,
            };
            self.added.push(NamedData { key: format!("{prefix}{name}").as_str().into(), segment_index });
        }
        rename(&mut module, &prefix);
        for (key, dtype) in placeholders(&module) {
            let segment_index = self.store(Bytes::zeroed(dtype.size()));
            self.added.push(NamedData { key: key.as_str().into(), segment_index });
        }
        if let Err(errors) = verify_module(&module) {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!("the lifted graph is not sound: {}", errors.join("; ")));
        }
        let payload = emit(&module).map_err(|error| error.to_string())?;
        Ok(Bytes::copy_of(&payload.encode().map_err(|error| error.to_string())?))
    }
}

/// Puts a prefix before the names of all constants.
fn rename(module: &mut Module, prefix: &str) {
    let add = |name: &mut String| name.insert_str(0, prefix);
    let constants =
        |graph: &mut Graph| graph.constants.iter_mut().for_each(|constant| add(&mut constant.name));
    constants(&mut module.main);
    if let Some(init) = &mut module.init {
        constants(init);
        init.outputs.iter_mut().for_each(|output| add(&mut output.name));
    }
}

/// Leaves out payloads that no delegate refers to any more; the others move up.
pub(crate) fn without_unused((mut program, segments): Tables) -> Tables {
    let delegates = program.execution_plan.iter().flat_map(|plan| plan.delegates.iter());
    let payloads = delegates.filter_map(|delegate| delegate.processed.as_ref());
    let (mut used, mut inline): (HashSet<u32>, HashSet<u32>) = (HashSet::new(), HashSet::new());
    for at in payloads {
        match at.location {
            DataLocation::Segment => used.insert(at.index),
            DataLocation::Inline => inline.insert(at.index),
        };
    }
    let constants = program.constant_segment.iter().chain(program.mutable_data_segments.iter());
    used.extend(constants.map(|table| table.segment_index));
    used.extend(program.named_data.iter().map(|named| named.segment_index));
    let kept = |used: &HashSet<u32>, count: usize| -> HashMap<u32, u32> {
        (0..count as u32).filter(|at| used.contains(at)).zip(0..).collect()
    };
    let (moved, moved_inline) =
        (kept(&used, segments.len()), kept(&inline, program.backend_delegate_data.len()));
    let renumber = |at: &mut u32, moved: &HashMap<u32, u32>| *at = moved.get(at).copied().unwrap_or(*at);
    for delegate in program.execution_plan.make_mut().iter_mut().flat_map(|plan| plan.delegates.make_mut()) {
        match &mut delegate.processed {
            Some(at) if at.location == DataLocation::Segment => renumber(&mut at.index, &moved),
            Some(at) => renumber(&mut at.index, &moved_inline),
            None => {}
        }
    }
    let tables = program.constant_segment.iter_mut().chain(program.mutable_data_segments.make_mut());
    tables.for_each(|table| renumber(&mut table.segment_index, &moved));
    program.named_data.make_mut().iter_mut().for_each(|named| renumber(&mut named.segment_index, &moved));
    let mut at = 0;
    program.backend_delegate_data.make_mut().retain(|_| {
        at += 1;
        moved_inline.contains_key(&(at - 1))
    });
    let segments = segments.into_iter().zip(0u32..).filter(|(_, at)| moved.contains_key(at));
    (program, segments.map(|(segment, _)| segment).collect())
}
