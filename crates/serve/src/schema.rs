//! Schemas as clients mean them: an object that lists its properties has those and no others, unless it says so. The schema
//! language allows any others; models that are allowed to make them up do so, and who called cannot use them.

use serde_json::{Map, Value};

/// Words under which there are schemas by name, in a list, or alone.
const BY_NAME: [&str; 3] = ["properties", "$defs", "definitions"];
const IN_A_LIST: [&str; 3] = ["anyOf", "oneOf", "prefixItems"];
const ALONE: [&str; 1] = ["items"];

/// Words beside `properties` that may name more of them.
const OPEN: [&str; 8] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
];

/// The schema without properties that nobody has listed.
pub(crate) fn closed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    let Value::Object(words) = schema else { return };
    let lists = words.get("properties").is_some_and(Value::is_object);
    if lists && !OPEN.iter().any(|word| words.contains_key(*word)) {
        words.insert("additionalProperties".to_owned(), false.into());
    }
    for word in BY_NAME {
        let inner = words.get_mut(word).and_then(Value::as_object_mut);
        inner.into_iter().flat_map(Map::values_mut).for_each(close);
    }
    for word in IN_A_LIST {
        words.get_mut(word).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
    }
    for word in ALONE {
        words.get_mut(word).into_iter().for_each(close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_that_list_their_properties_have_no_others() {
        let cases = [
            (json!({"type": "object"}), json!({"type": "object"})),
            (json!({"properties": {}}), json!({"properties": {}, "additionalProperties": false})),
            (
                json!({"properties": {"a": {"items": {"properties": {}}}}}),
                json!({"properties": {"a": {"items": {"properties": {}, "additionalProperties": false}}},
                       "additionalProperties": false}),
            ),
            (
                json!({"$defs": {"x": {"properties": {}}}, "$ref": "#/$defs/x", "properties": {}}),
                json!({"$defs": {"x": {"properties": {}, "additionalProperties": false}}, "$ref": "#/$defs/x", "properties": {}}),
            ),
            (
                json!({"anyOf": [{"properties": {}}, {"type": "null"}]}),
                json!({"anyOf": [{"properties": {}, "additionalProperties": false}, {"type": "null"}]}),
            ),
            // Each part of these sees the properties of the others.
            (json!({"allOf": [{"properties": {}}]}), json!({"allOf": [{"properties": {}}]})),
            (
                json!({"properties": {}, "additionalProperties": true}),
                json!({"properties": {}, "additionalProperties": true}),
            ),
            (json!(true), json!(true)),
        ];
        for (schema, wanted) in cases {
            assert_eq!(closed(&schema), wanted);
        }
    }
}
