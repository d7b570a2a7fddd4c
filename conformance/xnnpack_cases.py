#!/usr/bin/env python3
"""Makes cases whose programs are delegated to XNNPACK: single operators and small blocks.

    VENV/bin/python xnnpack_cases.py OUT [--filter GLOB]... [--zip FILE]

Each case comes in one or more forms: `f32`, `f16`, `static` (8 bits, scales a tensor and a
channel), `dynamic` (8-bit activations, 8-bit weights), `8da4w` (8-bit activations, 4-bit weights in groups) and
`qc4` (the same with a scale a channel). `inline` and `headerless` are f32 as earlier exporters stored it.
The outputs of a case are those of ExecuTorch's own runtime, which must agree with
PyTorch eager within the case's tolerance; a case where they do not is skipped.
"""

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all
import xnnpack_old
from torch import nn
from torch.nn import functional as F

FLOAT_TOLERANCE = 1e-4
HALF_TOLERANCE = 4e-3
XNNPACK = "XnnpackBackend"


class Op(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Block(nn.Module):
    """An inverted residual block between a stem and a head, as in MobileNetV2."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.expand = nn.Conv2d(16, 48, 1)
        self.depth = nn.Conv2d(48, 48, 3, padding=1, groups=48)
        self.project = nn.Conv2d(48, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu6(self.norm(self.stem(x)))
        inner = F.relu6(self.depth(F.relu6(self.expand(x))))
        x = x + self.project(inner)
        return self.head(x.mean((2, 3), keepdim=True).flatten(1))


class Mlp(nn.Module):
    """Two linear layers with a residual, as in a decoder."""

    def __init__(self, width=64, inner=128, bias=False):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x)))


def number(*shape):
    return torch.randn(*shape)


def positive(*shape):
    return torch.rand(*shape) + 0.1


def unary(function, make=number):
    return lambda: (Op(function), (make(2, 3, 8),))


def binary(function, one=(2, 3, 8), other=(2, 3, 8), make=number):
    return lambda: (Op(function), (make(*one), make(*other)))


def image(module, *shape):
    return lambda: (module(), (number(*shape),))


def linear(*shape, bias=True, rows=(1, 5)):
    return lambda: (nn.Linear(*shape, bias=bias), (number(*rows, shape[0]),))


FLOAT = ("f32",)
FLOATS = ("f32", "f16")
OLD = ("inline", "headerless")
STATIC = ("f32", "static")
ALL = ("f32", "static", "dynamic", "8da4w")
CASES = {
    "abs": (FLOAT, unary(torch.abs)),
    "add": ((*STATIC, "f16"), binary(torch.add)),
    "add_relu": (STATIC, lambda: (Op(lambda a, b: F.relu(a + b)), (number(1, 4, 8), number(1, 4, 8)))),
    "add_broadcast": (FLOAT, binary(torch.add, other=(3, 1))),
    "sub": (FLOAT, binary(torch.sub)),
    "mul": (STATIC, binary(torch.mul)),
    "div": (FLOAT, binary(torch.div, make=positive)),
    "minimum": (FLOAT, binary(torch.minimum)),
    "maximum": (FLOAT, binary(torch.maximum)),
    "ceil": (FLOAT, unary(torch.ceil)),
    "floor": (FLOAT, unary(torch.floor)),
    "clamp": (FLOAT, unary(lambda x: torch.clamp(x, -0.5, 0.5))),
    "relu": (FLOAT, unary(F.relu)),
    "hardtanh": (FLOAT, unary(F.hardtanh)),
    "cos": (FLOAT, unary(torch.cos)),
    "sin": (FLOAT, unary(torch.sin)),
    "elu": (FLOAT, unary(lambda x: F.elu(x, 0.7))),
    "exp": (FLOAT, unary(torch.exp)),
    "gelu": (FLOAT, unary(F.gelu)),
    "hardswish": (FLOAT, unary(F.hardswish)),
    "leaky_relu": (FLOAT, unary(lambda x: F.leaky_relu(x, 0.1))),
    "log": (FLOAT, unary(torch.log, positive)),
    "neg": (FLOAT, unary(torch.neg)),
    "rsqrt": (FLOAT, unary(torch.rsqrt, positive)),
    "sigmoid": (FLOAT, unary(torch.sigmoid)),
    "softmax": (FLOATS, unary(lambda x: torch.softmax(x, -1))),
    "square": (FLOAT, unary(torch.square)),
    "sqrt": (FLOAT, unary(torch.sqrt, positive)),
    "tanh": (FLOAT, unary(torch.tanh)),
    "prelu": (FLOAT, image(lambda: nn.PReLU(5), 1, 5, 4, 4)),
    "bmm": (FLOAT, binary(torch.bmm, (3, 4, 5), (3, 5, 6))),
    "permute": (FLOAT, unary(lambda x: (x + 1).permute(2, 0, 1))),
    "view": (FLOAT, unary(lambda x: (x * 2).view(6, -1))),
    "slice": (FLOAT, unary(lambda x: (x * 2)[:, 1:3, 2:7])),
    "pad": (FLOAT, image(lambda: Op(lambda x: F.pad(x, (1, 2, 3, 4), value=0.5)), 1, 2, 4, 4)),
    "cat2": (STATIC, binary(lambda a, b: torch.cat([a, b], 1))),
    "cat3": (FLOAT, unary(lambda x: torch.cat([x, x * 2, x * 3], 2))),
    "cat4": (FLOAT, unary(lambda x: torch.cat([x, x * 2, x * 3, x * 4], 0))),
    "cat5": (FLOAT, unary(lambda x: torch.cat([x, x * 2, x * 3, x * 4, x * 5], 2))),
    "conv2d": ((*STATIC, "f16", *OLD), image(lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1), 1, 3, 9, 9)),
    "conv2d_groups": (STATIC, image(lambda: nn.Conv2d(4, 8, 3, groups=2, bias=False), 2, 4, 7, 7)),
    "conv2d_relu": (STATIC, image(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), 1, 3, 6, 6)),
    "conv2d_dilated": (FLOAT, image(lambda: nn.Conv2d(3, 8, 3, dilation=2, padding=2), 1, 3, 9, 9)),
    "depthwise": (STATIC, image(lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), 1, 8, 6, 6)),
    "depthwise_multiplier": (FLOAT, image(lambda: nn.Conv2d(4, 8, 3, groups=4), 1, 4, 6, 6)),
    "conv_transpose2d": (
        STATIC, image(lambda: nn.ConvTranspose2d(3, 6, 3, stride=2, padding=1, output_padding=1), 1, 3, 5, 5)),
    "conv_transpose2d_groups": (FLOAT, image(lambda: nn.ConvTranspose2d(4, 8, 2, stride=2, groups=2), 1, 4, 5, 5)),
    "max_dim": (FLOAT, image(lambda: Op(lambda x: torch.max(x, 2, True)[0]), 1, 3, 4, 5)),
    "conv2d_max_pool2d": (("static",), image(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), 1, 3, 8, 8)),
    "conv2d_mean": (("static",), image(lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), Op(lambda x: x.mean((2, 3), keepdim=True))), 1, 3, 8, 8)),
    "max_pool2d": (FLOAT, image(lambda: nn.MaxPool2d(3, 2, 1), 1, 4, 9, 9)),
    "max_pool2d_ceil": (FLOAT, image(lambda: nn.MaxPool2d(2, 2, ceil_mode=True), 1, 4, 7, 7)),
    "avg_pool2d": (FLOAT, image(lambda: nn.AvgPool2d(2), 1, 4, 8, 8)),
    "avg_pool2d_padded": (FLOAT, image(lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), 1, 4, 9, 9)),
    "mean": (FLOAT, image(lambda: Op(lambda x: x.mean((2, 3), keepdim=True)), 1, 4, 5, 6)),
    "resize": (FLOAT, image(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 1, 3, 4, 5)),
    "resize_corners": (
        FLOAT, image(lambda: nn.Upsample(size=(7, 9), mode="bilinear", align_corners=True), 1, 3, 4, 5)),
    "linear": ((*ALL, "f16", "qc4", *OLD), linear(64, 32)),
    "linear_no_bias": (ALL, linear(96, 32, bias=False, rows=(3,))),
    "linear_odd": (("f32", "static", "dynamic"), linear(20, 7)),
    "matmul": (FLOAT, lambda: (Op(lambda x: x @ torch.ones(8, 5) * 0.5), (number(3, 8),))),
    "mlp": ((*ALL, "f16", "qc4"), lambda: (Mlp(), (number(1, 6, 64),))),
    "block": (STATIC, lambda: (Block(), (number(1, 3, 16, 16),))),
}
DYNAMIC_SHAPES = {
    "mlp_dynamic": (("f32", "8da4w"), lambda: (Mlp(), (number(1, 8, 64),)), ({1: torch.export.Dim("rows", max=16)},),
                    [(1, 8, 64), (1, 3, 64), (1, 16, 64), (1, 1, 64)]),
    "conv2d_dynamic": (FLOAT, lambda: (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2)),
                                       (number(4, 3, 8, 8),)), ({0: torch.export.Dim("batch", max=8)},),
                       [(4, 3, 8, 8), (1, 3, 8, 8), (8, 3, 8, 8)]),
}


def pt2e(model, inputs, dynamic):
    """The model with XNNPACK's own quantiser applied."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer()
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    for _ in range(3):
        prepared(*inputs)
    return convert_pt2e(prepared)


def four_bit_weights(model, form):
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    granularity = PerAxis(0) if form == "qc4" else PerGroup(32)
    quantize_(model, Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=granularity))
    unwrap_tensor_subclass(model)
    return model


def largest_scale(graph):
    """The largest scale that a converted graph quantises to."""
    nodes = [node for node in graph.graph.nodes if str(node.target).endswith(".quantize_per_tensor.default")]
    return max(float(node.args[1]) for node in nodes)


def output_scale(graph):
    """What one step of a converted graph's output is: of the grid that it was last on."""
    [output] = [node for node in graph.graph.nodes if node.op == "output"]
    node = output.all_input_nodes[0]
    while "dequantize_per_tensor" not in str(node.target):
        node = node.all_input_nodes[0]
    return float(node.args[1])


def lowered(program, form):
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.config.generic_node_configs import EluConfig
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    # ELU can be written and run, but is not among those that are taken unasked.
    partitioners = [XnnpackPartitioner(configs=[*ALL_PARTITIONER_CONFIGS, EluConfig])]
    if form in ("8da4w", "qc4", "dynamic"):
        dynamic = XnnpackPartitioner(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True)
        partitioners.insert(0, dynamic)
    edge = to_edge_transform_and_lower(
        program, partitioner=partitioners, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    pte = edge.to_executorch().buffer
    return getattr(xnnpack_old, form)(pte) if form in OLD else pte


def runtime_outputs(pte, inputs):
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    return [torch.as_tensor(value).clone() for value in _load_for_executorch_from_buffer(pte).forward(list(inputs))]


def flat(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def make(out, name, form, build, shapes=None, sizes=None):
    torch.manual_seed(42)
    model, inputs = build()
    model = model.eval()
    tolerance = allowed = FLOAT_TOLERANCE
    if form == "f16":
        model, inputs = model.half(), tuple(x.half() for x in inputs)
        tolerance = allowed = HALF_TOLERANCE
    elif form in ("8da4w", "qc4"):
        # PyTorch rounds the rows of dynamic forms by another rule: its zero point may differ by one.
        model, allowed = four_bit_weights(model, form), 0.05
    elif form in ("static", "dynamic"):
        model, allowed = pt2e(model, inputs, form == "dynamic"), 0.05
        if form == "static":
            tolerance = max(tolerance, 2.01 * output_scale(model))
            # The runtime rounds sums where PyTorch rounds what each operator gives.
            allowed = max(tolerance, 2.01 * largest_scale(model))
    with torch.no_grad():
        program = torch.export.export(model, inputs, dynamic_shapes=shapes)
        pte = lowered(program, form)
        if XNNPACK.encode() not in pte:
            raise et_env.CaseError("nothing was delegated")
        steps = []
        for size in sizes or [None]:
            given = inputs if size is None else (number(*size),)
            eager = flat(model(*given))
            given_back = runtime_outputs(pte, given)
            for mine, theirs in zip(eager, given_back, strict=True):
                apart = (mine.double() - theirs.double()).abs().max().item()
                if not apart <= allowed * (1 + theirs.double().abs().max().item()):
                    raise et_env.CaseError(f"eager and the runtime are {apart:g} apart")
            steps.append({"inputs": list(given), "outputs": given_back})
    # Steps are of one size, however large what they lead to.
    relative = 0.0 if form == "static" else tolerance
    meta = {"kind": "op", "source": f"XNNPACK, {form}", "atol": tolerance, "rtol": relative}
    et_env.write_case(out, f"{name}_{form}", meta, pte, None, steps)


def main():
    jobs = [(name, form, build, None, None) for name, (forms, build) in CASES.items() for form in forms]
    jobs += [(name, form, build, shapes, sizes)
             for name, (forms, build, shapes, sizes) in DYNAMIC_SHAPES.items() for form in forms]
    make_all(__doc__, [(f"{job[0]}_{job[1]}", lambda out, job=job: make(out, *job)) for job in jobs])


if __name__ == "__main__":
    main()
