//! File tests: graphs in the text form, with what must be said of them written beside.
//!
//! A file holds cases; each begins with a line `;;; name` and is a graph or a module. Besides comments, the text
//! must be exactly what the printer makes of it. Expectations are comments:
//! - none: the verifier finds nothing wrong;
//! - `; error: message`: the verifier reports this, and nothing else. After code on a line, the error must be
//!   about that line; on a line of its own, about anything;
//! - `; parse error: message`: the text is refused, with the line counted from the case's name.
//!
//! Types of results are held against the op's rule more strictly than the verifier does: what the rule leaves
//! open must be a symbol of the same bounds, everything else must be equal; `; types: undecided` switches that off.

#[cfg(not(miri))]
use pteron_ir::OpKind;
use pteron_ir::{
    Dim, Graph, Module, Node, Symbol, SymbolInfo, Symbols, Type, VerifyError, infer, parse_module,
    verify_module,
};
use std::collections::{BTreeSet, HashMap};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Within the binary, so that the tests need no file system (Miri has none).
        const FILES: &[(&str, &str)] = &[ $( ($name, include_str!(concat!("files/", $name))) ),* ];
    };
}

files![
    "text.pir",
    "text_errors.pir",
    "verify.pir",
    "rules/attention.pir",
    "rules/control.pir",
    "rules/elementwise.pir",
    "rules/index.pir",
    "rules/integer.pir",
    "rules/internal.pir",
    "rules/linear.pir",
    "rules/quantized.pir",
    "rules/reduce.pir",
    "rules/shape.pir",
    "rules/unary.pir",
];

struct Case {
    name: String,
    text: String,
}

/// An error that must be reported, and the code of the line that it must be about.
#[derive(Debug)]
struct Expected {
    message: String,
    code: String,
}

#[test]
fn files_are_as_they_say() {
    let failures: Vec<String> =
        cases().filter_map(|case| check(&case).err().map(|why| format!("{}: {why}", case.name))).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

/// Every op is accepted somewhere with its types held against its rule, and refused somewhere.
#[cfg(not(miri))]
#[test]
fn every_op_is_accepted_and_refused() {
    let (mut accepted, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        let Ok(module) = parse_module(&case.text) else { continue };
        let errors = verify_module(&module).err().unwrap_or_default();
        let wrong: BTreeSet<&str> = errors.iter().map(|error| error.line.as_str()).collect();
        for graph in graphs(&module) {
            let printer = pteron_ir::text::Printer::new(graph);
            graph.for_each_node(|node, _| {
                let is_wrong = wrong.contains(printer.node(node).to_string().as_str());
                if is_wrong { &mut refused } else { &mut accepted }.insert(node.op.kind());
            });
        }
    }
    let missing = |seen: &BTreeSet<OpKind>| -> Vec<&str> {
        let all = OpKind::all().iter().chain(OpKind::internal());
        all.filter(|kind| !seen.contains(kind)).map(|kind| kind.spec().text).collect()
    };
    assert_eq!(missing(&accepted), Vec::<&str>::new(), "ops that no file accepts");
    // There is nothing that `noop` could be given.
    assert_eq!(missing(&refused), ["noop"], "ops that no file refuses");
}

#[cfg(not(miri))]
#[test]
fn every_file_is_listed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut found = BTreeSet::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    let listed: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, found);
}

fn cases() -> impl Iterator<Item = Case> {
    // Miri takes a minute for a hundred lines; the text form is what it is for.
    let files = FILES.iter().filter(|(file, _)| !cfg!(miri) || *file == "text.pir");
    files.flat_map(|(file, text)| {
        text.split("\n;;; ").skip(1).map(move |case| {
            let (name, text) = case.split_once('\n').unwrap_or((case, ""));
            // The name's line stays, as line 1.
            Case { name: format!("{file}: {name}"), text: format!("\n{text}") }
        })
    })
}

fn graphs(module: &Module) -> impl Iterator<Item = &Graph> {
    module.init.iter().chain(std::iter::once(&module.main))
}

fn check(case: &Case) -> Result<(), String> {
    if let Some((_, message)) = case.text.split_once("; parse error: ") {
        let message = message.lines().next().unwrap_or_default();
        return match parse_module(&case.text) {
            Ok(_) => Err(format!("parses, but should not: {message}")),
            Err(error) if error.to_string() == message => Ok(()),
            Err(error) => Err(format!("is refused otherwise: {error}")),
        };
    }
    let module = parse_module(&case.text).map_err(|error| error.to_string())?;
    printed_as_written(&case.text, &module)?;
    let errors = verify_module(&module).err().unwrap_or_default();
    expected_errors(&case.text, &errors)?;
    if case.text.contains("; types: undecided") {
        return Ok(());
    }
    graphs(&module).try_for_each(|graph| strict_types(graph, &errors))
}

fn printed_as_written(text: &str, module: &Module) -> Result<(), String> {
    let printed = module.to_string();
    let code = text.lines().map(|line| split_comment(line).0.trim_end()).filter(|line| !line.is_empty());
    let mut written = code.map(str::to_owned).collect::<Vec<_>>().into_iter();
    for line in printed.lines().filter(|line| !line.is_empty()) {
        let found = written.next().unwrap_or_default();
        if line != found {
            return Err(format!("prints otherwise\n   written {found}\n   printed {line}"));
        }
    }
    let again = parse_module(&printed).map_err(|error| format!("what is printed does not parse: {error}"))?;
    // By text too, because NaN does not equal itself.
    let has_nan = module.clone() != *module;
    if again.to_string() == printed && (has_nan || again == *module) {
        Ok(())
    } else {
        Err("parses to another module once printed".to_owned())
    }
}

/// Code and comment of a line.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            ';' if !quoted => return (&line[..at], Some(&line[at + 1..])),
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    (line, None)
}

fn expected_errors(text: &str, errors: &[VerifyError]) -> Result<(), String> {
    let mut expected: Vec<Expected> = text
        .lines()
        .filter_map(|line| {
            let (code, comment) = split_comment(line);
            let message = comment?.trim().strip_prefix("error: ")?.to_owned();
            // An error shows bodies as `{...}`.
            let code = code.split('{').next().unwrap_or_default().trim().to_owned();
            Some(Expected { message, code })
        })
        .collect();
    let mut problems = Vec::new();
    for error in errors {
        let message = error.fault.to_string();
        match expected.iter().position(|one| one.message == message && error.line.starts_with(&one.code)) {
            Some(at) => drop(expected.remove(at)),
            None => problems.push(format!("not expected: {error}")),
        }
    }
    problems.extend(expected.iter().map(|one| format!("not reported: {} ({})", one.message, one.code)));
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n   ")) }
}

/// Holds the written types of every node that verifies against what its rule says.
fn strict_types(graph: &Graph, errors: &[VerifyError]) -> Result<(), String> {
    let printer = pteron_ir::text::Printer::new(graph);
    let mut nodes = Vec::new();
    graph.for_each_node(|node, _| nodes.push(node));
    let wrong: BTreeSet<&str> = errors.iter().map(|error| error.line.as_str()).collect();
    nodes.retain(|node| wrong.is_empty() || !wrong.contains(printer.node(node).to_string().as_str()));
    for node in nodes {
        let mut symbols = graph.symbols.clone();
        let given = infer(&node.op, &graph.values, &mut symbols).map_err(|error| error.to_string())?;
        let mut fresh = Fresh { symbols: &symbols, own: graph.symbols.len(), names: HashMap::new() };
        if !fresh.types_match(graph, node, &given) {
            return Err(format!("`{}` gives otherwise: {given:?}", printer.node(node)));
        }
    }
    Ok(())
}

/// Symbols that a rule made, and what the file writes for them.
struct Fresh<'a> {
    symbols: &'a Symbols,
    own: usize,
    names: HashMap<Symbol, Symbol>,
}

impl Fresh<'_> {
    fn types_match(&mut self, graph: &Graph, node: &Node, given: &[Type]) -> bool {
        let written = node.results.iter().filter_map(|&value| graph.ty(value));
        given.iter().zip(written).all(|(given, written)| match (given, written) {
            (Type::Tensor(given), Type::Tensor(written)) => {
                let mut dims = given.shape.iter().zip(&written.shape);
                given.dtype == written.dtype
                    && given.shape.len() == written.shape.len()
                    && dims.all(|(given, written)| self.dims_match(given, written))
            }
            (Type::Int(given), Type::Int(written)) => self.dims_match(given, written),
            (given, written) => given == written,
        })
    }

    /// Equal but for the symbols that the rule made: each stands for one of the file's.
    fn dims_match(&mut self, given: &Dim, written: &Dim) -> bool {
        let ((constant, given), (other, written)) = (given.parts(), written.parts());
        let made: Vec<_> = given.iter().filter(|(symbol, _)| symbol.0 as usize >= self.own).collect();
        let known = |term: &&(Symbol, i64)| given.contains(term);
        let left: Vec<_> = written.iter().filter(|term| !known(term)).collect();
        constant == other
            && given.len() == written.len()
            && made.len() == left.len()
            && made.iter().zip(left).all(|(made, left)| made.1 == left.1 && self.stands_for(made.0, left.0))
    }

    fn stands_for(&mut self, made: Symbol, written: Symbol) -> bool {
        let bounds = |symbol| self.symbols.get(symbol).map(|info: &SymbolInfo| (info.min, info.max));
        bounds(made) == bounds(written) && *self.names.entry(made).or_insert(written) == written
    }
}
