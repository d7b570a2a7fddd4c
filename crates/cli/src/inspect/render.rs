//! An [`Overview`] as text: tables first, since people look before they read.

use super::{Argument, Bound, Fallback, Memory, Method, Overview, Pieces, ProgramOverview, Weights};
use crate::failure::Failure;
use crate::output::{Align, Output, Table, bar, count, size};

/// Width of the longest bar.
const BAR: usize = 24;

/// Prints everything that is known of a file.
pub(crate) fn render(overview: &Overview, out: &mut Output) -> Result<(), Failure> {
    let mut head = vec![size(overview.bytes)];
    if let Some(program) = &overview.program {
        head.push(count(program.methods.len(), "method"));
        head.push(count(program.methods.iter().map(|method| method.delegates.len()).sum(), "delegate"));
    }
    if let Some(entries) = &overview.entries {
        head.push(count(entries.len(), "entry").replace("entrys", "entries"));
    }
    if let Some(tests) = &overview.tests {
        head.push(count(tests.iter().map(|tests| tests.cases).sum(), "test"));
    }
    out.line(format!("{}: {}, {}", overview.file, overview.kind, head.join(", ")))?;
    if let Some(program) = &overview.program {
        render_program(program, out)?;
    }
    if let Some(entries) = &overview.entries {
        let mut table = Table::new(&[Align::Left, Align::Left, Align::Left, Align::Right]);
        for entry in entries {
            let shape = entry.shape.as_ref().map(|shape| format!("{shape:?}")).unwrap_or_default();
            let dtype = entry.dtype.clone().unwrap_or_else(|| "bytes".into());
            table.row([entry.key.clone(), dtype, shape, size(entry.bytes)]);
        }
        out.section("data", &table)?;
    }
    let mut tests = Table::new(&[Align::Left, Align::Right]);
    for suite in overview.tests.iter().flatten() {
        tests.row([suite.method.clone(), count(suite.cases, "case")]);
    }
    out.section("tests", &tests)
}

fn render_program(program: &ProgramOverview, out: &mut Output) -> Result<(), Failure> {
    if let Some(problem) = &program.problem {
        out.line(format!("cannot be run here: {problem}"))?;
    }
    for method in &program.methods {
        render_method(method, out)?;
    }
    let mut metadata = Table::new(&[Align::Left, Align::Left]);
    for (name, value) in &program.metadata {
        metadata.row([name.clone(), value.to_string()]);
    }
    out.section("metadata", &metadata)?;
    let mut generation = Table::new(&[Align::Left, Align::Left]);
    for (name, value) in program.generation_config.iter().flatten() {
        generation.row([name.clone(), value.to_string()]);
    }
    out.section("generation config", &generation)?;
    render_weights(program, out)?;
    if let Some(memory) = &program.memory {
        render_memory(memory, out)?;
    }
    for graph in program.graphs.iter().flatten() {
        out.blank()?;
        out.line(format!("; method {}, delegate {}", graph.method, graph.delegate))?;
        out.line(graph.text.trim_end())?;
    }
    Ok(())
}

fn render_method(method: &Method, out: &mut Output) -> Result<(), Failure> {
    out.blank()?;
    out.line(format!("method {}", method.name))?;
    arguments(&method.inputs, &method.outputs, out)?;
    for (number, delegate) in method.delegates.iter().enumerate() {
        out.line(format!(
            "  delegate {number}: {}, {}, payload {}",
            delegate.id,
            count(delegate.nodes, "node"),
            size(delegate.payload_bytes)
        ))?;
        if let Some(first) = delegate.joined {
            let part =
                if first == number { "the ones behind it".to_owned() } else { format!("delegate {first}") };
            out.line(format!("    runs as one graph with {part}"))?;
        }
        counts(&delegate.ops, out)?;
        for (op, Fallback { backend, nodes, reason }) in &delegate.fallbacks {
            out.line(format!("    {op} ({}) runs on {backend}: {reason}", count(*nodes, "node")))?;
        }
        if let Some(pieces) = &delegate.pieces {
            render_pieces(pieces, out)?;
        }
    }
    if !method.portable.is_empty() {
        out.line("  portable operators")?;
        counts(&method.portable, out)?;
    }
    Ok(())
}

/// Who runs a delegate that is cut, and what the cuts cost.
fn render_pieces(pieces: &Pieces, out: &mut Output) -> Result<(), Failure> {
    let mut nodes: indexmap::IndexMap<&str, usize> = indexmap::IndexMap::new();
    for piece in &pieces.list {
        *nodes.entry(&piece.backend).or_default() += piece.nodes;
    }
    let nodes: Vec<String> =
        nodes.iter().map(|(backend, nodes)| format!("{} on {backend}", count(*nodes, "node"))).collect();
    out.line(format!("    runs in {}: {}", count(pieces.list.len(), "piece"), nodes.join(", ")))?;
    let bytes =
        pieces.crossing_bytes.map_or("of any size".to_owned(), |bytes| format!("at most {}", size(bytes)));
    let values = count(pieces.crossing_values, "value");
    out.line(format!("    {values} a run cross between them, {bytes}"))
}

/// Inputs and outputs with their types and bounds.
pub(super) fn arguments(inputs: &[Argument], outputs: &[Argument], out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left, Align::Left]);
    for (role, arguments) in [("in", inputs), ("out", outputs)] {
        for (position, argument) in arguments.iter().enumerate() {
            let (kind, shape) = typed(argument);
            table.row([format!("{role}.{position}"), kind, shape, argument.name.clone()]);
        }
    }
    if inputs.is_empty() && outputs.is_empty() { Ok(()) } else { out.line(table.render(2)) }
}

/// Ops with their numbers.
pub(super) fn counts(ops: &indexmap::IndexMap<String, usize>, out: &mut Output) -> Result<(), Failure> {
    let most = ops.values().copied().max().unwrap_or(0) as u64;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    for (op, number) in ops {
        table.row([op.clone(), number.to_string(), bar(*number as u64, most, BAR)]);
    }
    if ops.is_empty() { Ok(()) } else { out.line(table.render(4)) }
}

fn typed(argument: &Argument) -> (String, String) {
    match (&argument.dtype, &argument.dims) {
        (Some(dtype), Some(dims)) => {
            let dims: Vec<String> = dims.iter().map(bound).collect();
            (dtype.clone(), format!("[{}]", dims.join(", ")))
        }
        _ => (argument.kind.to_owned(), argument.value.clone().unwrap_or_default()),
    }
}

/// `4`, `1..=8`, `0..`.
fn bound(bound: &Bound) -> String {
    match bound.max {
        Some(max) if max == bound.min => max.to_string(),
        Some(max) => format!("{}..={max}", bound.min),
        None => format!("{}..", bound.min),
    }
}

fn render_weights(program: &ProgramOverview, out: &mut Output) -> Result<(), Failure> {
    if program.weights.is_empty() && program.named_data.keys > 0 {
        let keys = count(program.named_data.keys, "key");
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Right]);
        table.row(["named data".into(), keys, size(program.named_data.bytes)]);
        return out.section("weights", &table);
    }
    weights(&program.weights, out)
}

/// Constants by dtype.
pub(super) fn weights(weights: &[Weights], out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right, Align::Left]);
    let most = weights.iter().map(|weights| weights.bytes).max().unwrap_or(0);
    for weights in weights {
        let tensors = count(weights.tensors, "tensor");
        table.row([weights.dtype.clone(), tensors, size(weights.bytes), bar(weights.bytes, most, BAR)]);
    }
    out.section("weights", &table)
}

fn render_memory(memory: &Memory, out: &mut Output) -> Result<(), Failure> {
    let mut state = Table::new(&[Align::Left, Align::Left, Align::Left, Align::Right]);
    for buffer in &memory.buffers {
        state.row([
            buffer.name.clone(),
            buffer.dtype.clone(),
            format!("{:?}", buffer.shape),
            size(buffer.bytes),
        ]);
    }
    out.section("state of a session", &state)?;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    table.row(["weights, mapped".into(), size(memory.mapped_bytes), "once".to_owned()]);
    table.row(["weights, packed".into(), size(memory.packed_bytes), "once".to_owned()]);
    table.row(["buffers".into(), size(memory.state_bytes), "a session".to_owned()]);
    if let Some(cache) = &memory.cache {
        let bytes = cache.bytes.map_or_else(|| "?".into(), size);
        let rings = match cache.ring_layers {
            0 => String::new(),
            rings => format!(", {rings} of them rings"),
        };
        let what =
            format!("a session, when full: {} positions, {} layers{rings}", cache.capacity, cache.layers);
        table.row(["off-graph cache".into(), bytes, what]);
    }
    for (method, bytes) in &memory.run_bytes {
        let (bytes, what) = match bytes {
            Some(bytes) => (size(*bytes), "while it runs, at the largest sizes, about"),
            None => ("?".into(), "a size has no bound"),
        };
        table.row([format!("run of {method}"), bytes, what.to_owned()]);
    }
    out.section(&format!("memory on {} ({})", memory.backend, memory.device), &table)
}
