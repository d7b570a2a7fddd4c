//! The passes that a lowered graph goes through, in order. Whoever adds a pass adds a row here.

use crate::lower::Constants;
use pteron_ir::Module;

/// A pass: a module and its constants change, remarks say what it took and what it did not and why.
type Pass = fn(&mut Module, &mut Constants, &mut Vec<String>);

/// Name and pass, in the order in which they run.
const PASSES: &[(&str, Pass)] = &[];

/// The stage before any pass, as `--print-after` calls it.
pub const LOWERED: &str = "lower";

/// Names of all stages that can be printed.
pub fn stages() -> impl Iterator<Item = &'static str> {
    std::iter::once(LOWERED).chain(PASSES.iter().map(|(name, _)| *name))
}

/// What the passes had to say.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Remarks, each with the name of its pass.
    pub remarks: Vec<(&'static str, String)>,
    /// Text forms that were asked for, each with the name of its stage.
    pub texts: Vec<(&'static str, String)>,
}

/// Runs every pass.
pub(super) fn run(
    module: &mut Module,
    constants: &mut Constants,
    print_after: Option<&str>,
    trace: &mut Trace,
) {
    let print = |stage: &'static str, module: &Module, texts: &mut Vec<(&'static str, String)>| {
        if print_after == Some(stage) {
            texts.push((stage, module.to_string()));
        }
    };
    print(LOWERED, module, &mut trace.texts);
    for (name, pass) in PASSES {
        let mut remarks = Vec::new();
        pass(module, constants, &mut remarks);
        trace.remarks.extend(remarks.into_iter().map(|remark| (*name, remark)));
        print(name, module, &mut trace.texts);
    }
}
