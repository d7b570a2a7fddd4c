//! Rules about the insides of crates: where ARCHITECTURE.md gives the order of a crate's modules, no file imports a module
//! above its own. Files of one folder import each other, but neither the file above them nor in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use super::page::PAGE;
use super::sources::lines_of_libraries;

/// A name that a file imports from its own crate.
#[derive(Debug, PartialEq)]
struct Import {
    line: usize,
    /// From where on: modules around the name.
    within: Vec<String>,
    name: String,
}

pub(super) fn faults(tree: &Tree) -> Vec<String> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (path, _, code) in lines_of_libraries(tree) {
        let text = files.entry(path).or_default();
        text.push_str(code);
        text.push('\n');
    }
    orders(tree).iter().flat_map(|(name, order)| faults_of(tree, &files, name, order)).collect()
}

/// What is wrong inside one crate.
fn faults_of(tree: &Tree, files: &BTreeMap<&str, String>, name: &str, order: &[String]) -> Vec<String> {
    let home = format!("crates/{name}/src/");
    let own = files.iter().filter_map(|(path, text)| Some((*path, path.strip_prefix(&home)?, text)));
    let own: Vec<_> = own.filter(|(_, place, _)| *place != "lib.rs").collect();
    let modules: BTreeSet<&str> = own.iter().map(|(_, place, _)| module(place)).collect();
    let mut faults = vec![];
    for module in modules.iter().filter(|module| !order.iter().any(|known| known == *module)) {
        faults.push(format!("{PAGE}: the order of `{name}` lacks `{module}`"));
    }
    for module in order.iter().filter(|module| !modules.contains(module.as_str())) {
        faults.push(format!("{PAGE}: `{name}` has no module `{module}`"));
    }
    let rank = |module: &str| order.iter().position(|known| known == module);
    let mut siblings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, place, text) in own {
        let module = module(place);
        for Import { line, within, name } in imports(text, &modules_of(place)) {
            let sibling = format!("{home}{module}/{name}.rs");
            match within.as_slice() {
                [] if rank(&name).is_some() && rank(&name) <= rank(module) => {}
                [] => faults.push(format!("{path}:{line}: `{module}` imports `{name}`, which is above it")),
                [_] if tree.paths.contains(&sibling) => {
                    siblings.entry(path.to_string()).or_default().insert(sibling);
                }
                [_] => faults.push(format!("{path}:{line}: `{name}` is of the file above it")),
                _ => {}
            }
        }
    }
    faults.extend(circles(&siblings));
    faults
}

/// Crates and their modules, the lowest first: lines like "- `cpu`: `fault` < `memory`", with what is wrapped.
pub(super) fn orders(tree: &Tree) -> Vec<(String, Vec<String>)> {
    let mut orders: Vec<(String, Vec<String>)> = vec![];
    let mut is_open = false;
    for line in tree.text(PAGE).lines() {
        let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>();
        let begins = line
            .strip_prefix("- `")
            .and_then(|rest| rest.split_once("`: "))
            .filter(|(_, rest)| rest.contains("` < `"));
        if let Some((name, rest)) = begins {
            orders.push((name.to_string(), names(rest)));
            is_open = true;
        } else if let (true, true, Some((_, order))) = (is_open, line.starts_with("  "), orders.last_mut()) {
            order.extend(names(line));
        } else {
            is_open = false;
        }
    }
    orders
}

/// The module right below the crate that a file is in, or is.
fn module(place: &str) -> &str {
    place.split(['/', '.']).next().unwrap_or_default()
}

/// The path of a file's module: `ops/mod.rs` is `ops`.
fn modules_of(place: &str) -> Vec<String> {
    let stem = place.trim_end_matches(".rs").trim_end_matches("/mod");
    stem.split('/').map(str::to_string).collect()
}

/// What a file at that place imports from its crate, or names by a whole path.
fn imports(text: &str, place: &[String]) -> Vec<Import> {
    let mut imports = vec![];
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
    for (at, word) in text.match_indices("crate::").chain(text.match_indices("super::")) {
        if text[..at].chars().next_back().is_some_and(is_part) {
            continue;
        }
        let (mut rest, mut within) = (&text[at + word.len()..], vec![]);
        if word == "super::" {
            let mut above = 1;
            while let Some(further) = rest.strip_prefix(word) {
                (rest, above) = (further, above + 1);
            }
            within = place[..place.len().saturating_sub(above)].to_vec();
        }
        let line = text[..at].matches('\n').count() + 1;
        for mut path in leading_names(rest) {
            let mut within = within.clone();
            // A sibling by its whole path.
            if within.is_empty() && path.len() > 1 && place.len() > 1 && path[0] == place[0] {
                within.push(path.remove(0));
            }
            imports.push(Import { line, within, name: path.swap_remove(0) });
        }
    }
    imports
}

/// The first two names of every path of an import: `a::b::C` or `{a::B, c}`.
fn leading_names(rest: &str) -> Vec<Vec<String>> {
    let names = |path: &str| {
        let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':' || c == '*'));
        let path = path[..end.unwrap_or(path.len())].trim_end_matches(':');
        path.split("::").take(2).map(str::to_string).collect::<Vec<_>>()
    };
    let Some(list) = rest.strip_prefix('{') else { return vec![names(rest)] };
    let (mut depth, mut paths, mut start) = (0, vec![], 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                paths.extend(Some(list[start..at].trim()).filter(|path| !path.is_empty()).map(names));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    paths
}

/// Files that import themselves through others.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reaches_itself = |start: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(at) = open.pop() {
            for next in edges.get(at).into_iter().flatten() {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    };
    edges
        .keys()
        .filter(|file| reaches_itself(file))
        .map(|file| format!("{file}: imports itself through others"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "text\n\n- `a`: `low` < `mid` <\n  `ops` < `top`\n- `other`: no order\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![
            (PAGE, ORDER),
            ("crates/a/src/lib.rs", "use top::T;\n"),
            ("crates/a/src/low.rs", ""),
            ("crates/a/src/mid.rs", "use crate::low::L;\n"),
            ("crates/a/src/top.rs", "use crate::{low, ops::{self, O}};\nuse super::mid;\n"),
            ("crates/a/src/ops/mod.rs", "use rows::R;\nuse crate::mid::M;\n"),
            ("crates/a/src/ops/rows.rs", "use super::views;\nuse crate::low;\n"),
            ("crates/a/src/ops/views.rs", "#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n"),
        ];
        for (path, text) in files {
            all.retain(|(known, _)| known != path);
            all.push((path, text));
        }
        faults(&Tree::of(&all))
    }

    #[test]
    fn imports_go_down_and_not_up() {
        assert_eq!(found(&[]), [""; 0]);
        let up = [
            ("crates/a/src/low.rs", "fn f() {}\nuse crate::mid::M;\n"),
            ("crates/a/src/mid.rs", "use super::top::T;\n"),
            ("crates/a/src/mid.rs", "use crate::{\n    low,\n    ops::O,\n};\n"),
            ("crates/a/src/mid.rs", "fn f() -> crate::top::T {}\n"),
            ("crates/a/src/ops/rows.rs", "use super::super::top;\n"),
            // What the crate's root defines is above all of them.
            ("crates/a/src/top.rs", "use crate::Error;\n"),
        ];
        for file in up {
            let faults = found(&[file]);
            assert!(faults.len() == 1 && faults[0].contains("above it"), "{file:?}: {faults:?}");
        }
        assert!(found(&[up[0]])[0].starts_with("crates/a/src/low.rs:2: "));
    }

    #[test]
    fn files_of_a_folder_take_nothing_from_above_and_run_in_no_circle() {
        let faults = found(&[("crates/a/src/ops/views.rs", "use super::{Compiled, rows};\n")]);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(faults[0], "crates/a/src/ops/views.rs:1: `Compiled` is of the file above it");
        assert!(
            faults[1..].iter().all(|fault| fault.ends_with("imports itself through others")),
            "{faults:?}"
        );
        assert_eq!(found(&[("crates/a/src/ops/views.rs", "use crate::ops::rows::R;\n")]).len(), 2);
    }

    #[test]
    fn the_order_has_every_module_and_no_other() {
        assert_eq!(found(&[("crates/a/src/new.rs", "")]), ["ARCHITECTURE.md: the order of `a` lacks `new`"]);
        let page = ORDER.replace("`mid` <", "`mid` < `gone` <");
        assert_eq!(found(&[(PAGE, &page)]), ["ARCHITECTURE.md: `a` has no module `gone`"]);
    }
}
