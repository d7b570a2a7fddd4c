//! Which backend takes a program where nobody names one: the first of the order that runs all of it and has the room.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod patchy;
mod pte;

use patchy::{Lacks, Patchy};
use pte::{File, Method, f32s};
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_runtime::backend::{Backend, DeviceId, DeviceInfo, LoadOptions, Loaded, Support};
use pteron_runtime::reference::Reference;
use pteron_runtime::registry::Registry;
use pteron_runtime::{Error, Options, Program, Result, Value, VerifiedProgram};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::Arc;

/// A GPU that runs every op and has no room for any program.
struct Full;

impl Backend for Full {
    fn name(&self) -> &'static str {
        "vulkan"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        Reference::default().devices()
    }

    fn supports(&self, _: &Op<Ssa>, _: &dyn TypeSource) -> Support {
        Support::Native
    }

    fn load(&self, _: DeviceId, _: &VerifiedProgram, _: &LoadOptions) -> Result<Arc<dyn Loaded>> {
        Err(Error::Invalid("the device has no room".into()))
    }
}

fn lacking(name: &'static str, ops: &'static [&'static str]) -> Arc<dyn Backend> {
    Arc::new(Patchy::new(name, Arc::new(Reference::default()), Lacks::Named(ops)))
}

fn program() -> Bytes {
    let (mut file, mut method) = (File::default(), Method::new("forward"));
    let (x, y) = (method.tensor(DType::F32, &[2]), method.tensor(DType::F32, &[2]));
    method.input(x);
    let graph = "graph \"forward\"\n  input %0 \"x\": f32[2]\n{\n  %1: f32[2] = neg(x=%0)\n}\noutput %1 \"y\": f32[2]\n";
    method.delegate(&mut file, graph, &[x, y]);
    method.output(y);
    file.add(method);
    file.bytes()
}

fn load(backends: &[Arc<dyn Backend>], named: Option<&str>, bytes: Bytes) -> Result<Program> {
    let mut registry = Registry::default();
    backends.iter().for_each(|backend| registry.add(backend.clone()));
    let options = Options { backend: named.map(str::to_owned), registry, ..Options::default() };
    Program::load("model.pte", bytes, &[], &options)
}

/// The registry of programs that name none.
fn registry() -> Registry {
    Registry::default()
}

fn answer(program: &Program) -> HostTensor {
    let mut session = program.session().unwrap();
    let given = [Value::from(f32s(&[2], &[1.0, -2.0]))];
    session.run("forward", &given).unwrap().remove(0).to_tensor().unwrap().unwrap()
}

#[test]
fn who_lacks_an_op_or_the_room_leaves_a_program_to_the_next() {
    let whole = lacking("cpu", &[]);
    let want = f32s(&[2], &[-1.0, 2.0]);
    for (first, taken) in [
        (lacking("vulkan", &[]), "vulkan"),
        (lacking("vulkan", &["Sum"]), "vulkan"),
        (lacking("vulkan", &["Neg"]), "cpu"),
        (Arc::new(Full) as Arc<dyn Backend>, "cpu"),
    ] {
        let program = load(&[first, whole.clone()], None, program()).unwrap();
        assert_eq!(program.backend().0, taken);
        assert_eq!(answer(&program), want);
    }
}

#[test]
fn who_is_named_takes_it_in_pieces_or_says_why_not() {
    let whole = lacking("cpu", &[]);
    let divided = load(&[lacking("vulkan", &["Neg"]), whole.clone()], Some("vulkan"), program()).unwrap();
    assert_eq!(divided.backend().0, "vulkan");
    assert_eq!(answer(&divided), f32s(&[2], &[-1.0, 2.0]));
    let full = load(&[Arc::new(Full), whole], Some("vulkan"), program());
    assert_eq!(full.err().unwrap().to_string(), "the device has no room");
}

#[test]
fn the_last_one_says_why_nobody_takes_it_and_a_broken_file_is_read_once() {
    let lacks = [lacking("vulkan", &["Neg"]), lacking("cpu", &["Neg"])];
    let refused = load(&lacks, None, program()).err().unwrap().to_string();
    assert!(refused.contains("backend `cpu` cannot run"), "{refused}");
    let broken = load(&lacks, None, Bytes::zeroed(64)).err().unwrap();
    assert!(matches!(broken, Error::Format { .. }), "{broken}");
}
