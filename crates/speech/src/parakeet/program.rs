//! The engine over programs: `encoder`, `decoder_step` and `joint`, as our export and ExecuTorch's have them, or `ctc` alone.

use pteron_companion::Parakeet;
use pteron_runtime::{ArgumentKind, Program, Value};
use pteron_tensor::{DType, HostTensor};

use super::{Engine, Guess};
use crate::part::{Part, Side, dims, floats, tensor, unlike, wrong};
use crate::{Result, SpeechError};

/// The methods of a transducer.
const ENCODER: &str = "encoder";
const STEP: &str = "decoder_step";
const JOINT: &str = "joint";
/// The method of a model with a CTC head.
const CTC: &str = "ctc";
/// Tokens in one place that ExecuTorch's programs do not say; its runner and the published decoders have as many.
const USUAL_SYMBOLS: usize = 10;
/// Durations that they do not say either.
const USUAL_DURATIONS: [usize; 5] = [0, 1, 2, 3, 4];
/// More places than any token lasts, and more tokens than any place has.
const MOST_PLACES: usize = 1000;
const MOST_SYMBOLS: usize = 100;
/// More numbers than any state of a prediction network has.
const LARGEST_STATE: usize = 1 << 24;

/// A Parakeet that can be run.
pub struct ParakeetProgram {
    encoder: Part,
    head: Head,
    info: Parakeet,
    features: DType,
    /// Whether the encoder is told how many frames there are.
    takes_length: bool,
    /// What the encoder gave, place by place.
    places: Vec<f32>,
    /// Numbers of one place.
    width: usize,
}

/// What stands behind the encoder.
#[allow(clippy::large_enum_variant)] // a program has one
enum Head {
    Ctc,
    Transducer {
        step: Part,
        joint: Part,
        /// What a text begins with.
        zeros: HostTensor,
        /// What the text so far is to the joint network, and the state behind it.
        text: Vec<Value>,
        /// Type and most places of a call of the joint network.
        sound: DType,
        most: usize,
    },
}

impl ParakeetProgram {
    /// Whether a program has the methods of one.
    pub fn recognises(program: &Program) -> bool {
        let has = |method: &str| program.method(method).is_ok();
        has(CTC) || has(ENCODER) && has(STEP) && has(JOINT)
    }

    /// A program; what it does not say of itself is told by its metadata and by the sizes of its inputs and outputs.
    pub fn new(program: &Program, info: Option<Parakeet>) -> Result<ParakeetProgram> {
        let part = |method: &str| -> Result<Part> {
            program.method(method)?;
            Ok(Part { session: program.session()?, method: method.to_owned() })
        };
        let is_ctc = program.method(CTC).is_ok();
        let encoder = part(if is_ctc { CTC } else { ENCODER })?;
        let (features, mels, frames) = match dims(encoder.info()?, Side::Input(0))? {
            (dtype, dims) if dims.len() == 3 && dims[0] == 1 => (dtype, dims[1], dims[2]),
            (_, dims) => return Err(unlike("the encoder takes", &dims)),
        };
        let width = match dims(encoder.info()?, Side::Output(0))? {
            (_, dims) if dims.len() == 3 && dims[0] == 1 && dims[2] > 0 => dims[2],
            (_, dims) => return Err(unlike("the encoder gives", &dims)),
        };
        let takes_length = encoder.info()?.inputs.len() > 1;
        let head = match is_ctc {
            true => Head::Ctc,
            false => transducer(part(STEP)?, part(JOINT)?, width)?,
        };
        let info = match info {
            Some(info) => info,
            None => described(program, &head, mels, frames)?,
        };
        let is_right = mels > 0 && info.mels == mels && (1..=frames).contains(&info.frames);
        let is_possible = (1..=info.frames).contains(&info.subsampling)
            && (1..=MOST_SYMBOLS).contains(&info.most_symbols)
            && info.durations.iter().all(|&places| places <= MOST_PLACES);
        if !is_right || !is_possible || is_ctc && info.blank as usize >= width {
            return Err(SpeechError::Model(format!(
                "the program says {} bands of {} frames, {} of them a place, and takes {mels} of {frames}",
                info.mels, info.frames, info.subsampling
            )));
        }
        Ok(ParakeetProgram { encoder, head, info, features, takes_length, places: Vec::new(), width })
    }

    /// What the model is like.
    pub fn info(&self) -> &Parakeet {
        &self.info
    }
}

fn transducer(step: Part, joint: Part, width: usize) -> Result<Head> {
    let zeros = match dims(step.info()?, Side::Input(1))? {
        (dtype, dims) if dims.len() == 3 => {
            let size = dims.iter().try_fold(1usize, |size, &dim| size.checked_mul(dim));
            let size = size.filter(|&size| size <= LARGEST_STATE);
            let size = size.ok_or_else(|| unlike("the prediction network takes a state of", &dims))?;
            tensor(dims, &vec![0.0; size], dtype)?
        }
        (_, dims) => return Err(unlike("the prediction network takes a state of", &dims)),
    };
    let (sound, most) = match dims(joint.info()?, Side::Input(0))? {
        (dtype, dims) if dims.len() == 3 && dims[1] > 0 && dims[2] == width => (dtype, dims[1]),
        (_, dims) => return Err(unlike("the joint network takes", &dims)),
    };
    let counts = [step.info()?.inputs.len(), step.info()?.outputs.len(), joint.info()?.inputs.len()];
    if counts != [3, 3, 2] || joint.info()?.outputs.is_empty() {
        return Err(unlike("prediction and joint networks take and give", &counts));
    }
    Ok(Head::Transducer { step, joint, zeros, text: Vec::new(), sound, most })
}

/// What ExecuTorch's programs say in their metadata.
fn described(program: &Program, head: &Head, mels: usize, frames: usize) -> Result<Parakeet> {
    let number = |name: &str| -> Result<usize> {
        let value = program.metadata_value(name).and_then(|value| match value {
            Value::Int(number) => usize::try_from(*number).ok(),
            _ => None,
        });
        value.ok_or_else(|| SpeechError::Model(format!("the program does not say its `{name}`")))
    };
    let durations = match head {
        Head::Transducer { joint, .. } if joint.info()?.outputs.len() > 1 => USUAL_DURATIONS.to_vec(),
        _ => Vec::new(),
    };
    Ok(Parakeet {
        mels,
        frames,
        subsampling: number("encoder_subsampling_factor")?,
        blank: u32::try_from(number("blank_id")?).map_err(wrong)?,
        durations,
        most_symbols: USUAL_SYMBOLS,
    })
}

impl Engine for ParakeetProgram {
    fn hear(&mut self, features: &[f32], frames: usize) -> Result<usize> {
        let shape = vec![1, self.info.mels, frames];
        let mut inputs: Vec<Value> = vec![tensor(shape, features, self.features)?.into()];
        if self.takes_length {
            let takes_number = matches!(self.encoder.info()?.inputs[1].kind, ArgumentKind::Int);
            inputs.push(match takes_number {
                true => Value::Int(frames as i64),
                false => HostTensor::from_slice(vec![1], &[frames as i64]).map_err(wrong)?.into(),
            });
        }
        let outputs = self.encoder.run(&inputs)?;
        let given = outputs.first().map(Value::to_tensor).transpose()?.flatten();
        let given = given.ok_or_else(|| SpeechError::Model("the encoder gives nothing".to_owned()))?;
        floats(&given, 0, &mut self.places)?;
        match given.shape() {
            [1, places, width] if *width == self.width => Ok(*places),
            other => Err(unlike("the encoder gives", other)),
        }
    }

    fn begin(&mut self) -> Result<()> {
        // A text begins as if nothing had been said.
        if let Head::Transducer { zeros, text, .. } = &mut self.head {
            *text = vec![Value::None, zeros.clone().into(), zeros.clone().into()];
            self.say(self.info.blank)?;
        }
        Ok(())
    }

    fn say(&mut self, token: u32) -> Result<()> {
        let Head::Transducer { step, text, .. } = &mut self.head else { return Ok(()) };
        text[0] = HostTensor::from_slice(vec![1, 1], &[i64::from(token)]).map_err(wrong)?.into();
        *text = step.run(text)?;
        Ok(())
    }

    fn guess(&mut self, place: usize, out: &mut Vec<Guess>) -> Result<()> {
        out.clear();
        let rest = self.places.get(place * self.width..).unwrap_or_default();
        let Head::Transducer { joint, text, sound, most, .. } = &mut self.head else {
            out.extend(
                rest.chunks_exact(self.width).map(|scores| Guess { token: best(scores), lasts: None }),
            );
            return Ok(());
        };
        let count = (rest.len() / self.width).min(*most);
        let places = tensor(vec![1, count, self.width], &rest[..count * self.width], *sound)?;
        let given = joint.run(&[places.into(), text[0].clone()])?;
        let tokens = integers(given.first(), count)?;
        let numbers = match self.info.durations.is_empty() {
            true => None,
            false => Some(integers(given.get(1), count)?),
        };
        for (at, &token) in tokens.iter().enumerate() {
            let none = || SpeechError::Model("the joint network gives what there is not".to_owned());
            let token = u32::try_from(token).map_err(|_| none())?;
            let lasts = match &numbers {
                None => None,
                Some(numbers) => {
                    let number = usize::try_from(numbers[at]).map_err(|_| none())?;
                    Some(*self.info.durations.get(number).ok_or_else(none)?)
                }
            };
            out.push(Guess { token, lasts });
        }
        Ok(())
    }

    fn repeats(&self) -> bool {
        matches!(self.head, Head::Ctc)
    }
}

/// So many integers of an output.
fn integers(value: Option<&Value>, count: usize) -> Result<Vec<i64>> {
    let tensor = match value {
        Some(Value::Int(number)) if count == 1 => return Ok(vec![*number]),
        Some(value) => value.to_tensor()?,
        None => None,
    };
    let tensor = tensor.ok_or_else(|| SpeechError::Model("the joint network gives too little".to_owned()))?;
    let numbers = match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().map_err(wrong)?.to_vec(),
        DType::I32 => tensor.as_slice::<i32>().map_err(wrong)?.iter().map(|&number| number.into()).collect(),
        other => return Err(SpeechError::Model(format!("the joint network gives tokens of {other}"))),
    };
    match numbers.len() == count {
        true => Ok(numbers),
        false => Err(unlike("the joint network gives", tensor.shape())),
    }
}

/// The likeliest, the first of equals; what is no number is as unlikely as can be.
fn best(scores: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &score) in scores.iter().enumerate() {
        if score > best.1 {
            best = (id as u32, score);
        }
    }
    best.0
}
