//! `cargo xtask sanitize --build-only DIR`: the test programs themselves and a script that runs them, for a machine that
//! has more cores and no compiler.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Run, crate_folder};
use crate::error::{Doing, Error, Result};
use crate::{Outcome, workspace};

/// Builds what the runs need and copies it.
pub(super) fn collect(runs: &[Run], folder: &Path) -> Result<Outcome> {
    fs::create_dir_all(folder).doing("make", folder)?;
    let mut script = opening();
    let mut count = 0;
    for run in runs {
        println!("== {run}");
        let home = crate_folder(run.package);
        for program in built(run)? {
            let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{}-{file}", run.tool);
            let to = folder.join(&name);
            fs::copy(&program, &to).doing("write", &to)?;
            let settings = run.tool.settings().iter().map(|(key, value)| format!("{key}={value}"));
            let settings = settings.collect::<Vec<_>>().join(" ");
            let _ = writeln!(script, "run {name} {} env {settings}", home.display());
            count += 1;
        }
    }
    script
        .push_str("echo \"sanitize: $ran programs, $failed with findings, $SECONDS s\"\n[ $failed -eq 0 ]\n");
    let path = folder.join("run.sh");
    fs::write(&path, script).doing("write", &path)?;
    println!("{count} programs in {}", folder.display());
    Ok(Outcome::Good)
}

/// Test programs look for their files where they were built, so a checkout elsewhere is linked to that place.
fn opening() -> String {
    let root = workspace::root().display();
    format!(
        "#!/usr/bin/env bash\n# Runs the programs beside it: run.sh CHECKOUT.\nset -u\nhere=$(cd \"$(dirname \"$0\")\" && pwd)\n\
         checkout=$(cd \"${{1:?where the sources are}}\" && pwd)\n\
         [ -e {root} ] || {{ mkdir -p \"$(dirname {root})\" && ln -s \"$checkout\" {root}; }}\n\
         ran=0 failed=0\n\
         run() {{ # PROGRAM FOLDER env SETTINGS\n    local name=$1 folder=$2 start=$SECONDS\n    shift 2\n    echo \"== $name\"\n    \
         (cd \"$folder\" && \"$@\" \"$here/$name\") || {{ failed=$((failed + 1)); echo \"FAILED: $name\"; }}\n    \
         ran=$((ran + 1))\n    echo \"-- $name: $((SECONDS - start)) s\"\n}}\n"
    )
}

fn built(run: &Run) -> Result<Vec<PathBuf>> {
    let output = run
        .tool
        .build(run.package)?
        .stderr(std::process::Stdio::inherit())
        .output()
        .doing("start", "cargo")?;
    if !output.status.success() {
        return Err(Error::message(format!("the tests of {run} could not be built")));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(workspace::executable_of).collect())
}
