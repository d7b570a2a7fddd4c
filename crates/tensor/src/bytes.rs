//! A shared, immutable-until-unique region of memory: owned and aligned, or borrowed from an owner such as a
//! mapped file. Cloning shares; writing to owned memory that somebody else holds copies first.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Something that keeps bytes alive and unchanged, for instance a mapped file.
pub trait ByteOwner: Send + Sync {
    /// The whole region; must return the same region every time.
    fn bytes(&self) -> &[u8];
}

impl ByteOwner for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Another holder's region as an owner.
struct Held(Bytes);

impl ByteOwner for Held {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Owned storage in words of eight bytes, so that every dtype finds its alignment.
#[derive(Clone)]
struct Words {
    words: Vec<u64>,
    len: usize,
}

impl Words {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

#[derive(Clone)]
enum Region {
    Owned(Arc<Words>),
    Shared { owner: Arc<dyn ByteOwner>, range: Range<usize> },
}

/// A cheaply cloned region of bytes.
#[derive(Clone)]
pub struct Bytes(Region);

impl Bytes {
    /// `len` zero bytes, aligned for every dtype.
    pub fn zeroed(len: usize) -> Bytes {
        Bytes(Region::Owned(Arc::new(Words { words: vec![0; len.div_ceil(8)], len })))
    }

    /// An aligned copy of `data`.
    pub fn copy_of(data: &[u8]) -> Bytes {
        let mut words = vec![0u64; data.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..data.len()].copy_from_slice(data);
        Bytes(Region::Owned(Arc::new(Words { words, len: data.len() })))
    }

    /// A part of what `owner` holds, without a copy; `None` when the range is outside it.
    pub fn shared(owner: Arc<dyn ByteOwner>, range: Range<usize>) -> Option<Bytes> {
        owner.bytes().get(range.clone())?;
        Some(Bytes(Region::Shared { owner, range }))
    }

    /// A part of this region: shared where the memory is borrowed, copied where it is owned.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        match &self.0 {
            Region::Owned(words) => words.bytes().get(range).map(Bytes::copy_of),
            Region::Shared { owner, range: outer } => {
                let start = outer.start.checked_add(range.start)?;
                let end = outer.start.checked_add(range.end)?;
                if end > outer.end {
                    return None;
                }
                Bytes::shared(owner.clone(), start..end)
            }
        }
    }

    /// The same memory with a count of holders of its own. Threads that each clone and drop their own do not
    /// slow each other down by counting in one place.
    pub fn counted_apart(&self) -> Bytes {
        let range = 0..self.len();
        Bytes(Region::Shared { owner: Arc::new(Held(self.clone())), range })
    }

    /// The bytes for writing, where they are owned and nobody else holds them.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let Region::Owned(words) = &mut self.0 else { return None };
        let words = Arc::get_mut(words)?;
        Some(&mut bytemuck::cast_slice_mut(&mut words.words)[..words.len])
    }

    /// Writable bytes; copies first unless this is the only holder of owned memory.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if let Region::Shared { .. } = self.0 {
            *self = Bytes::copy_of(self);
        }
        match &mut self.0 {
            Region::Owned(words) => {
                let words = Arc::make_mut(words);
                &mut bytemuck::cast_slice_mut(&mut words.words)[..words.len]
            }
            Region::Shared { .. } => unreachable!("shared memory was replaced by a copy above"),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Region::Owned(words) => words.bytes(),
            Region::Shared { owner, range } => &owner.bytes()[range.clone()],
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}

impl Eq for Bytes {}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_copies_only_when_shared() {
        let mut a = Bytes::copy_of(&[1, 2, 3]);
        let b = a.clone();
        a.make_mut()[0] = 9;
        assert_eq!((&a[..], &b[..]), (&[9, 2, 3][..], &[1, 2, 3][..]));
        let place = a.as_ptr();
        a.make_mut()[1] = 8;
        assert_eq!(a.as_ptr(), place);
    }

    #[test]
    fn ranges_outside_the_owner_are_refused() {
        let owner: Arc<dyn ByteOwner> = Arc::new(vec![0u8, 1, 2, 3]);
        let all = Bytes::shared(owner.clone(), 1..4).unwrap();
        assert_eq!(&*all.slice(1..3).unwrap(), &[2, 3]);
        assert!(all.slice(1..4).is_none());
        assert!(all.slice(usize::MAX..usize::MAX).is_none());
        assert!(Bytes::shared(owner, 2..5).is_none());
    }
}
