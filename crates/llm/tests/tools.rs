//! How a model calls tools is found by what its template makes of a call.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_llm::Voice;
use pteron_llm::tools::ToolForm;
use pteron_template::ChatTemplate;
use support::tokenizer;

#[test]
fn the_form_of_calls_is_found_by_what_the_template_writes() {
    let cases = [
        ("<tool_call>\n{{ call.function | tojson }}\n</tool_call>", Some(ToolForm::Tagged)),
        ("<tool_call><function={{ call.function.name }}></function></tool_call>", Some(ToolForm::Tagged)),
        ("[TOOL_CALLS][{{ call.function | tojson }}]", Some(ToolForm::Mistral)),
        ("<|tool_call>call:{{ call.function.name }}{}<tool_call|>", Some(ToolForm::Gemma)),
        (
            "<start_function_call>call:{{ call.function.name }}{}<end_function_call>",
            Some(ToolForm::FunctionGemma),
        ),
        (
            "{{ '{\"name\": \"' + call.function.name + '\", \"parameters\": ' }}{{ call.function.arguments | tojson }}}",
            Some(ToolForm::Llama),
        ),
        ("nothing", None),
    ];
    for (call, form) in cases {
        let source = format!(
            "{{% for message in messages %}}{{{{ message.content }}}}{{% for call in message.tool_calls %}}{call}\
             {{% endfor %}}{{% endfor %}}"
        );
        let template = Some(ChatTemplate::new(&source).unwrap());
        assert_eq!(ToolForm::of(&Voice { template, ..Voice::new(tokenizer()) }), form, "{source}");
    }
    // One that refuses tools has no place for them.
    let refuses =
        ChatTemplate::new("{% if tools %}{{ raise_exception('no tools') }}{% endif %}<tool_call>").unwrap();
    assert_eq!(ToolForm::of(&Voice { template: Some(refuses), ..Voice::new(tokenizer()) }), None);
    assert_eq!(ToolForm::of(&Voice::new(tokenizer())), None);
}
