//! `pteron rewrite --to portable`: programs of MLX bytecode, of every node kind, as calls of portable operators.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read};
use support::*;

/// Ops that have no portable form, and in how many programs of the sample one is the first to stop the rewrite: bodies, kernels and
/// caches that are MLX's own, orders that must be stable, slices backwards between bounds of the run, convolutions over three axes,
/// and weights packed as floats of few bits.
const WITHOUT: [(&str, usize); 9] = [
    ("argsort", 3),
    ("conv3d", 1),
    ("conv_transpose3d", 1),
    ("if", 9),
    ("metal_kernel", 8),
    ("quantized_matmul", 2),
    ("scan", 6),
    ("slice", 1),
    ("update_and_attend", 3),
];

/// The packed sample as a set in a folder, with the programs that `pteron rewrite` makes of it; what it refused, by op.
fn rewritten(folder: &Folder) -> BTreeMap<String, usize> {
    let packed = fs::read(root().join("conformance/sample.zip")).unwrap();
    let mut archive = zip::ZipArchive::new(Cursor::new(packed)).unwrap();
    for at in 0..archive.len() {
        let mut file = archive.by_index(at).unwrap();
        let path = folder.path(&file.name().unwrap());
        if file.is_file() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    let mut refused = BTreeMap::new();
    for case in folder.names() {
        let program = folder.at(&format!("{case}/model.pte"));
        let run = pteron(&["rewrite", &program, &program, "--to", "portable"]);
        if run.code == 0 {
            let mut check = vec!["verify", &program];
            let data = folder.at(&format!("{case}/_default_external_constant.ptd"));
            if fs::exists(&data).unwrap() {
                check.extend(["--data", &data]);
            }
            pteron(&check).ok();
            let inside = pteron(&["inspect", &program]).ok();
            assert!(!inside.contains("delegate 0"), "{case}: {inside}");
            continue;
        }
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{case}: {}", run.stderr);
        for line in run.stderr.lines() {
            assert!(line.contains("method `") && line.contains(", delegate "), "{case}: {line}");
        }
        let op = run.stderr.split_once("(`").unwrap().1.split_once('`').unwrap().0.to_owned();
        *refused.entry(op).or_default() += 1;
        fs::remove_dir_all(folder.path(&case)).unwrap();
    }
    refused
}

#[test]
fn as_portable_operators_the_sample_passes_but_for_ops_that_have_no_such_form() {
    let folder = Folder::new();
    let refused = rewritten(&folder);
    let without = WITHOUT.map(|(op, count)| (op.to_owned(), count));
    assert_eq!(refused, BTreeMap::from(without));
    let set = folder.at("");
    for backend in ["cpu", "reference"] {
        let run = pteron(&["conformance", &set, "--backend", backend]);
        assert!(run.ok().ends_with(" passed, 0 failed\n"));
    }
}
