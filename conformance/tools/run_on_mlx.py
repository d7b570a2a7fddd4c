"""Runs conformance cases on MLX itself: a second oracle beside PyTorch.

    run_on_mlx.py SET [--filter GLOB] [--wide] [--json]

SET is a folder of cases as ../README.md describes it. Of every program the
MLX delegate's payload is run node by node with mlx.core, the way ExecuTorch's own
interpreter does it, and the outputs are judged by the rules of that README. Where that
interpreter strays from PyTorch (LogSumExp over no axes, whole numbers by way of float32,
an item of another dtype than int32, empty tensors) this one follows PyTorch.

Prints one line a case, and the counts last:

    NAME: ok
    NAME: differs by ...        an output is not what the case expects
    NAME: MLX refuses: ...      MLX throws, and so would the delegate
    NAME: not run: ...          the program needs more than MLX and copies

MLX's CPU code computes some nodes on 16-bit floats in 16 bits: a bfloat16 sum over
quantised weights stops growing at 256. With --wide each node computes in float32 and
rounds its result once; what differs only without it differs by that rounding. With
--json each line is an object, where "used" is the largest share of the tolerance that
an element took. Exit status: 0 when no case failed, 1 when one did, 2 bad usage.

Needs the packages mlx (mlx-cpu will do), numpy, executorch and flatbuffers.
"""

import argparse
import contextlib
import fnmatch
import functools
import json
import math
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

import check_pte

INT32 = range(-(2**31), 2**31)
FLOATS_16 = (mx.float16, mx.bfloat16)
# ScalarType by its number in a payload and by its name in a program.
DTYPES = {
    (0, "BYTE"): mx.uint8,
    (1, "CHAR"): mx.int8,
    (2, "SHORT"): mx.int16,
    (3, "INT"): mx.int32,
    (4, "LONG"): mx.int64,
    (5, "HALF"): mx.float16,
    (6, "FLOAT"): mx.float32,
    (7, "DOUBLE"): mx.float64,
    (11, "BOOL"): mx.bool_,
    (15, "BFLOAT16"): mx.bfloat16,
    (27, "UINT16"): mx.uint16,
    (28, "UINT32"): mx.uint32,
    (29, "UINT64"): mx.uint64,
}
DTYPE = {key: dtype for keys, dtype in DTYPES.items() for key in keys}


class NotRun(Exception):
    """The case needs something that is not MLX."""


class Refused(ValueError):
    """MLX, or the delegate's interpreter, throws here."""


@contextlib.contextmanager
def refusals(where: str):
    """Turn what MLX throws into a refusal that names the node."""
    try:
        yield
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError) as error:
        raise Refused(f"{where}: {' '.join(str(error).split())}") from error


def require(condition, message: str) -> None:
    if not condition:
        raise Refused(message)


# Arrays


def from_bytes(data: bytes, shape: list[int], dtype) -> mx.array:
    """Stored data; what is missing at its end is zero."""
    size = math.prod(shape) * dtype.size
    if size == 0:
        return mx.zeros(shape, dtype)
    data = np.frombuffer(data[:size].ljust(size, b"\0"), np.uint8)
    return mx.array(data).view(dtype).reshape(shape)


def to_numpy(array: mx.array) -> np.ndarray:
    """Floats as float64, all else as it is."""
    if array.dtype in FLOATS_16:
        array = array.astype(mx.float32)
    floating = mx.issubdtype(array.dtype, mx.floating)
    return np.array(array).astype(np.float64) if floating else np.array(array)


def scalar(value, dtype) -> mx.array:
    """A number as a tensor; whole ones do not pass through float32."""
    whole = float(value).is_integer() and not mx.issubdtype(dtype, mx.floating)
    return mx.array(np.int64(value) if whole else np.float32(value)).astype(dtype)


def along(axis: int, index) -> tuple:
    """An index into one axis, counted from the front, of a whole tensor."""
    return (slice(None),) * axis + (index,)


def on_axis(axis: int, rank: int, values: mx.array) -> mx.array:
    """A line of values along one axis, to be broadcast over the others."""
    return values.reshape([values.size if a == axis else 1 for a in range(rank)])


def axis_of(n, x: mx.array) -> int:
    require(-x.ndim <= n.axis < x.ndim, f"axis {n.axis} of {x.ndim}")
    return n.axis % x.ndim


# Node kinds: each function takes a node's operands and returns the result.


def unary(function):
    return lambda n: function(n.x)


def binary(function):
    return lambda n: function(n.a, n.b)


def reduction(function):
    return lambda n: function(n.x, n.axes or None, keepdims=n.keepdims)


def deviation(function):
    return lambda n: function(n.x, n.axes or None, keepdims=n.keepdims, ddof=n.ddof)


def on_ints(function):
    """An operation on value slots, which hold 32 bits."""

    def run(n):
        result = function(n.a, n.b)
        require(result in INT32, f"{result} does not fit 32 bits")
        return result

    return run


def conv(function, rank, *settings):
    """A convolution; from rank 2 on each setting is one field an axis."""
    axes = ("_d", "_h", "_w")[-rank:] if rank > 1 else ("",)

    def run(n):
        sizes = [tuple(getattr(n, name + axis) for axis in axes) for name in settings]
        return function(n.x, n.w, *(s if rank > 1 else s[0] for s in sizes), n.groups)

    return run


def addmm(n):
    if n.bias is None:  # the delegate does not look at alpha then
        return mx.matmul(n.mat1, n.mat2)
    return mx.addmm(n.bias, n.mat1, n.mat2, n.alpha, n.beta)


def arange(n):
    require(n.step != 0, "step 0")
    dtype = mx.int32 if n.scalar_type is None else DTYPE[n.scalar_type]
    return mx.arange(n.start, n.stop, n.step, dtype)


def attend(q, k, v, scale, mask):
    if isinstance(mask, mx.array) and mask.dtype not in (mx.bool_, q.dtype):
        mask = mask.astype(q.dtype)
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)


def broadcast_to(n):
    x, shape = n.x, n.shape
    kept = [1] * (len(shape) - x.ndim) + list(x.shape)
    return mx.broadcast_to(x, [k if s == -1 else s for s, k in zip(shape, kept)])


def dequantize(n):
    dtype = None if n.dtype is None else DTYPE[n.dtype]
    form = (n.group_size, n.bits, n.mode, n.global_scale, dtype)
    return mx.dequantize(n.w, n.scales, n.biases, *form)


def floor_divide(n):
    a, b = n.a, n.b
    if mx.issubdtype(a.dtype, mx.inexact):
        return mx.floor_divide(a, b)
    # The delegate divides truly and takes one off below zero; a cast that follows
    # truncates this to the floor.
    below = (mx.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return mx.divide(a, b) - below.astype(a.dtype)


def full_like(n):
    dtype = n.x.dtype if n.scalar_type is None else DTYPE[n.scalar_type]
    return mx.full(n.x.shape, scalar(n.v, dtype))


def gather(n):
    """Slices of fixed size that begin at the indices, and at 0 on other axes."""
    x, starts, at = n.x, dict(zip(n.axes, n.indices)), []
    for axis, size in enumerate(n.slice_sizes):
        start = starts.get(axis, mx.array(0))
        start = start.reshape(*start.shape, *[1] * x.ndim)
        at.append(start + on_axis(axis, x.ndim, mx.arange(size)))
    return x[tuple(at)]


def sorted_flag(n) -> dict:
    flag = n.sorted_indices if n.sorted_indices_flag is None else n.sorted_indices_flag
    return {"sorted_indices": bool(flag)}


def gather_mm(n):
    """MLX's CPU code has this in float32 only."""
    a, b, dtype = n.a.astype(mx.float32), n.b.astype(mx.float32), mx.result_type(n.a, n.b)
    return mx.gather_mm(a, b, n.lhs_indices, n.rhs_indices, **sorted_flag(n)).astype(dtype)


def gather_qmm(n):
    picks = (n.lhs_indices, n.rhs_indices)
    form = (n.transpose, n.group_size, n.bits, n.mode)
    return mx.gather_qmm(n.x, n.w, n.scales, n.biases, *picks, *form, **sorted_flag(n))


def gelu(n):
    x, constant = n.x, lambda value: mx.array(value, n.x.dtype)
    if n.approximate == "tanh":
        inner = x + constant(0.044715) * (x * (x * x))
        curve = mx.tanh(constant(math.sqrt(2 / math.pi)) * inner)
    else:
        curve = mx.erf(constant(math.sqrt(0.5)) * x)
    return constant(0.5) * (x * (constant(1) + curve))


def if_(n):
    n.delegate.run_chain(n.then_chain_idx if n.cond else n.else_chain_idx)


def index_copy(n):
    out, axis, index = mx.array(n.dst), axis_of(n, n.dst), n.indices
    require(index.ndim == 1 and index.dtype == mx.int64, "indices are not 1-D int64")
    size = out.shape[axis]
    for i, at in enumerate(index.tolist()):
        require(-size <= at < size, f"index {at} of {size}")
        row = n.update[along(axis, slice(i, i + 1))]
        out[along(axis, slice(at % size, at % size + 1))] = row.astype(out.dtype)
    return out


def metal_kernel(n):
    if n.name not in KERNELS:
        raise NotRun(f"Metal kernel {n.name}")
    sizes = iter(n.output_shapes_flat)
    shapes = [[next(sizes) for _ in range(rank)] for rank in n.output_shape_lengths]
    dtypes = [DTYPE[dtype] for dtype in n.output_dtypes]
    results = KERNELS[n.name](*n.inputs)
    return [r.reshape(s).astype(d) for r, s, d in zip(results, shapes, dtypes)]


def pad(n):
    require(n.mode in ("constant", "edge"), f"mode {n.mode!r}")
    pairs = list(zip(n.pad_width[::2], n.pad_width[1::2]))
    return mx.pad(n.x, pairs, n.mode, mx.array(n.constant_value))


def quantized_matmul(n):
    form = (n.transpose, n.group_size, n.bits, n.mode)
    return mx.quantized_matmul(n.x, n.w, n.scales, n.biases, *form)


def random_bits(n):
    """Bits of MLX's generator, which Python sees only as split keys: pairs of words."""
    shape, seed = n.shape, n.seed
    seed = mx.random.randint(0, INT32[-1]).item() if seed is None else seed
    size, dtype = math.prod(shape), {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[n.width]
    pairs = mx.random.split(mx.random.key(seed % 2**64), size * n.width // 8 + 1)
    return pairs.flatten().view(dtype)[:size].reshape(shape)


def rope(n):
    form = {"traditional": n.traditional, "scale": n.scale, "offset": n.offset}
    if n.freqs is None:
        return mx.fast.rope(n.x, n.dims, base=n.base, **form)
    return mx.fast.rope(n.x, n.dims, base=None, freqs=n.freqs, **form)


def scan(n):
    axis, originals, steps = n.scan_axis, n.originals, []
    for t in range(originals[0].shape[axis]):
        n.delegate.write(n.slots("sliced"), [mx.take(x, t, axis) for x in originals])
        n.delegate.run_chain(n.body_chain_idx)
        steps.append(n.outputs)
    return [mx.stack(step, axis) for step in zip(*steps)]


def scatter_add(n):
    x, index, axis = n.x, n.indices, axis_of(n, n.x)
    shape = mx.broadcast_shapes(index.shape, n.updates.shape)
    at = [on_axis(a, x.ndim, mx.arange(size)) for a, size in enumerate(shape)]
    at[axis] = index
    return x.at[tuple(at)].add(mx.broadcast_to(n.updates.astype(x.dtype), shape))


def sdpa(n):
    require(not n.causal or n.mask is None, "causal together with a mask")
    return attend(n.q, n.k, n.v, n.scale, "causal" if n.causal else n.mask)


def slice_(n):
    require(n.step != 0, "step 0")
    return n.x[along(axis_of(n, n.x), slice(n.start, n.stop, n.step))]


def slice_update(n):
    require(n.step >= 1, f"step {n.step}")
    out, axis = mx.array(n.dst), axis_of(n, n.dst)
    start, stop, _ = slice(n.start, n.stop).indices(out.shape[axis])
    if start < stop:
        out[along(axis, slice(start, stop, n.step))] = n.update.astype(out.dtype)
    return out


def split(n):
    x, sizes, axis = n.x, n.sizes, axis_of(n, n.x)
    if len(sizes) == 1:
        require(sizes[0] > 0, f"pieces of {sizes[0]}")
        return mx.split(x, list(range(sizes[0], x.shape[axis], sizes[0])), axis)
    return mx.split(x, np.cumsum(sizes[:-1]).tolist(), axis)


def squeeze(n):
    if not n.dims:
        return mx.squeeze(n.x)
    return mx.squeeze(n.x, [axis for axis in n.dims if n.x.shape[axis] == 1])


def take(n):
    index, axis = n.index, axis_of(n, n.x)
    if not isinstance(index, mx.array):
        size = n.x.shape[axis]
        require(-size <= index < size, f"index {index} of {size}")
        index %= size
    return mx.take(n.x, index, axis)


def update_and_attend(n):
    q, position, cache = n.q, int(n.position.flatten()[0].item()), n.delegate.cache
    require(cache is not None, "no cache installed")
    k, v, mask = cache.update(n.layer_id, position, n.k, n.v)
    out = attend(q, k.astype(q.dtype), v.astype(q.dtype), n.scale, mask)
    return out if n.out_dtype is None else out.astype(DTYPE[n.out_dtype])


def named(make, names: str) -> dict:
    """Node kinds whose name in lower case is the name of the MLX function."""
    return {name: make(getattr(mx, name.lower())) for name in names.split()}


CONV = ("stride", "padding", "dilation")

NODES = {
    **named(unary, "Abs Arccos Arccosh Arcsin Arcsinh Arctan Arctanh Ceil Contiguous"),
    **named(unary, "Cos Cosh Erf Exp Expm1 Floor Log Log10 Log1p Log2 Reciprocal"),
    **named(unary, "Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh Trunc"),
    **named(binary, "Add Divide Equal Greater Less LogAddExp Maximum Minimum Multiply"),
    **named(binary, "Power Remainder Subtract"),
    **named(reduction, "All Any LogSumExp Max Mean Median Min Prod Sum"),
    **named(deviation, "Std Var"),
    "AddInt": on_ints(lambda a, b: a + b),
    "Addmm": addmm,
    "ARange": arange,
    "ArgPartition": lambda n: mx.argpartition(n.x, n.kth, n.axis),
    "Argmax": lambda n: mx.argmax(n.x, n.axis, keepdims=n.keepdims),
    "Argmin": lambda n: mx.argmin(n.x, n.axis, keepdims=n.keepdims),
    "Argsort": lambda n: mx.argsort(n.x, n.axis),
    "AsStrided": lambda n: mx.as_strided(n.x, n.shape, n.strides, n.offset),
    "AsType": lambda n: n.x.astype(DTYPE[n.scalar_type]),
    "Atan2": binary(mx.arctan2),
    "BitwiseAnd": binary(mx.bitwise_and),
    "BitwiseInvert": unary(mx.bitwise_invert),
    "BitwiseOr": binary(mx.bitwise_or),
    "BitwiseXor": binary(mx.bitwise_xor),
    "BroadcastTo": broadcast_to,
    "Clip": lambda n: mx.clip(n.x, n.a_min, n.a_max),
    "Concatenate": lambda n: mx.concatenate(n.tensors, n.axis),
    "Conv1D": conv(mx.conv1d, 1, *CONV),
    "Conv2D": conv(mx.conv2d, 2, *CONV),
    "Conv3D": conv(mx.conv3d, 3, *CONV),
    "ConvTranspose1D": conv(mx.conv_transpose1d, 1, *CONV, "output_padding"),
    "ConvTranspose2D": conv(mx.conv_transpose2d, 2, *CONV, "output_padding"),
    "ConvTranspose3D": conv(mx.conv_transpose3d, 3, *CONV, "output_padding"),
    "Cumsum": lambda n: mx.cumsum(n.x, n.axis, reverse=n.reverse, inclusive=n.inclusive),
    "Dequantize": dequantize,
    "ExpandDims": lambda n: mx.expand_dims(n.x, n.axis),
    "Flip": lambda n: mx.flip(n.x, n.axes),
    "FloorDivide": floor_divide,
    "FloorDivideInt": on_ints(lambda a, b: a // b),
    "Full": lambda n: mx.full(n.shape, scalar(n.v, DTYPE[n.scalar_type])),
    "FullLike": full_like,
    "Gather": gather,
    "GatherMm": gather_mm,
    "GatherQmm": gather_qmm,
    "Gelu": gelu,
    "GreaterEqual": binary(mx.greater_equal),
    "IdCopy": lambda n: n.x,
    "If": if_,
    "IndexCopy": index_copy,
    "ItemInt": lambda n: int(n.x.item()),
    "LayerNorm": lambda n: mx.fast.layer_norm(n.x, n.weight, n.bias, n.eps),
    "LessEqual": binary(mx.less_equal),
    "LogicalAnd": binary(mx.logical_and),
    "LogicalNot": unary(mx.logical_not),
    "LogicalOr": binary(mx.logical_or),
    "MetalKernel": metal_kernel,
    "ModInt": on_ints(lambda a, b: a % b),
    "MultiplyInt": on_ints(lambda a, b: a * b),
    "Neg": unary(mx.negative),
    "Noop": lambda n: None,
    "NotEqual": binary(mx.not_equal),
    "Pad": pad,
    "Partition": lambda n: mx.partition(n.x, n.kth, n.axis),
    "QuantizedMatmul": quantized_matmul,
    "RMSNorm": lambda n: mx.fast.rms_norm(n.x, n.weight, n.eps),
    "RandomBits": random_bits,
    "Repeat": lambda n: mx.repeat(n.x, n.repeats, n.axis),
    "Reshape": lambda n: mx.reshape(n.x, n.shape),
    "Roll": lambda n: mx.roll(n.x, n.shift, n.axes),
    "Rope": rope,
    "Round": lambda n: mx.round(n.x, n.decimals),
    "Scan": scan,
    "ScatterAdd": scatter_add,
    "Sdpa": sdpa,
    "Silu": lambda n: n.x * mx.sigmoid(n.x),
    "Slice": slice_,
    "SliceUpdate": slice_update,
    "Softmax": lambda n: mx.softmax(n.x, n.axis, precise=n.precise),
    "Sort": lambda n: mx.sort(n.x, n.axis),
    "Split": split,
    "Squeeze": squeeze,
    "Stack": lambda n: mx.stack(n.tensors, n.axis),
    "SubtractInt": on_ints(lambda a, b: a - b),
    "SymSize": lambda n: n.a.shape[n.dim],
    "Take": take,
    "TakeAlongAxis": lambda n: mx.take_along_axis(n.x, n.indices, n.axis),
    "Tile": lambda n: mx.tile(n.x, n.reps),
    "Transpose": lambda n: mx.transpose(n.x, n.perm),
    "Tri": lambda n: mx.tri(n.n, n.m, n.k, DTYPE[n.scalar_type]),
    "Tril": lambda n: mx.tril(n.x, n.k),
    "Triu": lambda n: mx.triu(n.x, n.k),
    "UpdateAndAttend": update_and_attend,
    "Where": lambda n: mx.where(n.condition, n.x, n.y),
}
# Nodes with effects of their own; --wide leaves them alone.
EFFECTS = {"If", "MetalKernel", "RandomBits", "Scan", "UpdateAndAttend"}


# The Metal kernels that the exporter writes, by their names


def gated_delta_step(*inputs):
    q, k, v, g, beta, state = (x.astype(mx.float32) for x in inputs[:6])
    heads = v.shape[2] // k.shape[2]
    q, k, ys = mx.repeat(q, heads, 2), mx.repeat(k, heads, 2), []
    for t in range(q.shape[1]):
        key = k[:, t, :, None, :]
        state = state * g[:, t, :, None, None]
        delta = (v[:, t] - (state * key).sum(-1)) * beta[:, t, :, None]
        state = state + delta[..., None] * key
        ys.append((state * q[:, t, :, None, :]).sum(-1))
    return mx.stack(ys, 1), state


def tq_norm(x):
    return [mx.sqrt(mx.square(x.astype(mx.float32)).sum(-1))]


def tq4_compress(values, boundaries):
    above = values.astype(mx.float32)[..., None] > boundaries.astype(mx.float32)
    codes = above.sum(-1).astype(mx.uint8)
    return [codes[..., 0::2] * 16 + codes[..., 1::2]]


def tq_dequant(packed, norms, centroids):
    codes = mx.stack([packed >> 4, packed & 15], -1).flatten(-2)
    return [mx.take(centroids, codes).astype(norms.dtype) * norms]


def halves(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view(np.float16).astype(np.float32)


def q45_k(high_bits: bool, blocks: np.ndarray) -> np.ndarray:
    """Q4_K and Q5_K: eight groups of 32, each with a 6-bit scale and minimum."""
    scale, least = halves(blocks[..., 0:2]), halves(blocks[..., 2:4])
    a, b, c = (blocks[..., i : i + 4] for i in (4, 8, 12))
    scales = scale * np.concatenate([a & 63, c & 15 | a >> 6 << 4], -1)
    minima = least * np.concatenate([b & 63, c >> 4 | b >> 6 << 4], -1)
    nibbles = blocks[..., -128:].reshape(*blocks.shape[:-1], 4, 1, 32)
    codes = np.concatenate([nibbles & 15, nibbles >> 4], -2)
    codes = codes.reshape(*blocks.shape[:-1], 8, 32)
    if high_bits:
        group = np.arange(8, dtype=np.uint8)[:, None]
        codes = codes | (blocks[..., None, 16:48] >> group & 1) << 4
    return scales[..., None] * codes - minima[..., None]


def q6_k(blocks: np.ndarray) -> np.ndarray:
    """Q6_K: two halves of four rows of 32, and a scale for every 16."""
    lead = blocks.shape[:-1]
    low = blocks[..., :128].reshape(*lead, 2, 1, 2, 32)
    low = np.concatenate([low & 15, low >> 4], -3).reshape(*lead, 2, 4, 32)
    high = blocks[..., 128:192].reshape(*lead, 2, 1, 32)
    high = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = (low | high << 4).reshape(*lead, 16, 16).astype(np.float32) - 32
    scales = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    return (halves(blocks[..., 208:]) * scales)[..., None] * codes


def gguf_rows(size: int, values, weight) -> mx.array:
    rows = np.array(weight)
    return mx.array(values(rows.reshape(len(rows), -1, size)).reshape(len(rows), -1))


def gguf_linear(size, values, x, weight, bias=None):
    out = x.astype(mx.float32) @ gguf_rows(size, values, weight).T
    return [out if bias is None else out + bias]


def gguf_embedding(size, values, weight, indices):
    return [gguf_rows(size, values, mx.take(weight, indices.flatten(), 0))]


def gguf_kernels(name: str, *form) -> dict:
    linear = functools.partial(gguf_linear, *form)
    embedding = functools.partial(gguf_embedding, *form)
    kernels = {"matvec": linear, "matmul": linear, "embedding": embedding}
    return {f"gguf_{name}_{use}": kernel for use, kernel in kernels.items()}


KERNELS = {
    "gated_delta_step": gated_delta_step,
    "tq_norm": tq_norm,
    "tq4_compress": tq4_compress,
    "tq_dequant": tq_dequant,
    **gguf_kernels("q4k", 144, functools.partial(q45_k, False)),
    **gguf_kernels("q5k", 176, functools.partial(q45_k, True)),
    **gguf_kernels("q6k", 210, q6_k),
}


# Running


class KvCache:
    """The off-graph cache: all keys and values so far of each layer, [1, H, S, D].

    ExecuTorch's ring layers keep only a window; these keep all and read no more than
    the window, which is the same to a program.
    """

    def __init__(self, capacity: int, windows=(), dtype=None):
        self.capacity, self.windows, self.dtype = capacity, windows, dtype
        self.layers = {}

    def update(self, layer: int, position: int, *new):
        """The keys, values and mask that the new tokens attend with."""
        require(layer is not None, "no layer_id")
        count = new[0].shape[2]
        fits = position + count <= self.capacity
        require(fits, f"position {position} + {count} exceeds {self.capacity}")
        new = [x.astype(self.dtype or x.dtype) for x in new]
        kept = self.layers.get(layer, [x[:, :, :0] for x in new])
        gap = [(0, 0), (0, 0), (0, max(0, position - kept[0].shape[2])), (0, 0)]
        kept = [mx.pad(x, gap)[:, :, :position] for x in kept]
        self.layers[layer] = [mx.concatenate(pair, 2) for pair in zip(kept, new)]
        window = self.windows[layer] if layer < len(self.windows) else 0
        oldest = max(0, position - window + 1) if window else 0
        k, v = (x[:, :, oldest:] for x in self.layers[layer])
        return k, v, self.mask(count, k.shape[2], window)

    @staticmethod
    def mask(queries: int, keys: int, window: int):
        if queries == 1:
            return None
        if not 0 < window < keys:
            return "causal"
        back = mx.arange(keys - queries, keys)[:, None] - mx.arange(keys)
        return (back >= 0) & (back < window)


class Operands:
    """A node's fields by their names in the schema, with the slots read."""

    def __init__(self, node: dict, delegate):
        self.node, self.delegate = node, delegate

    def slots(self, name: str):
        return self.node["".join(part[0].upper() + part[1:] for part in name.split("_"))]

    def __getattr__(self, name: str):
        return self.delegate.read(self.slots(name))


class WideOperands(Operands):
    """The same with 16-bit floats as float32."""

    def __getattr__(self, name: str):
        return each(widened, super().__getattr__(name))


def each(function, value):
    return [function(item) for item in value] if isinstance(value, list) else function(value)


def widened(value):
    short = isinstance(value, mx.array) and value.dtype in FLOATS_16
    return value.astype(mx.float32) if short else value


class Delegate:
    """One payload with its state."""

    def __init__(self, graph: dict, named_data: dict, cache: KvCache | None, wide: bool):
        self.graph, self.cache, self.wide = graph, cache, wide
        self.tensors, self.values = {}, {}
        names = {
            entry["Slot"]["Idx"]: entry["Name"]
            for entry in graph["NamedSlots"]
            if entry["Slot"]["SlotType"] == 0
        }
        constants = range(graph["NumConstantTensors"])
        first = len(constants) + graph["NumInputTensors"] + graph["NumOutputTensors"]
        buffers = range(first, first + graph["NumMutableBufferTensors"])
        self.lasting = [*constants, *buffers]
        for tid in self.lasting:
            meta = graph["TensorMeta"][tid]
            shape = [dim["Value"] for dim in meta["Shape"]]
            data = b"" if tid in buffers else named_data[names[tid]]
            self.tensors[tid] = from_bytes(data, shape, DTYPE[meta["ScalarType"]])
        if graph["InitChainIdx"] >= 0:
            self.run_chain(graph["InitChainIdx"])

    def call(self, inputs: list) -> list:
        self.values, self.tensors = {}, {tid: self.tensors[tid] for tid in self.lasting}
        for slot, value in zip(self.graph["InputMap"], inputs):
            self.space(slot)[slot["Idx"]] = value
        self.run_chain(self.graph["MainChainIdx"])
        outputs = [self.space(slot)[slot["Idx"]] for slot in self.graph["OutputMap"]]
        with refusals("eval"):
            mx.eval(outputs, [self.tensors[tid] for tid in self.lasting])
        return outputs

    def space(self, slot: dict) -> dict:
        return self.values if slot["SlotType"] else self.tensors

    def run_chain(self, index: int) -> None:
        for instruction in self.graph["InstructionChains"][index]["Instructions"]:
            node = instruction["Op"]
            kind = node["_"].removesuffix("Node")
            if kind not in NODES:
                raise NotRun(f"node kind {kind}")
            with refusals(kind):
                result = self.compute(kind, node)
                for name in {"Out", "Outs", "Outputs"} & node.keys():
                    self.write(node[name], result)

    def compute(self, kind: str, node: dict):
        result = NODES[kind](Operands(node, self))
        if not self.wide or kind in EFFECTS:
            return result
        wide = NODES[kind](WideOperands(node, self))
        # The first result is never evaluated; it only tells the dtypes.
        if isinstance(result, list):
            return [w.astype(r.dtype) for w, r in zip(wide, result)]
        return wide.astype(result.dtype) if isinstance(result, mx.array) else wide

    def read(self, field):
        """A field's value; whatever names a slot gives what the slot holds."""
        if isinstance(field, list):
            return [self.read(item) for item in field]
        if not isinstance(field, dict):
            return field
        kind = field["_"]
        if kind in ("Tid", "Vid"):
            slots = self.tensors if kind == "Tid" else self.values
            require(field["Idx"] in slots, f"{kind} {field['Idx']} is not set")
            return slots[field["Idx"]]
        if kind == "IntOrVidOrTid":
            return self.read(field[("Literal", "Vid", "Tid")[field["Kind"]]])
        if field["IsVid"]:
            return self.read(field["Vid"])
        if kind == "IntOrVid":
            return min(max(field["Literal"], INT32[0]), INT32[-1])
        return self.read(field["Tid" if kind == "VidOrTid" else "Literal"])

    def write(self, slot, value) -> None:
        if isinstance(slot, list):
            require(len(slot) == len(value), f"{len(value)} results for {len(slot)}")
            for one, result in zip(slot, value):
                self.write(one, result)
        elif slot["_"] == "Tid":
            self.tensors[slot["Idx"]] = value
        else:
            self.values[slot["Idx"]] = value


class Program:
    """A .pte file and what its methods keep between calls."""

    def __init__(self, path: Path, readers, cache: dict | None, wide: bool):
        self.file, self.wide = check_pte.read_file(path, *readers), wide
        self.values, self.delegates, self.cache = {}, {}, None
        if cache:
            self.cache = KvCache(cache["capacity"], dtype=getattr(mx, cache["dtype"]))
        elif "get_windows" in self.file["methods"]:
            (capacity,), (windows,) = self.run("get_max_ctx_len", []), self.run("get_windows", [])
            self.cache = KvCache(capacity, windows.tolist())

    def run(self, method: str, inputs: list) -> list:
        plan = self.file["methods"][method]
        if method not in self.values:
            self.values[method] = [self.initial(value["val"]) for value in plan["values"]]
        values = self.values[method]
        for index, value in zip(plan["inputs"], inputs, strict=True):
            values[index] = value
        for chain in plan["chains"]:
            for instruction in chain["instructions"]:
                self.step(plan, values, instruction["instr_args"])
        return [values[index] for index in plan["outputs"]]

    def step(self, plan: dict, values: list, call: dict) -> None:
        kind = call["_"]
        if kind == "DelegateCall":
            delegate = self.delegate(plan, call["delegate_index"])
            count = len(delegate.graph["InputMap"])
            results = delegate.call([values[i] for i in call["args"][:count]])
            for index, result in zip(call["args"][count:], results, strict=True):
                values[index] = self.cast(result, plan["values"][index]["val"])
        elif kind == "MoveCall":
            values[call["move_to"]] = values[call["move_from"]]
        elif kind == "KernelCall":
            operator = plan["operators"][call["op_index"]]["name"]
            if operator != "aten::copy_":
                raise NotRun(f"portable operator {operator}")
            values[call["args"][0]] = values[call["args"][1]]
        elif kind != "FreeCall":
            raise NotRun(f"instruction {kind}")

    def delegate(self, plan: dict, index: int) -> Delegate:
        backend, where = plan["delegates"][index]["id"], f"{plan['name']} delegate {index}"
        if backend != check_pte.MLX_BACKEND:
            raise NotRun(f"backend {backend}")
        if where not in self.delegates:
            graph = self.file["payloads"][where]["graph"]
            state = (self.file["named_data"], self.cache, self.wide)
            self.delegates[where] = Delegate(graph, *state)
        return self.delegates[where]

    @staticmethod
    def cast(result, value: dict):
        """What the delegate's boundary does: outputs take the program's dtype."""
        tensor = value["_"] == "Tensor"
        return result.astype(DTYPE[value["scalar_type"]]) if tensor else result

    def initial(self, value: dict):
        if value["_"] != "Tensor":
            numbers = ("int_val", "bool_val", "double_val")
            return next((value[name] for name in numbers if name in value), None)
        data, index = b"", value["data_buffer_idx"]
        if index:
            planned = value["allocation_info"] is not None
            data = self.file["mutable_data" if planned else "constants"][index]
        return from_bytes(data, value["sizes"], DTYPE[value["scalar_type"]])


# Judging: each rule gives what is wrong, or None, and the share of the tolerance used.


def close(atol: float, rtol: float, got, want):
    if not np.issubdtype(want.dtype, np.floating):
        atol, rtol = 0, 0
    equal = (got == want) | ((got != got) & (want != want))
    finite = np.isfinite(got) & np.isfinite(want)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        limit = atol + rtol * np.abs(want.astype(np.float64))
        share = np.where(equal, 0, np.where(finite, error / limit, math.inf))
    used = float(share.max(initial=0))
    if used <= 1:
        return None, used
    at = np.unravel_index(np.argmax(share), share.shape)
    where = f"in {np.count_nonzero(share > 1)} of {share.size} elements"
    return f"{error[at]:.3g} ({limit[at]:.3g} allowed) {where}: {got[at]} for {want[at]}", used


def one_of(allowed, got, want):
    inside = (got >= 0) & (got < allowed.shape[-1])
    picks = np.where(inside, got, 0).astype(np.int64)[..., None]
    right = np.take_along_axis(allowed, picks, -1)[..., 0] & inside
    wrong = np.count_nonzero(~right)
    return f"{wrong} of {got.size} draws from outside the set" if wrong else None, float(wrong)


def judge(rule, got, want):
    if isinstance(got, mx.array) != isinstance(want, mx.array):
        return f"kind: {type(got).__name__} for {type(want).__name__}", math.inf
    got, want = mx.array(got), mx.array(want)
    for what in ("dtype", "shape"):
        if getattr(got, what) != getattr(want, what):
            return f"{what}: {getattr(got, what)} for {getattr(want, what)}", math.inf
    return rule(to_numpy(got), to_numpy(want))


def run_case(folder: Path, readers, wide: bool) -> dict:
    case = json.loads((folder / "case.json").read_text())
    if not (folder / "model.pte").exists():
        raise NotRun("no program")
    program = Program(folder / "model.pte", readers, case.get("kv_cache"), wide)
    tensors = mx.load(str(folder / "io.safetensors"))
    most, before = 0.0, []
    for s, step in enumerate(case["steps"]):
        tolerance = (case["atol"], case["rtol"]) if step["rule"] == "close" else (0, 0)
        outputs = program.run(step["method"], stored(step["inputs"], tensors, f"{s}.in"))
        wanted = stored(step["outputs"], tensors, f"{s}.out")
        if step["rule"] == "repeat":
            wanted = before
        if len(outputs) != len(wanted):
            return failed(f"number of outputs: {len(outputs)} for {len(wanted)}", math.inf)
        for j, (got, want) in enumerate(zip(outputs, wanted)):
            rule = functools.partial(close, *tolerance)
            if step["rule"] == "one_of":
                rule = functools.partial(one_of, np.array(tensors[f"{s}.allowed.{j}"]))
            problem, used = judge(rule, got, want)
            most = max(most, used)
            if problem:
                return failed(f"{problem} (step {s}, output {j})", most)
        before = outputs
    return {"status": "ok", "used": most}


def stored(entries: list, tensors: dict, prefix: str) -> list:
    """Inputs or outputs of a step: tensors by position, numbers as they are."""
    values = []
    for j, entry in enumerate(entries):
        ((kind, value),) = [("tensor", None)] if entry == "tensor" else entry.items()
        value = tensors[f"{prefix}.{j}"] if kind == "tensor" else value
        values.append(float(value) if kind == "float" else value)
    return values


def failed(reason: str, used: float) -> dict:
    used = used if math.isfinite(used) else None
    return {"status": "differs", "reason": f"differs by {reason}", "used": used}


def outcome(folder: Path, readers, wide: bool) -> dict:
    try:
        return run_case(folder, readers, wide)
    except NotRun as error:
        return {"status": "not run", "reason": f"not run: {error}"}
    except (Refused, check_pte.Rejected) as error:
        return {"status": "refuses", "reason": f"MLX refuses: {error}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", type=Path, metavar="SET")
    parser.add_argument("--filter", default="*", metavar="GLOB")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    reader, package = check_pte.load_bindings()
    readers = (reader, check_pte.MlxReader(package))
    folders = sorted(path.parent for path in args.set.glob("*/case.json"))
    folders = [path for path in folders if fnmatch.fnmatch(path.name, args.filter)]
    if not folders:
        parser.error(f"no cases {args.filter!r} in {args.set}")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for folder in folders:
        result = outcome(folder, readers, args.wide)
        counts[{"ok": "passed", "not run": "skipped"}.get(result["status"], "failed")] += 1
        line = f"{folder.name}: {result.get('reason', 'ok')}"
        print(json.dumps({"case": folder.name, **result}) if args.json else line, flush=True)
    line = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(json.dumps(counts) if args.json else line)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
