//! The packages that npm brings: the browser's, whose scenarios a headless Chromium runs, and React Native's, whose types and
//! logic are checked without a phone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Place;
use super::tools::{need, once, output, succeed};
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// What writes JavaScript for the module: of the version that `Cargo.toml` pins.
const BINDGEN: &str = "0.2.130";
const TARGET: &str = "wasm32-unknown-unknown";
const TYPES: &str = "typescript@5.9.3";
const BROWSER: &str = "playwright-core@1.65.1";
/// What an app of React Native has, and what shows components without one.
const REACT_NATIVE: [&str; 6] = [
    "react-native@0.81",
    "react@19.1",
    "@types/react@19.1",
    "@types/node@20",
    "react-test-renderer@19.1",
    "koffi@3.3.4",
];

fn install(folder: &Path, packages: &[&str]) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", "--legacy-peer-deps"]);
    npm.arg("--prefix").arg(folder).args(packages);
    succeed(npm.current_dir(folder), "npm install")
}

fn copy(from: &Path, names: &[&str], to: &Path) -> Result<()> {
    for name in names {
        let (from, to) = (from.join(name), to.join(name));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).doing("make", folder)?;
        }
        fs::copy(&from, &to).doing("copy", &from)?;
    }
    Ok(())
}

/// The names of the files of a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).doing("read", folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// The module, built unless it lies beside the libraries.
fn module(place: &Place) -> Result<PathBuf> {
    let given = place.built.join("pteron_browser.wasm");
    if given.exists() {
        return Ok(given);
    }
    succeed(Command::new("rustup").args(["target", "add", TARGET]), "rustup target add")?;
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--package", "pteron-browser", "--target", TARGET]);
    succeed(&mut cargo, "cargo build")?;
    let target = place.built.parent().unwrap_or(&place.built);
    Ok(target.join(TARGET).join("release/pteron_browser.wasm"))
}

/// The package as it is packed, in a page of a server of its own.
pub(super) fn browser(place: &Place) -> Result<String> {
    need("npm", "Node 20")?;
    let module = module(place)?;
    let bindgen = place.cache.join("bindgen");
    once(&bindgen.join("bin/wasm-bindgen"), || {
        let mut cargo = Command::new("cargo");
        cargo.args(["install", "--quiet", "wasm-bindgen-cli", "--version", BINDGEN, "--bin", "wasm-bindgen"]);
        succeed(cargo.arg("--root").arg(&bindgen), "cargo install wasm-bindgen-cli")
    })?;
    let source = workspace::root().join("bindings/browser");
    let (package, folder) = (place.fresh("browser-package")?, place.fresh("browser")?);
    let own = ["package.json", "README.md", "index.js", "index.d.ts", "remote.js", "storage.js", "worker.js"];
    copy(&source, &own, &package)?;
    for name in names(&source.join("demo"))? {
        copy(&source, &[&format!("demo/{name}")], &package)?;
    }
    let mut glue = Command::new(bindgen.join("bin/wasm-bindgen"));
    glue.args(["--target", "web", "--no-typescript", "--out-dir"]).arg(&package).arg(&module);
    succeed(&mut glue, "wasm-bindgen")?;
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", "--pack-destination"]).arg(&folder);
    succeed(pack.current_dir(&package), "npm pack")?;
    let packed = folder.join("pteron-browser-0.1.0.tgz").display().to_string();
    install(&folder, &[&packed, BROWSER, TYPES])?;
    for name in names(&source.join("tests"))? {
        copy(&source.join("tests"), &[&name], &folder)?;
    }
    let mut check = Command::new(folder.join("node_modules/.bin/tsc"));
    check.args([
        "--noEmit",
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2023,dom,dom.asynciterable",
    ]);
    succeed(check.arg("typed.ts").current_dir(&folder), "tsc")?;
    // A browser converts nothing: what others open as folders comes as programs.
    let models = place.fresh("browser-models")?;
    for name in names(&place.models)?.iter().filter(|name| name.contains('.')) {
        copy(&place.models, &[name], &models)?;
    }
    let export = |name: &str, more: &[&str]| {
        let mut pteron = Command::new(place.built.join("pteron"));
        pteron.arg("export").arg(place.models.join(name)).arg("-o").arg(models.join(format!("{name}.pte")));
        succeed(pteron.args(more), "pteron export")
    };
    export("embedding", &["--activations", "f32"])?;
    export("hearing", &["--activations", "f32", "--quantize", "8w"])?;
    let mut node = Command::new("node");
    node.arg(folder.join("run.mjs")).arg(Place::scenarios()).arg(&models).arg(&folder);
    output(&mut node, "the runner in a browser")
}

/// The package's types with React Native's, its C++ with React Native's headers, its logic over the C library.
pub(super) fn react_native(place: &Place) -> Result<()> {
    need("npm", "Node 20")?;
    need("c++", "a C++ compiler")?;
    let (folder, source) = (place.fresh("react-native")?, workspace::root().join("bindings/react-native"));
    let tools = place.cache.join("react-native-tools");
    once(&tools.join("node_modules/react-native/package.json"), || {
        fs::create_dir_all(&tools).doing("make", &tools)?;
        install(&tools, &[&REACT_NATIVE[..], &[TYPES]].concat())
    })?;
    std::os::unix::fs::symlink(tools.join("node_modules"), folder.join("node_modules"))
        .doing("link", &tools)?;
    copy(&source, &["package.json", "tsconfig.json", "tsconfig.example.json"], &folder)?;
    for part in ["src", "tests", "example"] {
        for name in names(&source.join(part))? {
            copy(&source, &[&format!("{part}/{name}")], &folder)?;
        }
    }
    for project in ["tsconfig.json", "tsconfig.example.json"] {
        let mut check = Command::new(tools.join("node_modules/.bin/tsc"));
        succeed(check.args(["--project", project]).current_dir(&folder), "tsc")?;
    }
    let headers = tools.join("node_modules/react-native/ReactCommon");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    compiler.arg(headers.join("jsi")).arg("-I").arg(headers.join("callinvoker"));
    compiler.arg("-I").arg(workspace::root().join("crates/capi/include"));
    succeed(compiler.arg(source.join("cpp/Pteron.cpp")), "c++")?;
    let mut tests = names(&folder.join("tests"))?;
    tests.retain(|name| name.ends_with(".test.mjs"));
    if tests.is_empty() {
        return Err(Error::message("there are no tests of React Native"));
    }
    let mut node = Command::new("node");
    node.arg("--test").args(tests.iter().map(|name| format!("tests/{name}")));
    node.env("PTERON_LIBRARY", place.built.join("libpteron_c.so")).env("PTERON_MODELS", &place.models);
    succeed(node.current_dir(&folder), "the tests of React Native")
}
