"""Writes what `tensor` needs to know of GGUF's block formats, from the package `gguf`:

    make_gguf_blocks.py

`crates/tensor/src/quant/gguf/grids.bin`: the lists of values of the IQ formats, 2 bits a value in lists of eight, 4 bits in lists of
four. `crates/tensor/tests/data/gguf_blocks.bin`: of each format some arbitrary blocks, and behind them the numbers that the package
reads from them.
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, quants

ROOT = Path(__file__).resolve().parent.parent / "crates" / "tensor"
BLOCKS = 4
# In the order of the lists, and of the formats in the test.
LISTS = [quants.IQ2_XXS, quants.IQ2_XS, quants.IQ2_S, quants.IQ1_S, quants.IQ3_XXS, quants.IQ3_S]
FORMATS = [
    Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
    Type.TQ1_0, Type.TQ2_0, Type.IQ4_NL, Type.IQ4_XS, Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS, Type.IQ3_S,
    Type.IQ1_S, Type.IQ1_M, Type.MXFP4, Type.NVFP4,
]  # fmt: skip


def packed(kind):
    """A list with each value as its place among the levels."""
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    levels = np.array(kind.grid_map, dtype=np.float32)
    places = np.argmax(grid[..., None] == levels, axis=-1).astype(np.uint16)
    bits = 16 // kind.grid_shape[1]
    words = np.zeros(len(places), dtype=np.uint16)
    for at in range(kind.grid_shape[1]):
        words |= places[:, at] << np.uint16(bits * at)
    return words.astype("<u2").tobytes()


def blocks(random, kind):
    """Blocks whose numbers are all finite."""
    size = GGML_QUANT_SIZES[kind][1]
    found, numbers = [], []
    while len(found) < BLOCKS:
        block = random.integers(0, 256, (1, size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            values = quants.dequantize(block, kind)
        if np.isfinite(values).all():
            found.append(block.tobytes())
            numbers.append(values.astype("<f4").tobytes())
    return b"".join(found + numbers)


def main():
    (ROOT / "src/quant/gguf/grids.bin").write_bytes(b"".join(packed(kind) for kind in LISTS))
    random = np.random.default_rng(31)
    data = ROOT / "tests" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "gguf_blocks.bin").write_bytes(b"".join(blocks(random, kind) for kind in FORMATS))


if __name__ == "__main__":
    main()
