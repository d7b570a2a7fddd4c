#!/usr/bin/env python3
"""Makes cases whose programs are delegated to Vulkan: single operators, small blocks and small models.

    VENV/bin/python vulkan_cases.py OUT [--filter GLOB]... [--zip FILE]

Each case comes in one or more forms: `f32`, `f16` (the exporter's `force_fp16`: floats between the first and
the last operator are halves), `static` (8 bits, scales a tensor and a channel), `4w` (4-bit weights in groups)
and `8da4w` (the same with 8-bit activations). The wheel has no Vulkan runtime, so that the outputs of a case
are those of PyTorch eager; of quantised forms, those of the quantised model.
"""

from collections import Counter

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all
from torch import nn
from torch.nn import functional as F
from xnnpack_cases import Mlp, Op, flat, image, linear, number, output_scale, positive, pt2e

FLOAT_TOLERANCE = 1e-4
HALF_TOLERANCE = 1e-2
VULKAN = "VulkanBackend"


class Net(nn.Module):
    """A small MobileNetV2: a stem, inverted residual blocks, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.blocks = nn.Sequential(*[self.block(8, 8, 1), self.block(8, 12, 2)])
        self.head = nn.Sequential(nn.Conv2d(12, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6())
        self.classes = nn.Linear(24, 10)

    @staticmethod
    def block(inputs, outputs, stride):
        inner = 4 * inputs
        return nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        x = self.stem(x)
        x = x + self.blocks[0](x)
        x = self.head(self.blocks[1](x))
        return self.classes(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Vit(nn.Module):
    """A small vision transformer: patches, a class token, attention, a head."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.classes = nn.Linear(width, 10)
        self.heads = heads

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token, x], 1) + self.places
        batch, count, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, count, width)
        x = x + self.out(seen)
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.classes(self.norms[2](x)[:, 0])


class Norm(nn.Module):
    """Root mean square norm, as Llama writes it."""

    def __init__(self, width=16):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return (x.float() * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Embedding(nn.Module):
    """Rows of a table, and what follows them."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(12, 8)

    def forward(self, tokens):
        return self.rows(tokens) * 2


class Counted(nn.Module):
    """A convolution beside constants that other operators read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(6, 8))

    def forward(self, x, index):
        return x + torch.index_select(self.table, 0, index)


class Several(nn.Module):
    """Modules and functions of the same inputs, side by side: an export takes far longer than an operator."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList([part if isinstance(part, nn.Module) else Op(part) for part in parts])

    def forward(self, *inputs):
        return tuple(part(*inputs) for part in self.parts)


def truth(*shape):
    return torch.rand(*shape) > 0.5


def several(parts, *make):
    return lambda: (Several(parts()), tuple(one() for one in make))


def shaped(make, *shape):
    return lambda: make(*shape)


def random(module):
    """A norm whose parameters and statistics are not those of a new one."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0, 0.1)
    if isinstance(module, nn.BatchNorm2d):
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 1.5)
    return module


def small_integers():
    return torch.randint(0, 3, (2, 3, 8)).float()


FLOAT = ("f32",)
FLOATS = ("f32", "f16")
STATIC = ("static",)
X = shaped(number, 2, 3, 8)
IMAGE = shaped(number, 1, 4, 9, 9)
CASES = {
    "unary": (FLOAT, several(lambda: [
        torch.abs, torch.cos, torch.exp, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.hardshrink, F.hardswish,
        F.hardsigmoid, F.hardtanh, lambda x: F.leaky_relu(x, 0.1), torch.neg, F.relu, lambda x: F.relu6(4 * x),
        lambda x: torch.round(3 * x), torch.sigmoid, F.silu, torch.sin, torch.tan, torch.tanh,
        lambda x: torch.clamp(x, -0.5, 0.5), lambda x: torch.clamp(x, min=-0.5), lambda x: torch.pow(x, 3)], X)),
    "unary_positive": (FLOAT, several(lambda: [torch.log10, torch.rsqrt, torch.sqrt], shaped(positive, 2, 3, 8))),
    "halves": (("f16",), several(lambda: [
        torch.exp, F.gelu, torch.sigmoid, lambda x: x + 1.5, lambda x: torch.softmax(x, -1), random(nn.LayerNorm(8)),
        nn.Linear(8, 12)], X)),
    "binary": (FLOAT, several(lambda: [
        torch.add, lambda a, b: torch.add(a, b, alpha=2.5), lambda a, b: a + b[0, :, :1], lambda a, b: a + 1.5, torch.sub,
        torch.mul, torch.div, lambda a, b: torch.div(a, b, rounding_mode="floor"), torch.minimum, torch.pow],
        shaped(positive, 2, 3, 8), shaped(positive, 2, 3, 8))),
    "compare": (FLOAT, several(lambda: [
        torch.eq, torch.lt, torch.le, torch.gt, torch.ge, lambda a, b: torch.ne(a, 1.0), lambda a, b: torch.gt(a, 0.5),
        lambda a, b: torch.lt(b, 1.5), lambda a, b: torch.eq(b, 2.0), lambda a, b: torch.where(a > b, a, b * 2),
        lambda a, b: a.masked_fill(b > 1, -5.0)], small_integers, small_integers)),
    "logic": (FLOAT, several(lambda: [
        torch.bitwise_and, torch.bitwise_or, torch.logical_and, torch.logical_or, lambda a, b: torch.logical_not(a),
        lambda a, b: torch.bitwise_not(b)], shaped(truth, 2, 3, 8), shaped(truth, 2, 3, 8))),
    "create": (FLOAT, several(lambda: [
        lambda x: x + torch.full((3, 8), 2.5), lambda x: x + torch.full_like(x, 1.25),
        lambda x: x * torch.ones_like(x) + torch.zeros(8), lambda x: x + torch.arange(0, 8, dtype=torch.float32)], X)),
    "to_float": (FLOAT, lambda: (Op(lambda x: x.float() * 0.5), (torch.arange(12, dtype=torch.int32).reshape(3, 4),))),
    "reduce": (FLOAT, several(lambda: [
        lambda x: x.mean(-1, keepdim=True), lambda x: x.sum(1), lambda x: x.amax(-1), lambda x: x.amin(-1, keepdim=True),
        lambda x: x.argmax(-1), lambda x: x.argmin(-1), lambda x: x.var(-1, keepdim=True), lambda x: torch.softmax(x, -1),
        lambda x: torch.softmax(x, 1), lambda x: torch.log_softmax(x, -1)], X)),
    "norms": (FLOAT, several(lambda: [
        random(nn.GroupNorm(2, 4)), random(nn.BatchNorm2d(4)), random(nn.LayerNorm(9)), random(nn.LayerNorm((9, 9))),
        lambda x: x.mean((2, 3), keepdim=True)], IMAGE)),
    "rms_norm": (FLOAT, lambda: (Norm(), (number(1, 5, 16),))),
    "shape": (FLOAT, several(lambda: [
        lambda x: (x * 2).view(6, -1), lambda x: (x[:, :1] * 2).squeeze(1), lambda x: (x * 2).unsqueeze(1),
        lambda x: (x + 1).permute(2, 0, 1), lambda x: (x[0] + 1).t(), lambda x: x[:1].expand(2, 3, 8) * 2,
        lambda x: x.repeat(2, 1, 3), lambda x: x.flip(0, 2), lambda x: torch.cat([x, x * 2, x * 3], 1),
        lambda x: x[:, 1] * 2, lambda x: x[:, -1] * 2, lambda x: (x * 2)[:, 1:3, 2:7:2], lambda x: (x * 2)[:, :, -3:],
        lambda x: torch.split(x, [2, 1, 5], 2)[2] * 2, lambda x: x.unfold(2, 4, 2) * 2,
        lambda x: F.pad(x, (1, 2, 3, 4), value=0.5)], X)),
    "embedding": (FLOAT, lambda: (Embedding(), (torch.randint(0, 12, (2, 5)),))),
    "index": (FLOAT, several(lambda: [
        Counted(), lambda x, i: x[i] * 2, lambda x, i: torch.gather(x, 1, i.reshape(3, 1)) * 2],
        shaped(number, 3, 8), lambda: torch.tensor([2, 0, 1]))),
    "matrices": (FLOATS, several(lambda: [
        torch.bmm, lambda a, b: a[0] @ b[0], lambda a, b: torch.addmm(a[0, 0, :1], a[0], b[0]),
        lambda a, b: F.scaled_dot_product_attention(a.unsqueeze(0), a.unsqueeze(0), a.unsqueeze(0))],
        shaped(number, 3, 4, 8), shaped(number, 3, 8, 12))),
    "conv2d": (FLOATS, several(lambda: [
        nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.Conv2d(4, 8, 3, groups=2, bias=False),
        nn.Conv2d(4, 6, 3, dilation=2, padding=2), nn.Conv2d(4, 12, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4),
        nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()),
        nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1, output_padding=1)], IMAGE)),
    "conv1d": (FLOAT, lambda: (nn.Conv1d(4, 6, 3, padding=1), (number(1, 4, 9),))),
    "pools": (FLOAT, several(lambda: [
        nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 2, ceil_mode=True), Op(lambda x: nn.MaxPool2d(2, 2, return_indices=True)(x)[1]),
        nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(2, 2, 1, ceil_mode=True)], IMAGE)),
    "pools_no_batch": (FLOAT, several(lambda: [
        nn.MaxPool2d(3, 2, 1), Op(lambda x: nn.MaxPool2d(2, 2, return_indices=True)(x)[1]), nn.AvgPool2d(3, 2, 1)],
        shaped(number, 4, 9, 9))),
    "resize": (FLOAT, several(lambda: [
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(size=(7, 11), mode="bilinear", align_corners=True), lambda x: F.pixel_shuffle(x, 2)], IMAGE)),
    "grid_sampler": (FLOAT, lambda: (Op(lambda x, grid: F.grid_sample(
        x, grid, padding_mode="border", align_corners=True)), (number(1, 4, 6, 5), 2.4 * torch.rand(1, 3, 7, 2) - 1.2))),
    "add_relu": (STATIC, lambda: (Op(lambda a, b: F.relu(a + b)), (number(1, 4, 8), number(1, 4, 8)))),
    "conv2d_8bit": (STATIC, image(lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 1), nn.Conv2d(8, 8, 3, groups=8),
        nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)), 1, 3, 9, 9)),
    "linear": (("4w", "8da4w", "static"), linear(64, 32)),
    "linear_rows": (STATIC, linear(64, 32, rows=(6,))),
    "linear_odd": (STATIC, linear(20, 7)),
    "mlp": (("f32", "4w", "8da4w"), lambda: (Mlp(), (number(1, 6, 64),))),
    "mobilenet": (("f32", "static"), lambda: (Net(), (number(1, 3, 16, 16),))),
    "vit": (FLOATS, lambda: (Vit(), (number(1, 3, 16, 16),))),
}
DYNAMIC_SHAPES = {
    "mlp_dynamic": (("f32", "8da4w"), lambda: (Mlp(), (number(1, 8, 64),)), ({1: torch.export.Dim("rows", max=16)},),
                    [(1, 8, 64), (1, 3, 64), (1, 16, 64)]),
    "softmax_dynamic": (FLOAT, lambda: (Op(lambda x: torch.softmax(x * 2, -1)), (number(2, 3, 8),)),
                        (({2: torch.export.Dim("width", max=12)},),), [(2, 3, 8), (2, 3, 5), (2, 3, 12)]),
    "unfold_dynamic": (FLOAT, several(lambda: [
        lambda x: x.unfold(2, 4, 2) * 2, lambda x: x.unfold(1, 2, 1) * 2], shaped(number, 2, 3, 8)),
        (({2: torch.export.Dim("width", min=6, max=12)},),), [(2, 3, 8), (2, 3, 6), (2, 3, 12)]),
    "grid_sampler_dynamic": (FLOAT, lambda: (Op(lambda x: F.grid_sample(
        x, x[:, :2].permute(0, 2, 3, 1) * 1.5, padding_mode="border", align_corners=True)), (number(1, 3, 5, 6),)),
        (({2: torch.export.Dim("height", max=9)},),), [(1, 3, 5, 6), (1, 3, 9, 6), (1, 3, 3, 6)]),
    # Where the batch is free, nothing says that rows and columns are not.
    "pools_dynamic": (FLOAT, several(lambda: [
        nn.MaxPool2d(2, 2, ceil_mode=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)], shaped(number, 2, 4, 9, 8)),
        (({0: torch.export.Dim("batch", max=4)},),), [(2, 4, 9, 8), (1, 4, 9, 8), (4, 4, 9, 8)]),
    "resize_dynamic": (FLOAT, several(lambda: [
        nn.Upsample(scale_factor=2, mode="nearest"), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(size=(7, 11), mode="bilinear", align_corners=True)], shaped(number, 2, 4, 5, 6)),
        (({0: torch.export.Dim("batch", max=4)},),), [(2, 4, 5, 6), (1, 4, 5, 6), (4, 4, 5, 6)]),
}


def four_bit_weights(model, form):
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.utils import unwrap_tensor_subclass

    config = IntxWeightOnlyConfig if form == "4w" else Int8DynamicActivationIntxWeightConfig
    quantize_(model, config(weight_dtype=torch.int4, **{
        "granularity" if form == "4w" else "weight_granularity": PerGroup(32)}))
    unwrap_tensor_subclass(model)
    return model


def lowered(program, form, options=None):
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    options = dict(options or {})
    if form == "f16":
        options["force_fp16"] = True
    edge = to_edge_transform_and_lower(
        program, partitioner=[VulkanPartitioner(options)], compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch().buffer


def calls(pte):
    """Operator -> count over all Vulkan payloads of a program."""
    from executorch.backends.vulkan.serialization.vulkan_graph_serialize import (
        extract_vk_flatbuffer,
        flatbuffer_to_vk_graph,
    )
    from executorch.exir._serialize._program import deserialize_pte_binary

    program = deserialize_pte_binary(bytes(pte)).program
    counts = Counter()
    for delegate in (delegate for plan in program.execution_plan for delegate in plan.delegates):
        if delegate.id == VULKAN:
            payload = program.backend_delegate_data[delegate.processed.index].data
            counts.update(call.name for call in flatbuffer_to_vk_graph(extract_vk_flatbuffer(payload)).chain)
    if not counts:
        raise et_env.CaseError("nothing was delegated")
    return dict(sorted(counts.items()))


def make(out, name, form, build, shapes=None, sizes=None):
    torch.manual_seed(42)
    model, inputs = build()
    model, tolerance = model.eval(), FLOAT_TOLERANCE
    if form == "f16":
        tolerance = HALF_TOLERANCE
    elif form in ("4w", "8da4w"):
        # A code of an activation at the edge of two may fall otherwise.
        model, tolerance = four_bit_weights(model, form), FLOAT_TOLERANCE if form == "4w" else 2e-2
    elif form == "static":
        # XNNPACK's quantiser marks results too, which Vulkan's does not: those become operators of codes.
        model = pt2e(model, inputs, dynamic=False)
        tolerance = max(tolerance, 2.01 * output_scale(model))
    with torch.no_grad():
        pte = lowered(torch.export.export(model, inputs, dynamic_shapes=shapes), form)
        counts = calls(pte)
        steps = []
        for size in sizes or [None]:
            given = inputs if size is None else (number(*size),)
            steps.append({"inputs": list(given), "outputs": flat(model(*given))})
    relative = 0.0 if form == "static" else tolerance
    meta = {"kind": "op", "source": f"Vulkan, {form}", "atol": tolerance, "rtol": relative, "calls": counts}
    et_env.write_case(out, f"{name}_{form}", meta, pte, None, steps)


def main():
    jobs = [(name, form, build, None, None) for name, (forms, build) in CASES.items() for form in forms]
    jobs += [(name, form, build, shapes, sizes)
             for name, (forms, build, shapes, sizes) in DYNAMIC_SHAPES.items() for form in forms]
    make_all(__doc__, [(f"{job[0]}_{job[1]}", lambda out, job=job: make(out, *job)) for job in jobs])


if __name__ == "__main__":
    main()
