//! SHA-256 as a value: parsed once at the door, printed as 64 digits.

use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use std::fmt;
use std::str::FromStr;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The hash of bytes at hand.
    pub fn of(bytes: &[u8]) -> Sha256 {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }
}

/// What is not 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 hash: it takes 64 hexadecimal digits")]
pub struct NotAHash(String);

impl FromStr for Sha256 {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Sha256, NotAHash> {
        let wrong = || NotAHash(text.chars().take(80).collect());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let digit = |digit: u8| (digit as char).to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Sha256(bytes))
    }
}

impl TryFrom<String> for Sha256 {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<Sha256, NotAHash> {
        text.parse()
    }
}

impl From<Sha256> for String {
    fn from(hash: Sha256) -> String {
        hash.to_string()
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hash in the making.
#[derive(Clone, Default)]
pub(crate) struct Hasher(sha2::Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_its_64_digits() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Sha256::of(b"abc").to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(Sha256::of(b"abc")));
        for wrong in ["", "ba78", &text[1..], &text.replace('b', "g"), &format!("{text}0"), &"é".repeat(32)]
        {
            assert!(wrong.parse::<Sha256>().is_err(), "{wrong}");
        }
    }
}
