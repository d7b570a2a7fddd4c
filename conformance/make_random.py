"""Random typed graphs, exported through ExecuTorch and judged by PyTorch.

    make_random.py OUT [--count N] [--seed S] [--depth D]

Each case is a module that applies up to D operators, drawn from the table below
with random shapes, dtypes and attributes, to its inputs and to each other's
results; every result is an output. One case in three has a dynamic first axis
and is run at two sizes. The tolerance is what PyTorch's own rounding does: the
distance to the same graph in the next better precision, with a floor. Graphs
that are ill-conditioned, that PyTorch refuses or that ExecuTorch cannot lower
are drawn again.
"""

import et_env  # first: stand-ins and silence

import argparse
import random
import re
from pathlib import Path

import torch
import torch.nn.functional as F

import model_kit

FLOATS = (torch.float32, torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.int32, torch.int64, torch.int8, torch.uint8)
FLOOR = {torch.float32: 2e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
CEILING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}


def is_float(x):
    return x.is_floating_point()


class Draw:
    """Random choices that an operator needs to make of its operand."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def axis(self, x):
        return self.rng.randrange(-x.dim(), x.dim())

    def axes(self, x):
        chosen = self.rng.sample(range(x.dim()), self.rng.randint(1, x.dim()))
        return [a - x.dim() if self.rng.random() < 0.3 else a for a in chosen]

    def flag(self):
        return self.rng.random() < 0.5

    def scalar(self, x):
        if is_float(x):
            return round(self.rng.uniform(-2, 2), 2)
        return self.rng.randint(1, 5)


def partner(draw, x, pool):
    """A second operand that broadcasts with the first."""
    shape = [s if draw.rng.random() < 0.7 else 1 for s in x.shape]
    shape = shape[draw.rng.randint(0, len(shape)) if draw.flag() else 0 :]
    return pool.constant(shape, x.dtype)


# Each entry: name -> (accepts, make). `make` draws attributes once and returns a
# function of the operand; constants that it needs come from the pool, which
# registers them as buffers of the module.
def simple(function, accepts=is_float):
    return accepts, lambda d, x, pool: function


def scalar_op(function, accepts=lambda x: x.dtype != torch.bool):
    def make(d, x, pool):
        s = d.scalar(x)
        return lambda x: function(x, s)

    return accepts, make


def binary(function, accepts=lambda x: x.dtype != torch.bool):
    def make(d, x, pool):
        y = partner(d, x, pool)
        return lambda x: function(x, y())

    return accepts, make


def reduction(function, accepts=is_float):
    def make(d, x, pool):
        axes, keep = d.axes(x), d.flag()
        return lambda x: function(x, axes, keep)

    return accepts, make


def along(function, accepts=is_float):
    def make(d, x, pool):
        axis = d.axis(x)
        return lambda x: function(x, axis)

    return accepts, make


def make_slice(d, x, pool):
    axis = d.axis(x)
    size = x.shape[axis]
    start = d.rng.randint(-size, size - 1)
    stop = d.rng.choice([d.rng.randint(-size, size), 2**40])
    step = d.rng.randint(1, 3)
    index = [slice(None)] * x.dim()
    index[axis] = slice(start, stop, step)
    return lambda x: x[tuple(index)].clone()


def make_permute(d, x, pool):
    order = d.rng.sample(range(x.dim()), x.dim())
    return lambda x: x.permute(order)


def make_pad(d, x, pool):
    n = d.rng.randint(1, x.dim())
    widths = [d.rng.randint(0, 3) for _ in range(2 * n)]
    value = d.scalar(x)
    return lambda x: F.pad(x, widths, value=value)


def make_linear(d, x, pool):
    out, k = d.rng.randint(1, 9), x.shape[-1]
    weight = pool.constant([out, k], x.dtype)
    bias = pool.constant([out], x.dtype) if d.flag() else (lambda: None)
    return lambda x: F.linear(x, weight(), bias())


def make_layer_norm(d, x, pool):
    weight = pool.constant([x.shape[-1]], x.dtype) if d.flag() else (lambda: None)
    bias = pool.constant([x.shape[-1]], x.dtype) if d.flag() else (lambda: None)
    return lambda x: F.layer_norm(x, [x.shape[-1]], weight(), bias(), 1e-5)


def make_conv(d, x, pool):
    groups = d.rng.choice([g for g in (1, 2, 3) if x.shape[1] % g == 0])
    n = x.dim() - 2
    out = groups * d.rng.randint(1, 3)
    kernel = [d.rng.randint(1, min(3, s)) for s in x.shape[2:]]
    weight = pool.constant([out, x.shape[1] // groups, *kernel], x.dtype)
    stride, padding = d.rng.randint(1, 2), d.rng.randint(0, 2)
    function = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return lambda x: function(x, weight(), None, stride, padding, 1, groups)


def make_index_select(d, x, pool):
    axis = d.axis(x)
    index = pool.integers([d.rng.randint(1, 5)], x.shape[axis])
    return lambda x: x.index_select(axis, index())


def make_gather(d, x, pool):
    axis = d.axis(x)
    shape = list(x.shape)
    shape[axis] = d.rng.randint(1, 4)
    index = pool.integers(shape, x.shape[axis])
    return lambda x: x.gather(axis, index())


def make_scatter_add(d, x, pool):
    axis = d.axis(x)
    shape = [d.rng.randint(1, s) for s in x.shape]
    index = pool.integers(shape, x.shape[axis])
    source = pool.constant(shape, x.dtype)
    return lambda x: x.scatter_add(axis, index(), source())


def make_reshape(d, x, pool):
    shape = list(x.shape)
    at = d.rng.randrange(len(shape))
    if d.flag() and len(shape) > 1:
        at = min(at, len(shape) - 2)
        shape[at : at + 2] = [-1]
    else:
        shape[at : at + 1] = [-1, 1]
    return lambda x: x.reshape(shape)


def make_where(d, x, pool):
    y, bound = partner(d, x, pool), d.scalar(x)
    return lambda x: torch.where(pool.mask(x, bound), x, y())


def make_clamp(d, x, pool):
    low, high = sorted((d.scalar(x), d.scalar(x)))
    return lambda x: x.clamp(low, high)


def make_cast(d, x, pool):
    to = d.rng.choice((torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64))
    return lambda x: x.to(to)


def make_split(d, x, pool):
    axis = d.axis(x)
    piece = d.rng.randint(1, x.shape[axis])
    at = d.rng.randrange((x.shape[axis] + piece - 1) // piece)
    return lambda x: x.split(piece, axis)[at].clone()


def make_roll(d, x, pool):
    axis, shift = d.axis(x), d.rng.randint(-4, 4)
    return lambda x: x.roll(shift, axis)


def make_sdpa(d, x, pool):
    keys = d.rng.randint(1, 6)
    heads = d.rng.choice([h for h in (1, x.shape[1]) if x.shape[1] % h == 0])
    k = pool.constant([x.shape[0], heads, keys, x.shape[3]], x.dtype)
    v = pool.constant([x.shape[0], heads, keys, x.shape[3]], x.dtype)
    return lambda x: F.scaled_dot_product_attention(x, k(), v(), enable_gqa=True)


def number(x):
    return x.dtype != torch.bool


def wide(x):
    """Integers whose PyTorch dtype the delegate keeps when it sums."""
    return x.dtype in (torch.int32, torch.int64) or is_float(x)


OPERATORS = {
    **{
        name: simple(getattr(torch, name))
        for name in "sin cos tanh sigmoid exp expm1 erf atan asinh sinh cosh".split()
    },
    "silu": simple(F.silu),
    "gelu": simple(F.gelu),
    "gelu_tanh": simple(lambda x: F.gelu(x, approximate="tanh")),
    "relu": simple(F.relu),
    "log": simple(lambda x: torch.log(x.abs() + 0.5)),
    "log1p": simple(lambda x: torch.log1p(x.abs())),
    "log2": simple(lambda x: torch.log2(x.abs() + 0.5)),
    "sqrt": simple(lambda x: torch.sqrt(x.abs() + 0.1)),
    "rsqrt": simple(lambda x: torch.rsqrt(x.abs() + 0.5)),
    "reciprocal": simple(lambda x: torch.reciprocal(x.abs() + 0.5)),
    "square": simple(torch.square, number),
    "abs": simple(torch.abs, number),
    "neg": simple(torch.neg, number),
    "sign": simple(torch.sign, lambda x: not is_float(x) and number(x)),
    "add": binary(torch.add),
    "sub": binary(torch.sub),
    "mul": binary(torch.mul),
    "maximum": binary(torch.maximum),
    "minimum": binary(torch.minimum),
    "atan2": binary(torch.atan2, is_float),
    "logaddexp": binary(torch.logaddexp, lambda x: x.dtype == torch.float32),
    "div": binary(lambda x, y: x / (y.abs() + 0.5), is_float),
    "add_scalar": scalar_op(torch.add),
    "mul_scalar": scalar_op(torch.mul),
    "rsub_scalar": scalar_op(lambda x, s: s - x),
    "floor_div": scalar_op(lambda x, s: x // s, lambda x: x.dtype in (torch.int32, torch.int64)),
    "remainder": scalar_op(torch.remainder, lambda x: x.dtype in (torch.int32, torch.int64)),
    "pow": (is_float, lambda d, x, pool: (lambda x, p=d.rng.choice([2, 3]): x**p)),
    "bitwise_and": binary(torch.bitwise_and, lambda x: not is_float(x) and number(x)),
    "bitwise_xor": binary(torch.bitwise_xor, lambda x: not is_float(x) and number(x)),
    "bitwise_not": simple(torch.bitwise_not, lambda x: not is_float(x)),
    "logical_not": simple(torch.logical_not, lambda x: not is_float(x)),
    "eq": binary(torch.eq, lambda x: not is_float(x)),
    "lt": binary(torch.lt, lambda x: not is_float(x) and number(x)),
    "sum": reduction(lambda x, a, k: x.sum(a, k), wide),
    "mean": reduction(lambda x, a, k: x.mean(a, k)),
    "amax": reduction(lambda x, a, k: x.amax(a, k), number),
    "amin": reduction(lambda x, a, k: x.amin(a, k), number),
    "var": reduction(lambda x, a, k: x.var(a, correction=0, keepdim=k)),
    "logsumexp": reduction(lambda x, a, k: x.logsumexp(a, k)),
    "prod": along(lambda x, a: x.prod(a)),
    "any": along(lambda x, a: x.any(a), lambda x: not is_float(x)),
    "all": along(lambda x, a: x.all(a), lambda x: not is_float(x)),
    "softmax": along(lambda x, a: x.softmax(a)),
    "log_softmax": along(lambda x, a: x.log_softmax(a)),
    "cumsum": along(lambda x, a: x.cumsum(a), lambda x: x.dtype in (torch.float32, torch.int64)),
    "sort": along(lambda x, a: x.sort(a).values, number),
    "flip": along(lambda x, a: x.flip(a), lambda x: True),
    "unsqueeze": along(lambda x, a: x.unsqueeze(a), lambda x: True),
    "select": along(lambda x, a: x.select(a, -1).clone(), lambda x: True),
    "stack": along(lambda x, a: torch.stack([x, x], a), lambda x: True),
    "cat": along(lambda x, a: torch.cat([x, x], a), lambda x: True),
    "repeat_interleave": along(lambda x, a: x.repeat_interleave(2, a), lambda x: True),
    "squeeze": simple(lambda x: x.squeeze(), lambda x: True),
    "slice": (lambda x: True, make_slice),
    "permute": (lambda x: True, make_permute),
    "reshape": (lambda x: True, make_reshape),
    "pad": (number, make_pad),
    "split": (lambda x: True, make_split),
    "roll": (lambda x: True, make_roll),
    "index_select": (lambda x: True, make_index_select),
    "gather": (lambda x: True, make_gather),
    "scatter_add": (lambda x: x.dtype == torch.float32, make_scatter_add),
    "clamp": (number, make_clamp),
    "cast": (number, make_cast),
    "tril": simple(torch.tril, lambda x: x.dim() >= 2),
    "triu": simple(torch.triu, lambda x: x.dim() >= 2),
    "linear": (is_float, make_linear),
    "matmul": (
        lambda x: is_float(x) and x.dim() >= 2,
        lambda d, x, pool: (
            lambda x, y=pool.constant([x.shape[-1], d.rng.randint(1, 7)], x.dtype): x @ y()
        ),
    ),
    "layer_norm": (is_float, make_layer_norm),
    "rms_norm": (is_float, lambda d, x, pool: lambda x: F.rms_norm(x, [x.shape[-1]], eps=1e-5)),
    "conv": (lambda x: is_float(x) and x.dim() in (3, 4), make_conv),
    "sdpa": (lambda x: is_float(x) and x.dim() == 4, make_sdpa),
}


class RandomGraph(torch.nn.Module):
    """Operators applied to the input and to each other's results."""

    def __init__(self, seed, depth, dynamic):
        super().__init__()
        self.draw = Draw(seed)
        rng = self.draw.rng
        self.dtype = rng.choice(FLOATS + INTS + (torch.bool,) if rng.random() < 0.5 else FLOATS)
        self.shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
        if dynamic:
            self.shape[0] = rng.randint(2, 6)
        self.generator = torch.Generator().manual_seed(seed)
        self.constants, self.steps, self.names = 0, [], []
        values = [self.values(self.shape, self.dtype)]
        wanted = rng.randint(1, depth)
        while len(self.steps) < wanted:
            self.grow(values)

    def values(self, shape, dtype):
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.generator) < 0.5
        if dtype.is_floating_point:
            return torch.randn(shape, generator=self.generator).to(dtype)
        low = 0 if dtype == torch.uint8 else -20
        return torch.randint(low, 20, shape, generator=self.generator).to(dtype)

    def constant(self, shape, dtype):
        return self.keep(self.values(shape, dtype))

    def integers(self, shape, bound):
        return self.keep(torch.randint(0, bound, shape, generator=self.generator))

    def keep(self, tensor):
        name = f"constant_{self.constants}"
        self.constants += 1
        self.register_buffer(name, tensor, persistent=True)
        return lambda: getattr(self, name)

    def grow(self, values):
        """One more operator; nothing changes when the draw does not fit."""
        rng = self.draw.rng
        source = rng.randrange(len(values))
        x = values[source]
        name = rng.choice(sorted(OPERATORS))
        accepts, make = OPERATORS[name]
        if x.dim() == 0 or x.numel() == 0 or x.numel() > 2000 or not accepts(x):
            return
        function = make(self.draw, x, self)
        result = function(x)
        if not isinstance(result, torch.Tensor) or result.dim() > 5:
            return
        values.append(result)
        self.steps.append((source, function))
        self.names.append(name)

    def forward(self, x):
        values = [x]
        for source, function in self.steps:
            values.append(function(values[source]))
        return tuple(values[1:])


def in_double(module, x):
    """The same graph in float64, where all of it is of one float dtype."""
    with torch.no_grad():
        saved = {name: value for name, value in module.named_buffers()}
        for name, value in saved.items():
            if is_float(value):
                setattr(module, name, value.double())
        try:
            return module(x.double() if is_float(x) else x)
        finally:
            for name, value in saved.items():
                setattr(module, name, value)


def tolerance(module, runs):
    """Absolute tolerance by PyTorch's own rounding; None where the graph is ill-conditioned."""
    scale, distance, floor, ceiling = 0.0, 0.0, 0.0, 0.0
    for x, outputs in runs:
        for got, better in zip(outputs, in_double(module, x)):
            if not is_float(got):
                if not torch.equal(got, better.to(got.dtype)):
                    return None
                continue
            if not torch.isfinite(got).all() or not torch.isfinite(better).all():
                return None
            scale = max(scale, got.abs().max().item() if got.numel() else 0.0)
            if got.numel():
                distance = max(distance, (got.double() - better.double()).abs().max().item())
            floor = max(floor, FLOOR[got.dtype])
            ceiling = max(ceiling, CEILING[got.dtype])
    atol = max(floor * scale, 3 * distance)
    return None if atol > ceiling * scale else atol


def make_case(out, index, seed, depth):
    dynamic = index % 3 == 0
    module = RandomGraph(seed, depth, dynamic)
    sizes = [module.shape] + ([[module.shape[0] + 3, *module.shape[1:]]] if dynamic else [])
    inputs = [module.values(size, module.dtype) for size in sizes]
    with torch.no_grad():
        runs = [(x, module(x)) for x in inputs]
    atol = tolerance(module, runs)
    if atol is None:
        raise et_env.CaseError("ill-conditioned")
    shapes = ({0: torch.export.Dim("n", min=1, max=16)},) if dynamic else None
    exported = model_kit.export(module, (inputs[0],), shapes)
    with model_kit.quiet():
        pte = model_kit.lower({"forward": exported}).buffer
    steps = [{"inputs": [x], "outputs": list(outputs)} for x, outputs in runs]
    words = f"{'dynamic ' if dynamic else ''}{module.dtype} {module.shape}: {', '.join(module.names)}"
    meta = {"kind": "op", "source": words.replace("torch.", ""), "atol": atol, "rtol": 0.0}
    et_env.write_case(out, f"random_{seed:06}", meta, pte, exported, steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    written, drawn, reasons = 0, 0, {}
    while written < args.count and drawn < 20 * args.count:
        seed, drawn = args.seed + drawn, drawn + 1
        try:
            make_case(args.out, written, seed, args.depth)
            written += 1
        except Exception as error:  # PyTorch, the exporter or the lowering says no
            reason = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:90]
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:10]:
        print(f"drawn again {count} times: {reason}")
    et_env.report(written, 0)


if __name__ == "__main__":
    main()
