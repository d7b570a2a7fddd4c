//! Programs of speech models, told by their methods, with the tokenizers that they carry or that lie beside them.

use super::{Kind, Transcriber};
use crate::carried;
use crate::error::{Error, Lack, Reason, Result};
use crate::located::Located;
use crate::options::OpenOptions;
use crate::progress::Event;
use pteron_companion::{Speech, WhisperTokens};
use pteron_llm::tokenizer::Tokenizer;
use pteron_runtime::{Options, Program};
use pteron_speech::SpeechError;
use pteron_speech::parakeet::ParakeetProgram;
use pteron_speech::realtime::RealtimeProgram;
use pteron_speech::voxtral::VoxtralProgram;
use pteron_speech::whisper::WhisperProgram;
use std::path::Path;

/// The programs of ExecuTorch's export, in the order of their use.
const PARTS: [&str; 3] = ["encoder.pte", "cross_kv.pte", "decoder.pte"];
/// Where its export puts the tokenizer.
const PROCESSOR: &str = "processor";
/// What it is called there, or beside a program.
const TOKENIZERS: [&str; 3] = ["tokenizer.json", "tokenizer.model", "tekken.json"];

impl Kind {
    fn whisper(program: WhisperProgram) -> Kind {
        Kind::Whisper(Box::new(program))
    }

    fn parakeet(program: ParakeetProgram) -> Kind {
        Kind::Parakeet(Box::new(program))
    }

    fn realtime(program: RealtimeProgram) -> Kind {
        Kind::Realtime(Box::new(program))
    }

    fn voxtral(program: VoxtralProgram) -> Kind {
        Kind::Voxtral(Box::new(program))
    }
}

/// Three programs, each with a `forward`.
pub(super) fn parts(folder: &Path, options: &OpenOptions, runtime: &Options) -> Result<Transcriber> {
    let name = folder.display().to_string();
    let open = |part: &str| Program::open(&folder.join(part), &[], runtime);
    let programs = PARTS.iter().map(|part| open(part)).collect::<Result<Vec<_>, _>>()?;
    let beside = [folder.join(PROCESSOR), folder.to_owned()];
    let beside = beside.iter().map(|folder| folder.join("tokenizer.json")).find(|file| file.is_file());
    let path = options.tokenizer.as_deref().or(beside.as_deref());
    let tokenizer = carried::tokenizer(path.ok_or_else(|| Error::lacks(&name, Lack::Tokenizer))?)?;
    let program =
        WhisperProgram::new(&programs, None, named(&tokenizer)).map_err(|error| no_speech(folder, error))?;
    Ok(Transcriber { name, program: Kind::whisper(program), tokenizer, voices: None })
}

/// One program with all methods.
pub(super) fn whole(found: &Located, options: &OpenOptions, runtime: &Options) -> Result<Transcriber> {
    options.cancel.check()?;
    options.progress.tell(Event::Loading);
    let path = &*found.program;
    let pte = found.pte()?;
    let info = carried::speech(path, &pte)?;
    let program = found.load(runtime)?;
    let is_parakeet = ParakeetProgram::recognises(&program);
    let is_voxtral = VoxtralProgram::recognises(&program);
    let is_realtime = RealtimeProgram::recognises(&program);
    if !is_parakeet && !is_voxtral && !is_realtime && program.method("encoder").is_err() {
        let message = format!("{}: {}: it has no method `encoder`", path.display(), Lack::Speech);
        return Err(Error::Unsupported(Reason::new(message).by(Lack::Speech)));
    }
    // ExecuTorch's exporters put it beside a program that says nothing of itself.
    let beside = || TOKENIZERS.iter().map(|name| path.with_file_name(name)).find(|file| file.is_file());
    let beside = if info.is_none() && found.bytes.is_none() { beside() } else { None };
    let given = options.tokenizer.as_deref().or(beside.as_deref()).map(carried::tokenizer).transpose()?;
    let (voice, _) = carried::voice(&pte, given)?;
    let tokenizer = voice.ok_or_else(|| Error::lacks(&found.name, Lack::Tokenizer))?.tokenizer;
    let program = match info {
        Some(Speech::Parakeet(info)) => ParakeetProgram::new(&program, Some(info)).map(Kind::parakeet),
        Some(Speech::Whisper(info)) => WhisperProgram::new(&[program], Some(info), None).map(Kind::whisper),
        Some(Speech::Voxtral(info)) => VoxtralProgram::new(&program, Some(info)).map(Kind::voxtral),
        Some(Speech::Realtime(info)) => RealtimeProgram::new(&program, Some(info)).map(Kind::realtime),
        None if is_realtime => RealtimeProgram::new(&program, None).map(Kind::realtime),
        None if is_parakeet => ParakeetProgram::new(&program, None).map(Kind::parakeet),
        None if is_voxtral => VoxtralProgram::new(&program, None).map(Kind::voxtral),
        None => WhisperProgram::new(&[program], None, named(&tokenizer)).map(Kind::whisper),
    };
    let program = program.map_err(|error| no_speech(path, error))?;
    Ok(Transcriber { name: found.name.clone(), program, tokenizer, voices: None })
}

fn no_speech(path: &Path, error: SpeechError) -> Error {
    Error::Unsupported(Reason::new(format_args!("{}: {error}", path.display())).by(error))
}

/// Whether a folder has the programs of ExecuTorch's export.
pub(super) fn has_parts(folder: &Path) -> bool {
    PARTS.iter().all(|part| folder.join(part).is_file())
}

/// Whisper's marks, where a vocabulary names them.
fn named(tokenizer: &Tokenizer) -> Option<WhisperTokens> {
    WhisperTokens::named(|name| tokenizer.id_of(name))
}
