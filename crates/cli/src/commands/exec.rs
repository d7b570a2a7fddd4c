//! `pteron exec`: one method, once, on inputs from files or the command line.

use crate::aside::Aside;
use crate::engine::Engine;
use crate::failure::{Answer, Failure};
use crate::form::{self, Wanted};
use crate::inspect::preview;
use crate::output::{Align, Output, Table};
use crate::tensors::{read_safetensors, write_safetensors};
use pteron_format::Limits;
use pteron_format::map::MappedFile;
use pteron_llm::LanguageModel;
use pteron_runtime::{ArgumentKind, DataFile, MethodInfo, Precision, Program, SessionOptions, Value};
use pteron_tensor::{DType, HostTensor, npy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run one method of a program
///
/// Inputs are given in the program's order, which `pteron inspect FILE` shows. Outputs go to files with --output;
/// without it their types and first elements are printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron exec model.pte --input tokens.npy --input int:0 --output out
  pteron exec model.pte --input all.safetensors --output out.safetensors
  pteron exec model.pte --data weights.ptd --input x.npy")]
pub(crate) struct Arguments {
    /// The program
    file: PathBuf,
    /// Method to run [default: `forward`, or the only one]
    #[arg(long)]
    method: Option<String>,
    #[command(flatten)]
    engine: Engine,
    /// An input: FILE.npy, int:3, float:0.5 or bool:true, once per input in order; or one FILE.safetensors with
    /// keys in.0, in.1, ..., whose gaps the others fill
    #[arg(long = "input", value_name = "INPUT")]
    inputs: Vec<String>,
    /// External weights; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    data: Vec<PathBuf>,
    /// Positions that an off-graph cache can hold
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Folder for out.0.npy, out.1.npy, ...; or a FILE.safetensors with keys out.0, out.1, ... (bf16 needs that)
    #[arg(long, value_name = "DIR|FILE.safetensors")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let limits = arguments.engine.limits();
    let inputs = read_inputs(&arguments.inputs, &limits)?;
    let options = arguments.engine.options(Precision::Exact)?;
    let files = Files::open(arguments, &limits)?;
    let program = Program::load(&files.name(), files.program.to_bytes(), &files.data(), &options)?;
    let method = method(&program, arguments.method.as_deref())?;
    let inputs = fitted(inputs, method);
    check_text(&program, &inputs)?;
    let target = arguments.output.as_deref().map(Target::of);
    if let Some(target) = &target {
        target.check(method)?;
    }
    if program.needs_cache() && program.cache_spec().is_none() && arguments.context.is_none() {
        return Err(Failure::usage(format!(
            "{} keeps keys and values in an off-graph cache, and its metadata do not say how many",
            program.name()
        ))
        .hint("`--context N` says how many positions the cache can hold"));
    }
    let session = SessionOptions { context: arguments.context, ..SessionOptions::default() };
    let outputs = program.session_with(&session)?.run(&method.name, &inputs)?;
    files.check_unchanged()?;
    match target {
        Some(target) => target.write(&outputs)?,
        None => show(&outputs, out)?,
    }
    Ok(Answer::Yes)
}

/// The files of a program, kept so that a change during the run is noticed before anything is written.
struct Files {
    program: Arc<MappedFile>,
    data: Vec<Arc<MappedFile>>,
}

impl Files {
    fn open(arguments: &Arguments, limits: &Limits) -> Result<Files, Failure> {
        let open = |path: &PathBuf| {
            form::check(path, Wanted::Program)?;
            MappedFile::open(path, limits).map_err(Failure::new)
        };
        Ok(Files {
            program: open(&arguments.file)?,
            data: arguments.data.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    fn name(&self) -> String {
        self.program.path().display().to_string()
    }

    fn data(&self) -> Vec<DataFile> {
        let file = |file: &Arc<MappedFile>| (file.path().display().to_string(), file.to_bytes());
        self.data.iter().map(file).map(|(name, bytes)| DataFile { name, bytes }).collect()
    }

    fn check_unchanged(&self) -> Result<(), Failure> {
        let mut files = self.data.iter().chain([&self.program]);
        files.try_for_each(|file| file.check_unchanged()).map_err(Failure::new)
    }
}

/// The method that is asked for, or the one that there is.
pub(crate) fn method<'a>(program: &'a Program, wanted: Option<&str>) -> Result<&'a MethodInfo, Failure> {
    let methods = program.methods();
    match (wanted, methods) {
        (Some(name), _) => Ok(program.method(name)?),
        (None, [only]) => Ok(only),
        (None, _) => methods.iter().find(|method| method.name == "forward").ok_or_else(|| {
            let names: Vec<&str> = methods.iter().map(|method| method.name.as_str()).collect();
            Failure::usage(format!("{} has no method `forward`", program.name()))
                .hint(format!("choose one with --method: {}", names.join(", ")))
        }),
    }
}

/// Inputs as a method takes them: a number becomes a tensor where a tensor of one element will do, and the other way round.
pub(crate) fn fitted(inputs: Vec<Value>, method: &MethodInfo) -> Vec<Value> {
    let mut wanted = method.inputs.iter().map(|argument| &argument.kind);
    inputs
        .into_iter()
        .map(|value| match wanted.next() {
            Some(ArgumentKind::Tensor { dtype, dims }) if dims.iter().all(|dim| dim.min <= 1) => {
                element(&value, *dtype, vec![1; dims.len()]).map_or(value, Value::from)
            }
            Some(ArgumentKind::Int) => match whole_numbers(&value).as_deref() {
                Some(&[number]) => Value::Int(number),
                _ => value,
            },
            _ => value,
        })
        .collect()
}

/// A number as a tensor of one element; `None` where the dtype is not one of such numbers.
fn element(value: &Value, dtype: DType, shape: Vec<usize>) -> Option<HostTensor> {
    match (value, dtype) {
        (Value::Int(number), DType::I64) => HostTensor::from_slice(shape, &[*number]),
        (Value::Int(number), DType::I32) => HostTensor::from_slice(shape, &[i32::try_from(*number).ok()?]),
        (Value::Float(number), DType::F32) => HostTensor::from_slice(shape, &[*number as f32]),
        (Value::Float(number), DType::F64) => HostTensor::from_slice(shape, &[*number]),
        (Value::Bool(truth), DType::Bool) => HostTensor::from_bools(shape, &[*truth]),
        _ => return None,
    }
    .ok()
}

/// An integer, or the elements of a tensor of integers.
fn whole_numbers(value: &Value) -> Option<Vec<i64>> {
    match value {
        Value::Int(number) => Some(vec![*number]),
        Value::Tensor(tensor) => match tensor.as_slice::<i64>() {
            Ok(list) => Some(list.to_vec()),
            Err(_) => tensor.as_slice::<i32>().ok().map(|list| list.iter().map(|&id| id.into()).collect()),
        },
        _ => None,
    }
}

/// Refuses token ids and positions below zero: ops that count from the end would take them for others.
fn check_text(program: &Program, inputs: &[Value]) -> Result<(), Failure> {
    let reads_text = LanguageModel::new(program.clone()).is_ok_and(|model| model.context().is_some());
    if !reads_text {
        return Ok(());
    }
    for (position, value) in inputs.iter().enumerate() {
        let below = whole_numbers(value).and_then(|list| list.into_iter().find(|&number| number < 0));
        if let Some(below) = below {
            return Err(Failure::new(format!(
                "input {position} holds {below}; token ids and positions are 0 or more"
            )));
        }
    }
    Ok(())
}

/// The inputs in the program's order.
pub(crate) fn read_inputs(given: &[String], limits: &Limits) -> Result<Vec<Value>, Failure> {
    let mut placed: BTreeMap<usize, Value> = BTreeMap::new();
    let mut in_order = Vec::new();
    let mut keyed: Option<&str> = None;
    for text in given {
        if let Some(value) = scalar(text)? {
            in_order.push(value);
        } else if text.ends_with(".safetensors") {
            if let Some(first) = keyed.replace(text) {
                return Err(Failure::usage(format!("{first} and {text}: only one .safetensors is taken")));
            }
            placed = keyed_inputs(Path::new(text), limits)?;
        } else if text.ends_with(".npy") {
            let path = Path::new(text);
            let tensor =
                npy::read(&read(path, limits)?).map_err(|problem| Failure::in_file(path, problem))?;
            in_order.push(tensor.into());
        } else {
            return Err(Failure::usage(format!("`{text}` is not an input"))
                .hint("an input is FILE.npy, FILE.safetensors, int:3, float:0.5 or bool:true"));
        }
    }
    let count = placed.len() + in_order.len();
    let mut rest = in_order.into_iter();
    let gap = |position: usize| match keyed {
        Some(file) => Failure::usage(format!("{file} has no `in.{position}`, but a later input")),
        None => Failure::usage(format!("input {position} is missing")),
    };
    (0..count).map(|at| placed.remove(&at).or_else(|| rest.next()).ok_or_else(|| gap(at))).collect()
}

/// `int:3` and the like; `None` if the text is something else.
fn scalar(text: &str) -> Result<Option<Value>, Failure> {
    let Some((kind, value)) = text.split_once(':') else { return Ok(None) };
    let wrong = || Failure::usage(format!("`{text}`: `{value}` is not {}", article(kind)));
    Ok(Some(match kind {
        "int" => Value::Int(value.parse().map_err(|_| wrong())?),
        "float" => Value::Float(value.parse().map_err(|_| wrong())?),
        "bool" => Value::Bool(value.parse().map_err(|_| wrong())?),
        _ => return Ok(None),
    }))
}

fn article(kind: &str) -> String {
    if kind == "int" { "an int of 64 bits".into() } else { format!("a {kind}") }
}

fn keyed_inputs(path: &Path, limits: &Limits) -> Result<BTreeMap<usize, Value>, Failure> {
    let tensors =
        read_safetensors(&read(path, limits)?).map_err(|problem| Failure::in_file(path, problem))?;
    let position = |key: &str| key.strip_prefix("in.")?.parse::<usize>().ok();
    let inputs = tensors.into_iter().map(|(key, tensor)| match position(&key) {
        Some(at) => Ok((at, tensor.into())),
        None => Err(Failure::in_file(path, format!("the key `{key}` is not `in.<number>`"))),
    });
    inputs.collect()
}

fn read(path: &Path, limits: &Limits) -> Result<pteron_tensor::Bytes, Failure> {
    // Copied, never mapped: an input that changes while we run would be nobody's fault but ours.
    MappedFile::read(path, limits).map(|file| file.to_bytes()).map_err(Failure::new)
}

/// Where outputs go.
enum Target<'a> {
    Folder(&'a Path),
    Safetensors(&'a Path),
}

impl Target<'_> {
    fn of(path: &Path) -> Target<'_> {
        match path.extension().is_some_and(|extension| extension == "safetensors") {
            true => Target::Safetensors(path),
            false => Target::Folder(path),
        }
    }

    /// Refuses before the run what could not be written after it.
    fn check(&self, method: &MethodInfo) -> Result<(), Failure> {
        let Target::Folder(folder) = self else { return Ok(()) };
        if folder.exists() && !folder.is_dir() {
            return Err(Failure::in_file(folder, "--output is a folder or a name that ends in .safetensors"));
        }
        for (position, output) in method.outputs.iter().enumerate() {
            if let ArgumentKind::Tensor { dtype, .. } = output.kind
                && !npy::can_hold(dtype)
            {
                return Err(no_npy(position, dtype));
            }
        }
        Ok(())
    }

    fn write(&self, outputs: &[Value]) -> Result<(), Failure> {
        let tensors =
            outputs.iter().enumerate().map(|(position, value)| Ok((position, to_tensor(position, value)?)));
        let tensors = tensors.collect::<Result<Vec<(usize, HostTensor)>, Failure>>()?;
        match self {
            Target::Safetensors(path) => {
                let keyed = tensors.into_iter().map(|(position, tensor)| (format!("out.{position}"), tensor));
                let file = write_safetensors(&keyed.collect()).map_err(Failure::new)?;
                Aside::write(path, |out| out.write_all(&file))?.land()
            }
            Target::Folder(folder) => {
                let files = tensors.iter().map(|(position, tensor)| {
                    npy::write(tensor).ok_or_else(|| no_npy(*position, tensor.dtype()))
                });
                let files = files.collect::<Result<Vec<_>, _>>()?;
                std::fs::create_dir_all(folder).map_err(|error| {
                    Failure::in_file(folder, format!("cannot create the folder: {error}"))
                })?;
                let aside = files.iter().enumerate().map(|(position, file)| {
                    Aside::write(&folder.join(format!("out.{position}.npy")), |out| out.write_all(file))
                });
                let aside = aside.collect::<Result<Vec<_>, _>>()?;
                aside.into_iter().try_for_each(Aside::land)
            }
        }
    }
}

fn no_npy(position: usize, dtype: DType) -> Failure {
    Failure::usage(format!("output {position} is {dtype}, which .npy cannot hold"))
        .hint("write one file instead: --output FILE.safetensors")
}

/// What is written for an output: numbers become tensors of rank 0, lists of rank 1.
fn to_tensor(position: usize, value: &Value) -> Result<HostTensor, Failure> {
    let tensor = match value {
        Value::Int(value) => HostTensor::from_slice(vec![], &[*value]),
        Value::Float(value) => HostTensor::from_slice(vec![], &[*value]),
        Value::Bool(value) => HostTensor::from_bools(vec![], &[*value]),
        Value::Ints(values) => HostTensor::from_slice(vec![values.len()], values),
        Value::Floats(values) => HostTensor::from_slice(vec![values.len()], values),
        Value::Bools(values) => HostTensor::from_bools(vec![values.len()], values),
        other => match other.to_tensor()? {
            Some(tensor) => return Ok(tensor),
            None => {
                let what = other.describe();
                return Err(Failure::new(format!(
                    "output {position} is {what}, which no tensor file can hold"
                ))
                .hint("leave out --output to see it"));
            }
        },
    };
    tensor.map_err(Failure::new)
}

fn show(outputs: &[Value], out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for (position, value) in outputs.iter().enumerate() {
        let cells = match value.to_tensor()? {
            Some(tensor) => {
                [format!("out.{position}"), Value::Tensor(tensor.clone()).describe(), preview(&tensor)]
            }
            None => [format!("out.{position}"), value.describe(), String::new()],
        };
        table.row(cells);
    }
    if !outputs.is_empty() {
        out.line(table.render(0))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(given: &[String]) -> Vec<String> {
        read_inputs(given, &Limits::untrusted()).unwrap().iter().map(Value::describe).collect()
    }

    fn refused(given: &[String]) -> String {
        read_inputs(given, &Limits::untrusted()).unwrap_err().message().to_owned()
    }

    #[test]
    fn inputs_stand_in_order_and_fill_the_gaps_of_a_keyed_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let tensor = |size| HostTensor::zeros(DType::F32, vec![size]).unwrap();
        std::fs::write(at("x.npy"), npy::write(&tensor(1)).unwrap()).unwrap();
        let keyed = BTreeMap::from([("in.1".to_owned(), tensor(2)), ("in.3".to_owned(), tensor(4))]);
        std::fs::write(at("all.safetensors"), write_safetensors(&keyed).unwrap()).unwrap();
        let (npy, all) = (at("x.npy"), at("all.safetensors"));
        let text = |text: &str| text.to_owned();
        assert_eq!(
            shown(&[text("int:-3"), npy.clone(), text("bool:true")]),
            ["int -3", "f32 [1]", "bool true"]
        );
        assert_eq!(
            shown(&[text("float:nan"), all.clone(), npy.clone()]),
            ["float NaN", "f32 [2]", "f32 [1]", "f32 [4]"]
        );
        assert!(refused(&[all.clone(), npy.clone()]).contains("no `in.2`"));
        assert!(refused(&[all.clone(), all.clone()]).contains("only one"));
        assert!(refused(&[text("int:x")]).contains("`x` is not an int"));
        assert!(refused(&[text("x.txt")]).contains("not an input"));
        assert!(refused(&[at("missing.npy")]).contains("cannot open"));
    }
}
