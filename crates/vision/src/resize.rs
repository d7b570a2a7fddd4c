//! Resizing as the Pillow library does it, to the bit: a filter that widens where an image shrinks, weights in fixed point,
//! one direction after the other, bytes in between.

use pteron_companion::Filter;

use crate::{Picture, Result};

/// Bits of a weight behind the point.
const PRECISION: u32 = 22;

/// Weights of one pixel of the result: where they begin, and each.
struct Taps {
    from: usize,
    weights: Vec<i32>,
}

/// The image in another size.
pub(crate) fn resized(picture: &Picture, width: usize, height: usize, filter: Filter) -> Result<Picture> {
    let (columns, rows) = (picture.width(), picture.height());
    if (columns, rows) == (width, height) {
        return Ok(picture.clone());
    }
    if filter == Filter::Nearest {
        return nearest(picture, width, height);
    }
    // Rows come first where the image loses more than twice as many of them as of columns; the order shows in the last bits.
    let rows_first = height < rows && (rows - height) + 2 * width > 2 * columns;
    let mut rgb = picture.rgb().to_vec();
    if rows_first {
        rgb = high(&rgb, columns, (rows, height), filter);
    }
    if columns != width {
        rgb = wide(&rgb, (columns, width), filter);
    }
    if rows != height && !rows_first {
        rgb = high(&rgb, width, (rows, height), filter);
    }
    Picture::new(width, height, rgb)
}

/// Another number of columns.
fn wide(rgb: &[u8], (from, to): (usize, usize), filter: Filter) -> Vec<u8> {
    let taps = taps(from, to, filter);
    let mut made = Vec::with_capacity(rgb.len() / from * to);
    for row in rgb.chunks_exact(from * 3) {
        for Taps { from, weights } in &taps {
            let mut sums = [1i32 << (PRECISION - 1); 3];
            for (pixel, weight) in row[from * 3..].chunks_exact(3).zip(weights) {
                add(&mut sums, pixel, *weight);
            }
            made.extend(sums.map(clipped));
        }
    }
    made
}

/// Another number of rows of that width.
fn high(rgb: &[u8], width: usize, (from, to): (usize, usize), filter: Filter) -> Vec<u8> {
    let mut made = Vec::with_capacity(width * to * 3);
    let mut sums = vec![0i32; width * 3];
    for Taps { from, weights } in &taps(from, to, filter) {
        sums.fill(1 << (PRECISION - 1));
        for (row, weight) in rgb[from * width * 3..].chunks_exact(width * 3).zip(weights) {
            add(&mut sums, row, *weight);
        }
        made.extend(sums.iter().map(|&sum| clipped(sum)));
    }
    made
}

/// Weights add up to one, and bytes have eight bits: no sum leaves 32 bits but for filters that ring, which wrap as they do
/// in the reference.
fn add(sums: &mut [i32], values: &[u8], weight: i32) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(i32::from(value).wrapping_mul(weight));
    }
}

fn clipped(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// What each of `to` pixels is made of, of `from` that there are.
fn taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = reach(filter) * stretch;
    let of = |at: usize| {
        let centre = (at as f64 + 0.5) * scale;
        let first = ((centre - support + 0.5) as isize).max(0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let weights = (first..end).map(|x| weight(filter, (x as f64 - centre + 0.5) / stretch));
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let fixed = |weight: &f64| {
            let weight = if sum == 0.0 { *weight } else { weight / sum } * f64::from(1u32 << PRECISION);
            // Cut off behind a half away from zero.
            (if weight < 0.0 { weight - 0.5 } else { weight + 0.5 }) as i32
        };
        Taps { from: first, weights: weights.iter().map(fixed).collect() }
    };
    (0..to).map(of).collect()
}

/// How far a filter reaches in an image that does not shrink.
fn reach(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest | Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

fn weight(filter: Filter, x: f64) -> f64 {
    let sinc = |x: f64| {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { x.sin() / x }
    };
    let far = x.abs();
    match filter {
        Filter::Nearest | Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
        Filter::Bilinear => (1.0 - far).max(0.0),
        Filter::Hamming if far < 1.0 => sinc(far) * (0.54 + 0.46 * (far * std::f64::consts::PI).cos()),
        // Keys' filter with a slope of -0.5.
        Filter::Bicubic if far < 1.0 => (1.5 * far - 2.5) * far * far + 1.0,
        Filter::Bicubic if far < 2.0 => (((far - 5.0) * far + 8.0) * far - 4.0) * -0.5,
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        _ => 0.0,
    }
}

fn nearest(picture: &Picture, width: usize, height: usize) -> Result<Picture> {
    let place = |at: usize, from: usize, to: usize| {
        (((at as f64 + 0.5) * (from as f64 / to as f64)) as usize).min(from - 1)
    };
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        let row = place(y, picture.height(), height) * picture.width();
        for x in 0..width {
            let at = (row + place(x, picture.width(), width)) * 3;
            rgb.extend_from_slice(&picture.rgb()[at..at + 3]);
        }
    }
    Picture::new(width, height, rgb)
}
