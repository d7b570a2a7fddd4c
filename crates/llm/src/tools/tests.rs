//! Every form of calls and reasoning, whole and in every cut.

use super::*;
use serde_json::json;

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(ToolCall { name: name.to_owned(), arguments: arguments.to_owned() })
}

fn content(text: &str) -> Part {
    Part::Content(text.to_owned())
}

fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "note", "parameters": {
        "type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}}}])
}

/// Parts of the same kind side by side become one: where text is cut is nobody's business.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more)) => *text += &more,
            (Some(Part::Reasoning(text)), Part::Reasoning(more)) => *text += &more,
            (_, part) => all.push(part),
        }
    }
    all
}

/// What is told apart of an answer, in pieces of so many characters.
fn told(form: Option<ToolForm>, prompt: &str, answer: &str, size: usize) -> Vec<Part> {
    let mut reader = Reader::new(form, &tools()).behind(prompt);
    let characters: Vec<char> = answer.chars().collect();
    let mut parts = Vec::new();
    for piece in characters.chunks(size) {
        parts.extend(reader.push(&piece.iter().collect::<String>()));
    }
    parts.extend(reader.finish());
    joined(parts)
}

#[test]
fn calls_and_reasoning_are_told_apart_in_every_cut() {
    use ToolForm::{FunctionGemma, Gemma, Llama, Mistral, Tagged, Whole};
    let cases: Vec<(Option<ToolForm>, &str, &str, Vec<Part>)> = vec![
        (None, "", "plain < text", vec![content("plain < text")]),
        (None, "", "<think>\nhm\n</think>\n\nyes", vec![reasoning("hm"), content("yes")]),
        (None, "go<think>\n", "hm, hm</think>yes", vec![reasoning("hm, hm"), content("yes")]),
        (None, "", "<think>never ends", vec![reasoning("never ends")]),
        (None, "", "a <think> b", vec![content("a <think> b")]),
        (None, "", "[THINK]a[/THINK]b", vec![reasoning("a"), content("b")]),
        (None, "", "<|channel>thought\na<channel|>b", vec![reasoning("a"), content("b")]),
        (
            None,
            "",
            "<tool_call>{\"name\": \"f\"}</tool_call>",
            vec![content("<tool_call>{\"name\": \"f\"}</tool_call>")],
        ),
        (
            Some(Tagged),
            "",
            "<think>a</think>\nlook:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": [1], \"a\": \"</x>\"}}\n\
             </tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>\n",
            vec![reasoning("a"), content("look:"), call("f", "{\"b\":[1],\"a\":\"</x>\"}"), call("g", "{}")],
        ),
        // The end of the answer closes a call.
        (Some(Tagged), "", "<tool_call>{\"name\": \"f\"}", vec![call("f", "{}")]),
        (Some(Tagged), "", "<tool_call>{\"name\": \"f\"", vec![content("<tool_call>{\"name\": \"f\"")]),
        (Some(Tagged), "", "<tool_call>no</tool_call> x", vec![content("<tool_call>no</tool_call>x")]),
        (Some(Tagged), "", "a <tool", vec![content("a <tool")]),
        (
            Some(Tagged),
            "",
            "<tool_call>\n<function=note>\n<parameter=text>\n12\n</parameter>\n<parameter=count>\n3\n</parameter>\n\
             <parameter=more>\n{\"a\": 1}\n</parameter>\n</function>\n</tool_call>",
            vec![call("note", "{\"text\":\"12\",\"count\":3,\"more\":{\"a\":1}}")],
        ),
        // Without the marks, where nothing else is said and the tool is there.
        (
            Some(Tagged),
            "",
            "\n{ \"name\": \"note\", \"arguments\": {\"text\": \"a\"}}\n{\"name\": \"note\"}\n",
            vec![call("note", "{\"text\":\"a\"}"), call("note", "{}")],
        ),
        (Some(Tagged), "", "```json\n{\"name\": \"note\"}\n```", vec![call("note", "{}")]),
        (Some(Tagged), "", "{\"name\": \"other\"}", vec![content("{\"name\": \"other\"}")]),
        (Some(Tagged), "", "{\"name\": \"note\"} it is", vec![content("{\"name\": \"note\"} it is")]),
        (Some(Tagged), "", "{\"names\": 1}", vec![content("{\"names\": 1}")]),
        (Some(Tagged), "", "```js\nf()\n```", vec![content("```js\nf()\n```")]),
        (
            Some(Llama),
            "",
            "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
            vec![call("f", "{\"a\":1}"), call("g", "{}")],
        ),
        (Some(Llama), "", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", vec![call("f", "{}")]),
        (Some(Llama), "", "{\"weather\": \"fine\"}", vec![content("{\"weather\": \"fine\"}")]),
        (Some(Llama), "", "It is {fine}.", vec![content("It is {fine}.")]),
        (
            Some(Mistral),
            "",
            "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
            vec![call("f", "{\"a\":1}"), call("g", "{}")],
        ),
        (
            Some(Mistral),
            "",
            "ok[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\": 1}[TOOL_CALLS]g{\"b\": 2}",
            vec![content("ok"), call("f", "{\"a\":1}"), call("g", "{\"b\":2}")],
        ),
        (
            Some(Gemma),
            "",
            "<|tool_call>call:f{place:<|\"|>a, {b}<|\"|>,list:[1,<|\"|>x<|\"|>],in:{deep:true},n:-1.5}<tool_call|>\
             <|tool_call>call:g{}<tool_call|>",
            vec![
                call("f", "{\"place\":\"a, {b}\",\"list\":[1,\"x\"],\"in\":{\"deep\":true},\"n\":-1.5}"),
                call("g", "{}"),
            ],
        ),
        (Some(Gemma), "", "<|tool_call>call:f{a:<|\"|>b", vec![content("<|tool_call>call:f{a:<|\"|>b")]),
        (
            Some(FunctionGemma),
            "",
            "<start_function_call>call:f{a:<escape>b<escape>}<end_function_call>",
            vec![call("f", "{\"a\":\"b\"}")],
        ),
        (Some(Whole), "", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", vec![call("f", "{\"a\":1}")]),
        (Some(Whole), "", "{\"name\": \"f\", \"argum", vec![content("{\"name\": \"f\", \"argum")]),
    ];
    for (form, prompt, answer, parts) in cases {
        for size in 1..=answer.chars().count() {
            assert_eq!(told(form, prompt, answer, size), parts, "{answer:?} in pieces of {size}");
        }
    }
}

#[test]
fn content_is_shown_as_soon_as_it_cannot_be_a_mark() {
    let mut reader = Reader::new(Some(ToolForm::Tagged), &Value::Null);
    assert_eq!(reader.push("<"), []);
    assert_eq!(reader.push("b>bold"), [content("<b>bold")]);
    assert_eq!(reader.push(" and <tool_"), [content(" and")]);
    assert_eq!(reader.push("box>"), [content(" <tool_box>")]);
}

#[test]
fn json_that_is_no_call_is_shown_as_soon_as_it_differs_from_one() {
    let mut reader = Reader::new(Some(ToolForm::Tagged), &tools());
    assert_eq!(reader.push("{\"na"), []);
    assert_eq!(reader.push("ture\": 1"), [content("{\"nature\": 1")]);
    assert_eq!(reader.push("}"), [content("}")]);
}

/// Deep nesting, which a hostile tool's answer could make a model repeat, is text.
#[test]
fn calls_that_are_nested_without_end_are_text() {
    let deep = format!("<|tool_call>call:f{}", "{a:".repeat(100_000));
    assert_eq!(told(Some(ToolForm::Gemma), "", &deep, 1 << 20), [content(&deep)]);
    let deep = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {}", "[".repeat(100_000));
    assert_eq!(told(Some(ToolForm::Tagged), "", &deep, 1 << 20), [content(&deep)]);
}

#[test]
fn a_schema_allows_calls_of_the_tools_that_are_meant() {
    let tools = json!([
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "b"}},
    ]);
    assert_eq!(call_schema(&tools, &ToolChoice::Auto), None);
    assert_eq!(call_schema(&tools, &ToolChoice::Named("c".to_owned())), None);
    let b = call_schema(&tools, &ToolChoice::Named("b".to_owned())).unwrap();
    assert_eq!(b["properties"]["name"]["const"], "b");
    let any = call_schema(&tools, &ToolChoice::Required).unwrap();
    assert_eq!(any["anyOf"].as_array().unwrap().len(), 2);
}
