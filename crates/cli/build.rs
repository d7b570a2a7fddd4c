//! What `--version` says beyond the number: the commit, the features and the target that this build is of.
//!
//! `PTERON_COMMIT` names the commit where there is no checkout (a source archive) or the build shall not look for one.
//! Without both there is none, and the build is the same.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of a checkout that change when its commit does. Those that are missing are not watched: cargo takes a missing
/// file for one that has always just changed.
const WATCHED: [&str; 3] = ["HEAD", "logs/HEAD", "packed-refs"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PTERON_COMMIT");
    let commit = match std::env::var("PTERON_COMMIT") {
        Ok(named) => named.trim().chars().filter(char::is_ascii_graphic).collect(),
        Err(_) => checked_out().unwrap_or_default(),
    };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let number = variable("CARGO_PKG_VERSION");
    let version = if commit.is_empty() { number } else { format!("{number} ({commit})") };
    let features = if std::env::var_os("CARGO_FEATURE_MLX").is_some() { "mlx" } else { "none" };
    println!("cargo::rustc-env=PTERON_VERSION={version}");
    println!("cargo::rustc-env=PTERON_COMMIT={commit}");
    println!("cargo::rustc-env=PTERON_FEATURES={features}");
    println!("cargo::rustc-env=PTERON_TARGET={}", variable("TARGET"));
}

/// The commit of the checkout that this crate lies in; `None` where it lies in none, or in somebody else's.
fn checked_out() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]);
    for name in WATCHED.into_iter().chain(branch.as_deref()) {
        let path = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
