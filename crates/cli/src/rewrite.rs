//! Programs written again: every table as it was, or with every MLX payload taken through the graph and back.
//!
//! A checked [`Pte`] flows in; tables and segments that can be written flow out. Segments are borrowed from the
//! source and streamed, so that a file of any size takes the memory of its payloads alone.

use pteron_format::payload::Payload;
use pteron_format::pte::{self, BackendDelegate, BackendDelegateInlineData, DataLocation, Pte};
use pteron_format::vulkan::{self, VULKAN_BACKEND};
use pteron_format::xnnpack::{self, XNNPACK_BACKEND};
use pteron_format::{DELEGATE_IDS, FormatError, Limits, Segment, WriteOptions, emit, lift};
use pteron_ir::verify::verify_module;
use pteron_ir::{Graph, Module};
use pteron_runtime::reference;
use pteron_tensor::{Bytes, HostTensor};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// The id of delegates whose payloads are graphs.
pub(crate) const MLX: &str = "MLXBackend";

/// What a delegate's payload is aligned to.
const PAYLOAD_ALIGNMENT: u64 = 16;

/// A program that is ready to be written.
pub(crate) struct Rewritten {
    program: pte::Program,
    segments: Vec<Segment<'static>>,
}

impl Rewritten {
    /// Writes the file; the same program gives the same bytes.
    pub(crate) fn write(&self, out: &mut dyn Write) -> Result<(), FormatError> {
        pte::write(&self.program, &self.segments, &WriteOptions::default(), out).map(drop)
    }
}

/// The program with every table and payload as it is.
pub(crate) fn as_it_is(pte: &Pte) -> Result<Rewritten, String> {
    refuse_unknown(pte.unknown_fields())?;
    Ok(Rewritten { program: pte.program.clone(), segments: pte.segments() })
}

/// The program with every MLX payload decoded, lifted, verified, emitted and encoded, and every XNNPACK and Vulkan payload
/// decoded and encoded.
pub(crate) fn through_graph(pte: &Pte, limits: &Limits) -> Result<Rewritten, String> {
    changed(pte, limits, &mut |_| ())
}

/// The program with every XNNPACK and Vulkan payload as MLX bytecode.
pub(crate) fn to_mlx(pte: &Pte, limits: &Limits) -> Result<Rewritten, String> {
    refuse_unknown(pte.unknown_fields())?;
    let (program, segments) = pteron_format::to_mlx(pte, limits).map_err(|problems| problems.join("\n"))?;
    Ok(Rewritten { program, segments })
}

/// The program with calls of portable operators in place of every delegate.
pub(crate) fn to_portable(pte: &Pte, limits: &Limits) -> Result<Rewritten, String> {
    refuse_unknown(pte.unknown_fields())?;
    let run_init = |graph: &Graph, constants: &[HostTensor]| {
        reference::run_constants(graph, constants, limits).map_err(|error| error.to_string())
    };
    let rewritten = pteron_format::to_portable(pte, limits, &run_init);
    let (program, segments) = rewritten.map_err(|problems| problems.join("\n"))?;
    Ok(Rewritten { program, segments })
}

/// The same with every graph changed on the way.
pub(crate) fn changed(
    pte: &Pte,
    limits: &Limits,
    change: &mut dyn FnMut(&mut Module),
) -> Result<Rewritten, String> {
    let Rewritten { mut program, mut segments } = as_it_is(pte)?;
    let kept = segments_of_others(&program);
    let mut renewed = HashMap::new();
    for plan in program.execution_plan.make_mut() {
        for (number, delegate) in plan.delegates.make_mut().iter_mut().enumerate() {
            let Some((location, index)) = known_payload(delegate) else { continue };
            if let Some(new) = renewed.get(&(location, index)) {
                set_index(delegate, *new);
                continue;
            }
            let here = |problem: String| format!("method `{}`, delegate {number}: {problem}", &*plan.name);
            let old = pte.payload(delegate).ok_or_else(|| here("it has no payload".into()))?;
            let new = match &*delegate.id {
                XNNPACK_BACKEND => renew_xnnpack(&old, limits),
                VULKAN_BACKEND => renew_vulkan(&old, limits),
                _ => renew(&old, &plan.name, limits, change),
            };
            let new = Bytes::copy_of(&new.map_err(here)?);
            let at = match location {
                DataLocation::Inline => {
                    let inline = BackendDelegateInlineData { data: new.into() };
                    if let Some(place) = program.backend_delegate_data.make_mut().get_mut(index as usize) {
                        *place = inline;
                    }
                    index
                }
                DataLocation::Segment => {
                    let segment = Segment::shared(new).aligned_to(PAYLOAD_ALIGNMENT);
                    // Somebody else reads the old bytes under another name, so that they stay.
                    if kept.contains(&index) {
                        segments.push(segment);
                        segments.len() as u32 - 1
                    } else {
                        segments[index as usize] = segment;
                        index
                    }
                }
            };
            renewed.insert((location, index), at);
            set_index(delegate, at);
        }
    }
    Ok(Rewritten { program, segments })
}

/// A payload through the graph and back.
fn renew(
    payload: &[u8],
    name: &str,
    limits: &Limits,
    change: &mut dyn FnMut(&mut Module),
) -> Result<Vec<u8>, String> {
    let (payload, unknown) =
        Payload::decode_with_remarks(payload, limits).map_err(|error| format!("payload: {error}"))?;
    refuse_unknown(&unknown)?;
    let mut module = lift(&payload, name, limits).map_err(|error| format!("lift: {error}"))?;
    change(&mut module);
    verified(&module)?;
    let payload = emit(&module).map_err(|error| format!("emit: {error}"))?;
    payload.encode().map_err(|error| format!("encode: {error}"))
}

/// A payload that no graph can be written as: its tables, read and written again.
fn renew_xnnpack(payload: &Bytes, limits: &Limits) -> Result<Vec<u8>, String> {
    let read = xnnpack::Payload::decode_with_remarks(payload, limits);
    let (payload, unknown) = read.map_err(|error| format!("payload: {error}"))?;
    refuse_unknown(&unknown)?;
    payload.encode().map_err(|error| format!("encode: {error}"))
}

fn renew_vulkan(payload: &Bytes, limits: &Limits) -> Result<Vec<u8>, String> {
    let read = vulkan::Payload::decode_with_remarks(payload, limits);
    let (payload, unknown) = read.map_err(|error| format!("payload: {error}"))?;
    refuse_unknown(&unknown)?;
    payload.encode().map_err(|error| format!("encode: {error}"))
}

fn verified(module: &Module) -> Result<(), String> {
    verify_module(module).map_err(|errors| {
        let more = match errors.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        format!("the lifted graph is not sound: {first}{more}")
    })
}

/// Writing again loses what the reader does not know; better no file than one with holes.
fn refuse_unknown(fields: &[String]) -> Result<(), String> {
    match fields.first() {
        None => Ok(()),
        Some(field) => Err(format!(
            "a newer exporter wrote fields that this version does not know and would lose ({field}, {} in all)",
            fields.len()
        )),
    }
}

/// Where a delegate's payload lies, if it is one that we read.
fn known_payload(delegate: &BackendDelegate) -> Option<(DataLocation, u32)> {
    let processed = delegate.processed.as_ref().filter(|_| DELEGATE_IDS.contains(&&*delegate.id))?;
    Some((processed.location, processed.index))
}

fn set_index(delegate: &mut BackendDelegate, index: u32) {
    if let Some(processed) = &mut delegate.processed {
        processed.index = index;
    }
}

/// Segments that are not only payloads that we read.
fn segments_of_others(program: &pte::Program) -> HashSet<u32> {
    let constants = program.constant_segment.iter().chain(program.mutable_data_segments.iter());
    let mut kept: HashSet<u32> = constants.map(|table| table.segment_index).collect();
    kept.extend(program.named_data.iter().map(|named| named.segment_index));
    let delegates = program.execution_plan.iter().flat_map(|plan| plan.delegates.iter());
    let foreign = delegates.filter(|delegate| known_payload(delegate).is_none());
    let foreign = foreign.filter_map(|delegate| delegate.processed.as_ref());
    kept.extend(foreign.filter(|at| at.location == DataLocation::Segment).map(|at| at.index));
    kept
}
