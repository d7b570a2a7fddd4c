//! Templates made of the language's own parts: statements, expressions, every filter, test, method and function, with
//! values that lie at the borders.
//!
//! Bytes flow in as a [`Source`], the text of a template flows out. Most of it parses; what does not makes an error, as it
//! should. Names are few, so that what one statement sets another one reads.

use crate::Source;
use crate::words::{
    ATTRIBUTES, FILTERS, FUNCTIONS, METHODS, NAMES, NUMBERS, OPERATORS, PARAMETERS, TESTS, TEXTS,
};
use std::fmt::Write;

/// Nesting of what is made; the engine's own bounds on depth are met by recursion.
const DEEPEST: usize = 5;
/// Templates grow no further than this.
const LONGEST: usize = 2 << 10;

/// A template.
pub(crate) fn template(source: &mut Source<'_>) -> String {
    let mut out = String::new();
    while !source.is_empty() && out.len() < LONGEST {
        statement(source, &mut out, 0);
    }
    out
}

fn body(source: &mut Source<'_>, out: &mut String, depth: usize) {
    for _ in 0..=source.below(3) {
        statement(source, out, depth + 1);
    }
}

fn statement(source: &mut Source<'_>, out: &mut String, depth: usize) {
    if depth > DEEPEST || source.is_empty() || out.len() > LONGEST {
        return out.push_str("{{ x }}");
    }
    // White space control, and what it works on.
    let (open, close) =
        (source.pick(&["{% ", "{%- ", "{%+ ", "{% "]), source.pick(&[" %}", " -%}", " %}\n", " +%}"]));
    let tag = |out: &mut String, word: &str| {
        let _ = write!(out, "{open}{word}{close}");
    };
    match source.below(16) {
        0 | 1 => {
            out.push_str("{{ ");
            expression(source, out, depth);
            out.push_str(source.pick(&[" }}", " -}}", " }}\n"]));
        }
        2 => {
            let name = source.pick(&["x", "y", "n", "n.x", "x, y", "(x, (y, n))", "message", "n.y", "loop"]);
            let _ = write!(out, "{open}set {name} = ");
            expression(source, out, depth);
            out.push_str(close);
        }
        3 => {
            let _ = write!(out, "{open}set n = namespace(x=");
            expression(source, out, depth);
            let _ = write!(out, "){close}");
        }
        4 | 5 => {
            let target = source.pick(&["x", "y", "message", "x, y", "n", "(x, y), n"]);
            let _ = write!(out, "{open}for {target} in ");
            expression(source, out, depth);
            if source.flag() {
                out.push_str(" if ");
                expression(source, out, depth);
            }
            out.push_str(if source.below(4) == 1 { " recursive" } else { "" });
            out.push_str(close);
            body(source, out, depth);
            if source.below(4) == 1 {
                tag(out, source.pick(&["break", "continue"]));
                tag(out, "else");
                body(source, out, depth);
            }
            tag(out, "endfor");
        }
        6 => {
            let _ = write!(out, "{open}if ");
            expression(source, out, depth);
            out.push_str(close);
            body(source, out, depth);
            if source.flag() {
                let _ = write!(out, "{open}elif ");
                expression(source, out, depth);
                out.push_str(close);
                body(source, out, depth);
                tag(out, "else");
                body(source, out, depth);
            }
            tag(out, "endif");
        }
        7 => {
            let parameters = source.pick(&["x", "", "x, y=1", "x, y=x, n=none", "x='a', y"]);
            let _ = write!(out, "{open}macro f({parameters}){close}");
            body(source, out, depth);
            tag(out, "endmacro");
        }
        8 => {
            let caller = source.pick(&["", "(x)", "(x, y=2)"]);
            let _ = write!(out, "{open}call{caller} f(");
            arguments(source, out, depth);
            let _ = write!(out, "){close}");
            body(source, out, depth);
            tag(out, "endcall");
        }
        9 => {
            let _ = write!(out, "{open}filter {}", source.pick(&FILTERS));
            optional_arguments(source, out, depth);
            out.push_str(close);
            body(source, out, depth);
            tag(out, "endfilter");
        }
        10 => {
            let _ = write!(out, "{open}set x");
            if source.flag() {
                let _ = write!(out, " | {}", source.pick(&FILTERS));
                optional_arguments(source, out, depth);
            }
            out.push_str(close);
            body(source, out, depth);
            tag(out, "endset");
        }
        11 => {
            let _ = write!(out, "{open}with x = ");
            expression(source, out, depth);
            out.push_str(", y = ");
            expression(source, out, depth);
            out.push_str(close);
            body(source, out, depth);
            tag(out, "endwith");
        }
        12 => {
            tag(out, "generation");
            body(source, out, depth);
            tag(out, "endgeneration");
        }
        13 => out.push_str(source.pick(&[
            "{# {{ x }} #}",
            "{%- raw %}{{ x }}{% endraw %}",
            "{{- '\n' -}}",
            "{#- -#}",
            "{{ loop(x) }}",
            "{{ caller(x) }}",
            "{{ f(x) }}",
            "{% break %}",
        ])),
        14 => {
            let count = source.below(12);
            out.push_str(&source.text(count));
        }
        _ => out.push_str(source.pick(&["a", "\n", " \t", "<|im_start|>", "\u{df}\n  ", "}}", "\r\n"])),
    }
}

fn expression(source: &mut Source<'_>, out: &mut String, depth: usize) {
    if depth > DEEPEST || source.is_empty() || out.len() > LONGEST {
        return out.push_str(source.pick(&["x", "1", "'a'", "messages"]));
    }
    let nested = depth + 1;
    match source.below(20) {
        0..=3 => out.push_str(source.pick(&NAMES)),
        4 => out.push_str(source.pick(&NUMBERS)),
        5 | 6 => out.push_str(source.pick(&TEXTS)),
        7 => out.push_str(source.pick(&[
            "none",
            "true",
            "false",
            "[]",
            "()",
            "{}",
            "range(5)",
            "messages[0]",
            "[1, 'a', none]",
        ])),
        8 => list(source, out, nested, ["[", "]"]),
        9 => list(source, out, nested, ["(", ",)"]),
        10 => {
            out.push('{');
            for _ in 0..source.below(4) {
                expression(source, out, nested);
                out.push_str(": ");
                expression(source, out, nested);
                out.push_str(", ");
            }
            out.push('}');
        }
        11 => {
            out.push_str(source.pick(&["not ", "-", "+", "not not "]));
            operand(source, out, nested);
        }
        12 | 13 => {
            operand(source, out, nested);
            for _ in 0..=source.below(3) {
                let _ = write!(out, " {} ", source.pick(&OPERATORS));
                operand(source, out, nested);
            }
        }
        14 => {
            operand(source, out, nested);
            out.push_str(" if ");
            operand(source, out, nested);
            if source.flag() {
                out.push_str(" else ");
                operand(source, out, nested);
            }
        }
        15 => {
            let _ = write!(out, "{}(", source.pick(&FUNCTIONS));
            arguments(source, out, nested);
            out.push(')');
        }
        _ => {
            operand(source, out, nested);
            for _ in 0..=source.below(3) {
                step(source, out, nested);
            }
        }
    }
}

/// An expression that what comes before and behind does not tear apart.
fn operand(source: &mut Source<'_>, out: &mut String, depth: usize) {
    out.push('(');
    expression(source, out, depth);
    out.push(')');
}

fn list(source: &mut Source<'_>, out: &mut String, depth: usize, [open, close]: [&str; 2]) {
    out.push_str(open);
    for at in 0..=source.below(4) {
        out.push_str(if at > 0 { ", " } else { "" });
        expression(source, out, depth);
    }
    out.push_str(close);
}

/// What is done to a value.
fn step(source: &mut Source<'_>, out: &mut String, depth: usize) {
    match source.below(8) {
        0..=2 => {
            let _ = write!(out, " | {}", source.pick(&FILTERS));
            optional_arguments(source, out, depth);
        }
        3 | 4 => {
            let _ = write!(out, ".{}(", source.pick(&METHODS));
            arguments(source, out, depth);
            out.push(')');
        }
        5 => {
            let _ = write!(out, ".{}", source.pick(&ATTRIBUTES));
        }
        6 => {
            out.push('[');
            expression(source, out, depth);
            for _ in 0..source.below(3) {
                out.push(':');
                expression(source, out, depth);
            }
            out.push(']');
        }
        _ => {
            let _ = write!(out, " is {}{}", source.pick(&["", "not "]), source.pick(&TESTS));
            optional_arguments(source, out, depth);
        }
    }
}

fn optional_arguments(source: &mut Source<'_>, out: &mut String, depth: usize) {
    if source.flag() {
        out.push('(');
        arguments(source, out, depth);
        out.push(')');
    }
}

fn arguments(source: &mut Source<'_>, out: &mut String, depth: usize) {
    for at in 0..source.below(4) {
        out.push_str(if at > 0 { ", " } else { "" });
        match source.below(12) {
            0..=7 => {}
            8..=10 => {
                let _ = write!(out, "{}=", source.pick(&PARAMETERS));
            }
            _ => out.push_str(source.pick(&["*", "**"])),
        }
        expression(source, out, depth);
    }
}
