#!/usr/bin/env python3
"""Makes cases of the tests of ExecuTorch's own backend suite, which its wheel carries.

    VENV/bin/python suite_cases.py OUT [--filter GLOB]... [--zip FILE]

A case is named FLOW.TEST: `xnnpack.add_dtype_float32`, `vulkan_static_int8_per_channel.conv2d_basic`; the second program
of a test that has several is FLOW.TEST.2. The flows are the four of XNNPACK, the two of Vulkan and `portable`. Models,
inputs and the way to a program are the suite's; outputs are those of ExecuTorch's runtime, which has to agree with
PyTorch as closely as the suite asks (of Vulkan, which the wheel cannot run, PyTorch's own). Programs that upstream does
not complete or that leave nothing to a delegate are skipped, with the reason. Cases that OUT has already are kept.
Each is made in a process of its own, since exporters and runtime end the process now and then. The suite's modules
need the package `pytest`, its models `torchvision` and `torchaudio`.
"""

import copy
import functools
import gc
import importlib
import itertools
import os
import pkgutil
import select
import signal
import zlib

import et_env  # first: it puts stand-ins in place
import torch
from case_files import Skip, make_all
from torch.utils._pytree import tree_flatten

SUITE = "executorch.backends.test.suite"
FLOWS = {
    "xnnpack": "XNNPACK_TEST_FLOW",
    "xnnpack_static_int8_per_channel": "XNNPACK_STATIC_INT8_PER_CHANNEL_TEST_FLOW",
    "xnnpack_dynamic_int8_per_channel": "XNNPACK_DYNAMIC_INT8_PER_CHANNEL_TEST_FLOW",
    "xnnpack_static_int8_per_tensor": "XNNPACK_STATIC_INT8_PER_TENSOR_TEST_FLOW",
    "vulkan": "VULKAN_TEST_FLOW",
    "vulkan_static_int8_per_channel": "VULKAN_STATIC_INT8_PER_CHANNEL_TEST_FLOW",
    "portable": "PORTABLE_TEST_FLOW",
}
SECONDS = {"operators": 300, "models": 1800}
FLOAT_TOLERANCE = 1e-4
# What the suite itself asks of a runtime.
SUITE_ATOL, SUITE_RTOL = 1e-1, 4e-2


class Program:
    """What a test of the suite asks to be lowered and run."""

    def __init__(self, model, inputs, random, shapes):
        self.model, self.inputs, self.random, self.shapes = model, inputs, random, shapes


class Runner:
    """What a test of the suite calls, as often as it likes: keeps the programs, which run later."""

    def __init__(self, flow):
        self._flow, self.programs = flow, []

    def lower_and_run_model(self, model, inputs, generate_random_test_inputs=True, dynamic_shapes=None):
        self.programs.append(Program(model, inputs, generate_random_test_inputs, dynamic_shapes))


def load_flow(name):
    module = importlib.import_module(f"{SUITE}.flows.{name.split('_')[0]}")
    return getattr(module, FLOWS[name])


def parameters(test):
    """The values that a test is run with, each with the name that they give it."""
    axes = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args[:2]
            ids = mark.kwargs.get("ids") or str
            named = [ids(value) for value in values] if callable(ids) else ids
            axes.append([(str(name), {names: value}) for name, value in zip(named, values)])
    for chosen in itertools.product(*reversed(axes)):
        yield "".join(f"_{name}" for name, _ in chosen), {key: value for _, one in chosen for key, value in one.items()}


def tests():
    """Every test of the suite: its kind, its module, its name, its function and its parameters."""
    for kind in SECONDS:
        package = importlib.import_module(f"{SUITE}.{kind}")
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            if not info.name.startswith("test_"):
                continue
            try:
                module = importlib.import_module(f"{SUITE}.{kind}.{info.name}")
            except (ImportError, RuntimeError) as error:  # torchaudio refuses a PyTorch of another CUDA
                print(f"skipped {kind}/{info.name}: {error}")
                continue
            for name, test in vars(module).items():
                if name.startswith("test_") and callable(test) and not getattr(test, "__unittest_skip__", False):
                    for suffix, values in parameters(test):
                        yield kind, info.name, et_env.case_name(name.removeprefix("test_") + suffix), test, values


def scales(program):
    """The scales of what a program quantises: those of its outputs, or of everything where no output is on a grid."""
    nodes = list(program.graph.nodes)
    outputs = nodes[-1].all_input_nodes
    last = [node for node in outputs if "dequantize_per_tensor" in str(node.target)]
    if len(last) < len(outputs):
        last = [node for node in nodes if "dequantize_per_tensor" in str(node.target)]
    return [float(node.args[1]) for node in last if isinstance(node.args[1], (int, float))]


def random_like(inputs):
    """What the suite feeds where a test leaves it to it."""
    return tuple(torch.randn(x.shape).to(x.dtype).contiguous(memory_format=memory_format(x)) for x in inputs)


def memory_format(x):
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def smaller(inputs, shapes):
    """Inputs of other sizes, where sizes are free: half of what they were, as far as the bounds allow."""
    per_input = list(shapes.values()) if isinstance(shapes, dict) else list(shapes)
    made = []
    for x, dims in zip(inputs, per_input):
        sizes = list(x.shape)
        for axis, dim in (dims or {}).items():
            sizes[axis] = max(sizes[axis] // 2, getattr(dim, "min", 1))
        made.append(torch.randn(sizes).to(x.dtype))
    return tuple(made)


def runtime_outputs(pte, inputs):
    from executorch.extension.pybindings.portable_lib import Verification, _load_for_executorch_from_buffer

    loaded = _load_for_executorch_from_buffer(pte, program_verification=Verification.Minimal)
    return copy.deepcopy(loaded.run_method("forward", tuple(tree_flatten(inputs)[0])))


def programs(flow, name, test, values):
    """What a test asks for, in its order, and why it ends early, where it does."""
    skipped, reason = flow.should_skip_test(test.__name__, values)
    if skipped:
        return [], f"upstream: {reason}"
    torch.manual_seed(zlib.crc32(name.encode()))
    runner, reason = Runner(flow), None
    try:
        test(runner, **values)
    except Exception as error:
        reason = f"upstream: {first_line(error)}"
    if not runner.programs and reason is None:
        reason = "upstream: the test makes no program"
    return runner.programs, reason


def build(out, flow_name, case, number, *test):
    flow = load_flow(flow_name)
    found, reason = programs(flow, *test)
    if number == len(found):
        raise Skip(reason)
    wanted = found[number]
    torch.manual_seed(zlib.crc32(case.encode()))
    tester = stage("eager", lambda: (wanted.model(*wanted.inputs), flow.tester_factory(wanted.model, wanted.inputs)))[1]
    if flow.quantize:
        stage("quantise", lambda: tester.quantize(flow.quantize_stage_factory()))
    kinds = importlib.import_module("executorch.backends.test.harness.stages").StageType
    export = tester._get_default_stage(kinds.EXPORT, dynamic_shapes=wanted.shapes)
    stage("export", lambda: tester.export(export))
    program = tester.get_artifact()
    stage("lower", tester.to_edge_transform_and_lower)
    graph = tester.get_artifact().exported_program().graph
    if flow.is_delegated and not any("call_delegate" in str(node.target) for node in graph.nodes):
        raise Skip("nothing is delegated")
    stage("write", lambda: (tester.to_executorch(), tester.serialize()))
    pte = tester.get_artifact()
    given = [wanted.inputs]
    if wanted.shapes is not None:
        given.append(smaller(wanted.inputs, wanted.shapes))
    elif wanted.random:
        given.append(random_like(wanted.inputs))
    steps = [step(pte, program, inputs, flow) for inputs in given]
    atol, rtol = FLOAT_TOLERANCE, FLOAT_TOLERANCE
    if "static" in flow_name:
        atol, rtol = max([atol, *(2.01 * scale for scale in scales(program))]), 0.0
    meta = {"kind": "op", "source": f"ExecuTorch's suite, {flow_name}", "atol": atol, "rtol": rtol}
    et_env.write_case(out, case, meta, pte, None, steps)


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def stage(name, run):
    """One of upstream's steps; where it fails there, there is no case."""
    try:
        return run()
    except Exception as error:
        raise Skip(f"upstream, {name}: {first_line(error)}") from error


def step(pte, program, inputs, flow):
    expected = tree_flatten(stage("eager", lambda: program.module()(*inputs)))[0]
    outputs = expected
    if flow.backend != "vulkan":
        outputs = [torch.as_tensor(x) for x in stage("run", lambda: runtime_outputs(pte, inputs))]
        for one, other in zip(outputs, expected, strict=True):
            if one.shape != other.shape or not torch.allclose(
                    one.double(), other.double(), SUITE_RTOL, SUITE_ATOL, equal_nan=True):
                raise Skip("upstream, run: its runtime's numbers are not PyTorch's")
    return {"inputs": tree_flatten(inputs)[0], "outputs": outputs}


def apart(seconds, run):
    """Runs a function in a process of its own; an exception there is a `Skip` here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                run()
                said = "made"
            except BaseException as error:
                said = first_line(error)
            os.write(writer, said.encode()[:4000])
        finally:  # also where nobody listens any more: the loop over cases is the parent's alone
            os._exit(0)
    os.close(writer)
    ready = select.select([reader], [], [], seconds)[0]
    if not ready:
        os.kill(child, signal.SIGKILL)
    said = os.read(reader, 4000).decode() if ready else f"not ready after {seconds} s"
    os.close(reader)
    os.waitpid(child, 0)
    if said != "made":
        raise Skip(said or "upstream: the process ends")


def warm():
    """Loads what exports need, once for all processes."""
    from torch._export import utils

    # Exports list PyTorch's operators anew again and again, which takes half of their time.
    utils._collect_all_valid_cia_ops_for_namespace = functools.cache(utils._collect_all_valid_cia_ops_for_namespace)
    for name in ("xnnpack", "xnnpack_static_int8_per_channel"):
        flow = load_flow(name)
        tester = flow.tester_factory(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
        if flow.quantize:
            tester.quantize(flow.quantize_stage_factory())
        tester.export().to_edge_transform_and_lower().to_executorch().serialize()
    # What is there now stays: processes would copy it only to look for garbage.
    gc.collect()
    gc.freeze()
    gc.disable()


def of_each_in_turn(found):
    """The first test of every module, then the second, and so on: a run that is cut short has something of everything."""
    modules = {}
    for one in found:
        modules.setdefault(one[1], []).append(one)
    in_turn = [one for row in itertools.zip_longest(*modules.values()) for one in row if one is not None]
    # Models take minutes each.
    return sorted(in_turn, key=lambda one: list(SECONDS).index(one[0]))


def jobs():
    """Every case with how to make it."""
    for kind, _, *test in of_each_in_turn(tests()):
        for flow in FLOWS:
            # Models take long to make, and are one a test.
            found, reason = ([None], None) if kind == "models" else programs(load_flow(flow), *test)
            for number in range(len(found) + (reason is not None)):
                case = f"{flow}.{test[0]}" + (f".{number + 1}" if number else "")

                def make(out, kind=kind, flow=flow, case=case, number=number, test=test):
                    if not (out / case / "case.json").exists():
                        apart(SECONDS[kind], lambda: build(out, flow, case, number, *test))

                yield case, make


def main():
    torch.set_num_threads(1)  # no pool of threads that processes would share
    warm()
    make_all(__doc__, jobs())


if __name__ == "__main__":
    main()
