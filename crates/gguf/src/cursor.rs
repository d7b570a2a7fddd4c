//! Bytes read from front to back. Nothing is ever read past the end.

use crate::{GgufError, Limits};

/// What is being read, in words, for errors; made only when one occurs.
pub(crate) type Place<'a> = &'a dyn Fn() -> String;

/// A position in the file.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    /// Where it stands, from the start of the bytes.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, count: u64, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let Some(taken) = taken else {
            return Err(GgufError::Truncated { place: place(), wanted: count - rest.len() as u64 });
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, place: Place<'_>) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, place)?);
        Ok(out)
    }

    pub(crate) fn u32(&mut self, place: Place<'_>) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(crate) fn u64(&mut self, place: Place<'_>) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    /// A string's bytes, after its length.
    pub(crate) fn string(
        &mut self,
        name: &'static str,
        limit: u64,
        place: Place<'_>,
    ) -> Result<&'a [u8], GgufError> {
        let len = self.u64(place)?;
        GgufError::check_limit(name, len, limit, place)?;
        self.take(len, place)
    }

    /// A name: text, not too long.
    pub(crate) fn name(&mut self, limits: &Limits, place: Place<'_>) -> Result<&'a str, GgufError> {
        let bytes = self.string("name_bytes", limits.name_bytes, place)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::invalid(place(), "the name is not UTF-8"))
    }
}
