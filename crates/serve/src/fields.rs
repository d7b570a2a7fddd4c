//! The fields of a JSON request, taken one by one, each with its type; what is left over at the end is not honoured, and
//! that is an error.

use crate::error::ApiError;
use serde_json::{Map, Value};

/// An object of which fields are taken.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The body of a request.
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(_) => Err(ApiError::invalid("the body is no JSON object")),
            Err(error) => Err(ApiError::invalid(format!("the body is no JSON: {error}"))),
        }
    }

    pub(crate) fn of(fields: Map<String, Value>) -> Fields {
        Fields(fields)
    }

    /// A field as it stands, to be looked at.
    pub(crate) fn look(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field; null is as good as none.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(ApiError::parameter(name, format!("`{name}` must be {kind}")).code("invalid_type")),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.typed(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn truth(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn count(&mut self, name: &str) -> Result<Option<usize>, ApiError> {
        self.typed(name, "a whole number, 0 or more", |value| {
            value.as_u64().and_then(|count| usize::try_from(count).ok())
        })
    }

    /// A whole number, or a negative one for as many as there can be.
    pub(crate) fn count_or_all(&mut self, name: &str) -> Result<Option<usize>, ApiError> {
        let count = self.typed(name, "a whole number", Value::as_i64)?;
        Ok(count.and_then(|count| usize::try_from(count).ok()))
    }

    /// Any integer; negative ones are seeds too.
    pub(crate) fn seed(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        self.typed(name, "a whole number", |value| {
            value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64))
        })
    }

    /// A number within bounds.
    pub(crate) fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let number = self.typed(name, "a number", Value::as_f64)?;
        match number.filter(|number| !(least..=most).contains(number)) {
            Some(_) => Err(ApiError::parameter(name, format!("`{name}` must be between {least} and {most}"))),
            None => Ok(number),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        self.typed(name, "a list", |value| value.as_array().cloned())
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        self.typed(name, "an object", |value| value.as_object().cloned())
    }

    /// A field that is taken only where it asks for what happens anyhow.
    pub(crate) fn only(&mut self, name: &str, usual: &Value) -> Result<(), ApiError> {
        match self.take(name) {
            Some(value) if value != *usual => {
                Err(ApiError::unsupported(name, format!("`{name}` is not honoured unless it is {usual}")))
            }
            _ => Ok(()),
        }
    }

    /// Fields that change no answer.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.0.remove(*name)));
    }

    /// An error if something is left that nobody has taken.
    pub(crate) fn end(self) -> Result<(), ApiError> {
        match self.0.into_iter().find(|(_, value)| !value.is_null()) {
            Some((name, _)) => {
                let shown: String = name.chars().take(64).collect();
                Err(ApiError::unsupported(&name, format!("`{shown}` is not honoured here")))
            }
            None => Ok(()),
        }
    }
}
