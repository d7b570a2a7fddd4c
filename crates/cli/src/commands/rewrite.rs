//! `pteron rewrite`: a file written again, table by table or through the graph.

use crate::aside::{Aside, check_place};
use crate::failure::{Answer, Failure};
use crate::file::{Content, File};
use crate::rewrite;
use pteron_format::{Limits, WriteOptions, ptd};
use std::path::PathBuf;

/// Write a program again, byte-honest or through the graph
///
/// Without --through-graph every table and every payload stays what it was. With it each MLX payload is lifted to
/// a graph, verified, and emitted again with slots of its own: what a compiler pass would do, without the pass. With
/// --to mlx each XNNPACK or Vulkan payload is lifted and emitted as MLX bytecode; with --to portable each payload becomes
/// calls of ExecuTorch's portable kernels, which every build of its runtime has. What stands beside delegates stays.
/// Weights are streamed, the result lands by rename, and nothing is left behind if anything fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron rewrite model.pte copy.pte
  pteron rewrite model.pte again.pte --through-graph
  pteron rewrite xnnpack.pte mlx.pte --to mlx
  pteron rewrite xnnpack.pte plain.pte --to portable")]
pub(crate) struct Arguments {
    /// The .pte or .ptd file to read
    #[arg(value_name = "IN")]
    source: PathBuf,
    /// The file to write; may be IN itself
    #[arg(value_name = "OUT")]
    target: PathBuf,
    /// Lift, verify and emit every MLX payload
    #[arg(long)]
    through_graph: bool,
    /// Turn the payloads of delegates into this
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "through_graph")]
    to: Option<Form>,
}

/// What payloads can be turned into.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// MLX bytecode, which runs on Apple's GPUs too
    Mlx,
    /// Portable operators, which run on every build of ExecuTorch's runtime, slowly: packed weights are unpacked at each call
    Portable,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    // The source itself is a fair place: all of it has been read, and checked, before the result lands by rename.
    check_place(&arguments.target, &[])?;
    let file = File::open(&arguments.source)?;
    let in_source = |problem: String| Failure::in_file(&arguments.source, problem);
    let aside = match &file.content {
        Content::Pte(pte) => {
            let rewritten = match (arguments.to, arguments.through_graph) {
                (Some(Form::Mlx), _) => rewrite::to_mlx(pte, &Limits::own()),
                (Some(Form::Portable), _) => rewrite::to_portable(pte, &Limits::own()),
                (None, true) => rewrite::through_graph(pte, &Limits::own()),
                (None, false) => rewrite::as_it_is(pte),
            };
            let rewritten = rewritten.map_err(in_source)?;
            Aside::write(&arguments.target, |out| rewritten.write(out))?
        }
        Content::Ptd(_) if arguments.through_graph || arguments.to.is_some() => {
            return Err(in_source("external data has no graph; leave out --through-graph and --to".into()));
        }
        Content::Ptd(data) if !data.unknown_fields().is_empty() => {
            return Err(in_source(format!(
                "a newer exporter wrote fields that this version does not know and would lose ({})",
                data.unknown_fields().join(", ")
            )));
        }
        Content::Ptd(data) => Aside::write(&arguments.target, |out| {
            ptd::write(&data.tables.named_data, &data.segments(), &WriteOptions::default(), out).map(drop)
        })?,
        Content::Bpte(_) => {
            return Err(in_source("bundled programs are read, never written".into()));
        }
    };
    // What was mapped has been read to its end; if it changed under us, the copy is worth nothing.
    file.check_unchanged()?;
    aside.land()?;
    Ok(Answer::Yes)
}
