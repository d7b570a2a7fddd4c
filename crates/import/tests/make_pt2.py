"""Makes the small .pt2 files of crates/import/tests/data.

    <python with torch, torchao, executorch> crates/import/tests/make_pt2.py

The Python of `cargo xtask cases` has all three. Files are scrubbed of machine paths and time stamps by the same
function as conformance cases, so that the same packages give the same bytes.
"""

import io
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "conformance"))

from et_env import check_no_paths, scrub_pt2  # noqa: E402  (quiets the libraries first)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402
from torch.export.pt2_archive._package import package_pt2  # noqa: E402


def counting(*shape, dtype=torch.float32):
    """0, 1, 2, ... in a shape: every element says where it belongs."""
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count).reshape(shape).to(dtype)


class Raw(nn.Module):
    """Payloads of every form: tied, strided, cut out, expanded, scalar, empty, constant, not persistent."""

    def __init__(self):
        super().__init__()
        self.plain = nn.Parameter(counting(2, 3))
        self.tied = self.plain
        self.transposed = nn.Parameter(counting(3, 2).t())
        whole = counting(8)
        self.register_buffer("cut", whole[2:5])
        self.register_buffer("expanded", torch.ones(1, 1).expand(2, 3))
        self.register_buffer("scalar", torch.tensor(7, dtype=torch.int64))
        self.register_buffer("empty", torch.zeros(0, 3, dtype=torch.bfloat16))
        self.register_buffer("fleeting", counting(3, dtype=torch.float16), persistent=False)

    def forward(self, x, n: int, flag: bool):
        y = x + self.plain + self.transposed + self.expanded + self.tied
        y = y + self.cut + self.fleeting + torch.tensor([1.0, 2.0, 4.0])
        return y * self.scalar, self.empty + 1, torch.full((n,), float("inf"))


class Dynamic(nn.Module):
    """Sizes that are symbols, affine and not, and a symbol that only a run knows."""

    def forward(self, x, where):
        joined = torch.cat([x, x, x[:1]])
        halved = x[: x.shape[0] // 2]
        found = where.nonzero()
        return joined, halved, x.reshape(-1, 2), found, x.shape[0]


class Mutated(nn.Module):
    """State, and an input that is written to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int32))

    def forward(self, x, out):
        self.cache[0:1].copy_(x)
        self.steps.add_(1)
        out.mul_(2.0)
        return self.cache.sum(0)


class Windows(nn.Module):
    """Writes through views of views, and reads of views that were taken before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(2, 3, 4))

    def forward(self, x):
        early = self.table[1]
        self.table.transpose(0, 1)[2].select(0, 1).add_(x)
        self.table.view(6, 4)[:, 1:3].mul_(2.0)
        first, second = self.table.chunk(2, dim=2)
        second.copy_(first + 1.0)
        self.table.unsqueeze(0).permute(0, 3, 2, 1)[0, 0].fill_(7.0)
        return early * 1.0, self.table.sum(-1)


class Doubles(nn.Module):
    """Arithmetic in f64, which no delegate has, between arithmetic that one has."""

    def forward(self, x):
        y = (x * 2.0).double()
        return (torch.abs(y) + y).float() * x


class Branch(nn.Module):
    """Graphs inside a node."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


class Placed(nn.Module):
    """Elements placed by several indices, by a mask, along an axis, and added up."""

    def forward(self, x, i, j, along):
        several = x.clone()
        several[i, :, j] = torch.tensor([[-1.0], [-2.0]])
        together = x.index_put((i, j), x[0, :2], accumulate=True)
        masked = x.clone()
        masked[x > 20.0] = 0.0
        scattered = x[0].scatter(1, along, x[1]).scatter(0, along, 9.0)
        return several, together, masked, scattered, x[0].index_fill(1, j, 5.0)


class Layers(nn.Module):
    """An embedding, a norm and attention as models spell them out, and linear layers, one of which no group divides."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 32)
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(32))
        self.small = nn.Linear(20, 2)
        for number, weight in enumerate(self.parameters()):
            values = counting(*weight.shape) * 37 % 19 / 19 - 0.5 + number / 100
            weight.data.copy_(values)

    def forward(self, tokens, y):
        x = self.embedding(tokens)
        x = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
        heads = [layer(x).view(1, -1, 2, 16).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        weights = torch.softmax(heads[0] @ heads[1].transpose(-1, -2) / 4.0, dim=-1)
        return (weights @ heads[2]).sum(), self.small(y)


class Held(nn.Module):
    """A weight of a tensor subclass."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


def subclasses():
    from executorch.extension.llm.export.gguf import ExportableGGUFTensor
    from executorch.extension.llm.export.int4 import ExportableInt4Tensor
    from executorch.extension.llm.export.nvfp4 import ExportableNVFP4Tensor
    from torchao.quantization import IntxUnpackedToInt8Tensor

    intx = IntxUnpackedToInt8Tensor.from_hp(counting(2, 64) - 64, (1, 32), torch.int4)
    int4 = ExportableInt4Tensor.from_intx_unpacked_to_int8_tensor(intx)
    gguf = ExportableGGUFTensor(counting(1, 144, dtype=torch.uint8), "q4_k", torch.float32)
    codes = counting(2, 2, dtype=torch.int32).to(torch.uint32)
    scale = torch.full((2, 1), 56, dtype=torch.uint8)
    nvfp4 = ExportableNVFP4Tensor(codes, scale, torch.tensor(0.5), 16, torch.float32)
    return {"intx": intx, "int4": int4, "gguf": gguf, "nvfp4": nvfp4}


def programs():
    dim = Dim("n", min=4, max=64)
    mutated = export(Mutated(), (torch.ones(1, 2), torch.ones(2)))
    yield "raw", export(Raw(), (torch.ones(2, 3), 4, True))
    yield (
        "dynamic",
        export(
            Dynamic(),
            (torch.ones(12, 4), torch.ones(5)),
            dynamic_shapes={"x": {0: 2 * dim}, "where": {0: Dim.AUTO}},
        ),
    )
    yield "in_place", mutated
    yield "mutated", mutated.run_decompositions({})
    yield "windows", export(Windows(), (torch.ones(4),))
    yield "doubles", export(Doubles(), (torch.ones(3),))
    yield "branch", export(Branch(), (torch.ones(3),))
    yield "two", {"first": mutated, "second": export(Branch(), (torch.ones(3),))}
    index = torch.tensor([0, 1])
    yield "placed", export(Placed(), (counting(2, 3, 4), index, -index - 1, torch.tensor([[0, 2, 1, 0]])))
    yield "layers", export(Layers(), (torch.tensor([[3, 1, 7]]), torch.ones(1, 20)))
    for name, weight in subclasses().items():
        yield name, export(Held(weight), (torch.ones(1, weight.shape[1]),))


def main():
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    total = 0
    for name, program in programs():
        buffer = io.BytesIO()
        package_pt2(buffer, exported_programs=program)
        content = scrub_pt2(buffer.getvalue())
        check_no_paths(name, content)
        (data / f"{name}.pt2").write_bytes(content)
        total += len(content)
        print(f"{name}.pt2: {len(content)} bytes")
    print(f"{total} bytes")


if __name__ == "__main__":
    main()
