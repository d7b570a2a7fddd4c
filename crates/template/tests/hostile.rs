//! Templates that mean harm: an error or a text, never a crash, never without end.

#![allow(clippy::unwrap_used)] // a test's own helpers

use pteron_template::{ChatTemplate, RenderInput, TemplateError};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

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
        "{% set s = 'a' * 200000 %}{% set c = 'b' * 200000 ~ 'a' %}{% for i in range(9999) %}{{ s.strip(c) ~ s | trim(c) }}{% endfor %}".into(),
        "{% set s = 'ab' * 400000 %}{% set n = namespace(t=(s ~ 'd',)) %}{% for i in range(12) %}{% set n.t = n.t + n.t %}{% endfor %}{% set s = s ~ 'c' %}{% for i in range(9999) %}{% if s.startswith(n.t) %}{% endif %}{% endfor %}".into(),
        "{% set s = 'ab' * 900000 %}{% for i in range(9999) %}{{ 'a'.find(s) ~ 'a'.count(s) ~ 'a'.replace(s, '') ~ 'a'.split(s) ~ ('a' | replace(s, '')) }}{% endfor %}".into(),
        "{% set s = 'ab' * 900000 %}{% set d = {s: 1} %}{% for i in range(9999) %}{% if d[s] and s in d and d.get(s) %}{% endif %}{% endfor %}".into(),
        "{% set s = 'ab' * 900000 %}{% set n = namespace({s: 1}) %}{% for i in range(9999) %}{% if n[s] %}{% endif %}{% endfor %}".into(),
        "{% set s = 'ab' * 900000 %}{% for i in range(9999) %}{% if s is lower and s is upper %}{% endif %}{% endfor %}".into(),
        "{% set s = '1' * 900000 %}{% for i in range(9999) %}{{ s | int ~ (s | float) ~ (s | filesizeformat) }}{% endfor %}".into(),
        "{% set s = '&' * 900000 %}{% for i in range(9999) %}{% if s | striptags %}{% endif %}{% endfor %}".into(),
        "{% set s = 'a ' * 40000 %}{% set e = ['x'] * 40000 %}{% for i in range(99) %}{% if s | urlize(extra_schemes=e) %}{% endif %}{% endfor %}".into(),
        "{% set s = 'ab' * 900000 %}{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = n.l + [messages[0][s], messages[s], messages[0] | attr(s)] %}{% endfor %}".into(),
    ];
    templates.push("{{ 1".to_owned() + &" + 'a'".repeat(100));
    // Checked builds, and those of sanitizers above all, are many times slower.
    let soon = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 3 });
    let worker = move || {
        for template in templates {
            let started = Instant::now();
            let result = render(&template);
            let shown: String = template.chars().take(80).collect();
            assert!(result.is_err(), "{shown} gave a text");
            assert!(started.elapsed() < soon, "{shown} took {:?}", started.elapsed());
        }
    };
    thread::Builder::new().stack_size(2 << 20).spawn(worker).unwrap().join().unwrap();
}

#[test]
fn numbers_at_the_border_are_numbers() {
    // The smallest integer less one, and divided by minus one, is none.
    let smallest = "(-170141183460469231731687303715884105727 - 1)";
    assert_eq!(render(&format!("{{{{ {smallest} in range(0, -5, -1) }}}}")).unwrap(), "False");
    assert_eq!(render(&format!("{{{{ '-1'.zfill({smallest}) }}}}")).unwrap(), "-1");
    assert_eq!(render("{{ -3 in range(0, -5, -1) }}{{ 3 in range(0, 5, 2) }}").unwrap(), "TrueFalse");
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
