//! Files of the formats that are read, told by what they begin with. Sizes are looked at before memory is asked for.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::orientation::{orientation, turned};
use crate::picture::{MOST_PIXELS, check};
use crate::{Picture, PictureError, Result};

/// What files of each format begin with.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG: &[u8] = b"\xff\xd8\xff";
/// Formats that are known and not read.
const OTHERS: [(&[u8], &str); 7] = [
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\x00\x00\x01\x00", "ICO"),
    (b"\xff\x0a", "JPEG XL"),
    (b"8BPS", "PSD"),
];

pub(crate) fn decode(bytes: &[u8]) -> Result<Picture> {
    if bytes.is_empty() {
        return Err(PictureError::Empty);
    }
    if bytes.starts_with(PNG) {
        return png(bytes);
    }
    if bytes.starts_with(JPEG) {
        return jpeg(bytes);
    }
    if let Some((_, name)) = OTHERS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Err(PictureError::Format(name));
    }
    match (bytes.get(..4), bytes.get(4..8), bytes.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WEBP")) => Err(PictureError::Format("WebP")),
        (_, Some(b"ftyp"), Some(b"avif")) => Err(PictureError::Format("AVIF")),
        (_, Some(b"ftyp"), Some(b"heic" | b"heix" | b"mif1")) => Err(PictureError::Format("HEIC")),
        _ => Err(PictureError::NotAnImage),
    }
}

fn damaged(problem: impl std::fmt::Display) -> PictureError {
    PictureError::Damaged(problem.to_string())
}

fn png(bytes: &[u8]) -> Result<Picture> {
    // Beside the pixels, which are 4 bytes at most once they are expanded.
    let limits = Limits { bytes: MOST_PIXELS * 4 };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    let header = decoder.read_header_info().map_err(damaged)?;
    let (width, height) = (header.width as usize, header.height as usize);
    check(width, height)?;
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = reader.output_buffer_size().filter(|&size| size <= MOST_PIXELS * 4);
    let mut pixels = vec![0; size.ok_or_else(|| damaged("more bytes than pixels have"))?];
    let frame = reader.next_frame(&mut pixels).map_err(damaged)?;
    pixels.truncate(frame.buffer_size());
    let rgb = match frame.color_type {
        ColorType::Rgb => pixels,
        ColorType::Rgba => {
            let on_white = |pixel: &[u8]| [0, 1, 2].map(|channel| on_white(pixel[channel], pixel[3]));
            pixels.chunks_exact(4).flat_map(on_white).collect()
        }
        ColorType::Grayscale => pixels.iter().flat_map(|&grey| [grey; 3]).collect(),
        ColorType::GrayscaleAlpha => {
            pixels.chunks_exact(2).flat_map(|pixel| [on_white(pixel[0], pixel[1]); 3]).collect()
        }
        ColorType::Indexed => return Err(damaged("its colours have no palette")),
    };
    let held = reader.info().exif_metadata.as_deref().map_or(1, orientation);
    turned(Picture::new(width, height, rgb)?, held)
}

/// What is seen of a value that lies on white and lets some of it through: processors of models have it so.
fn on_white(value: u8, opacity: u8) -> u8 {
    let (value, opacity) = (u32::from(value), u32::from(opacity));
    ((value * opacity + 255 * (255 - opacity) + 127) / 255) as u8
}

fn jpeg(bytes: &[u8]) -> Result<Picture> {
    let options = DecoderOptions::default()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| damaged(format!("{error:?}")))?;
    let (width, height) = decoder.dimensions().ok_or_else(|| damaged("it has no size"))?;
    check(width, height)?;
    let rgb = decoder.decode().map_err(|error| damaged(format!("{error:?}")))?;
    let held = decoder.exif().map_or(1, |exif| orientation(exif));
    turned(Picture::new(width, height, rgb)?, held)
}
