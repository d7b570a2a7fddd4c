//! Going back in a text: by naming an earlier position where the caches still hold what lies before it, else to a place
//! that was remembered, else to the beginning. Whatever way it takes, the caches hold what a new session would hold.

use super::Decoder;
use super::marks::{Mark, Marks};
use crate::Result;
use crate::caches::Kind;
use crate::seeing::PromptRef;
use pteron_runtime::BufferInfo;
use pteron_runtime::backend::Rewind;
use pteron_tensor::HostTensor;

/// How a decoder came to hold the beginning of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Tokens that both texts have in common.
    pub common: usize,
    /// Tokens that need not be read again.
    pub kept: usize,
    /// Whether a kept copy of the caches was put back.
    pub restored: bool,
}

impl Decoder {
    /// Remembers this place, where going back to it would otherwise mean to read the text again.
    pub fn mark(&mut self) -> Result<()> {
        self.drop_ahead()?;
        let caches = self.model.caches();
        if caches.rewind_freely() || self.tokens.is_empty() {
            return Ok(());
        }
        let mark = Mark::of(&self.session, caches, self.tokens.len())?;
        self.marks.keep(mark);
        Ok(())
    }

    /// Goes back until the caches hold no more than the beginning that the text shares with what they hold, and at least
    /// one token of it is left to be read. What is kept may be less than that beginning where a cache has lost it.
    pub fn begin<'t>(&mut self, text: impl Into<PromptRef<'t>>) -> Result<Reuse> {
        let text = text.into();
        let common = self.common(text);
        self.begin_behind(common, common, text)
    }

    /// As [`Decoder::begin`], but never into the middle of what was read in one call: the last tokens of a prompt that is
    /// asked again are read as they were at first, many at a time, since products of one row are summed in another order
    /// than those of many. Greedy answers are the same for that, at every precision.
    pub fn begin_at_call<'t>(&mut self, text: impl Into<PromptRef<'t>>) -> Result<Reuse> {
        let text = text.into();
        let common = self.common(text);
        let inside = self.calls.iter().find(|call| call.start < common && common < call.end);
        self.begin_behind(common, inside.map_or(common, |call| call.start), text)
    }

    /// Goes back to a place of the beginning that is common to both texts. What comes behind it may be images of the new one.
    fn begin_behind(&mut self, common: usize, to: usize, text: PromptRef<'_>) -> Result<Reuse> {
        let restored = self.go_back(if self.reads_alike(text.tokens) { to } else { 0 })?;
        self.images.clear();
        self.images.extend_from_slice(text.images);
        Ok(Reuse { common, kept: self.tokens.len(), restored })
    }

    /// Tokens that a text shares with what the caches hold, but for its last one.
    fn common(&self, text: PromptRef<'_>) -> usize {
        let common = self.shared(text).min(text.tokens.len().saturating_sub(1));
        text.images.iter().find(|shown| shown.holds(common)).map_or(common, |shown| shown.at)
    }

    /// Tokens at the beginning that a text shares with what the caches hold.
    pub(crate) fn shared(&self, text: PromptRef<'_>) -> usize {
        let held = self.images.iter().take_while(|shown| shown.at < self.tokens.len()).count();
        text.shared(&self.tokens, &self.images[..held])
    }

    /// Whether what the caches hold was read as a text of this length is. A conversation that grows beyond a border is read
    /// anew, as whoever has no cache of it would read it.
    fn reads_alike(&self, text: &[u32]) -> bool {
        self.model.reads_alike(self.told, text.len())
    }

    /// Goes back to a position or, where the caches have lost what it takes, to an earlier one: the position that it came
    /// to. From within an image it goes to where that begins.
    pub fn rewind(&mut self, to: usize) -> Result<usize> {
        self.go_back(to)?;
        Ok(self.tokens.len())
    }

    /// As [`Decoder::rewind`]; whether a copy of the caches was put back.
    fn go_back(&mut self, to: usize) -> Result<bool> {
        self.drop_ahead()?;
        if to >= self.tokens.len() {
            return Ok(false);
        }
        let to = self.images.iter().find(|shown| shown.holds(to)).map_or(to, |shown| shown.at);
        // Copies of what was in the caches, and new ones, have a shift of their own.
        self.shift = None;
        self.marks.forget_after(to);
        let restored = match self.cut(to)? {
            true => {
                self.tokens.truncate(to);
                false
            }
            false => match self.marks.last() {
                Some(mark) => {
                    mark.restore(&mut self.session)?;
                    let position = mark.position();
                    self.cut_lines(position)?;
                    self.tokens.truncate(position);
                    self.high = position;
                    true
                }
                None => {
                    self.empty()?;
                    false
                }
            },
        };
        let held = self.tokens.len();
        self.calls.retain_mut(|call| {
            call.end = call.end.min(held);
            call.start < held
        });
        Ok(restored)
    }

    /// Empties the caches, but keeps plans and working memory where it can.
    fn empty(&mut self) -> Result<()> {
        let model = self.model.clone();
        let caches = model.caches();
        // Buffers of the program itself begin with values of their own.
        let zero = caches.buffers.iter().all(|(buffer, _)| buffer.id.delegate.is_some());
        if !zero || (caches.off_graph && self.session.rewind_to(0)? != Rewind::Done) {
            self.session.reset()?;
        } else {
            for (buffer, kind) in &caches.buffers {
                if !matches!(kind, Kind::Line { looks_behind: false, .. }) {
                    let zeros = HostTensor::zeros(buffer.dtype, buffer.shape.clone());
                    self.session.write(&buffer.id, &zeros.map_err(pteron_runtime::Error::from)?)?;
                }
            }
        }
        self.tokens.clear();
        self.high = 0;
        Ok(())
    }

    /// Cuts the caches back to a position, where they still hold what lies before it; whether they did.
    pub(super) fn cut(&mut self, to: usize) -> Result<bool> {
        let caches = self.model.caches();
        if !caches.hold(to, self.high) {
            return Ok(false);
        }
        if caches.off_graph && self.session.rewind_to(to)? != Rewind::Done {
            return Ok(false);
        }
        self.cut_lines(to)?;
        let model = self.model.clone();
        let mut whole = true;
        for (buffer, kind) in &model.caches().buffers {
            if let Kind::Ring { axis, .. } = kind {
                match self.high <= buffer.shape[*axis] {
                    true => self.clear(buffer, *axis, to)?,
                    false => whole = false,
                }
            }
        }
        if whole {
            self.high = to;
        }
        Ok(true)
    }

    /// Clears what lies behind a position in buffers that the program looks at as a whole.
    fn cut_lines(&mut self, to: usize) -> Result<()> {
        let model = self.model.clone();
        for (buffer, kind) in &model.caches().buffers {
            if let Kind::Line { axis, looks_behind: true } = kind {
                self.clear(buffer, *axis, to)?;
            }
        }
        Ok(())
    }

    fn clear(&mut self, buffer: &BufferInfo, axis: usize, from: usize) -> Result<()> {
        let mut tensor = self.session.read(&buffer.id)?;
        let slot = buffer.shape[axis + 1..].iter().product::<usize>() * buffer.dtype.size();
        let row = slot * buffer.shape[axis];
        if row > 0 {
            for row in tensor.bytes_mut().chunks_mut(row) {
                let start = (from * slot).min(row.len());
                row[start..].fill(0);
            }
            self.session.write(&buffer.id, &tensor)?;
        }
        Ok(())
    }

    /// Empties the caches.
    pub fn reset(&mut self) -> Result<()> {
        self.ahead = None;
        self.marks = Marks::default();
        self.calls.clear();
        self.images.clear();
        self.shift = None;
        self.empty()
    }
}
