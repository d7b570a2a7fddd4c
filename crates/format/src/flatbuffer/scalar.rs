//! The numbers that a FlatBuffers field or vector can hold, little-endian on every machine.

mod sealed {
    pub trait Sealed {}
}

/// A number as FlatBuffers stores it.
pub trait Scalar: sealed::Sealed + Copy + PartialEq + 'static {
    /// Bytes of one, which is also its alignment.
    const SIZE: usize;

    /// The number in the first [`SIZE`](Scalar::SIZE) bytes; zero if there are fewer, which callers rule out.
    fn from_wire(bytes: &[u8]) -> Self;

    /// Appends the number to `out`.
    fn to_wire(self, out: &mut Vec<u8>);
}

macro_rules! scalars {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const SIZE: usize = size_of::<$type>();

            fn from_wire(bytes: &[u8]) -> $type {
                bytes.first_chunk().map_or(<$type>::default(), |chunk| <$type>::from_le_bytes(*chunk))
            }

            fn to_wire(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

scalars!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

impl sealed::Sealed for bool {}
impl Scalar for bool {
    const SIZE: usize = 1;

    fn from_wire(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|byte| *byte != 0)
    }

    fn to_wire(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}
