//! The engine over programs: `audio_encoder`, `token_embedding` and `text_decoder`, as our export and ExecuTorch's have them.

use pteron_companion::Voxtral;
use pteron_runtime::{Program, Value};
use pteron_tensor::{DType, HostTensor};

use super::{Engine, Part as PromptPart};
use crate::part::{Part, Position, Side, dims, floats, tensor, unlike, wrong};
use crate::{Result, SpeechError};

const SOUND: &str = "audio_encoder";
const TOKENS: &str = "token_embedding";
const TEXT: &str = "text_decoder";

/// A Voxtral that can be run.
pub struct VoxtralProgram {
    program: Program,
    sound: Part,
    tokens: Part,
    text: Part,
    info: Voxtral,
    features: DType,
    /// Numbers of a row, and rows that a window becomes.
    width: usize,
    rows: usize,
    /// Type of rows, and most of them in one call.
    dtype: DType,
    chunk: usize,
    vocabulary: usize,
    position: Position,
    /// Positions that a text has, and where it goes on.
    context: usize,
    at: usize,
    heard: Vec<f32>,
}

impl VoxtralProgram {
    /// Whether a program has the methods of one.
    pub fn recognises(program: &Program) -> bool {
        [SOUND, TOKENS, TEXT].iter().all(|method| program.method(method).is_ok())
    }

    /// A program; what it does not say of itself is told by the sizes of its inputs and outputs.
    pub fn new(program: &Program, info: Option<Voxtral>) -> Result<VoxtralProgram> {
        let part = |method: &str| -> Result<Part> {
            program.method(method)?;
            Ok(Part { session: program.session()?, method: method.to_owned() })
        };
        let (sound, tokens, text) = (part(SOUND)?, part(TOKENS)?, part(TEXT)?);
        let (features, mels, frames) = match dims(sound.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[1] > 0 && dims[2] > 0 => (dtype, dims[1], dims[2]),
            (_, dims) => return Err(unlike("the encoder takes", &dims)),
        };
        let (dtype, chunk, width) = match dims(text.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[1] > 0 && dims[2] > 0 => (dtype, dims[1], dims[2]),
            (_, dims) => return Err(unlike("the decoder takes", &dims)),
        };
        let rows = match dims(sound.info()?, Side::Output(0))? {
            (_, dims) if dims.last() == Some(&width) => dims.iter().rev().skip(1).product::<usize>(),
            (_, dims) => return Err(unlike("the encoder gives", &dims)),
        };
        let (_, logits) = dims(text.info()?, Side::Output(0))?;
        let vocabulary = logits.last().copied().unwrap_or(0);
        let position = Position::of(text.info()?, 1)?;
        if rows == 0 || vocabulary == 0 || frames % 2 != 0 {
            return Err(unlike("windows, rows and tokens are", &[frames, rows, vocabulary]));
        }
        let own = Voxtral { mels, frames };
        if info.as_ref().is_some_and(|info| *info != own) {
            return Err(SpeechError::Model(format!("the program takes {mels} bands of {frames} frames")));
        }
        let context = context(program, chunk);
        Ok(VoxtralProgram {
            program: program.clone(),
            sound,
            tokens,
            text,
            info: own,
            features,
            width,
            rows,
            dtype,
            chunk,
            vocabulary,
            position,
            context,
            at: 0,
            heard: Vec::new(),
        })
    }

    /// What the model is like.
    pub fn info(&self) -> &Voxtral {
        &self.info
    }

    /// Rows that a window becomes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Reads rows behind those that were read before.
    fn read_rows(&mut self, rows: &[f32], logits: &mut Vec<f32>) -> Result<()> {
        for part in rows.chunks(self.chunk * self.width) {
            let count = part.len() / self.width;
            if self.at + count > self.context {
                let problem = format!("a text of more than {} positions", self.context);
                return Err(SpeechError::Model(problem));
            }
            let position = self.position.value(self.at, count)?;
            let rows = tensor(vec![1, count, self.width], part, self.dtype)?;
            let given = self.text.run(&[rows.into(), position])?;
            let given = given.first().map(Value::to_tensor).transpose()?.flatten();
            let given = given.ok_or_else(|| SpeechError::Model("the decoder gives no logits".to_owned()))?;
            // Of the last row, where there are several.
            let from = given.len().checked_sub(self.vocabulary);
            let from = from.ok_or_else(|| unlike("the decoder gives", given.shape()))?;
            floats(&given, from, logits)?;
            self.at += count;
        }
        Ok(())
    }

    fn read_tokens(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<()> {
        for part in tokens.chunks(self.chunk) {
            let ids: Vec<i64> = part.iter().map(|&id| i64::from(id)).collect();
            let ids = HostTensor::from_slice(vec![1, ids.len()], &ids).map_err(wrong)?;
            let given = self.tokens.run(&[ids.into()])?;
            let rows = self.rows_of(&given, part.len())?;
            self.read_rows(&rows, logits)?;
        }
        Ok(())
    }

    /// So many rows of an output.
    fn rows_of(&self, given: &[Value], count: usize) -> Result<Vec<f32>> {
        let given = given.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("a method gives no rows".to_owned()))?;
        let mut rows = Vec::new();
        floats(&given, 0, &mut rows)?;
        match rows.len() == count * self.width {
            true => Ok(rows),
            false => Err(unlike("a method gives rows of", given.shape())),
        }
    }
}

/// Positions that a text has.
pub(crate) fn context(program: &Program, chunk: usize) -> usize {
    let said = ["get_max_context_len", "get_max_seq_len"].into_iter().find_map(|name| {
        match program.metadata_value(name) {
            Some(Value::Int(number)) => usize::try_from(*number).ok(),
            _ => None,
        }
    });
    said.unwrap_or(chunk).max(chunk)
}

impl Engine for VoxtralProgram {
    fn hear(&mut self, windows: &[Vec<f32>]) -> Result<()> {
        self.heard.clear();
        for window in windows {
            let shape = vec![1, self.info.mels, self.info.frames];
            let given = self.sound.run(&[tensor(shape, window, self.features)?.into()])?;
            let rows = self.rows_of(&given, self.rows)?;
            self.heard.extend(rows);
        }
        Ok(())
    }

    fn begin(&mut self, prompt: &[PromptPart], logits: &mut Vec<f32>) -> Result<()> {
        // A session's caches begin empty.
        self.text.session = self.program.session()?;
        self.at = 0;
        for part in prompt {
            match part {
                PromptPart::Tokens(tokens) => self.read_tokens(tokens, logits)?,
                PromptPart::Sound => {
                    let heard = std::mem::take(&mut self.heard);
                    let read = self.read_rows(&heard, logits);
                    self.heard = heard;
                    read?;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, token: u32, logits: &mut Vec<f32>) -> Result<()> {
        self.read_tokens(&[token], logits)
    }

    fn context(&self) -> usize {
        self.context
    }

    fn left(&self) -> usize {
        self.context - self.at.min(self.context)
    }
}
