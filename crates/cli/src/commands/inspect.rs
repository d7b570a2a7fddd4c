//! `pteron inspect`: what a file holds, takes, gives and needs.

use crate::engine::Engine;
use crate::failure::{Answer, Failure, in_format};
use crate::file::File;
use crate::form::{self, Form, Wanted};
use crate::home;
use crate::inspect::{checkpoint, describe, pt2, render};
use crate::output::{Json, Output};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_runtime::{DataFile, Precision};
use std::path::{Path, PathBuf};

/// Show what a file holds, takes, gives and needs
///
/// For a program: methods with their inputs, outputs and bounds, delegates with their ops, metadata, weights, the
/// state of a session and the memory of a run. For a .ptd its entries, for a .bpte also its tests, for a .pt2 what
/// torch.export.save put into it, for a GGUF file or a checkpoint folder its architecture, sizes and tensors.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron inspect model.pte
  pteron inspect model.pte --graph | less
  pteron inspect model-Q4_K_M.gguf
  pteron inspect smollm2-135m
  pteron inspect model.pte --json | jq .memory")]
pub(crate) struct Arguments {
    /// A .pte, .ptd, .bpte, .pt2 or GGUF file, a checkpoint folder, or a name that `pteron list` shows
    file: String,
    /// Print the graph of every delegate too, in text form
    #[arg(long)]
    graph: bool,
    /// Print one JSON object (shape: docs/json.md)
    #[arg(long)]
    json: bool,
    /// External weights that the program needs; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    engine: Engine,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let options = arguments.engine.options(Precision::Exact)?;
    let path = home::find(&options, |finder| finder.published(&arguments.file))?;
    let source = match form::check(&path, Wanted::Known)? {
        Form::Archive => Some(pt2::inspect as fn(&Path, bool, &mut Output) -> Result<(), Failure>),
        Form::Gguf | Form::Folder => Some(checkpoint::inspect as _),
        _ => None,
    };
    if let Some(inspect) = source {
        if arguments.graph {
            return Err(Failure::usage("--graph shows programs; this is what one is made from")
                .hint("`pteron compile` (.pt2) and `pteron export` (checkpoints) make a program"));
        }
        inspect(&path, arguments.json, out)?;
        return Ok(Answer::Yes);
    }
    let file = File::open(&path)?;
    let data = arguments.data.iter().map(|path| read_data(path)).collect::<Result<Vec<_>, _>>()?;
    let overview = describe(&file, &data, &options, arguments.graph);
    file.check_unchanged()?;
    match arguments.json {
        true => out.json(&overview, Json::Indented)?,
        false => render(&overview, out)?,
    }
    Ok(Answer::Yes)
}

/// A `.ptd` that goes with a program.
pub(super) fn read_data(path: &Path) -> Result<DataFile, Failure> {
    let file = MappedFile::open(path, &Limits::own()).map_err(|error| in_format(path, error))?;
    Ok(DataFile { name: path.display().to_string(), bytes: file.to_bytes() })
}
