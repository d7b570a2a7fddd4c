//! From exported programs to a `.pte` program.
//!
//! Each method is made functional, lowered as a whole, split where the delegate cannot express an operator, taken
//! through the [`pipeline`] of passes and put together with portable calls between its delegates. Verified programs
//! flow in; a [`ProgramWriter`] that streams the file and a [`Report`] of what went
//! where flow out. The same programs give the same bytes.

mod error;
mod kernels;
mod method;
mod partition;
pub mod pipeline;
mod portable;
mod quantize;
mod report;
mod values;

pub use crate::lower::GgufLayout;
pub use error::CompileError;
pub use pipeline::{Explained, Trace};
pub use pteron_format::assemble::Metadata;
pub use pteron_models::{Method, Packing, Quantization, Rule};
pub use report::{MethodReport, Outside, Report, Taken};

use crate::pt2::ExportedProgram;
use crate::pt2::schema::InputSpec;
use method::MethodCompiler;
use pteron_format::ProgramWriter;
use std::collections::{HashMap, HashSet};

/// A program with the name of the method that it becomes.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The method's name.
    pub name: &'a str,
    /// What it does.
    pub program: &'a ExportedProgram,
}

/// How programs are compiled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An operator outside the delegate is an error.
    pub strict: bool,
    /// Buffers of equal name are one buffer of all methods.
    pub share_buffers: bool,
    /// Methods of which nothing is delegated.
    pub portable: Portable,
    /// What GGUF's k-quants become.
    pub gguf: GgufLayout,
    /// Linear and embedding weights that are to be packed.
    pub quantize: Option<Quantization>,
    /// What runners want to know of the program, as constant methods.
    pub metadata: Vec<(String, Metadata)>,
    /// The stage whose graphs are kept as text.
    pub print_after: Option<String>,
}

/// Which methods run on portable operators alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Portable {
    /// None: what the delegate can express is delegated.
    #[default]
    None,
    /// All of them.
    All,
    /// Those of these names.
    Methods(Vec<String>),
}

impl Portable {
    fn takes(&self, method: &str) -> bool {
        match self {
            Portable::None => false,
            Portable::All => true,
            Portable::Methods(names) => names.iter().any(|name| name == method),
        }
    }
}

/// A program that is ready to be written.
pub struct Compiled {
    /// Writes the file.
    pub writer: ProgramWriter<'static>,
    /// What became of the program.
    pub report: Report,
}

/// Compiles programs into one with a method each.
pub fn compile(sources: &[Source<'_>], options: &Options) -> Result<Compiled, CompileError> {
    if sources.is_empty() {
        return Err(CompileError::Methods("there is no program to compile".into()));
    }
    let mut names = HashSet::new();
    if let Some(source) = sources.iter().find(|source| !names.insert(source.name)) {
        return Err(CompileError::Methods(format!("two methods are called `{}`", source.name)));
    }
    if let Portable::Methods(wanted) = &options.portable
        && let Some(unknown) = wanted.iter().find(|name| !names.contains(name.as_str()))
    {
        return Err(CompileError::Methods(format!("there is no method `{unknown}` to keep portable")));
    }
    let shared = if options.share_buffers { buffers_of_several(sources) } else { HashSet::new() };
    let mut writer = ProgramWriter::new();
    let mut report = Report::default();
    for (source, prefix) in sources.iter().zip(prefixes(sources)) {
        let compiler = MethodCompiler { source, options, prefix, shared: &shared };
        report.methods.push(compiler.compile(&mut writer)?);
    }
    for (name, value) in &options.metadata {
        writer.metadata(name, value)?;
    }
    Ok(Compiled { writer, report })
}

/// Names of buffers that more than one program has.
fn buffers_of_several(sources: &[Source<'_>]) -> HashSet<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for source in sources {
        for spec in &source.program.signature().input_specs {
            if let InputSpec::Buffer { buffer_name, .. } = spec {
                *counts.entry(buffer_name).or_default() += 1;
            }
        }
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name.to_owned()).collect()
}

/// Four hexadecimal digits for each method, as ExecuTorch puts before the names of constants: no two alike.
fn prefixes(sources: &[Source<'_>]) -> Vec<String> {
    let mut taken = HashSet::new();
    let of = |source: &Source<'_>| {
        // FNV-1a, folded: the same name gives the same digits on every machine.
        let hash = source
            .name
            .bytes()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let mut digits = (hash ^ hash >> 16) as u16;
        while !taken.insert(digits) {
            digits = digits.wrapping_add(1);
        }
        format!("{digits:04x}")
    };
    sources.iter().map(of).collect()
}
