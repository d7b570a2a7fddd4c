//! Rewrites of a graph, one file each: a [`Graph`] and the data of its constants flow in, a smaller graph that means
//! the same and [`Remarks`] on what was taken flow out.
//!
//! Most passes are a [`Rule`] that looks at one node and what defines its operands, and is run over all nodes by
//! [`rewrite`](rewrite::rewrite). Knows nothing of files, and nothing of how a backend computes.

pub mod activation;
pub mod attention;
pub mod batch_norm;
mod compact;
pub mod cse;
pub mod dead_code;
pub mod fold;
pub mod fuse;
pub mod layouts;
pub mod merge_constants;
pub mod no_ops;
mod numbers;
mod pattern;
mod remark;
pub mod rewrite;
pub mod rms_norm;
pub mod rope;
pub mod sizes;
pub mod views;

pub use remark::{Remark, Remarks, Verdict};
pub use rewrite::{Rule, Site};

use pteron_ir::Graph;
use pteron_tensor::HostTensor;

/// The data of constants, by name.
pub trait Weights {
    /// The tensor of that name, where its data is at hand.
    fn get(&self, name: &str) -> Option<&HostTensor>;

    /// Keeps a tensor under a name that no other has.
    fn add(&mut self, name: &str, tensor: HostTensor);
}

/// A rewrite of a graph that keeps its meaning.
#[derive(Clone, Copy)]
pub struct Pass {
    /// What `--print-after` calls it.
    pub name: &'static str,
    /// What it does, in one line.
    pub doc: &'static str,
    run: fn(&mut Graph, &mut dyn Weights, &mut Remarks),
}

impl Pass {
    /// Runs it, and drops what it has left without a meaning.
    pub fn apply(&self, graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
        (self.run)(graph, weights, remarks);
        compact::compact(graph);
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All passes in the order in which they pay: what makes nodes equal first, what takes several of them next, what
/// removes the rest last.
pub const PIPELINE: &[Pass] = &[
    no_ops::PASS,
    fold::PASS,
    merge_constants::PASS,
    cse::PASS,
    sizes::PASS,
    views::PASS,
    // Transposes gone, what stands behind a convolution can be seen.
    layouts::PASS,
    batch_norm::PASS,
    rms_norm::PASS,
    activation::PASS,
    rope::PASS,
    attention::PASS,
    // Fusions leave casts and views behind that meet here.
    no_ops::PASS,
    views::PASS,
    cse::PASS,
    sizes::PASS,
    dead_code::PASS,
];
