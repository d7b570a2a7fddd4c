//! Targets for another machine of the same kind: binaries without debug information, seeds, and a script that runs all of
//! them side by side. Nothing but a shell and the C library is needed there.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Target, seeds};
use crate::error::{Doing, Result};

/// Reads the names and bounds of targets from `targets`, and ends as `cargo xtask fuzz` does.
const SCRIPT: &str = r#"#!/bin/sh
# sh run.sh SECONDS [TARGET...]: runs the fuzz targets of this folder side by side, each for SECONDS in one process, all of
# them or those that are named. What they say is in logs/, what they found in artifacts/. The last line is
# `N targets, N findings`, and the status tells.
cd "$(dirname "$0")" || exit 2
seconds=${1:?usage: sh run.sh SECONDS [TARGET...]}
shift
wanted=" $* "
rm -rf logs artifacts
mkdir -p logs
while read -r name bounds; do
    case "$wanted" in "  " | *" $name "*) ;; *) continue ;; esac
    mkdir -p "corpus/$name" "artifacts/$name"
    (
        # shellcheck disable=SC2086 # several bounds
        ASAN_OPTIONS=detect_odr_violation=0 "./bin/$name" "corpus/$name" "seeds/$name" "-max_total_time=$seconds" \
            "-artifact_prefix=artifacts/$name/" $bounds 2>"logs/$name.log" >/dev/null
        echo "$?" >"logs/$name.status"
    ) &
done <targets
wait
ran=0
found=0
for file in logs/*.status; do
    name=$(basename "$file" .status)
    ran=$((ran + 1))
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "logs/$name.log")
    if [ "$(cat "$file")" = 0 ]; then
        echo "$name: nothing in ${runs:-?} runs"
    else
        found=$((found + 1))
        echo "$name: status $(cat "$file"); what it found is in artifacts/$name"
    fi
done
echo "$ran targets, $found findings"
[ "$found" = 0 ]
"#;

/// Fills a folder with targets, and says how large each is.
pub(super) fn pack(targets: &[Target], binaries: &Path, destination: &Path) -> Result<()> {
    let bin = destination.join("bin");
    fs::create_dir_all(&bin).doing("make", &bin)?;
    let (mut list, mut whole) = (String::new(), 0);
    for &target in targets {
        let name = target.name();
        let (from, to) = (binaries.join(&name), bin.join(&name));
        // Without `strip` the whole of it is as good, only larger.
        let stripped = Command::new("strip").arg("--strip-debug").arg("-o").args([&to, &from]).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(&from, &to).doing("copy", &from)?;
        }
        let seeds = destination.join("seeds").join(&name);
        fs::create_dir_all(&seeds).doing("make", &seeds)?;
        let count = seeds::write(target, &seeds)?;
        let size = fs::metadata(&to).doing("look at", &to)?.len();
        whole += size;
        println!("{name}: {:.1} MiB, {count} seeds", mebibytes(size));
        list += &format!("{name} {}\n", target.bounds().join(" "));
    }
    let (script, names) = (destination.join("run.sh"), destination.join("targets"));
    fs::write(&names, list).doing("write", &names)?;
    fs::write(&script, SCRIPT).doing("write", &script)?;
    println!(
        "{} targets, {:.1} MiB of binaries in {}",
        targets.len(),
        mebibytes(whole),
        destination.display()
    );
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
