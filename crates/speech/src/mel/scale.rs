//! What models take instead of bare logarithms: a floor below the loudest, or each band's distance from its mean.

/// How far below the loudest Whisper hears.
const WHISPER_DEPTH: f32 = 8.0;
/// What Voxtral Realtime takes for the loudest, whatever is said: a stream does not know its own maximum.
pub const REALTIME_CEILING: f32 = 1.5;
/// Added to the standard deviation of a band.
const PARAKEET_EPSILON: f32 = 1e-5;

/// Whisper's scale, given the greatest logarithm of the whole sound.
pub fn whisper(frames: &mut [f32], ceiling: f32) {
    let floor = ceiling - WHISPER_DEPTH;
    frames.iter_mut().for_each(|value| *value = (value.max(floor) + 4.0) / 4.0);
}

/// Parakeet's scale: each band less its mean, by its deviation, over all frames.
pub fn parakeet(frames: &mut [f32], mels: usize) {
    let count = frames.len() / mels.max(1);
    if count == 0 {
        return;
    }
    for band in 0..mels {
        let values = || frames[band..].iter().step_by(mels).map(|&value| f64::from(value));
        let mean = values().sum::<f64>() / count as f64;
        let square = values().map(|value| (value - mean).powi(2)).sum::<f64>();
        // One frame has no deviation; published extractors divide by zero there.
        let deviation = (square / (count - 1).max(1) as f64).sqrt() as f32 + PARAKEET_EPSILON;
        for value in frames[band..].iter_mut().step_by(mels) {
            *value = (*value - mean as f32) / deviation;
        }
    }
}

/// Frame by frame becomes band by band, as encoders take it, with `width` frames: what is missing is 0.
pub fn by_band(frames: &[f32], mels: usize, width: usize) -> Vec<f32> {
    let mut bands = vec![0.0; mels * width];
    for (n, frame) in frames.chunks_exact(mels.max(1)).take(width).enumerate() {
        for (band, &value) in frame.iter().enumerate() {
            bands[band * width + n] = value;
        }
    }
    bands
}
