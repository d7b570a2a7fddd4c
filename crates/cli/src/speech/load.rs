//! A speech model by path or name: one program of ours, or a folder of ExecuTorch's with its three programs and the
//! tokenizer beside them.

use crate::commands::export::SPEECH_SCHEME;
use crate::failure::Failure;
use crate::file::{Content, File};
use crate::talk::find::{self, Located, Wanted};
use pteron_companion::{SPEECH, Speech, Whisper};
use pteron_llm::Voice;
use pteron_llm::tokenizer::Tokenizer;
use pteron_registry::Export;
use pteron_runtime::{Options, Program};
use pteron_speech::voice::Silero;
use pteron_speech::whisper::WhisperProgram;
use std::io::Read;
use std::path::Path;

/// The programs of ExecuTorch's export, in the order of their use.
const PARTS: [&str; 3] = ["encoder.pte", "cross_kv.pte", "decoder.pte"];
/// Where its export puts the tokenizer.
const PROCESSOR: &str = "processor";

/// The name of the network that hears voices.
const VOICES: &str = "silero-vad";
/// Larger than its file.
const LARGEST_VOICES: u64 = 16 << 20;

/// A model that can be run.
pub(crate) struct SpeechModel {
    pub(crate) program: WhisperProgram,
    pub(crate) tokenizer: Tokenizer,
}

/// Finds a model and loads it.
pub(crate) fn load(model: &str, tokenizer: Option<&Path>, options: &Options) -> Result<SpeechModel, Failure> {
    let folder = Path::new(model);
    if PARTS.iter().all(|part| folder.join(part).is_file()) {
        return parts(folder, tokenizer, options);
    }
    let export = Export {
        quantize: Some(SPEECH_SCHEME.to_owned()),
        activations: Some("f32".to_owned()),
        ..Export::default()
    };
    let open = |found: &Located| whole(found, tokenizer, options).map_err(|failure| found.named(failure));
    let found = find::program_exported(Some(model), &export, &Wanted::default(), options)?;
    match open(&found) {
        // A conversion that was damaged is made again, once.
        Err(_) if found.mend()? => {
            open(&find::program_exported(Some(model), &export, &Wanted::default(), options)?)
        }
        opened => opened,
    }
}

/// Three programs, each with a `forward`.
fn parts(folder: &Path, tokenizer: Option<&Path>, options: &Options) -> Result<SpeechModel, Failure> {
    let open = |part: &str| Program::open(&folder.join(part), &[], options);
    let programs = PARTS.iter().map(|part| open(part)).collect::<Result<Vec<_>, _>>()?;
    let beside = [folder.join(PROCESSOR), folder.to_owned()];
    let beside = beside.iter().map(|folder| folder.join("tokenizer.json")).find(|file| file.is_file());
    let path = tokenizer.or(beside.as_deref()).ok_or_else(|| no_tokenizer(&folder.display().to_string()))?;
    let tokenizer = Tokenizer::open(path).map_err(Failure::new)?;
    let program = WhisperProgram::new(&programs, None).map_err(|error| Failure::in_file(folder, error))?;
    Ok(SpeechModel { program, tokenizer })
}

/// One program with all methods.
fn whole(found: &Located, tokenizer: Option<&Path>, options: &Options) -> Result<SpeechModel, Failure> {
    let path = &*found.program;
    let (info, inside) = inside(path)?;
    let program = Program::open(path, &found.data(), options)?;
    if program.method("encoder").is_err() {
        return Err(Failure::in_file(path, "it is no speech model: it has no method `encoder`")
            .hint("`pteron list` shows those that have a name; `pteron export` makes one of a Whisper"));
    }
    let tokenizer = match tokenizer {
        Some(path) => Some(Tokenizer::open(path).map_err(Failure::new)?),
        None => inside,
    };
    let tokenizer = tokenizer.ok_or_else(|| no_tokenizer(&found.name))?;
    let program = WhisperProgram::new(&[program], info).map_err(|error| Failure::in_file(path, error))?;
    Ok(SpeechModel { program, tokenizer })
}

/// What a program says of itself as a speech model, and the tokenizer that it carries.
fn inside(path: &Path) -> Result<(Option<Whisper>, Option<Tokenizer>), Failure> {
    let file = File::open(path)?;
    let pte = match &file.content {
        Content::Pte(pte) => pte,
        Content::Bpte(bundle) => &bundle.pte,
        Content::Ptd(_) => return Err(Failure::in_file(path, "external data, not a program")),
    };
    let info = match pte.named(SPEECH) {
        None => None,
        Some(json) => match serde_json::from_slice(&json) {
            Ok(Speech::Whisper(info)) => Some(info),
            Err(error) => return Err(Failure::in_file(path, format!("{SPEECH}: {error}"))),
        },
    };
    let tokenizer = Voice::tokenizer_inside(pte).map_err(|error| Failure::in_file(path, error))?;
    Ok((info, tokenizer))
}

/// The network that hears voices; fetched the first time.
pub(crate) fn voices(options: &Options) -> Result<Silero, Failure> {
    let (path, _) = find::source(VOICES, options)?;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).and_then(|file| file.take(LARGEST_VOICES).read_to_end(&mut bytes));
    file.map_err(|error| Failure::in_file(&path, error))?;
    Silero::read(&bytes).map_err(|error| Failure::in_file(&path, error))
}

fn no_tokenizer(name: &str) -> Failure {
    Failure::usage(format!("{name} carries no tokenizer")).hint("name one with `--tokenizer FILE`")
}
