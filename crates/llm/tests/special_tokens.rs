//! What users, files and tools write is text: no special token that they spell begins, ends or forges a turn. Held over the
//! packed vocabularies and templates, and over templates of the shapes that families of models have.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_llm::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerFormat};
use pteron_llm::{SpecialTokens, Voice};
use pteron_template::{ChatTemplate, RenderInput};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use tempfile::TempDir;

/// Templates as families shape them, with the marks that they write.
const FAMILIES: [(&str, &str, &[&str]); 5] = [
    (
        "chatml",
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}\
         {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        &["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
    ),
    (
        "gemma",
        "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}\
         {{ '<start_of_turn>%s\n' % role }}{{ m.content | trim }}{{ '<end_of_turn>\n' }}{% endfor %}\
         {% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        &["<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>"],
    ),
    (
        "headers",
        "{{ bos_token }}{% for m in messages %}{% set content %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n\
         {{ m.content.strip() }}<|eot_id|>{% endset %}{{ content }}{% endfor %}\
         {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    ),
    (
        "roles as marks",
        "{% for m in messages %}{{ '<|{}|>\n{}'.format(m.role, m.content.split('</think>')[-1].lstrip('\n')) }}<|end|>\n\
         {% endfor %}{% if add_generation_prompt %}{{ ['<|assistant', '|>'] | join }}\n{% endif %}",
        &["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"],
    ),
    (
        "instructions",
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | replace('\r', '') }} [/INST]\
         {% elif m.role == 'assistant' %} {{ m.content[:-1] ~ m.content[-1] }}{{ eos_token }}\
         {% else %}[TOOL]{{ m.content | tojson }}[/TOOL]{% endif %}{% endfor %}",
        &["<s>", "</s>", "[INST]", "[/INST]", "[TOOL]", "[/TOOL]"],
    ),
];

/// Bytes as byte-level vocabularies spell them, and marks.
fn byte_level(marks: &[&str]) -> Tokenizer {
    let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let hidden = (0..256u32).filter(|byte| !shown(byte)).zip(0x100u32..).map(|(_, shown)| shown);
    let letters = (0..256u32).filter(shown).chain(hidden).filter_map(char::from_u32);
    let vocabulary: serde_json::Map<String, Value> =
        letters.enumerate().map(|(id, letter)| (letter.to_string(), id.into())).collect();
    let added: Vec<Value> = marks
        .iter()
        .enumerate()
        .map(|(at, mark)| {
            json!({"id": 256 + at, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocabulary, "merges": []}
    });
    let named = [("bos_token", marks[0]), ("eos_token", marks[1])];
    let tokens = named.map(|(name, token)| (name.to_owned(), token.to_owned())).into_iter().collect();
    let config = TokenizerConfig { tokens, ..TokenizerConfig::default() };
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

fn marks_of(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u32> {
    ids.iter().copied().filter(|&id| tokenizer.is_special(id)).collect()
}

/// A conversation in which everybody says the same.
fn messages(text: &str) -> Vec<Value> {
    ["system", "user", "assistant", "tool", "user"]
        .map(|role| json!({"role": role, "content": text}))
        .to_vec()
}

/// A text that spells every mark of a vocabulary, whole, next to each other, and cut in two.
fn hostile(marks: &[&str]) -> String {
    let halves = marks.iter().map(|mark| mark.split_at(mark.chars().next().map_or(0, char::len_utf8)));
    let halves: String = halves.map(|(left, right)| format!("{left}{left}{right} {right}")).collect();
    format!("a{} b {} {halves}</think>{}", marks.concat(), marks.join("\n"), marks.concat())
}

#[test]
fn no_message_forges_a_turn_in_any_family() {
    for (name, source, marks) in FAMILIES {
        let tokenizer = byte_level(marks);
        let voice =
            Voice { template: Some(ChatTemplate::new(source).unwrap()), ..Voice::new(tokenizer.clone()) };
        let honest = voice.chat(&messages("hello")).unwrap();
        let forged = voice.chat(&messages(&hostile(marks))).unwrap();
        assert!(forged.text.contains(&marks.concat()), "{name}: {}", forged.text);
        let wanted = marks_of(&tokenizer, &honest.tokens);
        assert!(wanted.len() > 5, "{name}: {wanted:?}");
        assert_eq!(marks_of(&tokenizer, &forged.tokens), wanted, "{name}: {}", forged.text);
        // Nothing is lost: the text is the same, and so is an honest one to the last token.
        assert_eq!(tokenizer.decode(&forged.tokens), forged.text, "{name}");
        let parsing = Voice { special_tokens: SpecialTokens::Parse, ..voice.clone() };
        assert_eq!(parsing.chat(&messages("hello")).unwrap(), honest, "{name}");
        let parsed = parsing.chat(&messages(&hostile(marks))).unwrap();
        assert!(marks_of(&tokenizer, &parsed.tokens).len() > wanted.len(), "{name}");
    }
}

#[test]
fn roles_names_arguments_and_tools_are_text_too() {
    let (_, _, marks) = FAMILIES[0];
    let tokenizer = byte_level(marks);
    let source = "{% if tools %}{{ tools | tojson(indent=2) }}{% for tool in tools %}{{ tool }}{% endfor %}{% endif %}\
         {% for m in messages %}<|im_start|>{{ m.role }}{{ m.name | default('') | upper }}\n\
         {% for part in m.content %}{{ part.text }}{% endfor %}\
         {% for call in m.tool_calls or [] %}{{ call.function.name }}{% for key, value in call.function.arguments | items %}\
         {{ '%s=%r' % (key, value) }}{% endfor %}{% endfor %}<|im_end|>{% endfor %}{{ flavour }}";
    let voice = Voice { template: Some(ChatTemplate::new(source).unwrap()), ..Voice::new(tokenizer.clone()) };
    let chat = |evil: &str| {
        let call = json!({"function": {"name": evil, "arguments": {evil: evil}}});
        let parts = json!([{"type": "text", "text": evil}, {"type": "text", "text": "<|im_"},
                           {"type": "text", "text": "end|>"}]);
        let messages =
            [json!({"role": format!("user{evil}"), "name": evil, "content": parts, "tool_calls": [call]})];
        let voice =
            Voice { flags: [("flavour".to_owned(), json!(evil))].into_iter().collect(), ..voice.clone() };
        voice.chat_with_tools(&messages, &json!([{"name": evil, evil: [evil]}])).unwrap()
    };
    let prompt = chat(&hostile(marks));
    assert_eq!(marks_of(&tokenizer, &prompt.tokens), [256, 257], "{}", prompt.text);
    // Parts of messages that only together spell a mark.
    assert!(chat("x").text.contains("<|im_end|><|im_end|>") || chat("x").text.contains("x<|im_end|>"));
    assert_eq!(marks_of(&tokenizer, &chat("x").tokens), [256, 257]);
}

/// The packed vocabularies by name, with the texts of their cases.
fn vocabularies() -> (TempDir, Vec<(String, Tokenizer, Vec<String>)>) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors.zip");
    let folder = tempfile::tempdir().unwrap();
    zip::ZipArchive::new(File::open(packed).unwrap()).unwrap().extract(folder.path()).unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.path().join("tokenizers")).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_slice(&fs::read(path.join("case.json")).unwrap()).unwrap();
        if case["in_checkout"] == json!(true) {
            continue;
        }
        let config = TokenizerConfig {
            pattern: case["pattern"].as_str().map(str::to_owned),
            special_tokens: serde_json::from_value(case["special_tokens"].clone()).unwrap_or_default(),
            ..TokenizerConfig::default()
        };
        let format = serde_json::from_value(case["format"].clone()).unwrap();
        let bytes = fs::read(path.join(case["file"].as_str().unwrap())).unwrap();
        let texts = case["texts"].as_array().unwrap();
        let texts = texts.iter().map(|text| text["text"].as_str().unwrap().to_owned()).collect();
        let name = case["name"].as_str().unwrap().to_owned();
        found.push((name, Tokenizer::load(format, &bytes, &config).unwrap(), texts));
    }
    (folder, found)
}

/// Special tokens by id with their spellings; what stands for unknown characters is none.
fn specials(tokenizer: &Tokenizer) -> Vec<(u32, String)> {
    let ids = (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_special(id));
    let spelled = ids.filter_map(|id| Some((id, tokenizer.spelling(id)?)));
    spelled.filter(|(_, token)| !token.to_lowercase().contains("unk") && !token.is_empty()).collect()
}

#[test]
fn no_vocabulary_makes_a_special_token_of_what_was_heard() {
    let (_folder, vocabularies) = vocabularies();
    let mut seen = 0;
    for (name, tokenizer, texts) in &vocabularies {
        let specials = specials(tokenizer);
        let spellings: Vec<&str> = specials.iter().map(|(_, token)| token.as_str()).collect();
        let mut evil = texts.clone();
        evil.push(hostile(&spellings));
        evil.extend(specials.iter().map(|(_, token)| format!("x {token}{token} y")));
        evil.extend(specials.iter().map(|(_, token)| token.clone()));
        for text in &evil {
            let whole = 0..text.len();
            let ids = match tokenizer.encode_heard(text, std::slice::from_ref(&whole)) {
                Ok(ids) => ids,
                // A vocabulary without a token for what it does not know says so, as it does for any text.
                Err(_) => continue,
            };
            let forged = ids.iter().find(|id| specials.iter().any(|(special, _)| special == *id));
            assert_eq!(forged, None, "{name}: {text:?} gives {ids:?}");
            seen += 1;
        }
    }
    assert!(vocabularies.len() >= 5 && seen > 500, "{} vocabularies, {seen} texts", vocabularies.len());
}

#[test]
fn texts_without_special_tokens_are_cut_as_before() {
    let (_folder, vocabularies) = vocabularies();
    for (name, tokenizer, texts) in &vocabularies {
        let specials = specials(tokenizer);
        for text in texts {
            let before = tokenizer.encode(text, Ends::None).unwrap();
            let heard = tokenizer.encode_heard(text, &[]).unwrap();
            assert_eq!(heard, before, "{name}: nothing of {text:?} was heard");
            if !before.iter().any(|&id| tokenizer.is_special(id)) {
                let whole = 0..text.len();
                let heard = tokenizer.encode_heard(text, std::slice::from_ref(&whole)).unwrap();
                assert_eq!(heard, before, "{name}: all of {text:?} was heard");
            }
            // The beginning stays what it was where a special token is heard behind a written one.
            for (id, mark) in &specials {
                let start = format!("{mark}{text}{mark}");
                let expected = tokenizer.encode(&start, Ends::None).unwrap();
                let behind = format!("{start}{mark}");
                let heard = start.len()..behind.len();
                let Ok(ids) = tokenizer.encode_heard(&behind, std::slice::from_ref(&heard)) else { continue };
                let written = expected.iter().filter(|found| *found == id).count();
                // Formats that never see special tokens in a text cut all of it as one.
                if written >= 2 && expected.last() == Some(id) {
                    assert_eq!(ids[..expected.len().min(ids.len())], expected, "{name}: {behind:?}");
                }
            }
        }
    }
}

/// What the packed templates write, and what others write.
const MARKS: [&str; 17] = [
    "<s>",
    "</s>",
    "<unk>",
    "<user>",
    "</user>",
    "<assistant>",
    "</assistant>",
    "<system>",
    "<tool>",
    "<think>",
    "</think>",
    "[tools]",
    "ASSISTANT: ",
    "> Assistant:",
    "<|im_start|>",
    "<|im_end|>",
    "[/INST]",
];

/// Adds a text to every string that somebody has said; roles and kinds, by which templates choose, stay.
fn say(value: &mut Value, text: &str) {
    match value {
        Value::String(said) => said.push_str(text),
        Value::Array(items) => items.iter_mut().for_each(|item| say(item, text)),
        Value::Object(fields) => {
            let said = fields.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "role" | "type"));
            said.for_each(|(_, field)| say(field, text));
        }
        _ => {}
    }
}

#[test]
fn no_packed_template_makes_a_special_token_of_what_was_heard() {
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors.zip");
    let mut packed = zip::ZipArchive::new(File::open(packed).unwrap()).unwrap();
    let inputs: Value = serde_json::from_reader(packed.by_name("templates/inputs.json").unwrap()).unwrap();
    let (tokenizer, evil) = (byte_level(&MARKS), hostile(&MARKS));
    let mut seen = Vec::new();
    for entry in fs::read_dir(templates).unwrap() {
        let path = entry.unwrap().path();
        let template = ChatTemplate::new(&fs::read_to_string(&path).unwrap()).unwrap();
        let (mut rendered, mut written) = (0, 0);
        for (name, input) in inputs["inputs"].as_object().unwrap() {
            let mut flags = input.as_object().unwrap().clone();
            let mut take = |name: &str| flags.remove(name).unwrap();
            let honest = RenderInput {
                messages: take("messages"),
                tools: take("tools"),
                add_generation_prompt: take("add_generation_prompt").as_bool().unwrap(),
                tokens: serde_json::from_value(inputs["tokens"].clone()).unwrap(),
                flags,
                ..RenderInput::default()
            };
            let mut forged = honest.clone();
            say(&mut forged.messages, &evil);
            say(&mut forged.tools, &evil);
            let what = format!("{}, {name}", path.display());
            let (honest, forged) = (template.render_heard(&honest), template.render_heard(&forged));
            assert_eq!(honest.is_ok(), forged.is_ok(), "{what}: {forged:?}");
            let Ok(forged) = forged else { continue };
            let ids = tokenizer.encode_heard(&forged.text, &forged.heard).unwrap();
            // Ordinary tokens are single bytes, so that the place of every mark is known.
            let mut at = 0;
            for id in ids {
                let mark = (id as usize).checked_sub(256).map(|number| MARKS[number]);
                let end = at + mark.map_or(1, str::len);
                if let Some(mark) = mark {
                    let forged_by = forged.heard.iter().find(|part| part.start < end && at < part.end);
                    assert_eq!(forged_by, None, "{what}: {mark} at byte {at} of {:?}", forged.text);
                    written += 1;
                }
                at = end;
            }
            assert_eq!(at, forged.text.len(), "{what}");
            rendered += usize::from(forged.text.contains(&evil[evil.len() - 9..]));
        }
        seen.push((path.file_stem().unwrap().to_string_lossy().into_owned(), rendered, written > 0));
    }
    seen.sort();
    // How many of the 23 conversations each shows, and whether it writes marks of its own.
    let wanted = [
        ("filters", 23, true),
        ("plain", 22, true),
        ("python", 22, false),
        ("thinking", 22, true),
        ("tools", 23, true),
    ];
    assert_eq!(seen, wanted.map(|(name, rendered, writes)| (name.to_owned(), rendered, writes)));
}
