//! The values of a method in the making: which number each value of the exported program has.

use crate::lower::LowerError;
use crate::lower::functional::Functional;
use crate::pt2::argument::{SymInt, TensorMeta};
use crate::pt2::schema::InputSpec;
use crate::pt2::{ExportedProgram, Weight};
use pteron_format::ProgramWriter;
use pteron_format::assemble::{MethodWriter, TensorSpec, ValueIndex};
use pteron_tensor::HostTensor;
use std::collections::HashMap;

/// Names to numbers, and whoever hands out more of them.
pub(super) struct Values<'p, 'w> {
    pub(super) program: &'p ExportedProgram,
    pub(super) functional: &'p Functional,
    pub(super) writer: &'w mut ProgramWriter<'static>,
    pub(super) method: MethodWriter,
    known: HashMap<String, ValueIndex>,
    sources: HashMap<&'p str, &'p InputSpec>,
}

/// Sizes beyond this are no bound.
const LARGEST: i64 = i32::MAX as i64;

impl<'p, 'w> Values<'p, 'w> {
    pub(super) fn new(
        program: &'p ExportedProgram,
        functional: &'p Functional,
        writer: &'w mut ProgramWriter<'static>,
        name: &str,
    ) -> Values<'p, 'w> {
        let specs = program.signature().input_specs.iter().zip(&program.graph().inputs);
        let sources =
            specs.filter_map(|(spec, input)| Some((crate::lower::functional::only_name(input)?, spec)));
        Values {
            program,
            functional,
            writer,
            method: MethodWriter::new(name),
            known: HashMap::new(),
            sources: sources.collect(),
        }
    }

    /// Lets a name stand for a value.
    pub(super) fn set(&mut self, name: &str, value: ValueIndex) {
        self.known.insert(name.to_owned(), value);
    }

    /// The value of a name: a tensor or integer of the method, or a weight.
    pub(super) fn of(&mut self, name: &str) -> Result<ValueIndex, LowerError> {
        if let Some(value) = self.known.get(name) {
            return Ok(*value);
        }
        let value = match self.sources.get(name).and_then(|spec| spec.target()) {
            Some(target) => match self.program.weight(target) {
                Some(Weight::Tensor(tensor)) => {
                    let tensor = tensor.to_host().map_err(|problem| self.problem(name, problem))?;
                    self.constant(&tensor)
                }
                _ => return Err(self.problem(name, "a weight of several parts stays outside the delegate")),
            },
            None => match self.functional.tensors.get(name) {
                Some(meta) => {
                    let spec = self.spec(name, meta)?;
                    self.method.tensor(&spec)
                }
                None if self.functional.ints.contains_key(name) => self.method.int(0),
                None => return Err(self.problem(name, "it is neither a tensor nor an integer")),
            },
        };
        self.set(name, value);
        Ok(value)
    }

    fn problem(&self, name: &str, problem: impl Into<String>) -> LowerError {
        LowerError::signature(format!("value `{name}`"), problem)
    }

    /// A tensor that is in the file.
    pub(super) fn constant(&mut self, tensor: &HostTensor) -> ValueIndex {
        let stored = self.writer.constant(tensor.bytes());
        self.method.constant(&TensorSpec::known(tensor.dtype(), tensor.shape()), stored)
    }

    /// Type and largest sizes of a tensor.
    pub(super) fn spec(&self, name: &str, meta: &TensorMeta) -> Result<TensorSpec, LowerError> {
        let dtype = meta.dtype.dtype();
        let dtype =
            dtype.ok_or_else(|| self.problem(name, format!("programs have no {}", meta.dtype.name())))?;
        let mut sizes = Vec::with_capacity(meta.sizes.len());
        for size in &meta.sizes {
            let most = self.program.interval(size).1.filter(|most| (0..LARGEST).contains(most));
            let Some(most) = most else {
                let symbol = match size {
                    SymInt::Int(value) => value.to_string(),
                    SymInt::Expr(size) => size.expr.to_string(),
                };
                return Err(LowerError::Unbounded { what: format!("value `{name}`"), symbol });
            };
            sizes.push(most as u64);
        }
        let dynamic = meta.sizes.iter().any(|size| matches!(size, SymInt::Expr(_)));
        Ok(TensorSpec { dtype, sizes, dynamic })
    }
}
