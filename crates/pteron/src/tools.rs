//! Tools that a model calls: the text of an answer flows in, the calls in it flow out.

use crate::error::Result;
use crate::message::check_tools;
use crate::model::Model;
use crate::{Error, ToolCall};
use pteron_llm::tools::{Part, Reader, ToolForm};
use serde_json::Value;

impl Model {
    /// The tools that an answer calls, in the model's own way of writing calls, or as JSON where a schema allowed nothing
    /// else. What calls no tool of these is text.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let tools = serde_json::json!([{"type": "function", "function": {"name": "weather"}}]);
    /// let calls = model.tool_calls("{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}", &tools)?;
    /// assert_eq!((calls[0].name.as_str(), calls[0].arguments.as_str()), ("weather", "{\"city\":\"Oslo\"}"));
    /// assert!(model.tool_calls("It is warm in Oslo.", &tools)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the tools are no list of descriptions, or the model has no tokenizer.
    pub fn tool_calls(&self, answer: &str, tools: &Value) -> Result<Vec<ToolCall>> {
        check_tools(tools).map_err(Error::invalid)?;
        let own = ToolForm::of(self.voice()?);
        let found = own.map_or_else(Vec::new, |form| calls(form, answer, tools));
        Ok(if found.is_empty() { calls(ToolForm::Whole, answer, tools) } else { found })
    }
}

fn calls(form: ToolForm, answer: &str, tools: &Value) -> Vec<ToolCall> {
    let mut reader = Reader::new(Some(form), tools);
    let mut parts = reader.push(answer);
    parts.extend(reader.finish());
    let call = |part| if let Part::Call(call) = part { Some(call) } else { None };
    parts.into_iter().filter_map(call).filter(|call| is_described(&call.name, tools)).collect()
}

fn is_described(name: &str, tools: &Value) -> bool {
    let names = |tool: &Value| tool["function"]["name"] == name;
    tools.as_array().is_some_and(|tools| tools.iter().any(names))
}
