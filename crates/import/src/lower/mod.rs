//! Exported programs as graphs of catalogue ops.
//!
//! A verified program flows in. [`functional`] takes its side effects out; then each node is lowered by the rule
//! that its operator has in one of the families' tables, op by op and as plainly as it can be: what belongs together
//! is put together by passes. A node without a rule, or with arguments that its rule does not take, is refused and
//! left to whoever partitions the program. Nothing here computes with data, other than to store weights in the
//! layout that an op wants.

mod activation;
mod attention;
mod binary;
mod call;
pub mod constants;
mod context;
mod conv;
mod create;
mod error;
mod experts;
pub mod functional;
mod gguf;
mod index;
mod matrix;
mod mlx;
mod norm;
mod pool;
mod quantised;
mod recurrent;
mod reduce;
mod registry;
mod sampling;
mod scatter;
mod shape;
mod sort;
mod symbolic;
mod unary;
mod views;

pub use constants::Constants;
pub use error::{LowerError, Refusal, source_place};
pub use registry::operators;

use crate::pt2::ExportedProgram;
use context::Lowerer;
use functional::Functional;
use pteron_ir::Graph;
use std::collections::HashSet;

/// What a part of a program is: which nodes, what it must give, and which buffers it keeps.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Nodes of the functional graph, in order.
    pub nodes: Vec<usize>,
    /// Values that others need.
    pub outputs: Vec<String>,
    /// Buffers that nobody else reads or writes, by the name of their input value.
    pub buffers: Vec<String>,
}

/// What GGUF's k-quants become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GgufLayout {
    /// Codes with scales and offsets in f32, which stand for the very numbers of the file.
    #[default]
    Exact,
    /// As ExecuTorch repacks them: scales and zero points rounded to the dtype that they meet, so that products stay
    /// in it. A group whose scale is 0 loses its offset.
    Repacked,
}

/// A part as a graph.
#[derive(Clone, Debug)]
pub struct LoweredPart {
    /// The graph; its inputs and outputs are named by the values of the file.
    pub graph: Graph,
    /// Values of the file that it takes, in order.
    pub inputs: Vec<String>,
    /// Values of the file that it gives, in order. A value that turned out to be a plain number is not among them.
    pub outputs: Vec<String>,
    /// Values of the file that turned out to be plain numbers.
    pub numbers: Vec<(String, i64)>,
    /// Nodes that were refused, with the reason; their results are inputs.
    pub refused: Vec<(usize, Refusal)>,
    /// Data of its constants.
    pub constants: Constants,
}

/// Lowers a part of a program. Nodes that are refused are listed, and what they would have given becomes an input.
pub fn lower_part(
    program: &ExportedProgram,
    functional: &Functional,
    name: &str,
    part: &Part,
    gguf: GgufLayout,
) -> Result<LoweredPart, LowerError> {
    let owned: HashSet<String> = part.buffers.iter().cloned().collect();
    let mut lowerer = Lowerer::new(program, functional, name, owned, gguf);
    let mut refused = Vec::new();
    for &index in &part.nodes {
        if let Err(refusal) = lowerer.node(index) {
            refused.push((index, refusal));
        }
    }
    let (mut outputs, mut numbers) = (Vec::new(), Vec::new());
    if refused.is_empty() {
        for output in &part.outputs {
            match lowerer.known_int(output) {
                Some(number) => numbers.push((output.clone(), number)),
                None => {
                    lowerer.output(output)?;
                    outputs.push(output.clone());
                }
            }
        }
        for buffer in &part.buffers {
            if let Some(value) = functional.buffer_updates.get(buffer) {
                lowerer.update(buffer, value).map_err(|refusal| {
                    LowerError::signature(format!("buffer `{buffer}`"), refusal.to_string())
                })?;
            }
        }
    }
    let (graph, inputs, constants) = lowerer.finish();
    Ok(LoweredPart { graph, inputs, outputs, numbers, refused, constants })
}
