//! Samples without a header: little-endian floats or 16-bit integers from a stream, at a rate that the caller knows.

use std::io::{ErrorKind, Read};

use super::{Packets, SoundError, Spec};

/// Frames that are asked for at a time: a tenth of a second at the usual rate, so that a microphone is heard soon.
const FRAMES: usize = 1600;

/// How a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// 32-bit floats, from -1 to 1.
    F32,
    /// 16-bit integers.
    I16,
}

/// What raw samples are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFormat {
    /// How a sample is stored.
    pub kind: SampleKind,
    /// Samples a second.
    pub rate: u32,
    /// Channels, interleaved.
    pub channels: usize,
}

pub(super) struct Raw {
    stream: Box<dyn Read + Send>,
    kind: SampleKind,
    spec: Spec,
    /// The beginning of a frame whose end has not come yet, in front of what is read next.
    bytes: Vec<u8>,
}

impl Raw {
    pub(super) fn new(stream: Box<dyn Read + Send>, format: RawFormat) -> Result<Raw, SoundError> {
        let spec = Spec::new(format.rate, format.channels)?;
        Ok(Raw { stream, kind: format.kind, spec, bytes: Vec::new() })
    }

    fn sample_bytes(&self) -> usize {
        match self.kind {
            SampleKind::F32 => 4,
            SampleKind::I16 => 2,
        }
    }
}

impl Packets for Raw {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<Option<Spec>, SoundError> {
        out.clear();
        let frame = self.sample_bytes() * self.spec.channels;
        loop {
            let begun = self.bytes.len();
            self.bytes.resize(begun.max(frame * FRAMES), 0);
            let read = match self.stream.read(&mut self.bytes[begun..]) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error.into()),
            };
            self.bytes.truncate(begun + read);
            let whole = self.bytes.len() / frame * frame;
            if read == 0 && whole == 0 {
                // What is left of a frame was cut off.
                return Ok(None);
            }
            if whole == 0 {
                continue;
            }
            let samples = &self.bytes[..whole];
            match self.kind {
                SampleKind::F32 => {
                    out.extend(samples.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                SampleKind::I16 => out.extend(
                    samples
                        .as_chunks::<2>()
                        .0
                        .iter()
                        .map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32768.0),
                ),
            }
            self.bytes.drain(..whole);
            return Ok(Some(self.spec));
        }
    }
}
