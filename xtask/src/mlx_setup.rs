//! `cargo xtask mlx-setup`: the MLX that the feature `mlx` is built and run with, taken out of the wheel that carries
//! it. The wheel is unpacked aside and lands by rename, so that an interrupted run leaves either all of it or nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::cache::Cache;
use crate::error::{Doing, Error, Result};
use crate::workspace;

/// Install the pinned MLX into the cache folder, and print its prefix.
///
/// Takes the package `mlx-metal` on macOS and `mlx-cpu` elsewhere, by name, with uv or with Python's pip. Running it
/// again changes nothing. The last line on standard output is the prefix: MLX_PREFIX for `cargo build --features mlx`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The package, in place of the platform's own.
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Install it again.
    #[arg(long)]
    force: bool,
}

const PACKAGE: &str = if cfg!(target_os = "macos") { "mlx-metal" } else { "mlx-cpu" };

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome> {
    let prefix = prefix(arguments.package.as_deref().unwrap_or(PACKAGE), arguments.force)?;
    println!("{}", prefix.display());
    Ok(Outcome::Good)
}

/// Where the platform's own MLX is, installed if it was not yet.
pub(crate) fn default_prefix() -> Result<PathBuf> {
    prefix(PACKAGE, false)
}

fn prefix(package: &str, force: bool) -> Result<PathBuf> {
    let version = version()?;
    let folder = Cache::locate()?.root().join(format!("{package}-{version}"));
    let prefix = folder.join("mlx");
    if force || !is_whole(&prefix) {
        install(&format!("{package}=={version}"), &folder)?;
    }
    if !is_whole(&prefix) {
        return Err(Error::content(&prefix, format!("{package} {version} has no headers and library here")));
    }
    Ok(prefix)
}

/// The version that the shim is written for.
fn version() -> Result<String> {
    let file = workspace::root().join("crates/mlx/shim/MLX_VERSION");
    Ok(fs::read_to_string(&file).doing("read", &file)?.trim().to_owned())
}

fn is_whole(prefix: &Path) -> bool {
    let library = if cfg!(target_os = "macos") { "lib/libmlx.dylib" } else { "lib/libmlx.so" };
    prefix.join("include/mlx/mlx.h").exists() && prefix.join(library).exists()
}

fn install(requirement: &str, folder: &Path) -> Result<()> {
    let mut aside = folder.as_os_str().to_owned();
    aside.push(".making");
    let aside = PathBuf::from(aside);
    for leftover in [aside.as_path(), folder] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).doing("remove", leftover)?;
        }
    }
    fs::create_dir_all(&aside).doing("make", &aside)?;
    eprintln!("installing {requirement}");
    let with_uv = Command::new("uv").arg("--version").output().is_ok_and(|output| output.status.success());
    let mut command = if with_uv {
        let mut command = Command::new("uv");
        command.args(["pip", "install"]);
        command
    } else {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--disable-pip-version-check"]);
        command
    };
    command.args(["--quiet", "--no-deps", "--target"]).arg(&aside).arg(requirement);
    // Standard output is for the prefix alone.
    let output = command.output().doing("start", command.get_program())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::message(format!("{requirement} could not be installed: {}", said.trim())));
    }
    fs::rename(&aside, folder).doing("move in", folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shim_pins_one_exact_version() {
        let version = version().unwrap();
        assert_eq!(version.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "{version}");
    }
}
