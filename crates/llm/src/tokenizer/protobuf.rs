//! Just enough of the protobuf wire format to read a SentencePiece model: fields by number, in the order of the file.

/// The value of one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'b> {
    Number(u64),
    Fixed32([u8; 4]),
    Bytes(&'b [u8]),
}

impl<'b> Field<'b> {
    pub(super) fn bytes(self) -> Option<&'b [u8]> {
        match self {
            Field::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn number(self) -> Option<u64> {
        match self {
            Field::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(super) fn flag(self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }

    /// A signed 32-bit number, which protobuf writes with its sign extended.
    pub(super) fn int32(self) -> Option<i32> {
        self.number().map(|number| number as i32)
    }

    pub(super) fn float(self) -> Option<f32> {
        match self {
            Field::Fixed32(bytes) => Some(f32::from_le_bytes(bytes)),
            _ => None,
        }
    }
}

/// The fields of a message; the first that cannot be read ends them with nothing but its place.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u64, Field<'_>), usize>> {
    let mut rest = message;
    let mut broken = false;
    std::iter::from_fn(move || {
        if rest.is_empty() || broken {
            return None;
        }
        let at = message.len() - rest.len();
        let field = field(&mut rest);
        broken = field.is_none();
        Some(field.ok_or(at))
    })
}

fn field<'b>(rest: &mut &'b [u8]) -> Option<(u64, Field<'b>)> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Field::Number(varint(rest)?),
        1 => {
            let (_, after) = rest.split_first_chunk::<8>()?;
            *rest = after;
            // No field that is read here has this width.
            Field::Number(0)
        }
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Field::Bytes(bytes)
        }
        5 => {
            let (bytes, after) = rest.split_first_chunk::<4>()?;
            *rest = after;
            Field::Fixed32(*bytes)
        }
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Field, fields};

    #[test]
    fn fields_are_read_and_broken_ones_named() {
        let message = [0x0a, 2, b'h', b'i', 0x15, 0, 0, 0x80, 0x3f, 0x18, 0xac, 2];
        let read: Vec<_> = fields(&message).map(Result::unwrap).collect();
        assert_eq!(
            read,
            [(1, Field::Bytes(b"hi")), (2, Field::Fixed32([0, 0, 0x80, 0x3f])), (3, Field::Number(300))]
        );
        assert_eq!(fields(&message[..3]).last(), Some(Err(0)));
        assert_eq!(fields(&[0x18, 0xff]).last(), Some(Err(0)));
        assert_eq!(
            fields(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).last(),
            Some(Err(0))
        );
    }
}
