//! Rules about sources: what libraries may not do, where `unsafe` may stand and that it says why, how long a file is, and
//! that nothing is left for later. What they allow is read from ARCHITECTURE.md where the page has a say.

use std::collections::BTreeSet;

use super::text::Source;
use super::{Tree, page};

/// A file with more lines than this is two ideas.
const LONGEST: usize = 600;
/// A reason stands at most so many lines above what it is for.
const REACH: usize = 8;
/// Says why all functions of a file hold; only thin files of intrinsics, which the page names, may do so.
const FOR_ALL: &str = "SAFETY (all functions)";

/// What no library does: print, read the environment, exit.
const FORBIDDEN: [&str; 9] = [
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "dbg!",
    "env::var",
    "env::args",
    "process::exit",
    "process::abort",
];

pub(super) fn faults(tree: &Tree) -> Vec<String> {
    let mut faults = vec![];
    let places = page::places_of_unsafe(tree);
    for place in &places {
        let mut lines = tree.rust(&place.folder).flat_map(|(_, source)| &source.code);
        if !lines.any(|line| has_word(line, "unsafe")) {
            faults.push(format!("{}: `{}` has no `unsafe` any more", page::PAGE, place.name));
        }
    }
    for (path, source) in tree.rust("") {
        if source.code.len() > LONGEST + 1 {
            faults.push(format!("{path}: {} lines, more than {LONGEST}", source.code.len() - 1));
        }
        faults.extend(left_for_later(path, source));
        faults.extend(without_reason(path, source, &places));
    }
    for (path, line, code) in lines_of_libraries(tree) {
        for word in FORBIDDEN.iter().filter(|word| has_word(code, word)) {
            faults.push(format!("{path}:{line}: `{word}` in a library"));
        }
        if has_word(code, "unsafe") && !places.iter().any(|place| path.starts_with(&place.folder)) {
            faults.push(format!("{path}:{line}: `unsafe` where {} has none", page::PAGE));
        }
    }
    faults
}

/// Every line of code of the crates that others build on, outside their tests: file, number, text.
pub(super) fn lines_of_libraries(tree: &Tree) -> Vec<(&str, usize, &str)> {
    let tests = test_modules(tree);
    let is_test = |path: &str| {
        tests
            .iter()
            .any(|module| path == module || module.ends_with('/') && path.starts_with(module.as_str()))
    };
    let mut lines = vec![];
    for (path, source) in tree.rust("crates/") {
        if path.contains("/src/") && !path.starts_with("crates/cli/") && !is_test(path) {
            let code = source.code[..own_tests(source)].iter().enumerate();
            lines.extend(code.map(|(at, code)| (path, at + 1, code.as_str())));
        }
    }
    lines
}

/// Whether a word stands in a line of code, and not as a part of another.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !before.is_some_and(is_part) && (!after.is_some_and(is_part) || word.contains("::"))
    })
}

/// Where the tests of a file begin that stand in the file itself; they are its end.
fn own_tests(source: &Source) -> usize {
    let begins = |at: &usize| {
        let attribute = source.code[*at].trim();
        attribute.starts_with("#[cfg(") && has_word(attribute, "test") && !attribute.contains("not(test)")
    };
    let ends = (0..source.code.len()).filter(begins).find(|&at| {
        let item = source.code[at + 1..].iter().map(|line| line.trim()).find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    });
    ends.unwrap_or(source.code.len())
}

/// Files and folders that are compiled for tests alone: `#[cfg(test)] mod NAME;`.
fn test_modules(tree: &Tree) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for (path, source) in tree.rust("crates/") {
        for pair in source.code.windows(2) {
            let name = pair[1].split_once("mod ").and_then(|(_, name)| name.trim().strip_suffix(';'));
            if let (true, Some(name)) = (pair[0].trim() == "#[cfg(test)]", name) {
                let folder = match path.rsplit_once('/') {
                    Some((folder, "lib.rs" | "mod.rs" | "main.rs")) => folder,
                    _ => path.trim_end_matches(".rs"),
                };
                modules.insert(format!("{folder}/{name}.rs"));
                modules.insert(format!("{folder}/{name}/"));
            }
        }
    }
    modules
}

fn left_for_later(path: &str, source: &Source) -> Vec<String> {
    let mut faults = vec![];
    for (at, (code, comment)) in source.code.iter().zip(&source.comments).enumerate() {
        for word in ["TODO", "FIXME", "XXX"].iter().filter(|word| has_word(comment, word)) {
            faults.push(format!("{path}:{}: {word}", at + 1));
        }
        for attribute in ["ignore", "should_panic"] {
            if code.trim_start().starts_with("#[") && has_word(code, attribute) {
                faults.push(format!("{path}:{}: a test with `{attribute}`", at + 1));
            }
        }
    }
    faults
}

fn without_reason(path: &str, source: &Source, places: &[page::Place]) -> Vec<String> {
    let once = places.iter().any(|place| place.once && path.starts_with(&place.folder));
    if once && source.comments.iter().any(|comment| comment.contains(FOR_ALL)) {
        return vec![];
    }
    let needs = |line: &str| {
        line.match_indices("unsafe").any(|(at, word)| {
            let rest = line[at + word.len()..].trim_start();
            has_word(&line[..at + word.len()], "unsafe")
                && (rest.starts_with('{') || rest.starts_with("impl"))
        })
    };
    let has_reason = |at: usize| {
        source.comments[at.saturating_sub(REACH)..=at].iter().any(|comment| comment.contains("SAFETY:"))
    };
    let missing = (0..source.code.len()).filter(|&at| needs(&source.code[at]) && !has_reason(at));
    missing.map(|at| format!("{path}:{}: `unsafe` without `// SAFETY:`", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "- **`unsafe` lives in** kernels (`k`), one file (`f/src/map.rs`); each block says why, or all of a file \
                        at once (`k/src/simd`).\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [
            (page::PAGE, PAGE),
            ("crates/k/src/view.rs", "// SAFETY: none is needed.\nunsafe {}"),
            (
                "crates/k/src/simd/a.rs",
                "// SAFETY (all functions): as the trait says.\n\n\n\n\n\n\n\n\n\nunsafe {}",
            ),
            ("crates/f/src/map.rs", "// SAFETY: yes.\nunsafe {}"),
            (path, text),
        ];
        faults(&Tree::of(&files))
    }

    #[test]
    fn libraries_do_not_print_read_the_environment_or_exit() {
        for text in ["println!(\"a\")", "let a = std::env::var_os(\"A\");", "std::process::exit(1)"] {
            assert_eq!(found("crates/a/src/lib.rs", text).len(), 1, "{text}");
            assert_eq!(found("crates/cli/src/main.rs", text), [""; 0], "{text}");
            assert_eq!(found("crates/a/tests/a.rs", text), [""; 0], "{text}");
            assert_eq!(
                found("crates/a/src/lib.rs", &format!("// {text}\nwrite!(f, r#\"{text}\"#)")),
                [""; 0]
            );
            let tested = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    {text}\n}}\n");
            assert_eq!(found("crates/a/src/lib.rs", &tested), [""; 0], "{text}");
        }
    }

    #[test]
    fn modules_for_tests_alone_may_print() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\npub(crate) mod trial;"),
            ("crates/a/src/trial.rs", "println!()"),
            ("crates/a/src/b/mod.rs", "#[cfg(test)]\nmod tests;"),
            ("crates/a/src/b/tests.rs", "println!()"),
        ]);
        assert_eq!(faults(&tree), [""; 0]);
    }

    #[test]
    fn unsafe_stands_where_the_page_says() {
        let block = "// SAFETY: it holds.\nunsafe { a() }";
        assert_eq!(found("crates/a/src/lib.rs", block).len(), 1);
        assert_eq!(found("crates/f/src/other.rs", block).len(), 1);
        assert_eq!(found("crates/k/src/other.rs", block), [""; 0]);
        assert_eq!(found("crates/a/src/lib.rs", "let a = \"unsafe\"; // unsafe"), [""; 0]);
        let gone = Tree::of(&[(page::PAGE, "- **`unsafe` lives in** (`k`).\n"), ("crates/k/src/lib.rs", "")]);
        assert_eq!(faults(&gone), ["ARCHITECTURE.md: `k` has no `unsafe` any more"]);
    }

    #[test]
    fn unsafe_says_why() {
        assert_eq!(found("crates/k/src/a.rs", "unsafe { a() }").len(), 1);
        assert_eq!(found("crates/k/src/a.rs", "unsafe impl Send for A {}").len(), 1);
        assert_eq!(found("crates/k/src/a.rs", "unsafe fn a() {}"), [""; 0]);
        assert_eq!(found("crates/k/src/a.rs", "// SAFETY (all functions): no.\nunsafe { a() }").len(), 1);
        assert_eq!(found("crates/k/tests/a.rs", "unsafe { a() }").len(), 1);
    }

    #[test]
    fn nothing_is_left_for_later() {
        assert_eq!(found("xtask/src/a.rs", "// TODO: more").len(), 1);
        assert_eq!(found("crates/a/tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}").len(), 1);
        assert_eq!(found("crates/a/tests/a.rs", "#[cfg_attr(miri, ignore)]").len(), 1);
        assert_eq!(found("crates/a/tests/a.rs", "#[should_panic]").len(), 1);
        assert_eq!(found("crates/a/tests/a.rs", "let todo = ignore(\"TODO\");"), [""; 0]);
    }

    #[test]
    fn files_are_short() {
        assert_eq!(found("crates/a/src/a.rs", &"\n".repeat(LONGEST)), [""; 0]);
        assert_eq!(found("crates/a/src/a.rs", &"\n".repeat(LONGEST + 1)).len(), 1);
    }
}
