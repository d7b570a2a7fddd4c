//! Opus, which the other decoders do not know: what phones and browsers record in. Packets come from any container; what the
//! header says is left out of the beginning, and loudness is changed as it says.

use opus_pure::{OpusDecoder, OpusMSDecoder};

use super::{SoundError, Spec};

/// It plays at this rate, whatever was recorded.
const RATE: u32 = 48_000;
/// Samples of each channel that a packet has at most: 120 ms.
const LONGEST: usize = 5760;
/// What a header begins with.
const MAGIC: &[u8] = b"OpusHead";

/// The header of a stream.
#[derive(Debug, PartialEq)]
struct Head {
    channels: usize,
    /// Samples that the decoder needs to get going.
    skip: usize,
    /// A factor of all samples.
    gain: f32,
    /// How channels are spread over streams: 0 is all in one.
    family: u8,
    /// Streams that a packet has.
    streams: usize,
}

/// Numbers of the header in MP4 begin with their high bytes, everywhere else with their low ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Low,
    High,
}

enum Decoder {
    One(Box<OpusDecoder>),
    Many(OpusMSDecoder),
}

pub(super) struct Opus {
    head: Head,
    decoder: Decoder,
    /// Samples of each channel that are still to be left out.
    skip: usize,
    pcm: Vec<f32>,
}

impl Head {
    fn read(bytes: &[u8], order: Order) -> Option<Head> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let number = |at: usize| -> Option<[u8; 2]> { rest.get(at..at + 2)?.try_into().ok() };
        let of = |bytes: [u8; 2]| match order {
            Order::Low => u16::from_le_bytes(bytes),
            Order::High => u16::from_be_bytes(bytes),
        };
        let channels = usize::from(*rest.get(1)?);
        let (skip, gain) = (of(number(2)?), of(number(8)?).cast_signed());
        let family = *rest.get(10)?;
        let streams = match (family, channels) {
            (0, 1 | 2) => 1,
            (0, _) | (_, 0) => return None,
            // Which channel is which does not matter to somebody who mixes all of them.
            _ => usize::from(*rest.get(11)?),
        };
        // In 256ths of a decibel.
        let gain = 10f32.powf(f32::from(gain) / (20.0 * 256.0));
        Some(Head { channels, skip: usize::from(skip), gain, family, streams })
    }

    fn decoder(&self) -> Result<Decoder, String> {
        let rate = RATE.cast_signed();
        if self.family == 0 {
            let decoder = OpusDecoder::new(rate, self.channels).map_err(|error| error.to_string())?;
            return Ok(Decoder::One(Box::new(decoder)));
        }
        let decoder =
            OpusMSDecoder::new(rate, self.channels, self.family).map_err(|error| error.to_string())?;
        match decoder.nb_streams() == self.streams {
            true => Ok(Decoder::Many(decoder)),
            false => Err(format!("{} channels in {} streams", self.channels, self.streams)),
        }
    }
}

impl Opus {
    /// A stream with its header.
    pub(super) fn new(header: &[u8], order: Order) -> Result<Opus, SoundError> {
        let wrong = |what: String| SoundError::Codec(format!("Opus: {what}"));
        let head =
            Head::read(header, order).ok_or_else(|| wrong("a header that makes no sense".to_owned()))?;
        let decoder = head.decoder().map_err(wrong)?;
        let pcm = vec![0.0; LONGEST * head.channels];
        Ok(Opus { skip: head.skip, head, decoder, pcm })
    }

    /// Begins anew behind what could not be decoded.
    pub(super) fn reset(&mut self) {
        if let Ok(decoder) = self.head.decoder() {
            self.decoder = decoder;
        }
    }

    /// Appends a packet's samples, interleaved, but for so many of each channel at its end; nothing where it is broken.
    pub(super) fn decode(&mut self, packet: &[u8], left_out: usize, out: &mut Vec<f32>) -> Option<Spec> {
        let channels = self.head.channels;
        // For an empty one, which stands for a packet that was lost, nobody knows how long it was.
        if packet.is_empty() {
            return None;
        }
        let decoded = match &mut self.decoder {
            Decoder::One(decoder) => decoder.decode(packet, LONGEST, &mut self.pcm),
            Decoder::Many(decoder) => decoder.decode(packet, LONGEST, &mut self.pcm),
        };
        let count = decoded.ok()?;
        let end = count.saturating_sub(left_out);
        let start = self.skip.min(end);
        self.skip -= start;
        let samples = self.pcm.get(start * channels..end * channels)?;
        out.extend(samples.iter().map(|sample| sample * self.head.gain));
        Spec::new(RATE, channels).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tail: &[u8]) -> Vec<u8> {
        // Version, two channels, 312 samples, 44,100 a second before, 6 dB less.
        let fixed = [1, 2, 0x38, 0x01, 0x44, 0xac, 0, 0, 0x00, 0xfa];
        [MAGIC, &fixed, tail].concat()
    }

    #[test]
    fn headers_are_read_in_both_orders() {
        let head = Head::read(&header(&[0]), Order::Low).unwrap();
        assert_eq!((head.channels, head.skip, head.streams), (2, 312, 1));
        assert!((head.gain - 0.5012).abs() < 1e-3);
        let mut high = header(&[0]);
        high[10..12].reverse();
        high[16..18].reverse();
        assert_eq!(Head::read(&high, Order::High), Some(head));
        let mut six = header(&[1, 4, 2, 0, 4, 1, 2, 3, 5]);
        six[9] = 6;
        assert_eq!(Head::read(&six, Order::Low).map(|head| (head.channels, head.streams)), Some((6, 4)));
        assert!(Opus::new(&six, Order::Low).is_ok());
    }

    #[test]
    fn headers_that_make_no_sense_are_refused() {
        let whole = header(&[1, 2]);
        for end in 0..whole.len() {
            assert!(Opus::new(&whole[..end], Order::Low).is_err(), "{end}");
        }
        // Streams that are not there, and none; a family that nobody knows; no channels.
        for tail in [[1, 200], [1, 0], [77, 1]] {
            assert!(Opus::new(&header(&tail), Order::Low).is_err(), "{tail:?}");
        }
        for (family, channels) in [(0, 0), (1, 0), (0, 3), (1, 9)] {
            let mut odd = header(&[family, 1]);
            odd[9] = channels;
            assert!(Opus::new(&odd, Order::Low).is_err(), "{channels} of {family}");
        }
    }
}
