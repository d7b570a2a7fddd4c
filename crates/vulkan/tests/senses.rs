//! Models that hear and see on Vulkan: tiny Whispers, Parakeets and Voxtrals as they are saved, the eyes of Gemma 3, Gemma 4 and Qwen
//! VL, and a network of convolutions as phones have them run there from the first op to the last, and give what the reference backend
//! gives.

#![allow(clippy::unwrap_used)] // helpers fail their test

mod device;
#[path = "../../runtime/tests/differential/mod.rs"]
#[allow(dead_code)] // one function of it
mod differential;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions};
use pteron_gpu::Features;
use pteron_ir::{Type, TypeSource, ValueId, parse_graph};
use pteron_runtime::backend::{Backend, Support};
use pteron_runtime::reference::{Reference, cast};
use pteron_runtime::registry::Registry;
use pteron_runtime::{Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use pteron_vulkan::VulkanOptions;
use std::path::Path;
use std::sync::Arc;

fn file(name: &str, activations: DType) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data").join(name);
    let options = ExportOptions { activations, ..ExportOptions::default() };
    let mut file = Vec::new();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    Export::new(&checkpoint, &options).unwrap().write(&mut file, &mut |_| ()).unwrap();
    file
}

fn program(file: &[u8], backend: Option<Arc<dyn Backend>>) -> Program {
    let mut registry = Registry::default();
    let name = if backend.is_some() { "vulkan" } else { "reference" };
    backend.into_iter().for_each(|backend| registry.add(backend));
    let options = Options { backend: Some(name.to_owned()), registry, ..Options::default() };
    Program::load("model.pte", Bytes::copy_of(file), &[], &options).unwrap()
}

/// Ops of a program that run elsewhere.
fn left(program: &Program) -> Vec<String> {
    program
        .methods()
        .iter()
        .flat_map(|method| method.delegates.iter().map(move |delegate| (&method.name, delegate)))
        .flat_map(|(method, delegate)| delegate.fallbacks.iter().map(move |fallback| (method, fallback)))
        .map(|(method, (op, fallback))| {
            format!("{method}: {op} ({} nodes): {:?}", fallback.nodes, fallback.lack)
        })
        .collect()
}

/// Numbers between -1 and 1: the same on every machine.
fn numbers(shape: &[usize], seed: usize) -> HostTensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect();
    HostTensor::from_slice(shape.to_vec(), &values).unwrap()
}

#[track_caller]
fn close(got: &[Value], want: &[Value], share: f32, what: &str) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        let [got, want] =
            [got, want].map(|value| cast(&value.to_tensor().unwrap().unwrap(), DType::F32).unwrap());
        let (got, want) = (got.as_slice::<f32>().unwrap(), want.as_slice::<f32>().unwrap());
        assert_eq!(got.len(), want.len(), "{what}");
        let most = want.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= share * most, "{what}: element {at} is {got}, not {want}");
        }
    }
}

#[test]
fn models_that_hear_and_see_run_on_the_device_as_a_whole() {
    let Some(vulkan) = device::open() else { return };
    let sources = [
        "whisper",
        "parakeet_tdt",
        "parakeet_ctc",
        "parakeet_rnnt",
        "voxtral",
        "realtime",
        "gemma3",
        "gemma4",
        "qwen2_5_vl",
        "qwen3_vl",
    ];
    let mut lacking = Vec::new();
    for source in sources {
        let program = program(&file(source, DType::F32), Some(vulkan.clone()));
        lacking.extend(left(&program).into_iter().map(|op| format!("{source}, {op}")));
    }
    assert!(lacking.is_empty(), "{lacking:#?}");
}

#[test]
fn encoders_of_sound_give_what_the_reference_backend_gives() {
    // Positions are integers of 64 bits.
    let least = Features { int64: true, ..Features::LEAST };
    let least = VulkanOptions { at_most: Some(least), ..VulkanOptions::default() };
    for vulkan in device::open().into_iter().chain(device::open_with(&least)) {
        for (source, frames) in
            [("whisper", &[24][..]), ("parakeet_tdt", &[83, 8, 1]), ("parakeet_rnnt", &[150])]
        {
            for (activations, share) in [(DType::F32, 2e-4), (DType::BF16, 5e-2)] {
                let file = file(source, activations);
                let (ours, theirs) = (program(&file, Some(vulkan.clone())), program(&file, None));
                let (mut one, mut other) = (ours.session().unwrap(), theirs.session().unwrap());
                for &frames in frames {
                    let features = cast(&numbers(&[1, 16, frames], frames), activations).unwrap();
                    let got = one.run("encoder", &[features.clone().into()]).unwrap();
                    let want = other.run("encoder", &[features.into()]).unwrap();
                    close(&got, &want, share, &format!("{source} in {activations}, {frames} frames"));
                }
            }
        }
    }
}

/// As a MobileNet begins, goes on and ends: a first layer of strides, expanded by one, depthwise, narrowed by one, added to what was, a
/// mean of the image, scores. Channels are second outside, as exporters have them.
const MOBILE: &str = r#"
graph "forward"
  input %0 "image": f32[2, 3, 33, 33]
  input %1 "first": f32[16, 3, 3, 3]
  input %2 "bias": f32[16]
  input %3 "wide": f32[48, 1, 1, 16]
  input %4 "deep": f32[48, 3, 3, 1]
  input %5 "narrow": f32[16, 1, 1, 48]
  input %6 "scores": f32[16, 10]
  input %7 "low": f32[]
  input %8 "high": f32[]
{
  %9: f32[2, 33, 33, 3] = transpose(x=%0, perm=[0, 2, 3, 1])
  %10: f32[2, 17, 17, 16] = conv2d(x=%9, w=%1, stride_h=2, stride_w=2, padding_h=1, padding_w=1)
  %11: f32[2, 17, 17, 16] = add(a=%10, b=%2)
  %12: f32[2, 17, 17, 16] = clip(x=%11, a_min=%7, a_max=%8)
  %13: f32[2, 17, 17, 48] = conv2d(x=%12, w=%3)
  %14: f32[2, 17, 17, 48] = clip(x=%13, a_min=%7, a_max=%8)
  %15: f32[2, 17, 17, 48] = conv2d(x=%14, w=%4, padding_h=1, padding_w=1, groups=48)
  %16: f32[2, 17, 17, 48] = clip(x=%15, a_min=%7, a_max=%8)
  %17: f32[2, 17, 17, 16] = conv2d(x=%16, w=%5)
  %18: f32[2, 17, 17, 16] = add(a=%12, b=%17)
  %19: f32[2, 16] = mean(x=%18, axes=[1, 2])
  %20: f32[2, 10] = addmm(mat1=%19, mat2=%6)
  %21: f32[2, 10] = softmax(x=%20, axis=1)
}
output %21 "out": f32[2, 10]
"#;

#[test]
fn a_network_of_convolutions_runs_on_the_device_as_a_whole() {
    let graph = parse_graph(MOBILE).unwrap();
    struct Types<'g>(&'g pteron_ir::Graph);
    impl TypeSource for Types<'_> {
        fn type_of(&self, value: ValueId) -> Option<&Type> {
            self.0.values.get(value.0 as usize).map(|value| &value.ty)
        }
    }
    let inputs: Vec<Value> = graph
        .inputs
        .iter()
        .enumerate()
        .map(|(at, input)| match &graph.values[input.value.0 as usize].ty {
            Type::Tensor(ty) if ty.shape.is_empty() => {
                HostTensor::from_slice(vec![], &[if at == 7 { 0.0f32 } else { 6.0 }]).unwrap().into()
            }
            Type::Tensor(ty) => numbers(&ty.known_shape().unwrap(), at).into(),
            other => unreachable!("{other:?} is no tensor"),
        })
        .collect();
    let want = differential::run_graph(graph.clone(), &inputs, &Reference::default()).unwrap();
    let least = VulkanOptions { at_most: Some(Features::LEAST), ..VulkanOptions::default() };
    for vulkan in device::open().into_iter().chain(device::open_with(&least)) {
        let mut lacking = Vec::new();
        graph.for_each_node(|node, _| {
            let support = vulkan.supports(&node.op, &Types(&graph));
            if !matches!(support, Support::Native) {
                lacking.push(format!("{:?}: {support:?}", node.op.kind()));
            }
        });
        assert!(lacking.is_empty(), "{lacking:?}");
        let got = differential::run_graph(graph.clone(), &inputs, vulkan.as_ref()).unwrap();
        close(&got, &want, 1e-4, "a MobileNet");
    }
}
