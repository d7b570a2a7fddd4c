"""Writes a GGUF file of a published shape with random weights, for llama.cpp to run beside Pteron.

    make_gguf.py SHAPE OUT.gguf [--type q4_0|q4_1] [--seed N]

The shapes and their sizes are those of `pteron bench --shape`; every matrix is packed, embeddings and tied heads
too, as there. Tensors are made and written one at a time. The file has no vocabulary: it is driven by token ids.

Needs the packages gguf and numpy (see peer.sh).
"""

import argparse
import dataclasses
import math
import os
import sys
from pathlib import Path

import gguf
import numpy as np

BLOCK = 32  # values that share a scale
ROWS_AT_A_TIME = 1 << 22  # blocks that are made at once, about


@dataclasses.dataclass(frozen=True)
class Llama:
    """Llama 3 and SmolLM2."""

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    context: int
    rope_factor: float | None = None

    arch = "llama"

    def describe(self, writer):
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_rope_dimension_count(self.head_dim)
        writer.add_feed_forward_length(self.inner)
        writer.add_rope_freq_base(self.theta)

    def tensors(self):
        """Name and sizes of every tensor, as rows and columns; or its numbers."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", (self.vocab, self.hidden)
        yield "output_norm.weight", (self.hidden,)
        if self.rope_factor is not None:
            yield "rope_freqs.weight", self.rope_factors()
        for i in range(self.layers):
            yield f"blk.{i}.attn_norm.weight", (self.hidden,)
            yield f"blk.{i}.attn_q.weight", (q, self.hidden)
            yield f"blk.{i}.attn_k.weight", (kv, self.hidden)
            yield f"blk.{i}.attn_v.weight", (kv, self.hidden)
            yield f"blk.{i}.attn_output.weight", (self.hidden, q)
            yield f"blk.{i}.ffn_norm.weight", (self.hidden,)
            yield f"blk.{i}.ffn_gate.weight", (self.inner, self.hidden)
            yield f"blk.{i}.ffn_up.weight", (self.inner, self.hidden)
            yield f"blk.{i}.ffn_down.weight", (self.hidden, self.inner)

    def rope_factors(self):
        """What llama.cpp divides frequencies by: Llama 3's stretching of long wavelengths."""
        low, high, original = 1.0, 4.0, 8192
        frequency = self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        wavelength = 2 * np.pi / frequency
        smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)
        return (1 / ((1 - smooth) / self.rope_factor + smooth)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Gemma4:
    """Gemma 4: with per-layer embeddings and layers that share keys and values (E2B), or dense (31B)."""

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    full_head_dim: int
    full_every: int
    shared: int
    double_wide: bool
    per_layer: int
    window: int
    context: int
    full_kv_heads: int | None = None  # where full layers have others, their keys are their values too
    eps: float = 1e-6
    theta: float = 1e6

    arch = "gemma4"

    def kv_heads_of(self, layer):
        return self.full_kv_heads if self.full_kv_heads and self.is_full(layer) else self.kv_heads

    def is_full(self, layer):
        return (layer + 1) % self.full_every == 0

    def inner_of(self, layer):
        return self.inner * (2 if self.double_wide and layer >= self.layers - self.shared else 1)

    def describe(self, writer):
        writer.add_head_count(self.heads)
        if self.full_kv_heads:
            writer.add_head_count_kv([self.kv_heads_of(i) for i in range(self.layers)])
        else:
            writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.full_head_dim)
        writer.add_value_length(self.full_head_dim)
        writer.add_key_length_swa(self.head_dim)
        writer.add_value_length_swa(self.head_dim)
        writer.add_rope_dimension_count(self.full_head_dim)
        writer.add_rope_dimension_count_swa(self.head_dim)
        writer.add_feed_forward_length([self.inner_of(i) for i in range(self.layers)])
        writer.add_rope_freq_base(self.theta)
        writer.add_rope_freq_base_swa(1e4)
        writer.add_sliding_window(self.window)
        writer.add_sliding_window_pattern([not self.is_full(i) for i in range(self.layers)])
        writer.add_shared_kv_layers(self.shared)
        writer.add_embedding_length_per_layer_input(self.per_layer)
        writer.add_final_logit_softcapping(30.0)

    def tensors(self):
        packed = self.layers * self.per_layer
        yield "token_embd.weight", (self.vocab, self.hidden)
        if self.per_layer:
            yield "per_layer_token_embd.weight", (self.vocab, packed)
            yield "per_layer_model_proj.weight", (packed, self.hidden)
            yield "per_layer_proj_norm.weight", (self.per_layer,)
        yield "output_norm.weight", (self.hidden,)
        # A quarter of the pairs turns; the others have a period without end.
        factors = np.full(self.full_head_dim // 2, 1e30, dtype=np.float32)
        factors[: self.full_head_dim // 8] = 1
        yield "rope_freqs.weight", factors
        for i in range(self.layers):
            head_dim = self.full_head_dim if self.is_full(i) else self.head_dim
            q, kv, inner = self.heads * head_dim, self.kv_heads_of(i) * head_dim, self.inner_of(i)
            yield f"blk.{i}.attn_norm.weight", (self.hidden,)
            yield f"blk.{i}.attn_q.weight", (q, self.hidden)
            yield f"blk.{i}.attn_q_norm.weight", (head_dim,)
            if i < self.layers - self.shared:
                yield f"blk.{i}.attn_k.weight", (kv, self.hidden)
                yield f"blk.{i}.attn_k_norm.weight", (head_dim,)
                if not (self.full_kv_heads and self.is_full(i)):
                    yield f"blk.{i}.attn_v.weight", (kv, self.hidden)
            yield f"blk.{i}.attn_output.weight", (self.hidden, q)
            yield f"blk.{i}.post_attention_norm.weight", (self.hidden,)
            yield f"blk.{i}.ffn_norm.weight", (self.hidden,)
            yield f"blk.{i}.ffn_gate.weight", (inner, self.hidden)
            yield f"blk.{i}.ffn_up.weight", (inner, self.hidden)
            yield f"blk.{i}.ffn_down.weight", (self.hidden, inner)
            yield f"blk.{i}.post_ffw_norm.weight", (self.hidden,)
            if self.per_layer:
                yield f"blk.{i}.inp_gate.weight", (self.per_layer, self.hidden)
                yield f"blk.{i}.proj.weight", (self.hidden, self.per_layer)
                yield f"blk.{i}.post_norm.weight", (self.hidden,)
            yield f"blk.{i}.layer_output_scale.weight", (1,)


@dataclasses.dataclass(frozen=True)
class Qwen3Moe:
    """Qwen 3 with experts."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    chosen: int
    expert_inner: int
    context: int
    eps: float = 1e-6
    theta: float = 1e6

    arch = "qwen3moe"

    def describe(self, writer):
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_feed_forward_length(self.expert_inner * self.chosen)
        writer.add_expert_count(self.experts)
        writer.add_expert_used_count(self.chosen)
        writer.add_expert_feed_forward_length(self.expert_inner)
        writer.add_rope_freq_base(self.theta)

    def tensors(self):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", (self.vocab, self.hidden)
        yield "output_norm.weight", (self.hidden,)
        yield "output.weight", (self.vocab, self.hidden)
        for i in range(self.layers):
            yield f"blk.{i}.attn_norm.weight", (self.hidden,)
            yield f"blk.{i}.attn_q.weight", (q, self.hidden)
            yield f"blk.{i}.attn_k.weight", (kv, self.hidden)
            yield f"blk.{i}.attn_v.weight", (kv, self.hidden)
            yield f"blk.{i}.attn_q_norm.weight", (self.head_dim,)
            yield f"blk.{i}.attn_k_norm.weight", (self.head_dim,)
            yield f"blk.{i}.attn_output.weight", (self.hidden, q)
            yield f"blk.{i}.ffn_norm.weight", (self.hidden,)
            # Routers are not packed.
            router = np.random.default_rng(i).standard_normal((self.experts, self.hidden), dtype=np.float32)
            yield f"blk.{i}.ffn_gate_inp.weight", router / np.float32(np.sqrt(self.hidden))
            yield f"blk.{i}.ffn_gate_exps.weight", (self.experts, self.expert_inner, self.hidden)
            yield f"blk.{i}.ffn_up_exps.weight", (self.experts, self.expert_inner, self.hidden)
            yield f"blk.{i}.ffn_down_exps.weight", (self.experts, self.hidden, self.expert_inner)


SHAPES = {
    "smollm2-135m": Llama(49152, 576, 1536, 30, 9, 3, 64, 1e-5, 1e5, 8192),
    "llama-3.2-1b": Llama(128256, 2048, 8192, 16, 32, 8, 64, 1e-5, 5e5, 131072, rope_factor=32.0),
    "qwen3-moe-3b": Qwen3Moe(151936, 2048, 8, 32, 4, 128, 64, 8, 768, 40960),
    "gemma-4-e2b": Gemma4(262144, 1536, 6144, 35, 8, 1, 256, 512, 5, 20, True, 256, 512, 131072),
    "gemma-4-31b": Gemma4(262144, 5376, 21504, 60, 32, 16, 256, 512, 6, 0, False, 0, 1024, 262144, full_kv_heads=4),
}


@dataclasses.dataclass(frozen=True)
class Packing:
    """A block format: its type, bytes a block, and whether blocks have a minimum."""

    kind: gguf.GGMLQuantizationType
    block_bytes: int
    has_minimum: bool

    def blocks(self, count, columns, random):
        """That many random blocks whose values spread as a matrix of so many columns wants."""
        spread = np.sqrt(3 / columns)
        around = 1 + 0.1 * (2 * random.random(count, dtype=np.float32) - 1)
        out = np.empty((count, self.block_bytes), dtype=np.uint8)
        scale = spread / 7.5 * around if self.has_minimum else spread / 8 * around
        out[:, 0:2] = scale.astype(np.float16)[:, None].view(np.uint8)
        codes = 2
        if self.has_minimum:
            out[:, 2:4] = (-spread * around).astype(np.float16)[:, None].view(np.uint8)
            codes = 4
        out[:, codes:] = np.frombuffer(random.bytes(count * (self.block_bytes - codes)), dtype=np.uint8).reshape(count, -1)
        return out


PACKINGS = {
    "q4_0": Packing(gguf.GGMLQuantizationType.Q4_0, 18, False),
    "q4_1": Packing(gguf.GGMLQuantizationType.Q4_1, 20, True),
}


def write(shape, packing, path, seed):
    writer = gguf.GGUFWriter(path, shape.arch)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("no_vocab")
    writer.add_quantization_version(2)
    shape.describe(writer)
    tensors = list(shape.tensors())
    for name, sizes in tensors:
        if isinstance(sizes, np.ndarray):
            writer.add_tensor_info(name, sizes.shape, sizes.dtype, sizes.nbytes)
        elif len(sizes) == 1:
            writer.add_tensor_info(name, sizes, np.dtype(np.float32), 4 * sizes[0])
        else:
            *rows, columns = sizes
            # The type's own sizes: a row in bytes.
            row = columns // BLOCK * packing.block_bytes
            writer.add_tensor_info(name, (*rows, row), np.dtype(np.uint8), math.prod(rows) * row, raw_dtype=packing.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    random = np.random.default_rng(seed)
    writer.write_padding(out, out.tell())
    for name, sizes in tensors:
        if isinstance(sizes, np.ndarray):
            out.write(sizes.tobytes())
        elif len(sizes) == 1:
            centre = 1 + 0.1 * (2 * random.random(sizes[0], dtype=np.float32) - 1)
            out.write(centre.astype(np.float32).tobytes())
        else:
            columns = sizes[-1]
            left = math.prod(sizes) // BLOCK
            while left:
                count = min(left, ROWS_AT_A_TIME)
                out.write(packing.blocks(count, columns, random).tobytes())
                left -= count
        writer.write_padding(out, out.tell())
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=PACKINGS, default="q4_0")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    # Aside, then renamed: a file of that name is always whole.
    aside = arguments.out.with_name(f".{arguments.out.name}.{os.getpid()}.partial")
    try:
        write(SHAPES[arguments.shape], PACKINGS[arguments.type], aside, arguments.seed)
        aside.replace(arguments.out)
    finally:
        aside.unlink(missing_ok=True)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
