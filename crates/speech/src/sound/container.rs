//! Files with a header: which container and codec they are is found out from their bytes, and packets are decoded one by
//! one. Packets that are broken are left out, a file that stops in the middle ends there, and one of which nothing can be
//! decoded is an error. So is one that the decoder trips over: its sums overflow on some broken headers, and what it has then
//! is thrown away.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::opus::{Opus, Order};
use super::{Packets, SoundError, Spec};

/// Broken packets in a row before a file is given up: a stretch of noise in a file is passed over, garbage is not read to
/// its end.
const MOST_BROKEN: usize = 1000;

/// The name of MP4 among formats.
const MP4: &str = "isomp4";

enum Decoder {
    Known(Box<dyn AudioDecoder>),
    Opus(Box<Opus>),
}

pub(super) struct Container {
    format: Box<dyn FormatReader>,
    decoder: Decoder,
    track: u32,
    seconds: Option<f64>,
    /// Whether a packet has been decoded.
    heard: bool,
    cut_off: bool,
}

impl Container {
    pub(super) fn open(source: Box<dyn MediaSource>) -> Result<Container, SoundError> {
        let stream = MediaSourceStream::new(source, MediaSourceStreamOptions::default());
        let probe = symphonia::default::get_probe();
        let (format, metadata) = (FormatOptions::default(), MetadataOptions::default());
        let probed = guarded(|| probe.probe(&Hint::new(), stream, format, metadata))?;
        let format = probed.map_err(|error| match error {
            Error::IoError(error) if error.kind() != ErrorKind::UnexpectedEof => SoundError::Io(error),
            Error::IoError(_) => SoundError::Unknown("it is too short".to_owned()),
            error => SoundError::Unknown(error.to_string()),
        })?;
        let track = format.default_track(TrackType::Audio).ok_or(SoundError::NoTrack)?;
        let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
        let parameters = parameters.ok_or(SoundError::NoTrack)?;
        let seconds = match (track.num_frames, parameters.sample_rate) {
            (Some(frames), Some(rate)) if rate > 0 => Some(frames as f64 / f64::from(rate)),
            _ => None,
        };
        let decoder = if parameters.codec == CODEC_ID_OPUS {
            let order = if format.format_info().short_name == MP4 { Order::High } else { Order::Low };
            let header = parameters.extra_data.as_deref().unwrap_or_default();
            Decoder::Opus(Box::new(Opus::new(header, order)?))
        } else {
            let (codecs, options) = (symphonia::default::get_codecs(), AudioDecoderOptions::default());
            let decoder = guarded(|| codecs.make_audio_decoder(parameters, &options))?;
            Decoder::Known(decoder.map_err(|error| SoundError::Codec(error.to_string()))?)
        };
        let track = track.id;
        Ok(Container { format, decoder, track, seconds, heard: false, cut_off: false })
    }

    pub(super) fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    /// The end of a file that cannot be read on; an error where nothing came before.
    fn end(&mut self, reason: &str) -> Result<Option<Spec>, SoundError> {
        self.cut_off = true;
        match self.heard {
            true => Ok(None),
            false => Err(SoundError::Broken(reason.to_owned())),
        }
    }
}

/// What a packet was.
enum Decoded {
    Sound(Spec),
    Nothing,
    Broken,
}

impl Decoder {
    /// Puts a packet's samples, interleaved, in place of what `out` holds.
    fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Result<Decoded, SoundError> {
        out.clear();
        let decoder = match self {
            Decoder::Known(decoder) => decoder,
            // Its samples are what the container counts time by, where that says what to leave out.
            Decoder::Opus(opus) => {
                let left_out = usize::try_from(packet.trim_end.get()).unwrap_or(usize::MAX);
                return guarded(|| match opus.decode(&packet.data, left_out, out) {
                    Some(_) if out.is_empty() => Decoded::Nothing,
                    Some(spec) => Decoded::Sound(spec),
                    None => Decoded::Broken,
                });
            }
        };
        match guarded(|| decoder.decode(packet))? {
            Ok(samples) if samples.is_empty() => Ok(Decoded::Nothing),
            Ok(samples) => {
                samples.copy_to_vec_interleaved(out);
                Spec::new(samples.spec().rate(), samples.spec().channels().count()).map(Decoded::Sound)
            }
            Err(Error::IoError(error)) if error.kind() != ErrorKind::UnexpectedEof => Err(error.into()),
            Err(_) => Ok(Decoded::Broken),
        }
    }
}

/// What a reader or decoder gives, with a panic as an error: whatever it holds is not used again.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, SoundError> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| SoundError::Broken("its decoder gave up".to_owned()))
}

impl Packets for Container {
    fn next(&mut self, out: &mut Vec<f32>) -> Result<Option<Spec>, SoundError> {
        out.clear();
        let mut broken = 0;
        while broken < MOST_BROKEN {
            let packet = match guarded(|| self.format.next_packet())? {
                Ok(Some(packet)) => packet,
                Ok(None) if !self.heard && broken > 0 => return self.end("every packet is broken"),
                Ok(None) => return Ok(None),
                Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return self.end("it ends in the middle");
                }
                Err(Error::IoError(error)) => return Err(error.into()),
                Err(Error::ResetRequired) => {
                    match &mut self.decoder {
                        Decoder::Known(decoder) => decoder.reset(),
                        Decoder::Opus(opus) => opus.reset(),
                    }
                    broken += 1;
                    continue;
                }
                Err(error) => return self.end(&error.to_string()),
            };
            if packet.track_id != self.track {
                continue;
            }
            match self.decoder.decode(&packet, out)? {
                Decoded::Sound(spec) => {
                    self.heard = true;
                    return Ok(Some(spec));
                }
                Decoded::Nothing => {}
                Decoded::Broken => broken += 1,
            }
        }
        self.end("one packet after another is broken")
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off
    }
}
