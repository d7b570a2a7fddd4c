#!/usr/bin/env python3
"""Runs programs that hold only portable operators on ExecuTorch's own Python runtime and compares with a case's outputs.

Reads lines `CASE<tab>PROGRAM` (a case's folder and a .pte file) from standard input and answers each with a line of JSON:
{"verdict": "equal" | "missing" | "theirs" | "wrong", "details": ["..."]}. `missing` means that the runtime's build lacks an operator
that the program calls, `theirs` that ExecuTorch's own lowering of the case's export gives the same wrong outputs. Each program runs in a process of its own: ExecuTorch aborts where its assertions fail.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from executorch.runtime import Runtime, Verification
from safetensors.torch import load_file

RUNTIME = Runtime.get()
# What ExecuTorch calls a method whose operators it cannot find.
OPERATOR_MISSING = "0x:14"


def argument(value, key, tensors):
    """An input of a step: a tensor of the case's file, or a plain number."""
    if key in tensors:
        return tensors[key]
    return value["value"] if isinstance(value, dict) else value


def difference(found, wanted, case):
    """Why an output is not what it must be; None where it is."""
    if not isinstance(found, torch.Tensor):
        found = torch.tensor(found, dtype=wanted.dtype)
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype} {list(found.shape)} instead of {wanted.dtype} {list(wanted.shape)}"
    found, wanted = found.double(), wanted.double()
    if torch.allclose(found, wanted, rtol=case["rtol"], atol=case["atol"], equal_nan=True):
        return None
    return f"off by {(found - wanted).abs().max():g}, allowed {case['atol']:g}"


def outputs(program, case, tensors):
    """What the runtime gives, step by step."""
    loaded = RUNTIME.load_program(program, verification=Verification.InternalConsistency)
    methods = {step["method"]: loaded.load_method(step["method"]) for step in case["steps"]}
    for index, step in enumerate(case["steps"]):
        inputs = [argument(value, f"{index}.in.{place}", tensors) for place, value in enumerate(step["inputs"])]
        yield methods[step["method"]].execute(inputs)


def theirs(folder, scratch):
    """The case's export, lowered by ExecuTorch itself without a delegate."""
    from executorch.exir import EdgeCompileConfig, to_edge

    methods = {path.stem: torch.export.load(path) for path in Path(folder).glob("*.pt2")}
    if "model" in methods:
        methods["forward"] = methods.pop("model")
    lowered = to_edge(methods, compile_config=EdgeCompileConfig(_check_ir_validity=False)).to_executorch()
    path = Path(scratch) / "theirs.pte"
    path.write_bytes(lowered.buffer)
    return path


def judge(folder, program):
    """The verdict on one program, and why."""
    case = json.loads((Path(folder) / "case.json").read_text())
    tensors = load_file(Path(folder) / "io.safetensors")
    try:
        found = list(outputs(program, case, tensors))
    except RuntimeError as error:
        return "missing" if OPERATOR_MISSING in str(error) else "wrong", str(error)
    for index, step in enumerate(found):
        for place, output in enumerate(step):
            wanted = tensors.get(f"{index}.out.{place}")
            problem = None if wanted is None else difference(output, wanted, case)
            if problem and any(Path(folder).glob("*.pt2")):
                with tempfile.TemporaryDirectory() as scratch:
                    reference = list(outputs(theirs(folder, scratch), case, tensors))
                if all(torch.equal(ours, their) for a, b in zip(found, reference) for ours, their in zip(a, b)):
                    return "theirs", f"ExecuTorch's own program gives the same: {problem}"
            if problem:
                return "wrong", f"step {index}, output {place}: {problem}"
    return "equal", None


def apart(folder, program):
    """The verdict, found in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            verdict, why = judge(folder, program)
        except Exception as error:  # whatever the runtime raises is a verdict
            verdict, why = "wrong", str(error)
        with os.fdopen(write, "w") as out:
            json.dump({"verdict": verdict, "details": [why] if why else []}, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"verdict": "wrong", "details": [f"the runtime died ({status})"]}


def main():
    for line in sys.stdin:
        folder, program = line.rstrip("\n").split("\t")
        print(json.dumps(apart(folder, program)), flush=True)


if __name__ == "__main__":
    main()
