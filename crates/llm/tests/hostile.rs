//! Damaged tokenizer files and templates that mean harm: an error or a result, never a crash, never without end.

#![allow(clippy::unwrap_used)] // a test's own helpers

use pteron_llm::template::{ChatTemplate, RenderInput, TemplateError};
use pteron_llm::tokenizer::{Ends, Tokenizer, TokenizerConfig, TokenizerFormat};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The tokenizer files of the packed vectors.
fn tokenizer_files() -> Vec<(String, Vec<u8>)> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors.zip");
    let mut archive = zip::ZipArchive::new(File::open(packed).unwrap()).unwrap();
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        if name.starts_with("tokenizers/") && !name.ends_with("case.json") {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.push((name, bytes));
        }
    }
    files
}

#[test]
fn damaged_tokenizer_files_never_crash() {
    // The tokenizers library panics on some of these; the guard turns that into an error, and the reports into noise.
    std::panic::set_hook(Box::new(|_| {}));
    let mut random = 7u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below.max(1)
    };
    let files = tokenizer_files();
    assert!(files.len() >= 14);
    let mut sound = 0;
    for (name, bytes) in &files {
        let format = TokenizerFormat::guess(bytes).unwrap_or_else(|| panic!("{name} is not recognised"));
        for round in 0..24 {
            let mut damaged = bytes.clone();
            match round % 3 {
                0 => damaged.truncate(next(bytes.len())),
                1 => (0..=next(3)).for_each(|_| {
                    let at = next(bytes.len());
                    damaged[at] ^= 1 << next(8);
                }),
                _ => {
                    let (from, length) = (next(bytes.len()), next(64));
                    let to = (from + length).min(bytes.len());
                    damaged.drain(from..to);
                }
            }
            let Ok(tokenizer) = Tokenizer::load(format, &damaged, &TokenizerConfig::default()) else {
                continue;
            };
            sound += 1;
            if let Ok(ids) = tokenizer.encode("Hello w\u{f6}rld \u{65e5} <|end|>\n 123", Ends::AsConfigured) {
                let mut stream = tokenizer.stream();
                ids.iter().for_each(|id| drop(stream.push(*id)));
                tokenizer.decode(&ids);
            }
            tokenizer.decode(&[0, 5, u32::MAX]);
        }
    }
    let _ = std::panic::take_hook();
    assert!(sound > 20, "hardly any damaged file could be loaded, so that little was tried");
}

fn render(template: &str) -> Result<String, TemplateError> {
    let input = RenderInput {
        messages: json!([{"role": "user", "content": "How warm is it in Oslo?"}]),
        ..RenderInput::default()
    };
    ChatTemplate::new(template)?.render(&input)
}

#[test]
fn templates_that_mean_harm_end_soon_on_a_small_stack() {
    let nest = |open: &str, close: &str, count: usize| {
        format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count))
    };
    let mut templates = vec![
        nest("(", ")", 10_000),
        nest("[", "]", 10_000),
        nest("{1:", "}", 10_000),
        nest("-", "", 10_000),
        nest("x[", "]", 10_000),
        nest("f(", ")", 10_000),
        format!("{{{{ 1{} }}}}", " if 1".repeat(10_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(10_000)),
        format!("{}{}", "{% for x in [1] %}".repeat(500), "{% endfor %}".repeat(500)),
        "{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = [n.s] %}{% endfor %}".into(),
        "{% set n = namespace() %}{% set n.s = [n, n] %}{% for i in range(40) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}".into(),
        "{% set n = namespace(s=[1]) %}{% for i in range(40) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s == n.s + [] or n.s in [n.s] }}{{ n.s | tojson }}".into(),
        "{% macro f(x) %}{% for i in [1] %}{{ f([x]) }}{% endfor %}{% endmacro %}{{ f(1) }}".into(),
        "{% set s = 'ab' * 900000 %}{% for i in range(99999) %}{{ 'b' * 9 in s }}{{ s | length }}{% endfor %}".into(),
        "{{ '%999999999d' % 1 }}".into(),
        "{{ '{:>999999999}'.format(1) }}".into(),
        "{{ 'x'.center(999999999999) }}".into(),
        "{{ 'a\tb'.expandtabs(99999999999) }}".into(),
        "{% for i in range(99999) %}{% set _ = range(99999) | list %}{% endfor %}".into(),
        "{{ range(99999) | map('string') | map('replace', '', 'x' * 99) | join }}".into(),
        "{{ -170141183460469231731687303715884105728 // -1 }}".into(),
        "{{ 'x' | indent(9999999999) }}{{ 'a\nb' | indent(width=9999999999) }}".into(),
        "{% set n = namespace(s=[1]) %}{% for i in range(40) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | pprint }}".into(),
        "{% set s = 'a' ~ '-' * 900000 %}{% for i in range(99) %}{{ s | wordwrap(3) }}{% endfor %}".into(),
        "{% set s = 'a-b' * 300000 %}{% for i in range(99) %}{{ s | wordwrap(3, false) }}{% endfor %}".into(),
        "{% set s = '(' * 400000 ~ 'x' ~ ')' * 400000 %}{% for i in range(99) %}{{ s | urlize }}{% endfor %}".into(),
        "{% set s = '<' * 400000 %}{% for i in range(99) %}{{ (s | striptags) ~ (s | pprint) }}{% endfor %}".into(),
    ];
    templates.push("{{ 1".to_owned() + &" + 'a'".repeat(100));
    let worker = move || {
        for template in templates {
            let started = Instant::now();
            let result = render(&template);
            let shown: String = template.chars().take(80).collect();
            assert!(result.is_err(), "{shown} gave a text");
            assert!(started.elapsed() < Duration::from_secs(3), "{shown} took {:?}", started.elapsed());
        }
    };
    thread::Builder::new().stack_size(2 << 20).spawn(worker).unwrap().join().unwrap();
}

#[test]
fn long_templates_without_nesting_are_fine() {
    let sum = format!("{{{{ 0{} }}}}", " + 1".repeat(5000));
    assert_eq!(render(&sum).unwrap(), "5000");
    let branches: String = (0..2000).map(|i| format!("{{% elif 1 == {} %}}x", i + 2)).collect();
    assert_eq!(render(&format!("{{% if false %}}{branches}{{% else %}}y{{% endif %}}")).unwrap(), "y");
    let filters = format!("{{{{ ' a '{} }}}}", " | trim".repeat(2000));
    assert_eq!(render(&filters).unwrap(), "a");
}
