#!/usr/bin/env python3
"""Makes cases of programs without a delegate: operators that other sets have not, or not over free sizes.

    VENV/bin/python portable_cases.py OUT [--filter GLOB]... [--zip FILE]

Their outputs are those of ExecuTorch's own runtime, which must agree with PyTorch eager.
"""

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all
from network_cases import without_delegate
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten
from xnnpack_cases import Op, number, runtime_outputs

TOLERANCE = 1e-4
ONES, NONE = [1, 1], [0, 0]


def gradient(mask, stride, padding, dilation, groups):
    """The gradients of a convolution that a mask asks for."""
    def of(given, x, weight):
        back = torch.ops.aten.convolution_backward(
            given, x, weight, [weight.shape[0]], stride, padding, dilation, False, NONE, groups, mask)
        return tuple(one for one, wanted in zip(back, mask) if wanted)

    return of


def pooled(kernel, stride, padding, dilation=ONES, ceil=False):
    """A pool of the largest, and where its gradient goes."""
    def of(x):
        out, places = torch.ops.aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return out, back(out * 0.5, x, kernel, stride, padding, dilation, ceil, places)

    return of


def windows(x):
    return x.unfold(1, 3, 1), x.unfold(2, 2, 3)


def sampled(mode, padding, corners):
    """An image read at places that it says itself."""
    def of(x):
        grid = 1.5 * torch.tanh(x[:, :2].permute(0, 2, 3, 1))
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)

    return of


def free(**axes):
    """Axes of the only input that are free, with the least and the most that they may be."""
    return (({int(axis[1:]): torch.export.Dim(axis, min=least, max=most) for axis, (least, most) in axes.items()},),)


CASES = {
    "convolution_backward": (gradient([True] * 3, ONES, ONES, ONES, 1), [(2, 6, 5, 4), (2, 3, 5, 4), (6, 3, 3, 3)]),
    "convolution_backward_grouped": (
        gradient([True] * 3, [2, 1], [1, 0], [1, 2], 2), [(1, 4, 4, 2), (1, 6, 7, 6), (4, 3, 3, 3)]),
    "convolution_backward_masked": (
        gradient([False, True, False], ONES, NONE, ONES, 1), [(1, 4, 3, 3), (1, 2, 5, 5), (4, 2, 3, 3)]),
    "max_pool_backward": (pooled([3, 2], [2, 1], [1, 0]), [(2, 3, 7, 6)]),
    "max_pool_backward_dilated": (pooled([2, 2], [2, 2], NONE, [2, 1], True), [(3, 8, 7)]),
}
DYNAMIC = {
    # PyTorch asks for two windows at least.
    "unfold_free": (windows, free(_1=(4, 8), _2=(6, 12)), [(2, 5, 7), (2, 8, 12), (2, 4, 6)]),
    "grid_sampler_free": (
        sampled("bilinear", "border", True), free(_0=(1, 3), _2=(2, 9), _3=(2, 8)), [(2, 3, 5, 6), (3, 3, 9, 8), (1, 3, 4, 3)]),
    "grid_sampler_free_nearest": (sampled("nearest", "zeros", False), free(_2=(2, 9)), [(1, 2, 5, 6), (1, 2, 9, 6)]),
    "grid_sampler_free_cubic": (sampled("bicubic", "reflection", False), free(_3=(2, 9)), [(1, 2, 5, 6), (1, 2, 5, 9)]),
}


@torch.no_grad()
def make(out, name, function, shapes, dims):
    """A case whose program is exported for the first inputs and run with all of them."""
    torch.manual_seed(42)
    inputs = [tuple(number(*shape) for shape in step) for step in shapes]
    program = torch.export.export(Op(function), inputs[0], dynamic_shapes=dims)
    pte = without_delegate(program)
    steps = []
    for given in inputs:
        given_back = runtime_outputs(pte, given)
        for mine, theirs in zip(tree_flatten(function(*given))[0], given_back, strict=True):
            if mine.shape != theirs.shape or not torch.allclose(mine, theirs, TOLERANCE, TOLERANCE):
                raise et_env.CaseError("eager and the runtime are apart")
        steps.append({"inputs": list(given), "outputs": given_back})
    meta = {"kind": "op", "source": "operators without a delegate", "atol": TOLERANCE, "rtol": TOLERANCE}
    et_env.write_case(out, name, meta, pte, None, steps)


def jobs():
    """Every case: its name, what it computes, the shapes of each step's inputs, and which axes are free."""
    for name, (function, shapes) in CASES.items():
        yield name, function, [shapes], None
    for name, (function, dims, sizes) in DYNAMIC.items():
        yield name, function, [[size] for size in sizes], dims


def main():
    torch.set_num_threads(1)
    make_all(__doc__, [(job[0], lambda out, job=job: make(out, *job)) for job in jobs()])


if __name__ == "__main__":
    main()
