//! Rules about pages: what ARCHITECTURE.md says of crates holds for their manifests and sources, and the paths and
//! commands that pages name are there. Each claim of the column "never knows of" has a meaning here, so that none is
//! made that nothing checks.

use std::collections::BTreeSet;

use super::Tree;
use super::sources::{has_word, lines_of_libraries};

pub(super) const PAGE: &str = "ARCHITECTURE.md";

/// What a crate that "never knows of" something may not use: crates of ours, and words in its sources.
struct Absence {
    claim: &'static str,
    crates: &'static [&'static str],
    words: &'static [&'static str],
}

const ABSENCES: &[Absence] = &[
    Absence { claim: "files", crates: &["aside"], words: &["std::fs", "fs::", "File"] },
    Absence { claim: "printing", crates: &[], words: &["println!", "eprintln!", "print!", "eprint!"] },
    Absence { claim: "environment", crates: &[], words: &["env::var"] },
    Absence { claim: "Python", crates: &[], words: &["process::Command"] },
    Absence { claim: "slots", crates: &["format"], words: &[] },
    Absence { claim: "kernels", crates: &["kernels"], words: &[] },
    Absence { claim: "graphs", crates: &["ir"], words: &[] },
    Absence { claim: "backends", crates: &["runtime", "cpu", "mlx", "vulkan"], words: &[] },
    Absence {
        claim: "any one device",
        crates: &["runtime", "cpu", "mlx", "vulkan"],
        words: &["ash::", "vk::"],
    },
    Absence { claim: "models", crates: &["models", "checkpoint"], words: &[] },
    Absence { claim: "any one model", crates: &["models", "checkpoint", "registry"], words: &[] },
    Absence {
        claim: "how ops compute",
        crates: &["runtime", "kernels", "cpu", "mlx", "gpu", "vulkan"],
        words: &[],
    },
    Absence {
        claim: "where a graph came from",
        crates: &["format", "import", "checkpoint", "models"],
        words: &[],
    },
    Absence {
        claim: "anything else of ours",
        crates: &[
            "tensor",
            "ir",
            "format",
            "passes",
            "plan",
            "import",
            "gguf",
            "aside",
            "companion",
            "checkpoint",
            "runtime",
            "pool",
            "kernels",
            "cpu",
            "mlx",
            "gpu",
            "vulkan",
            "models",
            "llm",
            "pteron",
            "registry",
            "speech",
            "template",
        ],
        words: &[],
    },
];

/// A place where the page lets `unsafe` stand.
pub(super) struct Place {
    /// As the page has it.
    pub(super) name: String,
    /// What paths there begin with.
    pub(super) folder: String,
    /// One reason may do for a whole file.
    pub(super) once: bool,
}

pub(super) fn faults(tree: &Tree, commands: &[&str]) -> Vec<String> {
    let mut faults = rooms(tree);
    for (page, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (at, line) in text.lines().enumerate() {
            for (start, _) in line.match_indices("cargo xtask ") {
                let rest = &line[start + "cargo xtask ".len()..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
                let name = &rest[..end];
                if name.starts_with(|c: char| c.is_lowercase()) && !commands.contains(&name) {
                    faults.push(format!("{page}:{}: there is no `cargo xtask {name}`", at + 1));
                }
            }
            let paths = if page == PAGE { named_paths(line) } else { vec![] };
            for path in paths.iter().filter(|path| !exists(tree, path)) {
                faults.push(format!("{page}:{}: `{path}` is not there", at + 1));
            }
        }
    }
    faults
}

/// Paths between back quotes or in links, with braces spelled out.
fn named_paths(line: &str) -> Vec<String> {
    let quoted = line.split('`').skip(1).step_by(2);
    let linked = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_path = |text: &&str| {
        text.contains('/') && !text.starts_with('.') && !text.contains(|c: char| " <>:=*".contains(c))
    };
    quoted.chain(linked).filter(is_path).flat_map(spelled_out).collect()
}

/// `a/{b,c}.rs` is two paths.
fn spelled_out(path: &str) -> Vec<String> {
    let Some((start, (choices, end))) =
        path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?)))
    else {
        return vec![path.to_string()];
    };
    choices.split(',').map(|choice| format!("{start}{choice}{end}")).collect()
}

fn exists(tree: &Tree, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    tree.paths.contains(path) || tree.paths.contains(&format!("crates/{path}"))
}

/// Each crate has its row, uses the crates that the row lists, and lacks what the row says it never knows of.
fn rooms(tree: &Tree) -> Vec<String> {
    let mut faults = vec![];
    let crates = tree.crates();
    let lines = lines_of_libraries(tree);
    let rows: Vec<[&str; 3]> = tree.text(PAGE).lines().filter_map(|line| room(line, &crates)).collect();
    for name in crates.iter().filter(|name| !rows.iter().any(|[room, ..]| room == *name)) {
        faults.push(format!("{PAGE}: no row for `{name}`"));
    }
    for [name, listed, absences] in rows {
        let manifest = format!("crates/{name}/Cargo.toml");
        let used = used_crates(tree.text(&manifest));
        let listed: BTreeSet<&str> = listed.split('`').skip(1).step_by(2).collect();
        if used != listed {
            faults.push(format!("{PAGE}: `{name}` uses {used:?}, listed are {listed:?}"));
        }
        for claim in absences.split([',', ';']).map(str::trim).filter(|claim| !claim.starts_with('-')) {
            let Some(absence) = ABSENCES.iter().find(|absence| absence.claim == claim) else {
                faults.push(format!("{PAGE}: nothing checks that `{name}` never knows of {claim}"));
                continue;
            };
            let breaches = absence.crates.iter().filter(|other| used.contains(*other));
            faults.extend(
                breaches.map(|other| format!("{manifest}: `{name}` knows of {claim}: it uses {other}")),
            );
            let home = format!("crates/{name}/");
            for (path, line, code) in lines.iter().filter(|(path, ..)| path.starts_with(&home)) {
                if absence.words.iter().any(|word| has_word(code, word)) {
                    faults.push(format!("{path}:{line}: `{name}` knows of {claim}"));
                }
            }
        }
    }
    faults
}

/// Name, crates that it uses and what it never knows of, of a row of the table of rooms.
fn room<'t>(line: &'t str, crates: &[&str]) -> Option<[&'t str; 3]> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let &["", name, _, listed, absences, ""] = cells.as_slice() else { return None };
    let name = name.strip_prefix('`')?.strip_suffix('`')?;
    crates.contains(&name).then_some([name, listed, absences])
}

/// Crates of ours that a manifest names, for all but its tests.
fn used_crates(manifest: &str) -> BTreeSet<&str> {
    let mut used = BTreeSet::new();
    let mut counts = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            counts = line.ends_with("dependencies]") && !line.ends_with("dev-dependencies]");
        } else if let (true, Some(name)) = (counts, line.split(['.', ' ', '=']).next()) {
            // The facade has no name beside that of all of them.
            used.extend(name.strip_prefix("pteron-").or((name == "pteron").then_some(name)));
        }
    }
    used
}

/// What the page says of `unsafe`: crates and paths between brackets; after "at once" those whose files need one reason.
pub(super) fn places_of_unsafe(tree: &Tree) -> Vec<Place> {
    let page = tree.text(PAGE);
    let Some(start) = page.find("- **`unsafe` lives in**") else { return vec![] };
    let text = &page[start + 2..];
    let text = &text[..text.find("\n- ").or(text.find("\n\n")).unwrap_or(text.len())];
    let once = text.find("at once").unwrap_or(text.len());
    let mut places = vec![];
    for (at, _) in text.match_indices("(`") {
        let rest = &text[at + 2..];
        let name = rest[..rest.find('`').unwrap_or(0)].to_string();
        let folder = format!("crates/{name}{}", if name.ends_with(".rs") { "" } else { "/" });
        places.push(Place { name, folder, once: at > once });
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| crate | owns | uses | never knows of |\n| --- | --- | --- | --- |\n";

    fn found(page: &str, files: &[(&str, &str)]) -> Vec<String> {
        let page = format!("{TABLE}{page}");
        let mut all = vec![(PAGE, page.as_str())];
        all.extend_from_slice(files);
        faults(&Tree::of(&all), &["fuzz", "real-models"])
    }

    #[test]
    fn crates_use_what_their_row_lists() {
        let uses = [(
            "crates/a/Cargo.toml",
            "[dependencies]\npteron.workspace = true\npteron-ir.workspace = true\nserde = \"1\"\n\
             [dev-dependencies]\npteron-cpu.workspace = true\n",
        )];
        assert_eq!(found("| `a` | x | `pteron`, `ir` | - |\n", &uses), [""; 0]);
        assert_eq!(found("| `a` | x | - | - |\n", &uses).len(), 1);
        assert_eq!(found("| `a` | x | `ir` | - |\n", &uses).len(), 1);
        assert_eq!(found("| `a` | x | `pteron`, `ir`, `tensor` | - |\n", &uses).len(), 1);
        assert_eq!(found("", &uses), ["ARCHITECTURE.md: no row for `a`"]);
    }

    #[test]
    fn what_a_crate_never_knows_of_is_not_in_it() {
        let files = [
            ("crates/a/Cargo.toml", "[target.'cfg(unix)'.dependencies]\npteron-ir = { path = \"../ir\" }\n"),
            ("crates/a/src/lib.rs", "use std::fs;\n"),
        ];
        assert_eq!(found("| `a` | x | `ir` | models; printing |\n", &files), [""; 0]);
        let faults = found("| `a` | x | `ir` | graphs, files |\n", &files);
        assert!(faults.len() == 2 && faults[1].starts_with("crates/a/src/lib.rs:1: "), "{faults:?}");
        let faults = found("| `a` | x | `ir` | the weather |\n", &files);
        assert!(faults.len() == 1 && faults[0].contains("nothing checks"), "{faults:?}");
    }

    #[test]
    fn paths_and_commands_that_are_named_exist() {
        let files = [("crates/a/Cargo.toml", ""), ("crates/a/src/b.rs", ""), ("crates/a/src/c.rs", "")];
        let row = "| `a` | x | - | - |\n";
        let good = "`a/src/{b,c}.rs`, `a/src/`, [b](crates/a/src/b.rs), `cargo xtask fuzz`, `cargo xtask real-models`, \
                    `cargo xtask COMMAND`, `pteron run <cases>/a`\n";
        assert_eq!(found(&format!("{row}{good}"), &files), [""; 0]);
        for bad in ["`a/src/{b,d}.rs`", "`b/src`", "[b](a/none.md)", "`cargo xtask miri`"] {
            assert_eq!(found(&format!("{row}{bad}\n"), &files).len(), 1, "{bad}");
        }
    }
}
