//! `pteron export`: a published model as one `.pte` program.

use crate::aside::check_place;
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::form::{self, Wanted};
use crate::home;
use crate::output::{Align, Output, Table, complain, count, size};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use pteron::parts::SPEECH_SCHEME;
use pteron_checkpoint::{Checkpoint, CheckpointError, Export, ExportOptions, Progress, gguf};
use pteron_models::{Handling, KvCache, Logits, Method, Packing, Quantization, Rule, WeightReport};
use pteron_runtime::Precision;
use pteron_tensor::DType;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::str::FromStr;

/// Export a published model (Hugging Face folder, GGUF, OpenAI's Whisper, NVIDIA's Parakeet) as a program (.pte)
///
/// Tokenizer, chat template, generation_config.json and provenance travel inside, so that `pteron run --model model.pte`
/// needs no other file.
/// Weights are streamed tensor by tensor, the result lands by rename, and the same input gives the same bytes. Weights
/// that come quantised (MLX, torchao, GPTQ, AWQ, compressed-tensors, GGUF) are taken as they are unless --quantize asks for something else.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron export SmolLM2-135M-Instruct -o smollm2.pte
  pteron export Llama-3.2-1B -o llama.pte --quantize 4w --group-size 64 --report
  pteron export Qwen3-8B -o qwen.pte --quantize 4w --rule 'lm_head=8w' --rule 'model.embed_tokens=8w'
  pteron export model-Q4_K_M.gguf -o model.pte --for executorch --context 8192
  pteron export Qwen3-8B -o qwen.pte --quantize 4w --batched
  pteron export smollm2-135m -o smollm2.pte
  pteron export tiny.en.pt -o whisper.pte
  pteron export Llama-3.2-1B -o mine.pte --adapter my-lora --quantize 4w

Architectures: Llama 2 and 3, Mistral, SmolLM2, TinyLlama, Qwen 2, 2.5 and 3, Gemma 3 and 4, Qwen2.5-VL and Qwen3-VL
(text and images), Whisper, Parakeet and Voxtral (for `pteron transcribe`).")]
pub(crate) struct Arguments {
    /// Hugging Face folder (config.json with safetensors), a GGUF file, a Whisper of OpenAI's (.pt), a Parakeet of NVIDIA's (.nemo), a name that `pteron list` shows, or a repository of the Hugging Face hub (`ORG/REPOSITORY`)
    source: String,
    /// The program to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What activations and caches are kept in
    ///
    /// [default: bf16; f32 for speech]
    #[arg(long, value_enum, value_name = "DTYPE")]
    activations: Option<Activations>,
    /// Quantise matrices: 2w, 3w, 4w, 5w, 6w, 8w, mxfp4, nvfp4, mxfp8 or none [default: none; 8w for speech]
    #[arg(long, value_name = "SCHEME")]
    quantize: Option<Scheme>,
    /// Values that share a scale: 32, 64 or 128
    #[arg(long, value_name = "N")]
    group_size: Option<usize>,
    /// How scales are chosen: minmax or hqq
    #[arg(long, value_name = "METHOD", default_value = "minmax")]
    method: Method,
    /// Another scheme for modules by name, such as 'model.layers.*.mlp.*=4w/64' or 'lm_head=none'; the first that fits
    /// counts
    #[arg(long, value_name = "GLOB=SCHEME")]
    rule: Vec<Rule>,
    /// Positions of a session [default: what the model was made for, up to 4096]
    ///
    /// Caches in the graph have so many, and every session takes memory for all of them. A session's own cache grows with the
    /// text, and `run --context` may ask for more, up to what the model was made for.
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Tokens of the largest input [default: 512]
    ///
    /// Models with longrope have two lists of factors: a text that ends within the context of the first training is turned
    /// by the short list, one that ends beyond it by the long list. `run`, `chat` and `perplexity` tell the program how long
    /// a prompt is (its buffer `text_length`); other runners may, or give the whole prompt as one input.
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Whose runner shall run it: ExecuTorch's own gives the position as a tensor and wants caches in the graph
    #[arg(long = "for", value_enum, value_name = "RUNTIME", default_value_t = Target::Pteron)]
    target: Target,
    /// Where keys and values are kept: in the session's cache, which grows with use, or in buffers of the graph
    /// [default: off-graph; for executorch in-graph]
    #[arg(long, value_enum, value_name = "WHERE")]
    kv: Option<Kv>,
    /// Take tokens of several sessions in one call, so that prompts and answers share it: a position for each token, and
    /// the numbers of the rows that want logits. ExecuTorch's runners of batches take such programs too
    #[arg(long, conflicts_with_all = ["kv", "all_logits"])]
    batched: bool,
    /// Take the numbers of the tokens whose logits are wanted as a third input, where --for executorch would give those of
    /// the last token; programs for pteron always do
    #[arg(long)]
    all_logits: bool,
    /// Store only what every runtime of the format can run; what is not that is requantised
    #[arg(long)]
    portable: bool,
    /// An adapter (LoRA: a folder with adapter_config.json and adapter_model.safetensors) to add to the weights
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Print what became of each matrix: scheme, error, bytes before and after
    #[arg(long)]
    report: bool,
}

/// `--quantize`: a scheme, or the word that there shall be none.
#[derive(Clone, Copy, Debug)]
struct Scheme(Option<Packing>);

impl FromStr for Scheme {
    type Err = pteron_models::PackingError;

    fn from_str(text: &str) -> Result<Scheme, Self::Err> {
        if text == "none" { Ok(Scheme(None)) } else { text.parse().map(|scheme| Scheme(Some(scheme))) }
    }
}

/// `--activations`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Activations {
    Bf16,
    F16,
    F32,
}

/// `--for`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    Pteron,
    Executorch,
}

/// `--kv`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kv {
    InGraph,
    OffGraph,
}

impl Arguments {
    fn options(&self, checkpoint: &Checkpoint) -> Result<ExportOptions, Failure> {
        let usual = match self.target {
            _ if self.batched => ExportOptions::batched(),
            Target::Pteron => ExportOptions::default(),
            Target::Executorch => ExportOptions::for_executorch(),
        };
        let speaks = checkpoint.speech.is_some();
        let scheme = match (self.quantize, speaks && self.rule.is_empty()) {
            (Some(Scheme(scheme)), _) => scheme,
            // Small speech models lose words in 4 bits, and nothing in 8.
            (None, true) => Some(SPEECH_SCHEME.parse().map_err(Failure::new)?),
            (None, false) => None,
        };
        Ok(ExportOptions {
            activations: match self.activations {
                Some(Activations::Bf16) => DType::BF16,
                Some(Activations::F16) => DType::F16,
                Some(Activations::F32) => DType::F32,
                None if speaks => DType::F32,
                None => DType::BF16,
            },
            quantization: Quantization {
                scheme,
                group: self.group_size,
                rules: self.rule.clone(),
                method: self.method,
                portable: self.portable,
            },
            context: self.context,
            chunk: self.chunk,
            kv: match self.kv {
                Some(Kv::InGraph) => KvCache::InGraph,
                Some(Kv::OffGraph) => KvCache::OffGraph,
                None => usual.kv,
            },
            position: usual.position,
            logits: if self.all_logits { Logits::Selected } else { usual.logits },
        })
    }

    /// Options that would be passed over in silence.
    fn check(&self) -> Result<(), Failure> {
        let quantises = self.quantize.is_some_and(|Scheme(scheme)| scheme.is_some())
            || self.rule.iter().any(|rule| rule.scheme.is_some());
        let idle = match (self.group_size, self.method) {
            _ if quantises => return Ok(()),
            (Some(_), _) => "--group-size",
            (None, Method::Hqq) if !self.portable => "--method",
            (None, Method::Hqq | Method::MinMax) => return Ok(()),
        };
        Err(Failure::usage(format!("`{idle}` says how matrices are quantised, and nothing asks for that"))
            .hint("add `--quantize 4w`, or a `--rule`"))
    }
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    arguments.check()?;
    let options = Engine::default().options(Precision::Exact)?;
    let source = home::find(&options, |finder| finder.published(&arguments.source))?;
    let mut read = gguf::files(&source);
    read.extend(arguments.adapter.clone());
    check_place(&arguments.output, &read)?;
    form::check(&source, Wanted::Checkpoint)?;
    let failure = |error| failure(error).naming(&source, &arguments.source);
    let checkpoint = match &arguments.adapter {
        Some(adapter) => Checkpoint::open_adapted(&source, adapter),
        None => Checkpoint::open(&source),
    };
    let checkpoint = checkpoint.map_err(failure)?;
    let export = Export::new(&checkpoint, &arguments.options(&checkpoint)?).map_err(failure)?;
    let bar = bar(export.weight_bytes());
    let mut show = |progress: Progress| bar.set_position(progress.written);
    let bytes = export.write_file(&arguments.output, &mut show).map_err(failure)?;
    bar.finish_and_clear();
    for remark in export.remarks() {
        complain(&format!("note: {remark}\n"));
    }
    if arguments.report {
        report(&export.reports(), out)?;
    }
    let (origin, options) = (&checkpoint.origin, export.options());
    out.line(format!(
        "{}: {}, from {} in {} of {} ({})",
        arguments.output.display(),
        size(bytes),
        size(origin.bytes()),
        count(origin.files.len(), "file"),
        origin.name,
        origin.architecture,
    ))?;
    let longer = options.session_context.filter(|&context| context < options.context);
    out.line(format!(
        "context {}{}, inputs of up to {} tokens, {} activations, {} tokenizer, {} chat template",
        options.session_context.unwrap_or(options.context),
        longer.map_or_else(String::new, |_| format!(" (up to {} when it runs)", options.context)),
        options.chunk,
        options.activations,
        if checkpoint.tokenizer.is_some() { "with" } else { "no" },
        if checkpoint.chat_templates.default.is_some() { "with" } else { "no" },
    ))?;
    Ok(Answer::Yes)
}

fn report(reports: &[WeightReport], out: &mut Output) -> Result<(), Failure> {
    let mut table =
        Table::new(&[Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Right]);
    table.row(["matrix", "stored as", "rms error", "largest", "before", "after"]);
    for report in reports {
        let (packing, rms, largest) = match report.handling {
            Handling::Kept(packing) => (packing, "0".to_owned(), "0".to_owned()),
            Handling::Quantised(packing, deviation) => (
                packing,
                format!("{:.2} %", deviation.relative_rms * 100.0),
                format!("{:.2e}", deviation.largest),
            ),
        };
        let before = report.bytes_before.map_or_else(String::new, size);
        let after = size(report.bytes_after);
        table.row([&report.name, &packing.to_string(), &rms, &largest, &before, &after]);
    }
    if reports.is_empty() { out.line("no matrix is packed") } else { out.section("matrices", &table) }
}

/// The message, with what would help where the error itself does not say.
fn failure(error: CheckpointError) -> Failure {
    let hint = match &error {
        CheckpointError::Architecture { .. } => {
            Some("`pteron compile model.pt2` takes any model that torch.export can save")
        }
        CheckpointError::Weight(_) => Some("compare the folder with its source: a file may be missing"),
        _ => None,
    };
    let failure = Failure::new(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// A bar on standard error; hidden where that is no terminal.
fn bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
