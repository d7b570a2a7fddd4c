//! How a camera was held: one number of the Exif data, and the image turned upright by it.

use crate::{Picture, Result};

/// The tag that says it.
const ORIENTATION: u16 = 0x0112;

/// The orientation in Exif data, 1 to 8; 1 where it is not said.
pub(crate) fn orientation(exif: &[u8]) -> u8 {
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    said(exif).filter(|held| (1..=8).contains(held)).map_or(1, |held| held as u8)
}

fn said(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let two = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let first = tiff.get(4..8)?.try_into().ok()?;
    let directory = if is_little { u32::from_le_bytes(first) } else { u32::from_be_bytes(first) } as usize;
    let entries = usize::from(two(directory)?);
    let mut places = (0..entries).map_while(|entry| directory.checked_add(2 + 12 * entry));
    let entry = places.find(|&at| two(at) == Some(ORIENTATION))?;
    two(entry.checked_add(8)?)
}

/// An image turned upright.
pub(crate) fn turned(picture: Picture, held: u8) -> Result<Picture> {
    if held == 1 {
        return Ok(picture);
    }
    let (width, height) = (picture.width(), picture.height());
    let (columns, rows) = if held >= 5 { (height, width) } else { (width, height) };
    let mut rgb = Vec::with_capacity(picture.rgb().len());
    for y in 0..rows {
        for x in 0..columns {
            let (x, y) = match held {
                2 => (width - 1 - x, y),
                3 => (width - 1 - x, height - 1 - y),
                4 => (x, height - 1 - y),
                5 => (y, x),
                6 => (y, height - 1 - x),
                7 => (width - 1 - y, height - 1 - x),
                _ => (width - 1 - y, x),
            };
            let at = (y * width + x) * 3;
            rgb.extend_from_slice(&picture.rgb()[at..at + 3]);
        }
    }
    Picture::new(columns, rows, rgb)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exif data with one entry, in either order of bytes.
    fn exif(held: u8, is_little: bool) -> Vec<u8> {
        match is_little {
            true => [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[held, 0, 0, 0]].concat(),
            false => {
                [&b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"[..], &[held, 0, 0]].concat()
            }
        }
    }

    #[test]
    fn images_are_turned_as_cameras_were_held() {
        // Red alone tells the pixels of `01 / 23 / 45` apart.
        let picture = Picture::new(2, 3, (0..6).flat_map(|red| [red, 0, 0]).collect()).unwrap();
        let cases: [(u8, usize, [u8; 6]); 8] = [
            (1, 2, [0, 1, 2, 3, 4, 5]),
            (2, 2, [1, 0, 3, 2, 5, 4]),
            (3, 2, [5, 4, 3, 2, 1, 0]),
            (4, 2, [4, 5, 2, 3, 0, 1]),
            (5, 3, [0, 2, 4, 1, 3, 5]),
            (6, 3, [4, 2, 0, 5, 3, 1]),
            (7, 3, [5, 3, 1, 4, 2, 0]),
            (8, 3, [1, 3, 5, 0, 2, 4]),
        ];
        for (held, width, wanted) in cases {
            for is_little in [true, false] {
                assert_eq!(orientation(&exif(held, is_little)), held);
            }
            let turned = turned(picture.clone(), held).unwrap();
            let reds: Vec<u8> = turned.rgb().iter().step_by(3).copied().collect();
            assert_eq!((turned.width(), &reds[..]), (width, &wanted[..]), "{held}");
        }
    }

    #[test]
    fn broken_data_mean_upright() {
        let whole = exif(6, true);
        for length in 0..whole.len() - 3 {
            assert_eq!(orientation(&whole[..length]), 1, "{length}");
        }
        for held in [0, 9, 255] {
            assert_eq!(orientation(&exif(held, false)), 1);
        }
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), 1);
    }
}
