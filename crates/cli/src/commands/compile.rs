//! `pteron compile`: exported programs of PyTorch as one `.pte` program.

use crate::aside::check_place;
use crate::failure::{Answer, Failure};
use crate::output::{Output, count};
use clap::ValueEnum;
use pteron_format::{Limits, WriteOptions};
use pteron_import::compile::{
    self, Compiled, GgufLayout, Metadata, Method, MethodReport, Options, Packing, Portable, Quantization,
    Rule, Source, pipeline,
};
use pteron_import::pt2::{self, ExportedProgram};
use std::path::{Path, PathBuf};

/// Compile PyTorch exports (.pt2) to a program (.pte), without Python
///
/// FILE is what torch.export.save wrote. What the MLX delegate cannot express stays a portable operator between
/// delegates; --report lists each with its place in the source model and the reason. Weights are streamed from the
/// source, the result lands by rename, and nothing is left behind if anything fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron compile model.pt2 -o model.pte
  pteron compile model.pt2 -o model.pte --strict --report
  pteron compile model.pt2 -o model.pte --quantize 4w --group-size 64
  pteron compile encode=encoder.pt2 decode=decoder.pt2 -o speech.pte --share-buffers
  pteron compile model.pt2 -o model.pte --explain
  pteron compile model.pt2 -o model.pte --print-after rope")]
pub(crate) struct Arguments {
    /// Exported programs, each with the method that it becomes; without a name, the file's stem, and `model` is
    /// `forward`
    #[arg(value_name = "[NAME=]FILE", required = true)]
    sources: Vec<String>,
    /// The program to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Let no operator stay outside the delegate
    #[arg(long)]
    strict: bool,
    /// Buffers of equal name are one buffer of all methods
    #[arg(long)]
    share_buffers: bool,
    /// Delegate nothing, or nothing of these methods: portable operators only
    #[arg(long, value_name = "METHODS", conflicts_with = "strict")]
    #[arg(num_args = 0.., require_equals = true, value_delimiter = ',')]
    portable: Option<Vec<String>>,
    /// Pack linear and embedding weights: 2w, 3w, 4w, 5w, 6w, 8w, mxfp4, nvfp4 or mxfp8
    #[arg(long, value_name = "SCHEME")]
    quantize: Option<Packing>,
    /// Values that share a scale [default: 32; nvfp4 16]
    #[arg(long, value_name = "N", requires = "quantize")]
    group_size: Option<usize>,
    /// Pack modules that match otherwise, or not: PATTERN=SCHEME, PATTERN=SCHEME/GROUP or PATTERN=none; the first counts
    #[arg(long, value_name = "RULE")]
    rule: Vec<Rule>,
    /// How scales are chosen: minmax, or hqq with zero points
    #[arg(long, value_name = "METHOD", default_value = "minmax")]
    method: Method,
    /// GGUF weights: `exact` numbers, or `repacked` with scales rounded to the activations' dtype, as ExecuTorch does
    #[arg(long, value_enum, default_value_t = Gguf::Exact)]
    gguf: Gguf,
    /// A constant method that tells runners about the program, such as get_max_seq_len=2048; numbers, true or false
    #[arg(long, value_name = "NAME=VALUE")]
    metadata: Vec<String>,
    /// Print what became of each method: ops, operators left outside, with place and reason
    #[arg(long)]
    report: bool,
    /// Print what each pass took, and why it did not take more
    #[arg(long)]
    explain: bool,
    /// Print the graphs as they are after a pass, or after `lower`
    #[arg(long, value_name = "PASS")]
    print_after: Option<String>,
}

/// `--gguf`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gguf {
    Exact,
    Repacked,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    if let Some(stage) = &arguments.print_after
        && !pipeline::stages().any(|known| known == stage)
    {
        let known: Vec<&str> = pipeline::stages().collect();
        return Err(Failure::usage(format!("there is no pass `{stage}`"))
            .hint(format!("passes: {}", known.join(", "))));
    }
    let inputs: Vec<PathBuf> =
        arguments.sources.iter().map(|source| named_file(source).1.to_owned()).collect();
    check_place(&arguments.output, &inputs)?;
    let programs = read_all(&arguments.sources)?;
    let sources = programs.iter().map(|(name, program)| Source { name, program });
    let options = Options {
        strict: arguments.strict,
        share_buffers: arguments.share_buffers,
        portable: match &arguments.portable {
            None => Portable::None,
            Some(methods) if methods.is_empty() => Portable::All,
            Some(methods) => Portable::Methods(methods.clone()),
        },
        gguf: match arguments.gguf {
            Gguf::Exact => GgufLayout::Exact,
            Gguf::Repacked => GgufLayout::Repacked,
        },
        quantize: (arguments.quantize.is_some() || !arguments.rule.is_empty()).then(|| Quantization {
            scheme: arguments.quantize,
            group: arguments.group_size,
            rules: arguments.rule.clone(),
            method: arguments.method,
            ..Quantization::default()
        }),
        metadata: arguments.metadata.iter().map(|text| metadata(text)).collect::<Result<_, _>>()?,
        print_after: arguments.print_after.clone(),
    };
    let Compiled { writer, report } =
        compile::compile(&sources.collect::<Vec<_>>(), &options).map_err(Failure::new)?;
    for method in &report.methods {
        for (stage, text) in &method.trace.texts {
            out.line(format!("after {stage}, method {}:\n{text}", method.name))?;
        }
        if arguments.explain {
            for explained in &method.trace.remarks {
                let from =
                    explained.source.as_ref().map(|source| format!(" (from {source})")).unwrap_or_default();
                out.line(format!("{}: {}{from}", method.name, explained.remark))?;
            }
        }
    }
    let bytes = writer
        .write_file(&arguments.output, &WriteOptions::default())
        .map_err(|error| Failure::in_file(&arguments.output, error))?;
    if arguments.report {
        for method in &report.methods {
            print(method, out)?;
        }
        out.line(format!("{}: {}", arguments.output.display(), crate::output::size(bytes)))?;
    }
    Ok(Answer::Yes)
}

fn metadata(text: &str) -> Result<(String, Metadata), Failure> {
    let wrong = || Failure::usage(format!("`{text}` is not NAME=VALUE with a number, true or false"));
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let value = match (value.parse::<i64>(), value.parse::<bool>(), value.parse::<f64>()) {
        (Ok(value), ..) => Metadata::Int(value),
        (_, Ok(value), _) => Metadata::Bool(value),
        (.., Ok(value)) => Metadata::Double(value),
        _ => return Err(wrong()),
    };
    Ok((name.to_owned(), value))
}

/// `[NAME=]FILE`.
fn named_file(source: &str) -> (Option<&str>, &Path) {
    match source.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains(['/', '\\']) => {
            (Some(name), Path::new(path))
        }
        _ => (None, Path::new(source)),
    }
}

/// Reads every source; several programs of one archive are methods by their names in it.
fn read_all(sources: &[String]) -> Result<Vec<(String, ExportedProgram)>, Failure> {
    let mut programs = Vec::new();
    for source in sources {
        let (name, path) = named_file(source);
        let package = pt2::open(path, &Limits::own()).map_err(|error| Failure::in_file(path, error))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        match (package.programs(), name) {
            ([program], name) => {
                let stem = if stem == "model" { "forward".to_owned() } else { stem };
                programs.push((name.map_or(stem, str::to_owned), program.clone()));
            }
            (_, Some(_)) => {
                return Err(Failure::in_file(
                    path,
                    "it holds several programs, which have names of their own",
                )
                .hint(format!("give {} without a name", path.display())));
            }
            (all, None) => {
                programs.extend(all.iter().map(|program| (program.name().to_owned(), program.clone())))
            }
        }
    }
    Ok(programs)
}

fn print(method: &MethodReport, out: &mut Output) -> Result<(), Failure> {
    out.line(format!(
        "method {}: {}, {}, {}, {}",
        method.name,
        count(method.delegates.len(), "delegate"),
        count(method.ops(), "op"),
        count(method.portable.len(), "portable operator"),
        match method.copies {
            1 => "1 copy into state".to_owned(),
            copies => format!("{copies} copies into state"),
        }
    ))?;
    for (number, ops) in method.delegates.iter().enumerate() {
        let ops: Vec<String> = ops.iter().map(|(name, count)| format!("{name} {count}")).collect();
        out.line(format!("  delegate {number}: {}", ops.join(", ")))?;
    }
    for (pattern, taken) in method.taken() {
        let nodes =
            if taken.nodes == taken.times { String::new() } else { format!(", {} nodes", taken.nodes) };
        out.line(format!("  {pattern}: taken {}{nodes}", count(taken.times, "time")))?;
    }
    for outside in &method.portable {
        let at = outside.source_place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default();
        out.line(format!("  outside: {} for {}{at}: {}", outside.kernel, outside.place, outside.reason))?;
    }
    Ok(())
}
