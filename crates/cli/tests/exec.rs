//! `pteron exec`: inputs from files and the command line, outputs to files and to the terminal.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use pteron_tensor::DType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use support::*;

fn scaled(folder: &Folder) -> String {
    folder.write("model.pte", &delegated(SCALED, &weights()))
}

#[test]
fn outputs_are_shown_without_output_and_written_with_it() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let x = folder.write("x.npy", &npy("(2, 2)", &[1.0, 2.0, 3.0, 4.0]));
    let shown = pteron(&["exec", &model, "--input", &x]).ok();
    assert_eq!(shown, "out.0  f32 [2, 2]  [11, 202, 33, 404]\nout.1  i32 [1]     [1]\n");

    let out = folder.at("new/out");
    assert_eq!(pteron(&["exec", &model, "--method", "forward", "--input", &x, "--output", &out]).ok(), "");
    let file = std::fs::read(folder.path("new/out/out.0.npy")).unwrap();
    assert_eq!(floats(&file, 4), [11.0, 202.0, 33.0, 404.0]);
    let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn safetensors_go_in_and_out() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let data: Vec<u8> = [1f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![1, 2], &data).unwrap();
    let file = safetensors::serialize([("in.0", view)], None).unwrap();
    let input = folder.write("in.safetensors", &file);
    let output = folder.at("out.safetensors");
    assert_eq!(pteron(&["exec", &model, "--input", &input, "--output", &output]).ok(), "");
    let file = std::fs::read(&output).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let y = tensors.tensor("out.0").unwrap();
    assert_eq!((y.dtype(), y.shape()), (Dtype::F32, &[1, 2][..]));
    assert_eq!(floats(y.data(), 2), [11.0, 202.0]);
    assert_eq!(tensors.tensor("out.1").unwrap().dtype(), Dtype::I32);
}

#[test]
fn the_only_method_needs_no_name_and_bf16_needs_safetensors() {
    let folder = Folder::new();
    let model = folder.write("abs.pte", &portable("aten::abs", "out", DType::F32));
    let x = folder.write("x.npy", &npy("(3,)", &[-1.0, 2.0, -3.5]));
    assert_eq!(pteron(&["exec", &model, "--input", &x]).ok(), "out.0  f32 [3]  [1, 2, 3.5]\n");

    let model = folder.write("bf16.pte", &portable("aten::abs", "out", DType::BF16));
    let view = TensorView::new(Dtype::BF16, vec![3], &[0x80, 0xbf, 0, 0x40, 0, 0xc0]).unwrap();
    let input = folder.write("in.safetensors", &safetensors::serialize([("in.0", view)], None).unwrap());
    let refused = pteron(&["exec", &model, "--input", &input, "--output", &folder.at("out")]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("output 0 is bf16, which .npy cannot hold"), "{}", refused.stderr);
    assert!(!folder.path("out").exists());
    pteron(&["exec", &model, "--input", &input, "--output", &folder.at("out.safetensors")]).ok();
    let file = std::fs::read(folder.path("out.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("out.0").unwrap().data(), [0x80, 0x3f, 0, 0x40, 0, 0x40]);
}

#[test]
fn context_gives_an_off_graph_cache_to_a_program_that_describes_none() {
    let graph = r#"graph "forward"
  input %0 "x": f32[1, 1, 1, 4]
  constant %1 "position": i32[1]
{
  %2: f32[1, 1, 1, 4] = update_and_attend(q=%0, k=%0, v=%0, position=%1, layer_id=0, scale=1.0)
}
output %2 "y": f32[1, 1, 1, 4]
"#;
    let folder = Folder::new();
    let model = folder.write("model.pte", &delegated(graph, &[("position", vec![0; 4])]));
    let x = folder.write("x.npy", &npy("(1, 1, 1, 4)", &[1.0, 2.0, 3.0, 4.0]));
    let shown = pteron(&["exec", &model, "--input", &x, "--context", "8"]).ok();
    // One key alone gets all the attention.
    assert_eq!(shown, "out.0  f32 [1, 1, 1, 4]  [1, 2, 3, 4]\n");
    let refused = pteron(&["exec", &model, "--input", &x]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("off-graph cache, and its metadata do not say"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: `--context N`"), "{}", refused.stderr);
}

#[test]
fn bad_runs_say_what_is_wrong_and_write_nothing() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let whole = std::fs::read(&model).unwrap();
    let cut = folder.write("cut.pte", &whole[..whole.len() / 2]);
    let text =
        folder.write("text.pte", b"this is not a program, however long it may be, not even a small one");
    let foreign = folder.write("foreign.pte", &portable("custom::secret", "out", DType::F32));
    let x = folder.write("x.npy", &npy("(2, 2)", &[0.0; 4]));
    let wide = folder.write("wide.npy", &npy("(2, 3)", &[0.0; 6]));
    let long = folder.write("long.npy", &npy("(9, 2)", &[0.0; 18]));
    let ints = folder.write("ints.npy", &npy_of("<i4", "(2, 2)", &[0.0; 4]));
    let broken = folder.write("broken.npy", b"\x93NUMPY\x01\x00\xff\xff");
    let before = folder.names();
    let out = folder.at("out");
    let cases: [(&[&str], i32, &str); 17] = [
        (&[&folder.at("none.pte"), "--input", &x], 1, "none.pte: cannot open"),
        (&[&cut, "--input", &x], 1, "cut.pte: "),
        (&[&text, "--input", &x], 1, "this is a text; wanted is a program"),
        (&[&foreign, "--input", &x], 1, "operator `custom::secret.out`, which is not implemented"),
        (&[&model], 1, "takes 1 inputs, 0 were given"),
        (&[&model, "--input", &x, "--input", &x], 1, "takes 1 inputs, 2 were given"),
        (&[&model, "--input", &wide], 1, "input 0 (`x`) of method `forward`"),
        (&[&model, "--input", &long], 1, "input 0 (`x`) of method `forward`"),
        (&[&model, "--input", "int:3"], 1, "given int 3"),
        (&[&model, "--input", "int:three"], 2, "`three` is not an int"),
        (&[&model, "--input", "x.txt"], 2, "`x.txt` is not an input"),
        (&[&model, "--input", &broken], 1, "broken.npy: it ends in its header"),
        (&[&model, "--input", &x, "--method", "backward"], 1, "no method `backward`; it has: forward"),
        (&[&model, "--input", &x, "--backend", "quantum"], 2, "no backend is called `quantum`"),
        (&[&model, "--input", &x, "--data", &folder.at("none.ptd")], 1, "none.ptd: cannot open"),
        (&[&model, "--input", &x, "--data", &model], 1, "not a .ptd file"),
        (&[&model, "--input", &ints], 1, "input 0 (`x`) of method `forward`"),
    ];
    for (arguments, code, message) in cases {
        let arguments: Vec<&str> = ["exec"].into_iter().chain(arguments.iter().copied()).collect();
        let arguments = [&arguments[..], &["--output", &out]].concat();
        let run = pteron(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments:?}: {} should say {message}", run.stderr);
        assert_eq!(folder.names(), before, "{arguments:?} left something behind");
    }
    let occupied = pteron(&["exec", &model, "--input", &x, "--output", &x]);
    assert!(occupied.stderr.contains("--output is a folder or a name that ends in"), "{}", occupied.stderr);
}
