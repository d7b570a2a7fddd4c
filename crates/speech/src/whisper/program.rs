//! The engine over programs: `encoder`, `cross_kv` and `decoder`, as methods of one file or as three files with a `forward`
//! each, as ExecuTorch's exporter for MLX writes them; or `encoder` and a `text_decoder` that looks at the hidden states themselves, token
//! by token, as its exporters for other delegates do.

use pteron_companion::{Whisper, WhisperTokens};
use pteron_runtime::{Lane, Program, RunControl, Session, Value};
use pteron_tensor::{DType, HostTensor};

use super::Engine;
use super::search::Branch;
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
    /// Texts beside the decoder's own.
    others: Vec<Text>,
    /// Where the texts of the last call are: 0 is the decoder's own session, the others are counted from 1.
    places: Vec<usize>,
}

/// A text of its own.
struct Text {
    session: Session,
    outputs: Vec<Value>,
}

impl WhisperProgram {
    /// Whether a program has the methods of one.
    pub fn recognises(program: &Program) -> bool {
        let has = |method: &str| program.method(method).is_ok();
        METHODS.into_iter().all(has) || has(METHODS[0]) && has(CLASSIC)
    }

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
            others: Vec::new(),
            places: Vec::new(),
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
        let parts: u64 = parts.map(|part| part.session.state_bytes()).sum();
        parts + self.others.iter().map(|text| text.session.state_bytes()).sum::<u64>()
    }

    /// What of so many tokens at a position cannot be read.
    fn check_room(&self, count: usize, position: usize) -> Result<()> {
        if self.inputs.len() < 2 {
            return Err(SpeechError::Model("a text before any sound".to_owned()));
        }
        if position + count > self.info.positions {
            return Err(SpeechError::Model(format!(
                "a text of {} tokens, and the model has {} positions",
                position + count,
                self.info.positions
            )));
        }
        Ok(())
    }

    /// Finds each text a place whose session holds what it goes on from. The first that goes on from a text keeps its
    /// session, others get a copy.
    fn place(&mut self, branches: &[Branch]) -> Result<Vec<usize>> {
        let mut is_taken = vec![false; 1 + self.others.len()];
        let mut places = Vec::with_capacity(branches.len());
        let mut copies = Vec::new();
        for (number, branch) in branches.iter().enumerate() {
            let place = self.places.get(branch.from).copied();
            let place = place.ok_or_else(|| SpeechError::Model("a text goes on from none".to_owned()))?;
            if std::mem::replace(&mut is_taken[place], true) {
                copies.push((number, place));
            }
            places.push(place);
        }
        for (number, origin) in copies {
            let origin = if origin == 0 { &self.decoder.session } else { &self.others[origin - 1].session };
            let place = match is_taken.iter().position(|is_taken| !is_taken) {
                Some(place) => {
                    let snapshot = origin.snapshot()?;
                    match place {
                        0 => self.decoder.session.restore(&snapshot)?,
                        _ => self.others[place - 1].session.restore(&snapshot)?,
                    }
                    place
                }
                None => {
                    let session = origin.fork()?;
                    self.others.push(Text { session, outputs: Vec::new() });
                    is_taken.push(true);
                    self.others.len()
                }
            };
            is_taken[place] = true;
            places[number] = place;
        }
        Ok(places)
    }

    /// Logits of the last token that a decoder has read.
    fn logits(&self, outputs: &[Value], logits: &mut Vec<f32>) -> Result<()> {
        let given = outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("the decoder gives no logits".to_owned()))?;
        // Of the last token, where there are several.
        let from = given.len().checked_sub(self.vocabulary);
        let from = from.ok_or_else(|| unlike("the decoder gives", given.shape()))?;
        floats(&given, from, logits)
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
        self.check_room(tokens.len(), position)?;
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
        self.places = vec![0];
        self.logits(&self.outputs, logits)
    }

    fn follow(&mut self, branches: &[Branch], position: usize, logits: &mut Vec<Vec<f32>>) -> Result<()> {
        self.check_room(1, position)?;
        let of_text = Position::of(self.decoder.info()?, self.position)?.value(position, 1)?;
        let places = self.place(branches)?;
        // Inputs of each session that has a text.
        let mut inputs: Vec<Vec<Value>> = vec![Vec::new(); 1 + self.others.len()];
        for (branch, &place) in branches.iter().zip(&places) {
            let mut own = self.inputs.clone();
            own[0] = HostTensor::from_slice(vec![1, 1], &[i64::from(branch.token)]).map_err(wrong)?.into();
            own[self.position] = of_text.clone();
            inputs[place] = own;
        }
        let control = RunControl::default();
        let Part { session, method } = &mut self.decoder;
        let others = self.others.iter_mut().map(|text| (&mut text.session, &mut text.outputs));
        let texts = std::iter::once((session, &mut self.outputs)).chain(others);
        let read = texts.zip(&inputs).filter(|(_, inputs)| !inputs.is_empty());
        let mut lanes: Vec<Lane<'_>> =
            read.map(|((session, outputs), inputs)| Lane::new(session, inputs, &control, outputs)).collect();
        Session::run_together(method, &mut lanes)?;
        lanes.into_iter().try_for_each(|lane| lane.result)?;
        logits.resize_with(branches.len(), Vec::new);
        for (&place, logits) in places.iter().zip(logits) {
            let outputs = if place == 0 { &self.outputs } else { &self.others[place - 1].outputs };
            self.logits(outputs, logits)?;
        }
        self.places = places;
        Ok(())
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
