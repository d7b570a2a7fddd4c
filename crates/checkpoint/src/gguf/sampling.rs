//! How a file's makers would have tokens chosen (`general.sampling.*`), in the words of a `generation_config.json`.

use pteron_gguf::{Metadata, Value as Stored};
use serde_json::{Map, Value};

/// Keys as files have them, and as a `generation_config.json` has them.
const KEYS: [(&str, &str); 5] = [
    ("temp", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("penalty_repeat", "repetition_penalty"),
];

/// The file's settings; nothing where it has none that are known.
pub(super) fn generation_config(metadata: Metadata<'_>) -> Option<String> {
    let mut config = Map::new();
    for (from, to) in KEYS {
        let number = metadata.get(&format!("general.sampling.{from}")).and_then(|value| number(&value));
        config.extend(number.map(|number| (to.to_owned(), number)));
    }
    let temperature = config.get("temperature").and_then(Value::as_f64);
    if let Some(temperature) = temperature {
        // Without this key, a reader of such files would take the likeliest token.
        config.insert("do_sample".to_owned(), (temperature > 0.0).into());
    }
    (!config.is_empty()).then(|| Value::Object(config).to_string())
}

fn number(value: &Stored<'_>) -> Option<Value> {
    match value {
        // Through its own digits: 0.95 is 0.949999988079071 as an f64.
        Stored::F32(number) => {
            number.to_string().parse::<f64>().ok().filter(|x| x.is_finite()).map(Value::from)
        }
        other => match (other.as_f64(), other.as_i64()) {
            (Some(number), _) => Some(number).filter(|number| number.is_finite()).map(Value::from),
            (None, number) => number.map(Value::from),
        },
    }
}
