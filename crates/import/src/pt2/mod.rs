//! `.pt2` archives: what `torch.export.save` writes, read without Python.
//!
//! A file flows in, a [`Package`] of verified [`ExportedProgram`]s flows out: typed graph, signature, ranges
//! and weights that borrow the file. Torch 2.13 to 2.15 write schema 8.20, the one that is known here.
//! Nothing in an archive is trusted and nothing in it is called; example inputs, extra files and compiled
//! code are left alone. What operators mean is not known here.

pub mod archive;
pub mod argument;
mod error;
pub mod expr;
pub mod json;
mod pickle;
mod rebuild;
mod saved;
pub mod schema;
mod tensor;
mod verify;
mod weights;

pub(crate) use error::clip;
pub use error::{Pt2Error, Result};
pub use saved::Saved;
pub use tensor::StridedTensor;
pub use weights::{Attribute, Subclass, SubclassKind, Weight};

use archive::Archive;
use argument::SymInt;
use expr::Interval;
use json::Named;
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_tensor::Bytes;
use schema::{CallSignature, Graph, Program, RangeConstraint, SchemaVersion, Signature};
use std::path::Path;

const MODELS: &str = "models/";
const WEIGHTS: &str = "data/weights/";
const CONSTANTS: &str = "data/constants/";

/// Everything that an archive holds for us.
#[derive(Clone, Debug)]
pub struct Package {
    programs: Vec<ExportedProgram>,
}

/// Opens an archive; large ones are mapped, and what is read from them borrows the mapping.
pub fn open(path: &Path, limits: &Limits) -> Result<Package> {
    read(MappedFile::open(path, limits)?.to_bytes(), limits)
}

/// Reads an archive and verifies every program in it.
pub fn read(bytes: Bytes, limits: &Limits) -> Result<Package> {
    let archive = Archive::read("archive", bytes, limits)?;
    if archive.members().any(|(name, _)| name.ends_with("serialized_exported_program.json")) {
        return Err(Pt2Error::archive(
            "archive",
            "torch before 2.8 wrote it; save the program again with torch 2.13",
        ));
    }
    let root = archive.root("archive_format")?;
    expect_text(&archive, &root, "archive_format", b"pt2")?;
    expect_text(&archive, &root, "archive_version", b"0")?;
    weights::check_byte_order(&archive, &root)?;
    let folder = format!("{root}{MODELS}");
    let names = archive.members().filter_map(|(member, _)| {
        let name = member.strip_prefix(&folder)?.strip_suffix(".json")?;
        (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
    });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(Pt2Error::Missing { member: format!("{MODELS}model.json") });
    }
    let programs = names.into_iter().map(|name| ExportedProgram::read(&archive, &root, name, limits));
    Ok(Package { programs: programs.collect::<Result<_>>()? })
}

fn expect_text(archive: &Archive, root: &str, member: &str, wanted: &[u8]) -> Result<()> {
    let found = archive.get(&format!("{root}{member}"));
    let found = found.ok_or_else(|| Pt2Error::Missing { member: member.to_owned() })?;
    match found.trim_ascii() == wanted {
        true => Ok(()),
        false => Err(Pt2Error::member(
            member,
            format!(
                "`{}` is found where `{}` is known",
                found[..found.len().min(40)].escape_ascii(),
                wanted.escape_ascii()
            ),
        )),
    }
}

impl Package {
    /// Whether a file begins as archives do. Others begin the same way: reading says more.
    pub fn recognises(bytes: &[u8]) -> bool {
        Archive::recognises(bytes)
    }

    /// Every program, in the order of the archive. `torch.export.save` writes one, named `model`.
    pub fn programs(&self) -> &[ExportedProgram] {
        &self.programs
    }

    /// A program by name.
    pub fn program(&self, name: &str) -> Option<&ExportedProgram> {
        self.programs.iter().find(|program| program.name == name)
    }
}

/// A program as torch exported it, verified.
#[derive(Clone, Debug)]
pub struct ExportedProgram {
    name: String,
    program: Program,
    weights: Named<Weight>,
    constants: Named<Weight>,
}

impl ExportedProgram {
    fn read(archive: &Archive, root: &str, name: String, limits: &Limits) -> Result<ExportedProgram> {
        let member = format!("{MODELS}{name}.json");
        let text = archive.get(&format!("{root}{member}"));
        let text = text.ok_or_else(|| Pt2Error::Missing { member: member.clone() })?;
        let program = Program::parse(&member, &text, limits)?;
        let weights = weights::read(archive, root, WEIGHTS, &format!("{name}_weights_config.json"), limits)?;
        let constants =
            weights::read(archive, root, CONSTANTS, &format!("{name}_constants_config.json"), limits)?;
        let program = ExportedProgram { name, program, weights, constants };
        verify::verify(&program, limits)?;
        Ok(program)
    }

    /// Its name in the archive.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.program.graph_module.graph
    }

    /// What the graph's inputs and outputs are to the model.
    pub fn signature(&self) -> &Signature {
        &self.program.graph_module.signature
    }

    /// How Python calls the program, where that was kept.
    pub fn call_signature(&self) -> Option<&CallSignature> {
        let calls = &self.program.graph_module.module_call_graph;
        calls.iter().find(|call| call.fqn.is_empty())?.signature.as_ref()
    }

    /// Bounds by symbol.
    pub fn ranges(&self) -> &Named<RangeConstraint> {
        &self.program.range_constraints
    }

    /// The least and the largest value of a size, where there is one.
    pub fn interval(&self, size: &SymInt) -> Interval {
        match size {
            SymInt::Int(value) => (Some(*value), Some(*value)),
            SymInt::Expr(size) => size.expr.interval(&|symbol| {
                let range = self.ranges().get(symbol);
                range.map_or((None, None), |range| (range.min_val, range.max_val))
            }),
        }
    }

    /// Version of the schema.
    pub fn schema_version(&self) -> SchemaVersion {
        self.program.schema_version
    }

    /// Version of each operator namespace.
    pub fn opset_version(&self) -> &Named<i64> {
        &self.program.opset_version
    }

    /// The torch that wrote it, such as `2.15.0+cu132`.
    pub fn torch_version(&self) -> &str {
        &self.program.torch_version
    }

    /// `TRAINING` straight from export, `ATEN` after decomposition.
    pub fn dialects(&self) -> &[String] {
        &self.program.verifiers
    }

    /// Conditions on the inputs as Python text, for people to read.
    pub fn guards(&self) -> &[String] {
        &self.program.guards_code
    }

    /// Parameters and persistent buffers by name.
    pub fn weights(&self) -> &Named<Weight> {
        &self.weights
    }

    /// Constants, buffers that are not persistent, and objects by name.
    pub fn constants(&self) -> &Named<Weight> {
        &self.constants
    }

    /// What an input spec is bound to: a weight, else a constant.
    pub fn weight(&self, name: &str) -> Option<&Weight> {
        self.weights.get(name).or_else(|| self.constants.get(name))
    }
}
