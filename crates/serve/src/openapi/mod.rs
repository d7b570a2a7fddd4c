//! The description of this server for programs (OpenAPI 3.1): made of the table of routes and of the fields that each of
//! them takes. Every field has examples, which are taken where the field is.

mod requests;

use crate::routes::{Endpoint, ROUTES, Route};
use requests::{About, Field, about_route};
use serde_json::{Map, Value, json};

/// The whole description.
pub(crate) fn description() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    let bearer = json!({"type": "http", "scheme": "bearer"});
    let key = json!({"type": "apiKey", "in": "header", "name": "x-api-key"});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "pteron serve", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": bearer, "key": key}},
    })
}

fn operation(route: &Route) -> Value {
    let About { says, fields, needs } = about_route(route);
    let text = |kind: &str| {
        let mut content = Map::new();
        content.insert(kind.to_owned(), json!({}));
        Value::Object(content)
    };
    let good = match route.endpoint {
        Endpoint::Page => text("text/html"),
        Endpoint::Metrics => text("text/plain"),
        Endpoint::Speak(_) => json!({"application/json": {}, "text/event-stream": {}}),
        Endpoint::OllamaSpeak(_) => json!({"application/json": {}, "application/x-ndjson": {}}),
        Endpoint::Transcribe(_) => json!({
            "application/json": {}, "text/plain": {}, "text/vtt": {}, "application/x-subrip": {},
        }),
        _ => text("application/json"),
    };
    let wrong = json!({"description": "What is wrong.", "content": text("application/json")});
    let mut operation = json!({
        "operationId": format!("{}{}", route.method.as_str().to_ascii_lowercase(), route.path.replace(['/', '{', '}'], "_")),
        "summary": says,
        "responses": {"200": {"description": "What was asked for.", "content": good}, "default": wrong},
    });
    if route.path.contains('{') {
        operation["parameters"] =
            json!([{"name": "model", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    if !fields.is_empty() {
        let kind = match route.endpoint {
            Endpoint::Transcribe(_) => "multipart/form-data",
            _ => "application/json",
        };
        let properties: Map<String, Value> = fields.iter().copied().flatten().map(property).collect();
        let schema = json!({
            "type": "object", "properties": properties, "required": needs, "additionalProperties": false,
        });
        let mut content = Map::new();
        content.insert(kind.to_owned(), json!({"schema": schema}));
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn property(&(name, schema, examples): &Field) -> (String, Value) {
    // Held to by a test over all of them.
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    let mut schema = read(schema).unwrap_or_default();
    if let (Some(examples), Some(schema)) = (read(examples), schema.as_object_mut())
        && examples != json!([])
    {
        schema.insert("examples".to_owned(), examples);
    }
    (name.to_owned(), schema)
}
