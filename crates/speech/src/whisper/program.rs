//! The engine over programs: `encoder`, `cross_kv` and `decoder`, as methods of one file or as three files with a `forward`
//! each, as ExecuTorch's exporter for MLX writes them; or `encoder` and a `text_decoder` that looks at the hidden states themselves, token
//! by token, as its exporters for other delegates do.

use pteron_companion::{Whisper, WhisperTokens};
use pteron_runtime::{Program, RunControl, Value};
use pteron_tensor::{DType, HostTensor};

use super::Engine;
use super::words::Scores;
use crate::part::{Part, Position, Side, dims, floats, tensor, unlike, wrong};
use crate::{Result, SpeechError};

/// The methods that one file has.
const METHODS: [&str; 3] = ["encoder", "cross_kv", "decoder"];
/// The method of one file that word times need.
const ALIGNMENT: &str = "alignment";
/// The method that takes what the encoder gives as it is.
const CLASSIC: &str = "text_decoder";
/// The method of a file of its own.
const FORWARD: &str = "forward";

/// A Whisper that can be run.
pub struct WhisperProgram {
    encoder: Part,
    /// What makes keys and values of the sound, where the decoder does not do it itself.
    cross: Option<Part>,
    decoder: Part,
    /// Where the program has it.
    alignment: Option<Part>,
    info: Whisper,
    /// Tokens of one call.
    chunk: usize,
    vocabulary: usize,
    features: DType,
    /// What the decoder takes: tokens, keys and values of the sound, and at this place the position.
    inputs: Vec<Value>,
    position: usize,
    outputs: Vec<Value>,
}

impl WhisperProgram {
    /// A program with all methods, or three programs in the order of their use. What they do not say of themselves is told by the sizes
    /// of their inputs and outputs, and by tokens that the vocabulary has names for.
    pub fn new(
        programs: &[Program],
        info: Option<Whisper>,
        named: Option<WhisperTokens>,
    ) -> Result<WhisperProgram> {
        let is_classic = matches!(programs, [program] if program.method(CLASSIC).is_ok());
        let part = |at: usize| -> Result<Part> {
            let (program, method) = match programs {
                [program] if is_classic && at == 2 => (program, CLASSIC),
                [program] => (program, METHODS[at]),
                [_, _, _] => (&programs[at], FORWARD),
                _ => return Err(SpeechError::Model(format!("{} programs, not 1 or 3", programs.len()))),
            };
            program.method(method)?;
            Ok(Part { session: program.session()?, method: method.to_owned() })
        };
        let (encoder, decoder) = (part(0)?, part(2)?);
        let cross = if is_classic { None } else { Some(part(1)?) };
        let (features, mels, frames) = match dims(encoder.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[0] == 1 && dims[1] > 0 => (dtype, dims[1], dims[2]),
            (_, dims) => return Err(unlike("the encoder takes", &dims)),
        };
        let chunk = match dims(decoder.info()?, Side::Input(0))? {
            (DType::I64, dims) if dims.len() == 2 => dims[1],
            (_, dims) => return Err(unlike("the decoder takes", &dims)),
        };
        let (_, logits) = dims(decoder.info()?, Side::Output(0))?;
        let vocabulary = logits.last().copied().unwrap_or(0);
        let keys = cross.as_ref().map_or(&encoder, |cross| cross).info()?.outputs.len();
        let (taken, position) = (decoder.info()?.inputs.len(), if is_classic { 2 } else { 1 });
        if keys == 0 || keys + 2 != taken || chunk == 0 || vocabulary == 0 {
            return Err(SpeechError::Model(format!(
                "the decoder takes {taken} inputs where the sound gives {keys} keys and values"
            )));
        }
        let info = match info {
            Some(info) if info.mels != mels || info.frames != frames => {
                return Err(SpeechError::Model(format!(
                    "the program says {} bands of {} frames and takes {mels} of {frames}",
                    info.mels, info.frames
                )));
            }
            Some(info) => info,
            None => Whisper {
                mels,
                frames,
                positions: positions(decoder.session.program()).unwrap_or(chunk),
                tokens: WhisperTokens::published(vocabulary).or(named).ok_or_else(|| {
                    SpeechError::Model(format!(
                        "a vocabulary of {vocabulary} tokens is none of Whisper's, and names no marks"
                    ))
                })?,
                alignment_heads: Vec::new(),
            },
        };
        check(&info, vocabulary)?;
        let alignment = match programs {
            [program] if program.method(ALIGNMENT).is_ok_and(|method| method.inputs.len() == taken) => {
                Some(Part { session: program.session()?, method: ALIGNMENT.to_owned() })
            }
            _ => None,
        };
        let (inputs, outputs) = (Vec::new(), Vec::new());
        let given = encoder.info()?.outputs.len();
        if given != 1 {
            return Err(unlike("an encoder with so many outputs:", &[given]));
        }
        Ok(WhisperProgram {
            encoder,
            cross,
            decoder,
            alignment,
            info,
            chunk,
            vocabulary,
            features,
            inputs,
            position,
            outputs,
        })
    }

    /// What the model is like.
    pub fn info(&self) -> &Whisper {
        &self.info
    }

    /// Whether it can tell the times of words.
    pub fn aligns(&self) -> bool {
        self.alignment.is_some()
    }

    /// Bytes of state that it holds.
    pub fn state_bytes(&self) -> u64 {
        let parts = [&self.encoder, &self.decoder].into_iter().chain(&self.cross);
        parts.map(|part| part.session.state_bytes()).sum()
    }
}

impl Engine for WhisperProgram {
    fn hear(&mut self, features: &[f32]) -> Result<()> {
        let shape = vec![1, self.info.mels, self.info.frames];
        let features = tensor(shape, features, self.features)?;
        let hidden = self.encoder.run(&[features.into()])?;
        let sound = match &mut self.cross {
            Some(cross) => cross.run(&hidden)?,
            None => hidden,
        };
        self.inputs.clear();
        self.inputs.push(Value::None);
        self.inputs.extend(sound);
        self.inputs.insert(self.position, Value::None);
        Ok(())
    }

    fn read(&mut self, tokens: &[u32], position: usize, logits: &mut Vec<f32>) -> Result<()> {
        if self.inputs.len() < 2 {
            return Err(SpeechError::Model("a text before any sound".to_owned()));
        }
        if position + tokens.len() > self.info.positions {
            return Err(SpeechError::Model(format!(
                "a text of {} tokens, and the model has {} positions",
                position + tokens.len(),
                self.info.positions
            )));
        }
        let of_text = Position::of(self.decoder.info()?, self.position)?;
        let mut at = position;
        for part in tokens.chunks(self.chunk) {
            let ids: Vec<i64> = part.iter().map(|&id| i64::from(id)).collect();
            self.inputs[0] = HostTensor::from_slice(vec![1, ids.len()], &ids).map_err(wrong)?.into();
            self.inputs[self.position] = of_text.value(at, part.len())?;
            let Part { session, method } = &mut self.decoder;
            session.run_into(method, &self.inputs, &RunControl::default(), &mut self.outputs)?;
            at += part.len();
        }
        let given = self.outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("the decoder gives no logits".to_owned()))?;
        // Of the last token, where there are several.
        let from = given.len().checked_sub(self.vocabulary);
        let from = from.ok_or_else(|| unlike("the decoder gives", given.shape()))?;
        floats(&given, from, logits)
    }

    fn align(&mut self, tokens: &[u32]) -> Result<Option<Scores>> {
        let Some(alignment) = &mut self.alignment else { return Ok(None) };
        if tokens.len() > self.chunk || self.inputs.len() < 2 {
            return Ok(None);
        }
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        let mut inputs = self.inputs.clone();
        inputs[0] = HostTensor::from_slice(vec![1, ids.len()], &ids).map_err(wrong)?.into();
        inputs[1] = HostTensor::from_slice(vec![1], &[0i64]).map_err(wrong)?.into();
        scores(&alignment.run(&inputs)?).map(Some)
    }
}

/// Scores of all heads, one output each.
fn scores(outputs: &[Value]) -> Result<Scores> {
    let mut scores = Scores::default();
    for output in outputs {
        let given =
            output.to_tensor()?.ok_or_else(|| SpeechError::Model("a head gives no scores".to_owned()))?;
        scores.places = given.shape().last().copied().unwrap_or(0);
        let mut head = Vec::new();
        floats(&given, 0, &mut head)?;
        scores.heads.push(head);
    }
    Ok(scores)
}

/// Positions that the decoder's own cache has.
fn positions(decoder: &Program) -> Option<usize> {
    let caches = decoder.buffers().iter().filter(|buffer| buffer.shape.len() == 4);
    caches.map(|buffer| buffer.shape[2]).min()
}

/// Whether what the program says of its tokens can be.
fn check(info: &Whisper, vocabulary: usize) -> Result<()> {
    let tokens = &info.tokens;
    let last_language = tokens.start as usize + tokens.languages.len();
    let marks = [tokens.end, tokens.start, tokens.translate, tokens.transcribe, tokens.previous];
    let more = [tokens.no_speech, tokens.no_times, tokens.first_time];
    let fits = |id: &u32| (*id as usize) < vocabulary;
    if marks.iter().chain(&more).all(fits) && last_language < vocabulary && info.positions >= 8 {
        return Ok(());
    }
    Err(SpeechError::Model("the program names tokens that it does not have".to_owned()))
}
