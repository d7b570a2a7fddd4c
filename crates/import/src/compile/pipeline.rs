//! The passes that a lowered graph goes through, and what they had to say. Whoever adds a pass adds a row to
//! [`PIPELINE`].

use super::quantize;
use crate::lower::Constants;
use pteron_ir::{Module, verify};
use pteron_models::Quantization;
use pteron_passes::{PIPELINE, Remark, Remarks, Weights};
use pteron_tensor::HostTensor;

/// The stage before any pass, as `--print-after` calls it.
pub const LOWERED: &str = "lower";

/// Names of all stages that can be printed, each once.
pub fn stages() -> impl Iterator<Item = &'static str> {
    let first = |(at, name): &(usize, &str)| !PIPELINE[..*at].iter().any(|earlier| earlier.name == *name);
    let passes = PIPELINE.iter().map(|pass| pass.name).enumerate().filter(first).map(|(_, name)| name);
    std::iter::once(LOWERED).chain(passes).chain(std::iter::once(quantize::STAGE))
}

/// What the passes had to say.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Remarks in the order in which they were made.
    pub remarks: Vec<Explained>,
    /// Text forms that were asked for, each with the name of its stage.
    pub texts: Vec<(&'static str, String)>,
}

/// A remark with the node of the source model that it is about.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What the pass said.
    pub remark: Remark,
    /// The node of the exported program, where one is known.
    pub source: Option<String>,
}

impl Weights for Constants {
    fn get(&self, name: &str) -> Option<&HostTensor> {
        Constants::get(self, name)
    }

    fn add(&mut self, name: &str, tensor: HostTensor) {
        Constants::add(self, name, tensor);
    }
}

/// How a graph is taken through the passes.
pub(super) struct Pipeline<'a> {
    /// The stage to print.
    pub(super) print_after: Option<&'a str>,
    /// What is to be packed.
    pub(super) quantize: Option<&'a Quantization>,
    /// Names the node of the exported program that a place stands for.
    pub(super) source_of: &'a dyn Fn(u32) -> Option<String>,
}

impl Pipeline<'_> {
    /// Runs every pass over a module's graph, then packs weights; in debug builds each step is checked.
    pub(super) fn run(
        &self,
        module: &mut Module,
        constants: &mut Constants,
        trace: &mut Trace,
    ) -> Result<(), String> {
        self.print(LOWERED, module, trace);
        for pass in PIPELINE {
            let mut remarks = Remarks::default();
            pass.apply(&mut module.main, constants, &mut remarks);
            self.finish(pass.name, module, remarks, trace)?;
        }
        if let Some(quantization) = self.quantize {
            let mut remarks = Remarks::default();
            quantize::quantize(&mut module.main, constants, quantization, &mut remarks)
                .map_err(|error| error.to_string())?;
            self.finish(quantize::STAGE, module, remarks, trace)?;
        }
        Ok(())
    }

    fn finish(
        &self,
        stage: &'static str,
        module: &Module,
        remarks: Remarks,
        trace: &mut Trace,
    ) -> Result<(), String> {
        if cfg!(debug_assertions)
            && let Err(errors) = verify(&module.main)
        {
            let problem = errors.first().map(ToString::to_string).unwrap_or_default();
            return Err(format!("after pass {stage}: {problem}"));
        }
        trace.remarks.extend(remarks.into_vec().into_iter().map(|remark| Explained {
            source: remark.place.and_then(|place| (self.source_of)(place.index)),
            remark,
        }));
        self.print(stage, module, trace);
        Ok(())
    }

    fn print(&self, stage: &'static str, module: &Module, trace: &mut Trace) {
        if self.print_after == Some(stage) {
            trace.texts.push((stage, module.to_string()));
        }
    }
}
