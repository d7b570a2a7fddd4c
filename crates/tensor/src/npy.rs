//! NumPy's `.npy` files: one tensor each, versions 1 to 3, little-endian, either memory order.
//!
//! Bytes of a file flow in and a tensor flows out, or the other way round. The header is a Python literal; just
//! the dictionary that NumPy writes is parsed, by hand and with bounds, never evaluated. Nothing is allocated by
//! what a header claims: the data must be there first.

use crate::{Bytes, DType, HostTensor, element_count};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy itself refuses headers beyond 10,000 bytes unless told otherwise.
const LONGEST_HEADER: usize = 64 << 10;
const HIGHEST_RANK: usize = 32;
/// Where the data of a written file starts is a multiple of this.
const ALIGNMENT: usize = 64;

/// NumPy's type codes without the byte order. bf16 has none.
const CODES: [(DType, &str); 12] = [
    (DType::Bool, "b1"),
    (DType::U8, "u1"),
    (DType::U16, "u2"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
    (DType::I8, "i1"),
    (DType::I16, "i2"),
    (DType::I32, "i4"),
    (DType::I64, "i8"),
    (DType::F16, "f2"),
    (DType::F32, "f4"),
    (DType::F64, "f8"),
];

/// What is wrong with a `.npy` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NpyError(String);

/// The tensor in a `.npy` file.
///
/// # Errors
/// When the bytes are no such file, or hold a type that programs do not take.
pub fn read(file: &[u8]) -> Result<HostTensor, NpyError> {
    parse(file).map_err(NpyError)
}

fn parse(file: &[u8]) -> Result<HostTensor, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("it does not begin as a .npy file does")?;
    let (length_bytes, rest) = match rest {
        [1, _, rest @ ..] => (2, rest),
        [2 | 3, _, rest @ ..] => (4, rest),
        [major, minor, ..] => return Err(format!("version {major}.{minor} of .npy is not known")),
        _ => return Err("it ends in its header".into()),
    };
    let (length, rest) = rest.split_at_checked(length_bytes).ok_or("it ends in its header")?;
    let length = length.iter().rev().fold(0usize, |length, &byte| length << 8 | usize::from(byte));
    if length > LONGEST_HEADER {
        return Err(format!("its header claims {length} bytes; at most {LONGEST_HEADER} are read"));
    }
    let (header, data) = rest.split_at_checked(length).ok_or("it ends in its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let header = Header::parse(header)?;
    let elements = element_count(&header.shape);
    let wanted = elements.and_then(|count| count.checked_mul(header.dtype.size()));
    if wanted != Some(data.len()) {
        return Err(format!(
            "{} of shape {:?} does not take the {} bytes that follow the header",
            header.dtype,
            header.shape,
            data.len()
        ));
    }
    if header.dtype == DType::Bool && data.iter().any(|&byte| byte > 1) {
        return Err("a bool in it is neither 0 nor 1".into());
    }
    let data = match header.fortran_order {
        true => Bytes::copy_of(&row_major(data, header.dtype.size(), &header.shape)),
        false => Bytes::copy_of(data),
    };
    HostTensor::new(header.dtype, header.shape, data).map_err(|error| error.to_string())
}

/// The bytes of a `.npy` file for a tensor; `None` for a dtype that NumPy does not have.
pub fn write(tensor: &HostTensor) -> Option<Vec<u8>> {
    let (_, code) = CODES.iter().find(|(dtype, _)| *dtype == tensor.dtype())?;
    let order = if tensor.dtype().size() == 1 { '|' } else { '<' };
    let sizes: Vec<String> = tensor.shape().iter().map(|size| format!("{size},")).collect();
    // `(3,)` but `(3, 4)`: only a tuple of one needs its comma.
    let shape = match sizes.as_slice() {
        [one] => one.clone(),
        sizes => sizes.join(" ").trim_end_matches(',').to_owned(),
    };
    let mut header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({shape}), }}");
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before;
    header.extend(std::iter::repeat_n(' ', padded - header.len() - 1));
    header.push('\n');
    let mut file = Vec::with_capacity(before + header.len() + tensor.bytes().len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    // A rank of at most a few dozen keeps this far below 65,536.
    file.extend_from_slice(&u16::try_from(header.len()).ok()?.to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(tensor.bytes());
    Some(file)
}

/// Whether a tensor of that dtype can be a `.npy` file.
pub fn can_hold(dtype: DType) -> bool {
    CODES.iter().any(|(known, _)| *known == dtype)
}

/// What the dictionary says.
#[derive(Debug, PartialEq)]
struct Header {
    dtype: DType,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Header, String> {
        let mut rest = Literal(text);
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        rest.expect('{')?;
        while !rest.take('}') {
            let key = rest.quoted()?;
            rest.expect(':')?;
            match key {
                "descr" => dtype = Some(dtype_of(rest.quoted()?)?),
                "fortran_order" => fortran_order = Some(rest.truth()?),
                "shape" => shape = Some(rest.tuple()?),
                key => return Err(format!("its header has the unknown key {key:?}")),
            }
            if !rest.take(',') {
                rest.expect('}')?;
                break;
            }
        }
        match (dtype, fortran_order, shape) {
            (Some(dtype), Some(fortran_order), Some(shape)) => Ok(Header { dtype, fortran_order, shape }),
            _ => Err("its header lacks `descr`, `fortran_order` or `shape`".into()),
        }
    }
}

fn dtype_of(descr: &str) -> Result<DType, String> {
    let (order, code) = descr.split_at_checked(1).unwrap_or(("", descr));
    if code == "V2" {
        return Err("its type has no name in NumPy (bf16?); a .safetensors file can hold bf16".into());
    }
    let known = CODES.iter().find(|(_, known)| *known == code);
    match (order, known) {
        ("<" | "|" | "=", Some((dtype, _))) => Ok(*dtype),
        (">", Some((dtype, _))) if dtype.size() == 1 => Ok(*dtype),
        (">", Some(_)) => Err("it is big-endian; save `array.astype(array.dtype.newbyteorder('<'))`".into()),
        _ => Err(format!("its type {descr:?} is not one that programs take")),
    }
}

/// What is left to read of a Python literal; blanks before a token are skipped.
struct Literal<'a>(&'a str);

impl<'a> Literal<'a> {
    fn take(&mut self, token: char) -> bool {
        self.0 = self.0.trim_start();
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, token: char) -> Result<(), String> {
        match self.take(token) {
            true => Ok(()),
            false => Err(format!("its header is not the dictionary that NumPy writes: `{token}` is missing")),
        }
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        let quote = if self.take('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect(quote)?;
        }
        let (text, rest) = self.0.split_once(quote).ok_or("its header has a text without an end")?;
        self.0 = rest;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.0 = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Ok(value);
            }
        }
        Err("`fortran_order` in its header is neither True nor False".into())
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.take(')') {
            self.0 = self.0.trim_start();
            let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
            let (size, rest) = self.0.split_at(digits);
            let size = size.parse().map_err(|_| "`shape` in its header is not a tuple of sizes")?;
            // Python 2 wrote `3L`.
            self.0 = rest.strip_prefix('L').unwrap_or(rest);
            sizes.push(size);
            if sizes.len() > HIGHEST_RANK {
                return Err(format!("it has more than {HIGHEST_RANK} dims"));
            }
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(sizes)
    }
}

/// Elements whose first index runs fastest, in the order in which the last one does.
fn row_major(data: &[u8], size: usize, shape: &[usize]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for &dim in shape {
        strides.push(stride);
        // No overflow: the product of all of them is the length of `data`, or one of them is 0.
        stride = stride.saturating_mul(dim);
    }
    let mut index = vec![0usize; shape.len()];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as NumPy writes it, from the text of its header.
    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&[version, 0]);
        match version {
            1 => file.extend_from_slice(&(header.len() as u16).to_le_bytes()),
            _ => file.extend_from_slice(&(header.len() as u32).to_le_bytes()),
        }
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(data);
        file
    }

    #[test]
    fn every_dtype_but_bf16_comes_back_as_it_was_written() {
        for dtype in DType::all() {
            for shape in [vec![], vec![3], vec![2, 0, 4], vec![2, 3, 4]] {
                let tensor = HostTensor::zeros(dtype, shape).unwrap();
                match write(&tensor) {
                    Some(file) => {
                        assert_eq!(read(&file).unwrap(), tensor);
                        let header = file.len() - tensor.bytes().len();
                        assert!(header.is_multiple_of(ALIGNMENT), "{dtype}: data at {header}");
                    }
                    None => assert_eq!(dtype, DType::BF16),
                }
            }
        }
    }

    #[test]
    fn a_file_that_numpy_wrote_is_what_we_write() {
        // numpy 2: np.save of np.array([[1, 2, 3]], dtype='<i2')
        let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3), }";
        let padded = format!("{header:<117}\n");
        let expected = file(1, &padded, &[1, 0, 2, 0, 3, 0]);
        let tensor = HostTensor::from_slice(vec![1, 3], &[1i16, 2, 3]).unwrap();
        assert_eq!(write(&tensor).unwrap(), expected);
    }

    #[test]
    fn fortran_order_and_all_versions_read_alike() {
        let header = "{'shape': (2L, 3L), \"fortran_order\": True, 'descr': '|u1'}";
        for version in 1..=3 {
            let tensor = read(&file(version, header, &[0, 3, 1, 4, 2, 5])).unwrap();
            assert_eq!(tensor, HostTensor::from_slice(vec![2, 3], &[0u8, 1, 2, 3, 4, 5]).unwrap());
        }
    }

    #[test]
    fn bad_files_are_errors_that_say_what_is_wrong() {
        let with = |header: &str| file(1, header, &[0; 8]);
        let like = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
        let cases: [(Vec<u8>, &str); 16] = [
            (vec![], "does not begin"),
            (b"\x93NUMPX\x01\x00".to_vec(), "does not begin"),
            (b"\x93NUMPY".to_vec(), "ends in its header"),
            (b"\x93NUMPY\x01\x00\xff".to_vec(), "ends in its header"),
            (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "ends in its header"),
            (b"\x93NUMPY\x09\x00".to_vec(), "version 9.0"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "claims 4294967295"),
            (with(""), "`{` is missing"),
            (with("{'descr': '<f4'}"), "lacks"),
            (with("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}"), "big-endian"),
            (with("{'descr': '<V2', 'fortran_order': False, 'shape': (4,)}"), "safetensors"),
            (with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}"), "`'` is missing"),
            (with(&format!("{like}(3,)}}")), "does not take the 8 bytes"),
            (with(&format!("{like}(18446744073709551615, 18446744073709551615)}}")), "does not take"),
            (with(&format!("{like}(-2,)}}")), "not a tuple of sizes"),
            (with(&format!("{like}({})}}", "1,".repeat(40))), "more than 32 dims"),
        ];
        for (file, message) in cases {
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains(message), "{error:?} should say {message:?}");
        }
        let bools = file(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", &[1, 2]);
        assert!(read(&bools).unwrap_err().to_string().contains("neither 0 nor 1"));
    }

    #[test]
    fn a_cut_or_damaged_file_never_panics() {
        let whole = write(&HostTensor::from_slice(vec![2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap()).unwrap();
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = read(&damaged);
            }
        }
    }
}
