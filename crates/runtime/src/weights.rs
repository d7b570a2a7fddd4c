//! All constants of a program: tensors that borrow the mapped files, found by key, plus those that init graphs
//! derive. Never written once the program is loaded.

use crate::backend::GraphId;
use half::{bf16, f16};
use indexmap::IndexMap;
use pteron_tensor::{DType, HostTensor};
use std::collections::HashSet;
use std::sync::OnceLock;

/// The constants of a program.
#[derive(Debug, Default)]
pub struct Weights {
    /// By graph and key: what the files hold.
    stored: Vec<IndexMap<String, HostTensor>>,
    /// By graph and key: what init graphs made.
    derived: Vec<IndexMap<String, Derived>>,
    /// Constants of the program itself, by method and name.
    program: Vec<(String, HostTensor)>,
}

/// What an init graph makes of constants.
#[derive(Debug)]
enum Derived {
    Made(HostTensor),
    /// Made when somebody asks for it.
    Multiple {
        multiple: Multiple,
        made: OnceLock<HostTensor>,
    },
}

impl Derived {
    fn tensor(&self) -> &HostTensor {
        match self {
            Derived::Made(tensor) => tensor,
            Derived::Multiple { multiple, made } => made.get_or_init(|| multiple.make()),
        }
    }

    /// What is in memory.
    fn held(&self) -> Option<&HostTensor> {
        match self {
            Derived::Made(tensor) => Some(tensor),
            Derived::Multiple { made, .. } => made.get(),
        }
    }

    /// A tensor of the type that this has.
    fn like(&self) -> &HostTensor {
        match self {
            Derived::Made(tensor) => tensor,
            Derived::Multiple { multiple, .. } => &multiple.of,
        }
    }
}

/// A constant that is another one times a power of two, every product exact: the biases of codes that count from the
/// middle. Whoever knows the factor need not read them, and then they are never made.
#[derive(Clone, Debug)]
pub struct Multiple {
    /// The other constant.
    pub of: HostTensor,
    /// What it is multiplied with.
    pub factor: f32,
}

impl Multiple {
    /// `None` where a product is not exact or not finite.
    pub(crate) fn new(of: &HostTensor, factor: f32) -> Option<Multiple> {
        // A power of two of at least one changes the exponent only, which can but overflow.
        let is_power = factor.abs() >= 1.0 && factor.is_finite() && factor.to_bits() & 0x007f_ffff == 0;
        let fits = match of.dtype() {
            DType::F32 => all::<4>(of, |at| (f32::from_le_bytes(at) * factor).is_finite()),
            DType::F16 => {
                all::<2>(of, |at| f16::from_f32(f16::from_le_bytes(at).to_f32() * factor).is_finite())
            }
            DType::BF16 => all::<2>(of, |at| (bf16::from_le_bytes(at).to_f32() * factor).is_finite()),
            _ => false,
        };
        (is_power && fits).then(|| Multiple { of: of.clone(), factor })
    }

    fn make(&self) -> HostTensor {
        let mut tensor = self.of.clone();
        let (dtype, factor) = (tensor.dtype(), self.factor);
        let bytes = tensor.bytes_mut();
        match dtype {
            DType::F32 => map::<4>(bytes, |at| (f32::from_le_bytes(at) * factor).to_le_bytes()),
            DType::F16 => {
                map::<2>(bytes, |at| f16::from_f32(f16::from_le_bytes(at).to_f32() * factor).to_le_bytes());
            }
            _ => {
                map::<2>(bytes, |at| bf16::from_f32(bf16::from_le_bytes(at).to_f32() * factor).to_le_bytes())
            }
        }
        tensor
    }
}

/// Whether all elements are so; a part at a time, which is a loop over vectors.
fn all<const SIZE: usize>(tensor: &HostTensor, is_so: impl Fn([u8; SIZE]) -> bool) -> bool {
    let mut parts = tensor.bytes().as_chunks::<SIZE>().0.chunks(1024);
    parts.all(|part| part.iter().fold(true, |all, &element| all & is_so(element)))
}

fn map<const SIZE: usize>(bytes: &mut [u8], to: impl Fn([u8; SIZE]) -> [u8; SIZE]) {
    bytes.as_chunks_mut::<SIZE>().0.iter_mut().for_each(|element| *element = to(*element));
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
    pub fn new(graphs: usize) -> Weights {
        Weights {
            stored: (0..graphs).map(|_| IndexMap::new()).collect(),
            derived: (0..graphs).map(|_| IndexMap::new()).collect(),
            program: Vec::new(),
        }
    }

    /// Adds a constant of a graph. A graph that there is no room for has none.
    pub fn add_stored(&mut self, graph: GraphId, name: &str, tensor: HostTensor) {
        if let Some(stored) = self.stored.get_mut(graph.0) {
            stored.insert(name.to_owned(), tensor);
        }
    }

    pub(crate) fn add_derived(&mut self, graph: GraphId, name: &str, tensor: HostTensor) {
        self.derived[graph.0].insert(name.to_owned(), Derived::Made(tensor));
    }

    pub(crate) fn add_multiple(&mut self, graph: GraphId, name: &str, multiple: Multiple) {
        let made = OnceLock::new();
        self.derived[graph.0].insert(name.to_owned(), Derived::Multiple { multiple, made });
    }

    /// Takes a constant over from another list, by another name.
    pub(crate) fn share(
        &mut self,
        graph: GraphId,
        name: &str,
        (from, its_graph, its_name): (&Weights, GraphId, &str),
    ) {
        if let Some(multiple) = from.multiple(its_graph, its_name) {
            self.add_multiple(graph, name, multiple.clone());
        } else if let Some(Derived::Made(tensor)) =
            from.derived.get(its_graph.0).and_then(|derived| derived.get(its_name))
        {
            self.add_derived(graph, name, tensor.clone());
        } else if let Some(tensor) = from.stored.get(its_graph.0).and_then(|stored| stored.get(its_name)) {
            self.add_stored(graph, name, tensor.clone());
        }
    }

    /// Takes over the constants of the program itself.
    pub(crate) fn share_program(&mut self, from: &Weights) {
        self.program.extend(from.program.iter().cloned());
    }

    pub(crate) fn add_program(&mut self, name: String, tensor: HostTensor) {
        self.program.push((name, tensor));
    }

    /// A constant of a graph: what its init graph made of it, or else what the files hold.
    pub fn get(&self, graph: GraphId, name: &str) -> Option<&HostTensor> {
        let derived = self.derived.get(graph.0)?.get(name).map(Derived::tensor);
        derived.or_else(|| self.stored.get(graph.0)?.get(name))
    }

    /// A tensor of the type that a constant of a graph has; nothing is made for the answer.
    pub(crate) fn like(&self, graph: GraphId, name: &str) -> Option<&HostTensor> {
        let derived = self.derived.get(graph.0)?.get(name).map(Derived::like);
        derived.or_else(|| self.stored.get(graph.0)?.get(name))
    }

    /// A constant of a graph as a multiple of another, where it is one; nothing is made for the answer.
    pub fn multiple(&self, graph: GraphId, name: &str) -> Option<&Multiple> {
        match self.derived.get(graph.0)?.get(name)? {
            Derived::Made(_) => None,
            Derived::Multiple { multiple, .. } => Some(multiple),
        }
    }

    /// Totals by dtype. Constants that share their data count once.
    pub fn totals(&self) -> IndexMap<DType, WeightTotals> {
        let mut totals: IndexMap<DType, WeightTotals> = IndexMap::new();
        let program = self.program.iter().map(|pair| &pair.1);
        let stored = distinct(self.stored.iter().flat_map(IndexMap::values).chain(program));
        let derived = self.derived.iter().flat_map(IndexMap::values).map(Derived::like);
        for tensor in stored.chain(derived) {
            let total = totals.entry(tensor.dtype()).or_default();
            total.count += 1;
            total.bytes += tensor.bytes().len() as u64;
        }
        totals.sort_unstable_keys();
        totals
    }

    /// Bytes that the files hold, and bytes that were made of them and are in memory.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |tensors: &mut dyn Iterator<Item = &HostTensor>| -> u64 {
            distinct(tensors).map(|tensor| tensor.bytes().len() as u64).sum()
        };
        let program = self.program.iter().map(|pair| &pair.1);
        let stored = sum(&mut self.stored.iter().flat_map(IndexMap::values).chain(program));
        let derived = self.derived.iter().flat_map(IndexMap::values);
        (stored, sum(&mut derived.filter_map(Derived::held)))
    }
}

fn distinct<'a>(tensors: impl Iterator<Item = &'a HostTensor>) -> impl Iterator<Item = &'a HostTensor> {
    let mut seen = HashSet::new();
    tensors.filter(move |tensor| seen.insert((tensor.bytes().as_ptr() as usize, tensor.bytes().len())))
}
