//! Mel front ends: sound at 16,000 samples a second in, frames of log energies by mel band out, every 10 ms.
//!
//! [`Mel`] takes samples as they come. What differs between families is data ([`MelSettings`]); the three that are known
//! follow their published extractors number by number, so that transforms are computed in f64 as those have them. Scaling is
//! a step of its own ([`scale`]), because it looks at more than one frame.

mod filters;
pub mod frames;
pub mod scale;

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use filters::{Filter, slaney};

/// Samples between two frames, in all families.
pub const HOP: usize = 160;

/// What lies before the first and behind the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The sound again, backwards.
    Reflect,
    /// Nothing.
    Zeros,
}

/// The logarithm of an energy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Logarithm {
    /// To base 10, of at least this much.
    TenAbove(f32),
    /// Natural, of the energy and this much more.
    NaturalPlus(f32),
}

/// What a front end is like.
#[derive(Clone, Debug, PartialEq)]
pub struct MelSettings {
    /// Points of a transform.
    pub n_fft: usize,
    /// Samples that the window covers, in the middle of the transform.
    pub window: usize,
    /// Whether the window's last sample equals its first, as the period of a longer one does not.
    pub symmetric: bool,
    /// What lies outside.
    pub padding: Padding,
    /// The share of the sample before that is taken off each sample.
    pub pre_emphasis: f32,
    /// Bands.
    pub mels: usize,
    /// The logarithm.
    pub logarithm: Logarithm,
}

impl MelSettings {
    /// Whisper's, Voxtral's and Voxtral Realtime's front end, with 80 or 128 bands.
    pub fn whisper(mels: usize) -> MelSettings {
        MelSettings {
            n_fft: 400,
            window: 400,
            symmetric: false,
            padding: Padding::Reflect,
            pre_emphasis: 0.0,
            mels,
            logarithm: Logarithm::TenAbove(1e-10),
        }
    }

    /// Parakeet's, with 80 or 128 bands.
    pub fn parakeet(mels: usize) -> MelSettings {
        MelSettings {
            n_fft: 512,
            window: 400,
            symmetric: true,
            padding: Padding::Zeros,
            pre_emphasis: 0.97,
            mels,
            logarithm: Logarithm::NaturalPlus(1.0 / (1 << 24) as f32),
        }
    }
}

/// Sound on its way to frames.
pub struct Mel {
    settings: MelSettings,
    transform: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    filters: Vec<Filter>,
    /// Samples that frames to come are made of.
    held: Vec<f32>,
    /// Whether what lies before the first sample is in `held`.
    started: bool,
    last: f32,
    samples: u64,
    frames: u64,
    inputs: Vec<f64>,
    spectrum: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    power: Vec<f32>,
}

impl Mel {
    /// A front end at the beginning of a sound.
    pub fn new(settings: MelSettings) -> Mel {
        let n_fft = settings.n_fft;
        let transform = RealFftPlanner::new().plan_fft_forward(n_fft);
        Mel {
            window: window(&settings),
            filters: slaney(settings.mels, n_fft),
            held: Vec::new(),
            started: false,
            last: 0.0,
            samples: 0,
            frames: 0,
            inputs: transform.make_input_vec(),
            spectrum: transform.make_output_vec(),
            scratch: transform.make_scratch_vec(),
            power: vec![0.0; n_fft / 2 + 1],
            transform,
            settings,
        }
    }

    /// Bands of a frame.
    pub fn mels(&self) -> usize {
        self.settings.mels
    }

    /// Samples that it has been given.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Takes samples, and appends the logarithms of the frames that they complete, frame by frame.
    pub fn push(&mut self, samples: &[f32], frames: &mut Vec<f32>) {
        self.samples += samples.len() as u64;
        match self.settings.pre_emphasis {
            0.0 => self.held.extend_from_slice(samples),
            share => {
                for &sample in samples {
                    self.held.push(sample - share * self.last);
                    self.last = sample;
                }
            }
        }
        if !self.started && self.held.len() > self.settings.n_fft / 2 {
            self.start();
        }
        if self.started {
            self.make(frames, u64::MAX);
        }
    }

    /// The end of the sound: the frames that are left, one for each whole [`HOP`] in all.
    pub fn finish(&mut self, frames: &mut Vec<f32>) {
        if !self.started {
            self.start();
        }
        let pad = self.settings.n_fft / 2;
        match self.settings.padding {
            Padding::Zeros => self.held.resize(self.held.len() + pad, 0.0),
            Padding::Reflect => {
                let end = self.held.len();
                for back in 2..pad + 2 {
                    let sample = end.checked_sub(back).map_or(0.0, |at| self.held[at]);
                    self.held.push(sample);
                }
            }
        }
        self.make(frames, self.samples / HOP as u64);
    }

    /// Puts what lies before the sound in front of it.
    fn start(&mut self) {
        let pad = self.settings.n_fft / 2;
        let before = |at: usize| match self.settings.padding {
            Padding::Zeros => 0.0,
            Padding::Reflect => self.held.get(pad - at).copied().unwrap_or(0.0),
        };
        let front: Vec<f32> = (0..pad).map(before).collect();
        self.held.splice(..0, front);
        self.started = true;
    }

    fn make(&mut self, frames: &mut Vec<f32>, most: u64) {
        let mut at = 0;
        while self.frames < most
            && let Some(samples) = self.held.get(at..at + self.settings.n_fft)
        {
            for ((input, &sample), weight) in self.inputs.iter_mut().zip(samples).zip(&self.window) {
                *input = f64::from(sample) * weight;
            }
            // It fails where lengths do not fit, and all of them are its own.
            let _ =
                self.transform.process_with_scratch(&mut self.inputs, &mut self.spectrum, &mut self.scratch);
            for (power, bin) in self.power.iter_mut().zip(&self.spectrum) {
                *power = bin.norm_sqr() as f32;
            }
            for filter in &self.filters {
                let energy = filter.apply(&self.power);
                frames.push(match self.settings.logarithm {
                    Logarithm::TenAbove(least) => energy.max(least).log10(),
                    Logarithm::NaturalPlus(more) => (energy + more).ln(),
                });
            }
            self.frames += 1;
            at += HOP;
        }
        self.held.drain(..at.min(self.held.len()));
    }
}

/// A Hann window in the middle of a transform.
fn window(settings: &MelSettings) -> Vec<f64> {
    let (n_fft, length) = (settings.n_fft, settings.window);
    let period = if settings.symmetric { length - 1 } else { length } as f64;
    let start = (n_fft - length) / 2;
    let mut window = vec![0.0; n_fft];
    for (n, weight) in window[start..start + length].iter_mut().enumerate() {
        *weight = 0.5 - 0.5 * (2.0 * std::f64::consts::PI * n as f64 / period).cos();
    }
    window
}
