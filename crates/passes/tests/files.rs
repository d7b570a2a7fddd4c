//! File tests: each case of `files/*.pir` is a graph, the pass that is named by its file, and the graph that comes out.
//!
//! A case reads `;;; name`, comments, a graph, then `; becomes` and another graph, or `; stays` where the pass must not
//! fire. `; data "w": 1 2 3` is what a constant holds, one number for all elements or one each; without it the data is
//! not at hand. `; left: why` is a remark that must be made. Both graphs are run on the reference backend and must give
//! the same. With `PTERON_BLESS` in the environment, what comes out is written into the files.

#![allow(clippy::unwrap_used)] // a test may panic

mod interpret;

use interpret::{Data, Numbers};
use pteron_ir::{Effect, Graph, Type, parse_graph, verify};
use pteron_passes::{PIPELINE, Pass, Remarks, Verdict, fuse};
use pteron_runtime::Value;
use pteron_tensor::{DType, HostTensor};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const BECOMES: &str = "; becomes\n";
const STAYS: &str = "; stays\n";

#[test]
fn passes_do_what_their_files_say() {
    let mut failures = Vec::new();
    for path in files() {
        let name = path.file_stem().unwrap().to_str().unwrap().replace('_', "-");
        let pass = passes().find(|pass| pass.name == name).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut blessed = String::new();
        for part in split(&text) {
            match part.strip_prefix(";;; ") {
                None => blessed.push_str(part),
                Some(case) => match check(pass, case) {
                    Ok(()) => blessed.push_str(part),
                    Err(failure) => {
                        let _ = write!(blessed, ";;; {}", failure.blessed);
                        failures.push(format!("{name}: {}: {}", case.lines().next().unwrap(), failure.why));
                    }
                },
            }
        }
        if std::env::var_os("PTERON_BLESS").is_some() {
            std::fs::write(&path, blessed).unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

/// Every pass has a case where it fires and one where it must not.
#[test]
fn every_pass_fires_and_does_not() {
    for pass in passes() {
        let file = root().join(format!("{}.pir", pass.name.replace('-', "_")));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{} is missing", file.display()));
        assert!(text.contains(BECOMES) && text.contains(STAYS), "{}", pass.name);
    }
}

/// Those of the pipeline, and the one that backends run.
fn passes() -> impl Iterator<Item = &'static Pass> {
    PIPELINE.iter().chain([&fuse::PASS])
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The head of a file, then its cases, each with its first line.
fn split(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices("\n;;; ").map(|(at, _)| at + 1).collect();
    starts.insert(0, 0);
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

struct Failure {
    why: String,
    blessed: String,
}

fn check(pass: &Pass, case: &str) -> Result<(), Failure> {
    let (before, wanted) = match (case.split_once(BECOMES), case.split_once(STAYS)) {
        (Some((before, after)), _) => (before, Some(after)),
        (None, Some((before, _))) => (before, None),
        (None, None) => (case, Some("")),
    };
    let failure = |why: String| Failure { why, blessed: case.to_owned() };
    let (name, code) = before.split_once('\n').unwrap();
    let graph = parse_graph(&format!("\n{code}")).map_err(|error| failure(error.to_string()))?;
    verify(&graph).map_err(|errors| failure(format!("{errors:?}")))?;
    let data = data(&graph, code);
    let (mut made, mut kept) = (graph.clone(), data.clone());
    let mut remarks = Remarks::default();
    pass.apply(&mut made, &mut kept, &mut remarks);
    verify(&made).map_err(|errors| failure(format!("what comes out is not sound: {}\n{made}", errors[0])))?;
    let printed = made.to_string();
    let remarks = remarks.into_vec();
    let blessed = match printed == graph.to_string() {
        true => format!("{name}\n{code}{STAYS}\n"),
        false => format!("{name}\n{code}{BECOMES}{printed}\n"),
    };
    let wanted = wanted.map_or_else(|| graph.to_string(), |text| text.trim().to_owned() + "\n");
    if printed.trim() != wanted.trim() {
        return Err(Failure { why: format!("gives\n{printed}\nnot\n{wanted}"), blessed });
    }
    for line in code.lines().filter_map(|line| line.strip_prefix("; left: ")) {
        let said = |remark: &pteron_passes::Remark| remark.verdict == Verdict::Left(line.to_owned());
        if !remarks.iter().any(said) {
            return Err(failure(format!("does not say `{line}`, but {remarks:?}")));
        }
    }
    if is_not_run(&graph) {
        return Ok(());
    }
    for size in [1, 3] {
        let runs = (fill(&graph, &data, size), fill(&made, &kept, size));
        let before = interpret::run(&graph, &runs.0, 7, size).map_err(failure)?;
        let after = interpret::run(&made, &runs.1, 7, size).map_err(failure)?;
        // What backends run as one rounds where the plain ops round; a pattern that is recognised may round less often.
        let compare = if pass.name == fuse::PASS.name { equal } else { interpret::same };
        compare(&before, &after).map_err(failure)?;
    }
    Ok(())
}

/// Refuses results that differ at all.
fn equal(before: &[Value], after: &[Value]) -> Result<(), String> {
    for (position, (before, after)) in before.iter().zip(after).enumerate() {
        let (Ok(Some(a)), Ok(Some(b))) = (before.to_tensor(), after.to_tensor()) else {
            return Err(format!("result {position}: {after:?} for {before:?}"));
        };
        if a.dtype() != b.dtype() || a.shape() != b.shape() || a.bytes()[..] != b.bytes()[..] {
            return Err(format!(
                "result {position}: {:?} for {:?}",
                interpret::elements(&b),
                interpret::elements(&a)
            ));
        }
    }
    Ok(())
}

/// Graphs with bodies or effects are compared as text alone.
fn is_not_run(graph: &Graph) -> bool {
    let mut found = false;
    graph.for_each_node(|node, depth| found |= depth > 0 || node.op.effect() != Effect::Pure);
    found
}

/// What `; data` lines say.
fn data(graph: &Graph, code: &str) -> Data {
    let mut data = Data::default();
    for line in code.lines().filter_map(|line| line.strip_prefix("; data ")) {
        let (name, numbers) = line.split_once(": ").unwrap();
        let name = name.trim_matches('"');
        let constant = graph.constants.iter().find(|constant| constant.name == name).unwrap();
        let Some(Type::Tensor(ty)) = graph.ty(constant.value) else { panic!("{name} is no tensor") };
        let shape = ty.known_shape().unwrap();
        let count = shape.iter().product();
        let numbers: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let numbers = if numbers.len() == 1 { vec![numbers[0]; count] } else { numbers };
        let floats = || numbers.iter().map(|number| *number as f32);
        let tensor = match ty.dtype {
            DType::F32 => HostTensor::from_slice(shape, &floats().collect::<Vec<_>>()),
            DType::BF16 => {
                HostTensor::from_slice(shape, &floats().map(half::bf16::from_f32).collect::<Vec<_>>())
            }
            DType::I64 => {
                HostTensor::from_slice(shape, &numbers.iter().map(|n| *n as i64).collect::<Vec<_>>())
            }
            other => panic!("no case needs {other}"),
        };
        data.0.insert(name.to_owned(), tensor.unwrap());
    }
    data
}

/// Random data for constants that a case says nothing of; the same in both graphs.
fn fill(graph: &Graph, data: &Data, size: i64) -> Data {
    let mut data = data.clone();
    for constant in &graph.constants {
        let Some(Type::Tensor(ty)) = graph.ty(constant.value) else { continue };
        let seed =
            constant.name.bytes().fold(1u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let shape = ty.shape.iter().map(|dim| dim.evaluate(|_| Some(size)).unwrap() as usize).collect();
        let (name, dtype) = (constant.name.clone(), ty.dtype);
        data.0.entry(name).or_insert_with(|| Numbers(seed | 1).tensor(dtype, shape));
    }
    data
}
