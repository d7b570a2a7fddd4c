//! All constants of a program: tensors that borrow the mapped files, found by key, plus those that init graphs
//! derive. Never written once the program is loaded.

use crate::backend::GraphId;
use indexmap::IndexMap;
use pteron_tensor::{DType, HostTensor};
use std::collections::HashSet;

/// The constants of a program.
#[derive(Debug, Default)]
pub struct Weights {
    /// By graph and key: what the files hold.
    stored: Vec<IndexMap<String, HostTensor>>,
    /// By graph and key: what init graphs made.
    derived: Vec<IndexMap<String, HostTensor>>,
    /// Constants of the program itself, by method and name.
    program: Vec<(String, HostTensor)>,
}

/// Number and bytes of constants of one dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightTotals {
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Weights {
    /// Room for that many graphs.
    pub(crate) fn new(graphs: usize) -> Weights {
        let empty = || (0..graphs).map(|_| IndexMap::new()).collect();
        Weights { stored: empty(), derived: empty(), program: Vec::new() }
    }

    pub(crate) fn add_stored(&mut self, graph: GraphId, name: &str, tensor: HostTensor) {
        self.stored[graph.0].insert(name.to_owned(), tensor);
    }

    pub(crate) fn add_derived(&mut self, graph: GraphId, name: &str, tensor: HostTensor) {
        self.derived[graph.0].insert(name.to_owned(), tensor);
    }

    pub(crate) fn add_program(&mut self, name: String, tensor: HostTensor) {
        self.program.push((name, tensor));
    }

    /// A constant of a graph: what its init graph made of it, or else what the files hold.
    pub fn get(&self, graph: GraphId, name: &str) -> Option<&HostTensor> {
        self.derived.get(graph.0)?.get(name).or_else(|| self.stored.get(graph.0)?.get(name))
    }

    /// All constants by name: of graphs, derived ones, then those of the program itself.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        let graphs = self.stored.iter().chain(&self.derived).flatten();
        let graphs = graphs.map(|(name, tensor)| (name.as_str(), tensor));
        graphs.chain(self.program.iter().map(|(name, tensor)| (name.as_str(), tensor)))
    }

    /// Totals by dtype. Constants that share their data count once.
    pub fn totals(&self) -> IndexMap<DType, WeightTotals> {
        let mut totals: IndexMap<DType, WeightTotals> = IndexMap::new();
        for tensor in distinct(self.iter().map(|pair| pair.1)) {
            let total = totals.entry(tensor.dtype()).or_default();
            total.count += 1;
            total.bytes += tensor.bytes().len() as u64;
        }
        totals.sort_unstable_keys();
        totals
    }

    /// Bytes that the files hold, and bytes that were made at load.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |tensors: &mut dyn Iterator<Item = &HostTensor>| -> u64 {
            distinct(tensors).map(|tensor| tensor.bytes().len() as u64).sum()
        };
        let program = self.program.iter().map(|pair| &pair.1);
        let stored = sum(&mut self.stored.iter().flat_map(IndexMap::values).chain(program));
        (stored, sum(&mut self.derived.iter().flat_map(IndexMap::values)))
    }
}

fn distinct<'a>(tensors: impl Iterator<Item = &'a HostTensor>) -> impl Iterator<Item = &'a HostTensor> {
    let mut seen = HashSet::new();
    tensors.filter(move |tensor| seen.insert((tensor.bytes().as_ptr() as usize, tensor.bytes().len())))
}
