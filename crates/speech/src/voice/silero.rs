//! Silero's network for 16,000 samples a second, from the weights that it is published with: the magnitudes of four short
//! spectra, four convolutions, a recurrent cell, a probability.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use super::{CHUNK, Judge};
use crate::{Result, SpeechError};

/// Samples before a chunk that it looks at too.
const CONTEXT: usize = 64;
/// Samples behind them, which are those before the end again, backwards.
const BEHIND: usize = 64;
/// Points of a spectrum, and samples between two.
const POINTS: usize = 256;
const STRIDE: usize = 128;
const BINS: usize = POINTS / 2 + 1;
const SPECTRA: usize = (CONTEXT + CHUNK + BEHIND - POINTS) / STRIDE + 1;
/// Features of the recurrent cell.
const WIDTH: usize = 128;
/// How far the published transform may be from the one that is computed here.
const CLOSE: f32 = 1e-5;

/// The network and its memory of what came before.
pub struct Silero {
    window: Vec<f32>,
    transform: Arc<dyn RealToComplex<f32>>,
    convolutions: [Convolution; 4],
    from_input: Vec<f32>,
    from_state: Vec<f32>,
    bias: Vec<f32>,
    out: Vec<f32>,
    out_bias: f32,
    context: [f32; CONTEXT],
    hidden: Vec<f32>,
    cell: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

/// Three columns at a time, then what is above zero.
struct Convolution {
    inputs: usize,
    stride: usize,
    /// A row an output: column by column, inputs side by side.
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Silero {
    /// The network from the bytes of its safetensors file.
    pub fn read(file: &[u8]) -> Result<Silero> {
        let wrong = |problem: String| SpeechError::Model(format!("this is not Silero's network: {problem}"));
        let tensors = SafeTensors::deserialize(file).map_err(|error| wrong(error.to_string()))?;
        let floats = |name: &str, shape: &[usize]| -> Result<Vec<f32>> {
            let tensor = tensors.tensor(name).map_err(|error| wrong(error.to_string()))?;
            if tensor.shape() != shape || tensor.dtype() != Dtype::F32 {
                return Err(wrong(format!("`{name}` is {} {:?}", tensor.dtype(), tensor.shape())));
            }
            Ok(tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        let convolution = |name: &str, inputs: usize, outputs: usize, stride: usize| -> Result<Convolution> {
            let stored = floats(&format!("{name}.weight"), &[outputs, inputs, 3])?;
            let mut weights = Vec::with_capacity(stored.len());
            for row in stored.chunks(3 * inputs) {
                (0..3).for_each(|column| weights.extend(row[column..].iter().step_by(3)));
            }
            Ok(Convolution { inputs, stride, weights, bias: floats(&format!("{name}.bias"), &[outputs])? })
        };
        let window = window();
        // A windowed transform is published as a convolution; a fast one gives the same.
        let stft = floats("stft_conv.weight", &[2 * BINS, 1, POINTS])?;
        if !is_transform(&stft, &window) {
            return Err(wrong("its first layer is no Fourier transform".to_owned()));
        }
        let transform = RealFftPlanner::new().plan_fft_forward(POINTS);
        let gates = 4 * WIDTH;
        let (mut bias, more) =
            (floats("lstm_cell.bias_ih", &[gates])?, floats("lstm_cell.bias_hh", &[gates])?);
        bias.iter_mut().zip(more).for_each(|(bias, more)| *bias += more);
        Ok(Silero {
            window,
            convolutions: [
                convolution("conv1", BINS, 128, 1)?,
                convolution("conv2", 128, 64, 2)?,
                convolution("conv3", 64, 64, 2)?,
                convolution("conv4", 64, WIDTH, 1)?,
            ],
            from_input: floats("lstm_cell.weight_ih", &[gates, WIDTH])?,
            from_state: floats("lstm_cell.weight_hh", &[gates, WIDTH])?,
            bias,
            out: floats("final_conv.weight", &[1, WIDTH, 1])?,
            out_bias: floats("final_conv.bias", &[1])?[0],
            context: [0.0; CONTEXT],
            hidden: vec![0.0; WIDTH],
            cell: vec![0.0; WIDTH],
            spectrum: transform.make_output_vec(),
            scratch: transform.make_scratch_vec(),
            transform,
        })
    }

    /// Magnitudes, spectrum by spectrum.
    fn spectra(&mut self, chunk: &[f32; CHUNK]) -> Vec<f32> {
        let mut samples = Vec::with_capacity(CONTEXT + CHUNK + BEHIND);
        samples.extend(self.context);
        samples.extend(chunk);
        let end = samples.len() - 1;
        (1..=BEHIND).for_each(|back| samples.push(samples[end - back]));
        self.context.copy_from_slice(&chunk[CHUNK - CONTEXT..]);
        let mut magnitudes = Vec::with_capacity(SPECTRA * BINS);
        for start in (0..SPECTRA).map(|number| number * STRIDE) {
            let weighted = samples[start..start + POINTS].iter().zip(&self.window);
            let mut inputs: Vec<f32> = weighted.map(|(sample, weight)| sample * weight).collect();
            // It fails where lengths do not fit, and all of them are its own.
            let _ = self.transform.process_with_scratch(&mut inputs, &mut self.spectrum, &mut self.scratch);
            magnitudes.extend(self.spectrum.iter().map(|bin| bin.norm_sqr().sqrt()));
        }
        magnitudes
    }

    /// One step of the recurrent cell, its gates in torch's order: input, forget, new, output.
    fn step(&mut self, input: &[f32]) {
        let gate = |at: usize| {
            let row = at * WIDTH..(at + 1) * WIDTH;
            self.bias[at]
                + dot(&self.from_input[row.clone()], input)
                + dot(&self.from_state[row], &self.hidden)
        };
        let gates: Vec<f32> = (0..4 * WIDTH).map(gate).collect();
        for at in 0..WIDTH {
            let [enter, forget, new, leave] = [0, 1, 2, 3].map(|number| gates[number * WIDTH + at]);
            self.cell[at] = sigmoid(forget) * self.cell[at] + sigmoid(enter) * new.tanh();
            self.hidden[at] = sigmoid(leave) * self.cell[at].tanh();
        }
    }
}

impl Judge for Silero {
    fn probability(&mut self, chunk: &[f32; CHUNK]) -> f32 {
        let mut columns = self.spectra(chunk);
        for convolution in &self.convolutions {
            columns = convolution.apply(&columns);
        }
        self.step(&columns);
        let sum = dot(&self.out, &self.hidden.iter().map(|x| x.max(0.0)).collect::<Vec<_>>());
        sigmoid(sum + self.out_bias)
    }

    fn reset(&mut self) {
        self.context.fill(0.0);
        self.hidden.fill(0.0);
        self.cell.fill(0.0);
    }
}

impl Convolution {
    /// Columns of inputs to columns of outputs, with a column of zeros on each side.
    fn apply(&self, columns: &[f32]) -> Vec<f32> {
        let count = columns.len() / self.inputs;
        let mut padded = vec![0.0; (count + 2) * self.inputs];
        padded[self.inputs..][..columns.len()].copy_from_slice(columns);
        let mut made = Vec::new();
        for column in (0..count).step_by(self.stride) {
            let seen = &padded[column * self.inputs..][..3 * self.inputs];
            let rows = self.weights.chunks_exact(3 * self.inputs).zip(&self.bias);
            made.extend(rows.map(|(row, bias)| (dot(row, seen) + bias).max(0.0)));
        }
        made
    }
}

/// A Hann window with its period.
fn window() -> Vec<f32> {
    let angle = |n: usize| 2.0 * std::f64::consts::PI * n as f64 / POINTS as f64;
    (0..POINTS).map(|n| (0.5 - 0.5 * angle(n).cos()) as f32).collect()
}

/// Whether rows are cosines, then sines, under the window.
fn is_transform(rows: &[f32], window: &[f32]) -> bool {
    rows.chunks_exact(POINTS).enumerate().all(|(row, weights)| {
        let bin = row % BINS;
        weights.iter().enumerate().all(|(n, weight)| {
            let angle = 2.0 * std::f64::consts::PI * ((bin * n) % POINTS) as f64 / POINTS as f64;
            let wave = if row < BINS { angle.cos() } else { -angle.sin() };
            (wave as f32 * window[n] - weight).abs() < CLOSE
        })
    })
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// A product of two rows, in sixteen sums that the compiler can keep in vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
