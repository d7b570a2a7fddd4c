//! How a language's runner is made and started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::outcomes::Scenarios;
use super::tools::{need, once, output, succeed};
use super::{Place, web};
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// The generator of the bindings' version, as pip has it.
const GENERATOR: &str = "uniffi-bindgen==0.31.0";
/// What checks types of JavaScript.
const TYPES: [&str; 2] = ["typescript@5.9.3", "@types/node@20"];
const KOTLIN: &str = "kotlin-compiler@2.4.20";
/// What lets the JVM call a library, as Debian packs it.
const JNA: [&str; 2] = ["libjna-java", "libjna-jni"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Language {
    Python,
    C,
    Kotlin,
    Node,
    Browser,
}

impl Language {
    pub(super) const ALL: [Language; 5] =
        [Language::Python, Language::C, Language::Kotlin, Language::Node, Language::Browser];

    pub(super) fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::C => "c",
            Language::Kotlin => "kotlin",
            Language::Node => "node",
            Language::Browser => "browser",
        }
    }

    /// What its runner prints.
    pub(super) fn run(self, place: &Place) -> Result<String> {
        match self {
            Language::Python => python(place),
            Language::C => c(place),
            Language::Kotlin => kotlin(place),
            Language::Node => node(place),
            Language::Browser => web::browser(place),
        }
    }
}

/// A command with what every runner is told.
fn runner(mut command: Command, place: &Place, name: &str) -> Result<String> {
    let home = place.fresh(&format!("home-{name}"))?;
    command.arg(Place::scenarios()).arg(&place.models).arg(home);
    command.args(place.lives.map(|lives| lives.to_string()));
    output(&mut command, &format!("the runner in {name}"))
}

/// The environment that has the generator.
fn generator(place: &Place) -> Result<PathBuf> {
    need("python3", "python3")?;
    let tools = place.cache.join("tools");
    once(&tools.join("bin/uniffi-bindgen"), || {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&tools), "python3 -m venv")?;
        succeed(Command::new(tools.join("bin/pip")).args(["install", "--quiet", GENERATOR]), "pip install")
    })?;
    Ok(tools)
}

/// The wheel, installed by pip where nothing else is.
fn python(place: &Place) -> Result<String> {
    let tools = generator(place)?;
    let wheels = place.fresh("wheels")?;
    let mut pip = Command::new(tools.join("bin/pip"));
    pip.args(["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]).arg(&wheels);
    pip.arg(workspace::root().join("bindings/python")).env("PTERON_BUILT", &place.built);
    pip.env("PATH", with_path(&tools.join("bin"))?);
    succeed(&mut pip, "pip wheel")?;
    let wheel = fs::read_dir(&wheels).doing("read", &wheels)?.flatten().map(|entry| entry.path()).next();
    let wheel = wheel.ok_or_else(|| Error::message("pip wheel made nothing"))?;
    let fresh = place.fresh("python")?;
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&fresh), "python3 -m venv")?;
    let mut pip = Command::new(fresh.join("bin/pip"));
    succeed(pip.args(["install", "--quiet", "numpy"]).arg(&wheel), "pip install")?;
    succeed(Command::new(fresh.join("bin/pteron")).arg("version"), "pteron of the wheel")?;
    let mut python = Command::new(fresh.join("bin/python"));
    // Not the package in the checkout, which has no library.
    python.arg("-I").arg(workspace::root().join("bindings/python/tests/scenarios.py"));
    runner(python, place, "python")
}

fn c(place: &Place) -> Result<String> {
    need("cc", "a C compiler")?;
    let folder = place.fresh("c")?;
    let given = folder.join("given.h");
    fs::write(&given, Scenarios::read(&Place::scenarios())?.as_header()).doing("write", &given)?;
    let (program, root) = (folder.join("scenarios"), workspace::root());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(&folder);
    cc.arg("-I").arg(root.join("crates/capi/include")).arg(root.join("bindings/c/scenarios.c"));
    cc.arg("-L").arg(&place.built).arg("-lpteron_c").arg(format!("-Wl,-rpath,{}", place.built.display()));
    succeed(cc.arg("-o").arg(&program), "cc")?;
    runner(Command::new(program), place, "c")
}

fn kotlin(place: &Place) -> Result<String> {
    need("java", "a JDK of version 17 or later")?;
    need("npm", "Node 20")?;
    let tools = generator(place)?;
    let compiler = place.cache.join("node_modules/kotlin-compiler/lib");
    once(&compiler, || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"])
            .arg(&place.cache)
            .arg(KOTLIN);
        succeed(&mut npm, "npm install")
    })?;
    let jna = jna(place)?;
    let folder = place.fresh("kotlin")?;
    // The generator knows archives by their name.
    let archive = folder.join("libpteron_bindings.a");
    let library = place.built.join("libpteron_bindings.rlib");
    fs::copy(&library, &archive).doing("copy", &library)?;
    let mut generate = Command::new(tools.join("bin/uniffi-bindgen"));
    generate
        .args(["generate", "--language", "kotlin", "--no-format", "--out-dir"])
        .arg(&folder)
        .arg(&archive);
    succeed(generate.current_dir(workspace::root().join("crates/bindings")), "uniffi-bindgen")?;
    let libraries = [
        compiler.join("kotlin-stdlib.jar"),
        compiler.join("kotlinx-coroutines-core-jvm.jar"),
        jna.join("share/java/jna.jar"),
    ];
    let jar = folder.join("scenarios.jar");
    let mut kotlinc = Command::new("java");
    kotlinc.arg("-cp").arg(compiler.join("*")).arg("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler");
    kotlinc.args(["-no-stdlib", "-nowarn", "-classpath"]).arg(joined(&libraries)?).arg("-d").arg(&jar);
    kotlinc.arg(folder.join("org/pteron/pteron.kt")).arg(workspace::root().join("bindings/kotlin"));
    succeed(&mut kotlinc, "the Kotlin compiler")?;
    let mut java = Command::new("java");
    if place.lives.is_some() {
        // Garbage of its own must not look like something that stays.
        java.arg("-Xmx32m");
    }
    let native = jna.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)).join("jni");
    java.arg(format!("-Djava.library.path={}", native.display())).arg("-Djna.nosys=false");
    java.arg(format!("-Djna.library.path={}", place.built.display()));
    java.arg("-cp")
        .arg(joined(&[libraries.as_slice(), &[jar]].concat())?)
        .arg("org.pteron.scenarios.ScenariosKt");
    runner(java, place, "kotlin")
}

/// The package as it is packed, installed by npm where nothing else is; its types are held to the runner.
fn node(place: &Place) -> Result<String> {
    need("npm", "Node 20")?;
    let (package, source) = (place.fresh("node-package")?, workspace::root().join("bindings/node"));
    for name in ["package.json", "README.md", "index.js", "index.d.ts", "native.js"] {
        fs::copy(source.join(name), package.join(name)).doing("copy", source.join(name))?;
    }
    let library = place.built.join("libpteron_c.so");
    fs::copy(&library, package.join("libpteron_c.so")).doing("copy", &library)?;
    let folder = place.fresh("node")?;
    let mut pack = Command::new("npm");
    succeed(
        pack.args(["pack", "--silent", "--pack-destination"]).arg(&folder).current_dir(&package),
        "npm pack",
    )?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&folder);
    install.arg(folder.join("pteron-0.1.0.tgz")).args(TYPES);
    succeed(install.current_dir(&folder), "npm install")?;
    let runner_file = folder.join("scenarios.mjs");
    fs::copy(source.join("scenarios.mjs"), &runner_file).doing("copy", &runner_file)?;
    let mut check = Command::new(folder.join("node_modules/.bin/tsc"));
    check.args([
        "--noEmit",
        "--allowJs",
        "--checkJs",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--types",
        "node",
    ]);
    succeed(check.arg(&runner_file).current_dir(&folder), "tsc")?;
    let mut node = Command::new("node");
    node.arg("--expose-gc").arg(&runner_file);
    runner(node, place, "node")
}

/// The folder that has JNA: the system's, or what its packages hold.
fn jna(place: &Place) -> Result<PathBuf> {
    let system = Path::new("/usr");
    if system.join("share/java/jna.jar").exists() {
        return Ok(system.to_owned());
    }
    need("apt-get", &JNA.join(" and "))?;
    let folder = place.cache.join("jna");
    once(&folder.join("usr/share/java/jna.jar"), || {
        fs::create_dir_all(&folder).doing("make", &folder)?;
        succeed(Command::new("apt-get").arg("download").args(JNA).current_dir(&folder), "apt-get download")?;
        for entry in fs::read_dir(&folder).doing("read", &folder)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "deb") {
                succeed(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&folder), "dpkg -x")?;
            }
        }
        Ok(())
    })?;
    Ok(folder.join("usr"))
}

fn joined(paths: &[PathBuf]) -> Result<std::ffi::OsString> {
    std::env::join_paths(paths).map_err(|error| Error::message(error.to_string()))
}

fn with_path(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path)).collect::<Vec<_>>();
    joined(&all)
}
