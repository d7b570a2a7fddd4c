//! `pteron tokenize`: the tokens of a text, as a model's own tokenizer cuts it.

use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::file::{Content, File};
use crate::home;
use crate::output::{Align, Json, Output, Table, count};
use pteron::parts::find;
use pteron_llm::Voice;
use pteron_llm::tokenizer::{Ends, Tokenizer};
use pteron_registry::FileKind;
use pteron_runtime::Precision;
use serde::Serialize;
use std::io::Read;
use std::path::Path;

/// Longer texts are not read from standard input.
const LONGEST_TEXT: u64 = 256 << 20;

/// Show the tokens of a text
///
/// The tokenizer is the one that a program carries, that of a GGUF file, or a tokenizer file: tokenizer.json, tekken.json,
/// a SentencePiece or tiktoken model, or a folder that has one of them. MODEL may also be a name that `pteron list` shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron tokenize smollm2-135m 'Hello, world'
  pteron tokenize model.pte 'Hello, world'
  pteron tokenize model.gguf --ends 'Hello, world'
  pteron tokenize tokenizer.json - --json < book.txt")]
pub(crate) struct Arguments {
    /// A program (.pte), a GGUF file, a tokenizer file, a folder with one, or a name
    model: String,
    /// The text; `-` reads it from standard input
    text: String,
    /// Add the tokens that the tokenizer itself puts before and behind a text
    #[arg(long)]
    ends: bool,
    /// Print one JSON object: {"ids": [...], "pieces": [...]}
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Tokens {
    ids: Vec<u32>,
    /// What each token adds to the text; bytes that are no whole character are U+FFFD.
    pieces: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let tokenizer = tokenizer(&arguments.model)?;
    let text = match arguments.text.as_str() {
        "-" => {
            let mut text = String::new();
            let read = std::io::stdin().take(LONGEST_TEXT).read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("cannot read the text from standard input: {error}")))?;
            text
        }
        text => text.to_owned(),
    };
    let ends = if arguments.ends { Ends::AsConfigured } else { Ends::None };
    let ids = tokenizer.encode(&text, ends).map_err(Failure::new)?;
    let piece = |id: &u32| String::from_utf8_lossy(&tokenizer.bytes_of(*id).unwrap_or_default()).into_owned();
    let tokens = Tokens { pieces: ids.iter().map(piece).collect(), ids };
    if arguments.json {
        out.json(&tokens, Json::OneLine)?;
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(&[Align::Right, Align::Left]);
    for (id, piece) in tokens.ids.iter().zip(&tokens.pieces) {
        table.row([id.to_string(), format!("{piece:?}")]);
    }
    if !tokens.ids.is_empty() {
        out.line(table.render(0))?;
    }
    out.line(count(tokens.ids.len(), "token"))?;
    Ok(Answer::Yes)
}

/// The tokenizer of whatever lies at a path or has a name.
fn tokenizer(model: &str) -> Result<Tokenizer, Failure> {
    let path = Path::new(model);
    if path.exists() || find::looks_like_a_path(model) {
        let ends_in = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
        let is_program = ends_in("pte") || ends_in("bpte");
        return if is_program { inside(path) } else { Tokenizer::open(path).map_err(Failure::new) };
    }
    let options = Engine::default().options(Precision::Exact)?;
    match home::find(&options, |finder| finder.source(model))? {
        (program, FileKind::Pte) => inside(&program),
        (_, FileKind::Pt | FileKind::Nemo | FileKind::Safetensors) => {
            Err(Failure::usage(format!("{model} brings no tokenizer of its own"))
                .hint("make a program of it with `pteron export`, and name that"))
        }
        (published, FileKind::Gguf | FileKind::Folder) => Tokenizer::open(&published).map_err(Failure::new),
    }
}

/// The tokenizer that a program carries.
fn inside(path: &Path) -> Result<Tokenizer, Failure> {
    let file = File::open(path)?;
    let pte = match &file.content {
        Content::Pte(pte) => pte,
        Content::Bpte(bpte) => &bpte.pte,
        Content::Ptd(_) => return Err(Failure::in_file(path, "external data has no tokenizer")),
    };
    let tokenizer = Voice::tokenizer_inside(pte).map_err(|error| Failure::in_file(path, error))?;
    tokenizer.ok_or_else(|| {
        Failure::in_file(path, "the program carries no tokenizer")
            .hint("name the tokenizer's own file instead")
    })
}
