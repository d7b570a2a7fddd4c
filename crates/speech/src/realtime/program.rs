//! The engine over programs: `encode_audio_chunk`, `token_embedding` and `text_decoder`, as our export and ExecuTorch's streaming one
//! have them.

use pteron_companion::Realtime;
use pteron_runtime::{Program, RunControl, Value};
use pteron_tensor::{DType, HostTensor};

use super::Engine;
use crate::part::{Part, Position, Side, dims, floats, tensor, unlike, wrong};
use crate::voxtral::program::context;
use crate::{Result, SpeechError};

const SOUND: &str = "encode_audio_chunk";
const TOKENS: &str = "token_embedding";
const TEXT: &str = "text_decoder";
/// Positions of the encoder that become one place, where its position is not told row by row.
const JOINED: usize = 4;
/// What ExecuTorch's programs do not say: its runner and the published model have as much.
const USUAL_DELAY: usize = 6;
const USUAL_SILENCE: usize = 32;

/// A Voxtral Realtime that can be run.
pub struct RealtimeProgram {
    program: Program,
    sound: Part,
    tokens: Part,
    text: Part,
    info: Realtime,
    features: DType,
    /// Places of one call of the encoder, how it is told its position, and how many positions a place has.
    places: usize,
    sound_position: Position,
    joined: usize,
    /// Numbers of a row, their type, and rows of one call of the decoder.
    width: usize,
    dtype: DType,
    chunk: usize,
    vocabulary: usize,
    position: Position,
    context: usize,
    /// Rows that were heard and not read, and how many came before them.
    heard: Vec<f32>,
    read: usize,
    /// Places that were heard.
    at: usize,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

impl RealtimeProgram {
    /// Whether a program has the methods of one.
    pub fn recognises(program: &Program) -> bool {
        [SOUND, TOKENS, TEXT].iter().all(|method| program.method(method).is_ok())
    }

    /// A program; what it does not say of itself is told by its metadata and by the sizes of its inputs and outputs.
    pub fn new(program: &Program, info: Option<Realtime>) -> Result<RealtimeProgram> {
        let part = |method: &str| -> Result<Part> {
            program.method(method)?;
            Ok(Part { session: program.session()?, method: method.to_owned() })
        };
        let (sound, tokens, text) = (part(SOUND)?, part(TOKENS)?, part(TEXT)?);
        let (features, mels, most) = match dims(sound.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[0] == 1 && dims[1] > 0 && dims[2] > 0 => {
                (dtype, dims[1], dims[2])
            }
            (_, dims) => return Err(unlike("the encoder takes", &dims)),
        };
        let (dtype, chunk, width) = match dims(text.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[1] > 0 && dims[2] > 0 => (dtype, dims[1], dims[2]),
            (_, dims) => return Err(unlike("the decoder takes", &dims)),
        };
        let places = match dims(sound.info()?, Side::Output(0))? {
            (_, dims) if dims.len() == 3 && dims[1] > 0 && dims[2] == width => dims[1],
            (_, dims) => return Err(unlike("the encoder gives", &dims)),
        };
        let (_, logits) = dims(text.info()?, Side::Output(0))?;
        let vocabulary = logits.last().copied().unwrap_or(0);
        let info = match info {
            Some(info) => info,
            None => Realtime {
                mels,
                frames: most / places,
                delay: number(program, "delay_tokens").unwrap_or(USUAL_DELAY),
                silence: USUAL_SILENCE,
            },
        };
        let fits = info.mels == mels && info.frames > 0 && info.frames.checked_mul(places) == Some(most);
        if !fits || vocabulary == 0 {
            return Err(SpeechError::Model(format!(
                "the program says places of {} frames with {} bands, and takes {mels} of {most} for {places}",
                info.frames, info.mels
            )));
        }
        let sound_position = Position::of(sound.info()?, 1)?;
        let joined = match (sound_position, dims(sound.info()?, Side::Input(1))) {
            (Position::Each, Ok((_, dims))) => (dims.iter().product::<usize>() / places).max(1),
            _ => JOINED,
        };
        // The last text that fits: caches that slide have no other bound than this.
        let context = context(program, chunk);
        let position = Position::of(text.info()?, 1)?;
        Ok(RealtimeProgram {
            program: program.clone(),
            sound,
            tokens,
            text,
            info,
            features,
            places,
            sound_position,
            joined,
            width,
            dtype,
            chunk,
            vocabulary,
            position,
            context,
            heard: Vec::new(),
            read: 0,
            at: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
        })
    }

    /// What the model is like.
    pub fn info(&self) -> &Realtime {
        &self.info
    }

    /// Rows of an output, behind those of `out`.
    fn rows(&self, given: &[Value], count: usize, out: &mut Vec<f32>) -> Result<()> {
        let given = given.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("a method gives no rows".to_owned()))?;
        let mut rows = Vec::new();
        floats(&given, 0, &mut rows)?;
        match rows.len() == count * self.width {
            true => out.append(&mut rows),
            false => return Err(unlike("a method gives rows of", given.shape())),
        }
        Ok(())
    }
}

/// A number that a program says of itself.
fn number(program: &Program, name: &str) -> Option<usize> {
    match program.metadata_value(name) {
        Some(Value::Int(number)) => usize::try_from(*number).ok(),
        _ => None,
    }
}

impl Engine for RealtimeProgram {
    fn begin(&mut self) -> Result<()> {
        // A session's caches and what convolutions remember begin empty.
        self.sound.session = self.program.session()?;
        self.text.session = self.program.session()?;
        self.heard.clear();
        (self.read, self.at) = (0, 0);
        Ok(())
    }

    fn hear(&mut self, features: &[f32], places: usize) -> Result<()> {
        let shape = vec![1, self.info.mels, places * self.info.frames];
        let features = tensor(shape, features, self.features)?;
        let position = self.sound_position.value(self.at * self.joined, places * self.joined)?;
        let given = self.sound.run(&[features.into(), position])?;
        let mut heard = std::mem::take(&mut self.heard);
        let taken = self.rows(&given, places, &mut heard);
        self.heard = heard;
        self.at += places;
        taken
    }

    fn read(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<()> {
        for part in tokens.chunks(self.chunk) {
            let count = part.len();
            if self.heard.len() < count * self.width || self.read + count > self.context {
                return Err(SpeechError::Model("a text that is ahead of its sound".to_owned()));
            }
            let ids: Vec<i64> = part.iter().map(|&id| i64::from(id)).collect();
            let ids = HostTensor::from_slice(vec![1, count], &ids).map_err(wrong)?;
            let given = self.tokens.run(&[ids.into()])?;
            let mut rows = Vec::new();
            self.rows(&given, count, &mut rows)?;
            for (row, heard) in rows.iter_mut().zip(self.heard.drain(..count * self.width)) {
                *row += heard;
            }
            self.inputs.clear();
            self.inputs.push(tensor(vec![1, count, self.width], &rows, self.dtype)?.into());
            self.inputs.push(self.position.value(self.read, count)?);
            let Part { session, method } = &mut self.text;
            session.run_into(method, &self.inputs, &RunControl::default(), &mut self.outputs)?;
            self.read += count;
        }
        let given = self.outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("the decoder gives no logits".to_owned()))?;
        // Of the last row, where there are several.
        let from = given.len().checked_sub(self.vocabulary);
        let from = from.ok_or_else(|| unlike("the decoder gives", given.shape()))?;
        floats(&given, from, logits)
    }

    fn most_places(&self) -> usize {
        self.places
    }

    fn context(&self) -> usize {
        self.context
    }
}
