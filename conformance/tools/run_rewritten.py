#!/usr/bin/env python3
"""Has programs rewritten to portable operators and runs them on ExecuTorch's own Python runtime.

    run_rewritten.py PTERON SET [SET ...]

PTERON is the binary, a SET a folder of cases or a packed one (`conformance/xnnpack.zip`). Each program goes through
`pteron rewrite IN OUT --to portable`, `pteron verify` and the runtime, whose outputs are compared with the case's. Prints what
was not equal, then the counts; fails if an output is wrong or a file is refused by the verifier.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401 - registers what stands beside delegates
import executorch.kernels.quantized  # noqa: F401
from run_portable import apart


def verdict(binary, case, made):
    """What became of one case, and why."""
    program = case / "model.pte"
    if any(case.glob("*.ptd")):
        return "left out", "it needs data beside the program"
    rewrite = subprocess.run([binary, "rewrite", program, made, "--to", "portable"], capture_output=True, text=True)
    if rewrite.returncode:
        return "refused", rewrite.stderr.strip()
    verify = subprocess.run([binary, "verify", made], capture_output=True, text=True)
    if verify.returncode:
        return "unsound", (verify.stdout + verify.stderr).strip()
    answer = apart(case, made)
    return answer["verdict"], "; ".join(answer["details"])


def main():
    binary, *sets = sys.argv[1:]
    counts = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made.pte"
        for number, cases in enumerate(map(Path, sets)):
            if cases.is_file():
                folder = Path(scratch) / str(number)
                zipfile.ZipFile(cases).extractall(folder)
                cases = folder
            for case in sorted(path.parent for path in cases.glob("*/case.json")):
                found, why = verdict(binary, case, made)
                counts[found] += 1
                if found != "equal":
                    print(f"{case.name}: {found}: {why}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    sys.exit(1 if counts["wrong"] or counts["unsound"] else 0)


if __name__ == "__main__":
    main()
