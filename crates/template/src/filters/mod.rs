//! Filters: what stands behind a `|`. This file finds them by name; the others hold them by what they work on.

mod layout;
mod markup;
mod numbers;
mod sequences;
mod texts;

use super::budget::Fault;
use super::call::Given;
use super::interpreter::Interpreter;
use super::text::Text;
use super::value::Value;

/// All filters, those that a test `is filter` finds.
pub(super) const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

impl Interpreter<'_> {
    pub(super) fn filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        let given = given.plain();
        // Texts that were marked keep their mark where the filter only changes their shape.
        let keeps_mark = ["upper", "lower", "capitalize", "trim", "string", "indent", "center", "truncate"];
        if let (Value::Markup(text), true) = (value, keeps_mark.contains(&name)) {
            return self.filter(name, &Value::Str(text.clone()), given).map(super::methods::marked);
        }
        self.deeper(|interpreter| match name {
            "tojson" => interpreter.json_text(value, given),
            "default" | "d" => {
                let [default, also_false] = given.bind(name, ["default_value", "boolean"])?;
                let also_false = also_false.is_some_and(|flag| flag.is_true());
                let missing = value.is_undefined() || (also_false && !value.is_true());
                Ok(if missing { default.unwrap_or_else(|| Value::str("")) } else { value.clone() })
            }
            "attr" => {
                let [attribute] = given.bind(name, ["name"])?;
                let attribute = super::call::required(attribute, name, "name")?;
                let attribute = interpreter.str(&attribute)?;
                interpreter.plain_attribute(value, attribute.shared())
            }
            "safe" => {
                given.none(name)?;
                let text = interpreter.str(value)?;
                interpreter.budget.text(text).map(super::methods::marked)
            }
            "escape" | "e" if matches!(value, Value::Markup(_)) => given.none(name).map(|()| value.clone()),
            "escape" | "e" | "forceescape" => {
                given.none(name)?;
                let text = interpreter.str(value)?;
                interpreter.budget.repeat(text.len(), 5)?;
                let escaped = Text::like(super::operators::escape(&text), &[&text]);
                interpreter.budget.text(escaped).map(super::methods::marked)
            }
            "abs" | "int" | "float" | "round" => interpreter.number_filter(name, &value.plain(), given),
            "list" | "first" | "last" | "length" | "count" | "reverse" | "sort" | "unique" | "map"
            | "select" | "reject" | "selectattr" | "rejectattr" | "groupby" | "batch" | "slice" | "sum"
            | "min" | "max" | "items" | "dictsort" | "join" => {
                interpreter.sequence_filter(name, &value.plain(), given)
            }
            "wordwrap" | "pprint" | "filesizeformat" => {
                interpreter.layout_filter(name, &value.plain(), given)
            }
            "striptags" | "urlencode" | "urlize" | "xmlattr" => {
                interpreter.markup_filter(name, &value.plain(), given)
            }
            "random" => {
                given.none(name)?;
                interpreter.some_item(&value.plain())
            }
            _ => interpreter.text_filter(name, &value.plain(), given),
        })
    }

    /// The attribute alone, never the item: what `attr` looks for.
    fn plain_attribute(&mut self, value: &Value, name: &std::sync::Arc<str>) -> Result<Value, Fault> {
        match value {
            Value::Dict(_)
                if !super::methods::knows(value, name) && !super::methods::changes(value, name) =>
            {
                self.budget.undefined(format!("'dict object' has no attribute '{name}'"))
            }
            _ => self.attribute(value, name),
        }
    }
}
