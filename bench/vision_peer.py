"""Measures other engines on the models of make_vision.py, and prints one JSON object.

    vision_peer.py make FOLDER NAME           lowers NAME for every engine that is installed: FOLDER/NAME.ENGINE
    vision_peer.py run FOLDER NAME ENGINE [--threads 1] [--repeats 30]

Engines: xnnpack (ExecuTorch's runtime from its wheel), onnxruntime, openvino. The object has the names of `pteron bench --json`: load_s,
first_run_ms, run_ms (median, low, high, all), peak_bytes; and error, the largest difference from what PyTorch gave. Each engine
computes in f32 on the CPU; OpenVINO is told so, because it would take bf16 where it can.
"""

import argparse
import importlib
import json
import pathlib
import resource
import statistics
import sys
import time

import numpy as np

# What each engine imports; no part of the time to load a model.
ENGINES = {
    "xnnpack": ("torch", "executorch.extension.pybindings.portable_lib"),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
}


def lower_xnnpack(made, example, path):
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = torch.export.export(made, (example,))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    path.write_bytes(lowered.to_executorch().buffer)


def lower_onnx(made, example, path):
    import torch

    torch.onnx.export(made, (example,), str(path), dynamo=True, external_data=False)


def make(folder, name):
    """Lowers a model; an engine that is not installed is left out."""
    sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "conformance")]
    import et_env  # noqa: F401  stands in for what the wheel lacks
    import make_vision

    made, example = make_vision.model(name)
    for engine, lower in (("xnnpack", lower_xnnpack), ("onnx", lower_onnx)):
        path = folder / f"{name}.{engine}"
        if path.exists():
            continue
        try:
            lower(made, example, path)
        except ImportError as error:
            print(f"{engine} is left out: {error}", file=sys.stderr)


def open_xnnpack(path, threads):
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    module = portable_lib._load_for_executorch(str(path.with_suffix(".xnnpack")))
    import torch

    return lambda x: module.forward([torch.from_numpy(x)])[0].numpy()


def open_onnxruntime(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path.with_suffix(".onnx")), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def open_openvino(path, threads):
    import openvino

    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(path.with_suffix(".onnx")), "CPU", config).create_infer_request()
    return lambda x: request.infer([x])[0]


def run(folder, name, engine, threads, repeats):
    path = folder / f"{name}.x"
    example, expected = np.load(folder / f"{name}.npy"), np.load(folder / f"{name}.out.npy")
    for module in ENGINES[engine]:
        importlib.import_module(module)
    begin = time.perf_counter()
    forward = globals()[f"open_{engine}"](path, threads)
    load_s = time.perf_counter() - begin
    times = []
    for _ in range(3 + repeats):
        begin = time.perf_counter()
        found = forward(example)
        times.append((time.perf_counter() - begin) * 1e3)
    runs = times[3:]
    figures = {"median": statistics.median(runs), "low": min(runs), "high": max(runs), "all": runs}
    print(
        json.dumps(
            {
                "model": name,
                "engine": engine,
                "threads": threads,
                "load_s": load_s,
                "first_run_ms": times[0],
                "run_ms": figures,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "error": float(np.abs(np.asarray(found) - expected).max()),
            }
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("engine", nargs="?", choices=tuple(ENGINES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    if given.what == "make":
        return make(given.folder, given.name)
    if given.engine is None:
        parser.error("run needs an engine")
    run(given.folder, given.name, given.engine, given.threads, given.repeats)


if __name__ == "__main__":
    main()
