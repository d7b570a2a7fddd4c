//! `pteron inspect`: what a file holds, takes, gives and needs.

use crate::engine::Engine;
use crate::failure::{Answer, Failure, in_format};
use crate::file::File;
use crate::inspect::{describe, pt2, render};
use crate::output::{Json, Output};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_runtime::{DataFile, Precision};
use std::path::{Path, PathBuf};

/// Show what a file holds, takes, gives and needs
///
/// For a program: methods with their inputs, outputs and bounds, delegates with their ops, metadata, weights, the
/// state of a session and the memory of a run. For a .ptd its entries, for a .bpte also its tests, for a .pt2 what
/// torch.export.save put into it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron inspect model.pte
  pteron inspect model.pte --graph | less
  pteron inspect model.pte --json | jq .memory")]
pub(crate) struct Arguments {
    /// A .pte, .ptd, .bpte or .pt2 file
    file: PathBuf,
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
    if pt2::recognises(&arguments.file) {
        if arguments.graph {
            return Err(Failure::usage("--graph shows programs; a .pt2 is not lowered to one yet"));
        }
        pt2::inspect(&arguments.file, arguments.json, out)?;
        return Ok(Answer::Yes);
    }
    let file = File::open(&arguments.file)?;
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
