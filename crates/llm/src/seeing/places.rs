//! Where images stand: templates write a placeholder for each, in the place of which come the marks of its rows. What messages
//! spell is text, whatever it spells.

use super::{Eyes, Image, SeeError, Shown};
use crate::tokenizer::Tokenizer;
use pteron_template::Rendered;
use std::ops::Range;

impl Eyes {
    /// The text with everything written that stands around an image, and one mark for its rows, where the template has written
    /// its placeholders.
    pub(crate) fn place(
        &self,
        rendered: Rendered,
        tokenizer: &Tokenizer,
        images: usize,
    ) -> Result<Rendered, SeeError> {
        let marks = self.marks();
        let spelled = |id| tokenizer.spelling(id).filter(|mark: &String| !mark.is_empty());
        let placeholder = spelled(marks.placeholder).ok_or(SeeError::Marks)?;
        let row = spelled(marks.row).ok_or(SeeError::Marks)?;
        let inner = match marks.end {
            Some(end) => {
                let begin = spelled(marks.begin.unwrap_or(marks.placeholder)).ok_or(SeeError::Marks)?;
                format!("{begin}{row}{}", spelled(end).ok_or(SeeError::Marks)?)
            }
            None => row,
        };
        let Rendered { text, heard } = rendered;
        let written = |place: &usize| !touches(&heard, &(*place..*place + placeholder.len()));
        let places: Vec<usize> =
            text.match_indices(&placeholder).map(|(place, _)| place).filter(written).collect();
        if places.len() != images {
            return Err(SeeError::Places { images, places: places.len() });
        }
        let whole = format!("{around}{inner}{around}", around = marks.around);
        let more = whole.len() as isize - placeholder.len() as isize;
        let mut placed = Rendered::default();
        let mut from = 0;
        for &place in &places {
            placed.text.push_str(&text[from..place]);
            placed.text.push_str(&whole);
            from = place + placeholder.len();
        }
        placed.text.push_str(&text[from..]);
        let moved = |part: &Range<usize>| {
            let by = places.partition_point(|&place| place < part.start) as isize * more;
            part.start.saturating_add_signed(by)..part.end.saturating_add_signed(by)
        };
        placed.heard = heard.iter().map(moved).collect();
        Ok(placed)
    }

    /// The parts of a text that was heard which spell a mark of images.
    pub(crate) fn spelled_marks(&self, rendered: &Rendered, tokenizer: &Tokenizer) -> Vec<Range<usize>> {
        let marks = self.marks();
        let mut found = Vec::new();
        for id in [Some(marks.placeholder), Some(marks.row), marks.begin, marks.end].into_iter().flatten() {
            let Some(mark) = tokenizer.spelling(id).filter(|mark| !mark.is_empty()) else { continue };
            let spelled = rendered.text.match_indices(&mark).map(|(at, mark)| at..at + mark.len());
            found.extend(spelled.filter(|range| touches(&rendered.heard, range)));
        }
        found.sort_by_key(|range| range.start);
        found
    }

    /// The tokens with a mark for each row of each image, where there was one for all of its rows. Places are counted from
    /// `from` on.
    pub(crate) fn fill(
        &self,
        tokens: &[u32],
        images: &[Image],
        from: usize,
    ) -> Result<(Vec<u32>, Vec<Shown>), SeeError> {
        let row = self.marks().row;
        let places = tokens.iter().filter(|&&token| token == row).count();
        if places != images.len() {
            return Err(SeeError::Places { images: images.len(), places });
        }
        let (mut filled, mut shown) = (Vec::with_capacity(tokens.len()), Vec::with_capacity(images.len()));
        let mut images = images.iter();
        for &token in tokens {
            match if token == row { images.next() } else { None } {
                Some(image) => {
                    shown.push(Shown { at: from + filled.len(), image: image.clone() });
                    filled.extend(std::iter::repeat_n(row, image.rows()));
                }
                None => filled.push(token),
            }
        }
        Ok((filled, shown))
    }
}

/// Whether a range shares bytes with one of several, which are in order.
fn touches(heard: &[Range<usize>], range: &Range<usize>) -> bool {
    let next = heard.partition_point(|part| part.end <= range.start);
    heard.get(next).is_some_and(|part| part.start < range.end)
}
