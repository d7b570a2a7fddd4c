//! JSON as torch writes it: floats that may be text, maps whose keys must be unique, and errors that lead to
//! the place they came from.
//!
//! serde_json itself refuses nesting beyond 128 levels, so that what is parsed here has bounded depth.

use super::error::{Pt2Error, Result, clip};
use indexmap::IndexMap;
use pteron_format::{FormatError, Limits, Place};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// Parses a member.
pub(super) fn parse<T: DeserializeOwned>(member: &str, text: &[u8], limits: &Limits) -> Result<T> {
    let place = || Place::at(format!("member `{}`", clip(member)));
    FormatError::check_limit("json_bytes", text.len() as u64, limits.json_bytes, place)?;
    serde_json::from_slice(text).map_err(|source| Pt2Error::Json { member: clip(member), source })
}

/// A float. Python's JSON has none for infinities and NaN, so that torch writes those as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Float, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Float;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or one of \"Infinity\", \"-Infinity\", \"NaN\"")
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Float, E> {
                Ok(Float(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Float, E> {
                Ok(Float(value as f64))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Float, E> {
                match text {
                    "Infinity" => Ok(Float(f64::INFINITY)),
                    "-Infinity" => Ok(Float(f64::NEG_INFINITY)),
                    "NaN" => Ok(Float(f64::NAN)),
                    _ => Err(E::custom(format!("`{}` is not a float", clip(text)))),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// A map in the order of the file. Of two equal keys other readers take the last, so that they are an error
/// here.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(IndexMap<String, T>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(IndexMap::new())
    }
}

impl<T> Deref for Named<T> {
    type Target = IndexMap<String, T>;
    fn deref(&self) -> &IndexMap<String, T> {
        &self.0
    }
}

impl<T> From<IndexMap<String, T>> for Named<T> {
    fn from(map: IndexMap<String, T>) -> Named<T> {
        Named(map)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = IndexMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value =
                        map.next_value().map_err(|error| within(format_args!("`{}`", clip(&key)), error))?;
                    if entries.contains_key(&key) {
                        return Err(A::Error::custom(format!("`{}` is there twice", clip(&key))));
                    }
                    entries.insert(key, value);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// A list whose errors say which item they are in.
pub(super) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            loop {
                match seq.next_element() {
                    Ok(Some(item)) => items.push(item),
                    Ok(None) => return Ok(items),
                    Err(error) => return Err(within(format_args!("item {}", items.len()), error)),
                }
            }
        }
    }
    deserializer.deserialize_seq(Items(PhantomData))
}

/// The error with what it happened in before it.
pub(super) fn within<E: Error>(place: fmt::Arguments<'_>, error: E) -> E {
    E::custom(format!("{place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_may_be_text() {
        let floats: Vec<Float> =
            serde_json::from_str(r#"[1, -2.5, 1e-45, "Infinity", "-Infinity", "NaN"]"#).unwrap();
        assert_eq!(floats[..3], [Float(1.0), Float(-2.5), Float(1e-45)]);
        assert_eq!(floats[3..5], [Float(f64::INFINITY), Float(f64::NEG_INFINITY)]);
        assert!(floats[5].0.is_nan());
        assert!(serde_json::from_str::<Float>("\"1.0\"").is_err());
    }

    #[test]
    fn equal_keys_are_an_error_that_names_them() {
        let error = serde_json::from_str::<Named<i64>>(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap_err();
        assert!(error.to_string().contains("`a` is there twice"), "{error}");
        let error = serde_json::from_str::<Named<i64>>(r#"{"a": 1, "b": "x"}"#).unwrap_err();
        assert!(error.to_string().starts_with("`b`: invalid type"), "{error}");
    }
}
