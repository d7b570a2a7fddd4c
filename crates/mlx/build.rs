//! Builds the shim as a shared library beside the crate's other build products. Without the feature `shim`: nothing.

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-env-changed=MLX_PREFIX");
    #[cfg(feature = "shim")]
    shim::build();
}

#[cfg(feature = "shim")]
mod shim {
    use std::env;
    use std::path::{Path, PathBuf};

    const HELP: &str =
        "run `cargo xtask mlx-setup`, which installs MLX and prints the folder, and set MLX_PREFIX to it";

    pub(super) fn build() {
        if let Err(problem) = try_build() {
            println!("cargo::error={problem}");
        }
    }

    fn try_build() -> Result<(), String> {
        let prefix = env::var_os("MLX_PREFIX").map(PathBuf::from);
        let prefix = prefix.ok_or_else(|| format!("the feature `mlx` needs MLX: {HELP}"))?;
        let (include, library) = (prefix.join("include"), prefix.join("lib"));
        if !include.join("mlx/mlx.h").exists() {
            return Err(format!("{} has no include/mlx/mlx.h: {HELP}", prefix.display()));
        }
        let target = env::var("TARGET").map_err(|error| error.to_string())?;
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
        let shim = out.join(file_name(&target));
        compile(&include, &library, &shim, &target)?;
        println!("cargo::rustc-env=PTERON_MLX_SHIM={}", shim.display());
        Ok(())
    }

    fn file_name(target: &str) -> &'static str {
        if target.contains("apple") { "libpteron_mlx.dylib" } else { "libpteron_mlx.so" }
    }

    fn compile(include: &Path, library: &Path, shim: &Path, target: &str) -> Result<(), String> {
        let mut build = cc::Build::new();
        // A sanitizer of the Rust side (fuzzing), by rustc's flags or by the compiler's of the environment, would bring a second
        // runtime along with the shim.
        build.inherit_rustflags(false);
        build.cpp(true).std("c++20").pic(true).opt_level(2).define("PTERON_MLX_WANTED", wanted().as_str());
        let compiler = build.try_get_compiler().map_err(|error| error.to_string())?;
        let mut command = compiler.to_command();
        command.args(["-shared", "-fvisibility=hidden", "-fno-sanitize=all"]).arg("-isystem").arg(include);
        command.arg("shim/pteron_mlx.cpp").arg("-o").arg(shim).arg("-L").arg(library).arg("-lmlx");
        // Where MLX was when this was built, or else beside the shim.
        let beside = if target.contains("apple") { "@loader_path" } else { "$ORIGIN" };
        command.arg(format!("-Wl,-rpath,{}", library.display())).arg(format!("-Wl,-rpath,{beside}"));
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "the shim does not compile: {}",
            String::from_utf8_lossy(&output.stderr).replace('\n', " | ")
        ))
    }

    /// The pinned version, as MLX's own macro counts it.
    fn wanted() -> String {
        let numbers: Vec<u32> =
            include_str!("shim/MLX_VERSION").trim().split('.').filter_map(|part| part.parse().ok()).collect();
        let [major, minor, patch] = numbers[..] else { panic!("shim/MLX_VERSION holds no version") };
        (100_000 * major + 1000 * minor + patch).to_string()
    }
}
