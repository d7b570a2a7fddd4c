#!/usr/bin/env python3
"""Compile time and peak memory of `pteron compile` beside ExecuTorch's own lowering of the same exported program.

Makes a decoder of Llama-3.2-1B's shape with random bf16 weights (`--layers` and `--width` make a smaller one), exports it
once with torch.export.save, and runs each compiler on the file in a process of its own, in turn: `--rounds` times. ExecuTorch
reads the file with torch.export.load; its time counts from there to the written program, without the imports.

Needs torch, transformers and executorch: the environment that `cargo xtask cases` sets up. The last line is a JSON object.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def make(path, layers, width, vocabulary):
    """The exported program; about 1.24 billion parameters at full size."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64),
        num_key_value_heads=max(1, width // 256),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        use_cache=False,
    )

    class Forward(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = LlamaForCausalLM(config).to(torch.bfloat16)

        def forward(self, tokens):
            return self.model(input_ids=tokens, use_cache=False).logits

    module = Forward().eval()
    parameters = sum(weight.numel() for weight in module.parameters())
    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(module, (torch.ones(1, 8, dtype=torch.long),), dynamic_shapes=({1: length},))
    torch.export.save(program, path)
    return parameters


def lower(source, target):
    """ExecuTorch's way; run in a process of its own. Prints its seconds."""
    import torch
    from executorch.backends.mlx.partitioner import MLXPartitioner
    from executorch.backends.mlx.passes import get_default_passes
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    start = time.monotonic()
    program = torch.export.load(source)
    edge = to_edge_transform_and_lower(
        program,
        transform_passes=get_default_passes(),
        partitioner=[MLXPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    with open(target, "wb") as file:
        edge.to_executorch().write_to_file(file)
    print(time.monotonic() - start)


def measured(command):
    """Seconds, peak resident bytes and output of a process."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} failed")
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return time.monotonic() - start, usage.ru_maxrss * unit, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pteron", default="target/release/pteron")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/pteron/bench")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lower", nargs=2, metavar=("PT2", "PTE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.lower:
        return lower(*arguments.lower)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    name = f"decoder-{arguments.layers}x{arguments.width}x{arguments.vocabulary}"
    source, ours, theirs = (arguments.cache / f"{name}{suffix}" for suffix in (".pt2", ".pteron.pte", ".executorch.pte"))
    if not source.is_file():
        # In a process of its own, so that its memory is given back.
        code = "import sys; sys.path.insert(0, sys.argv[1]); import compile; compile.make(sys.argv[2], *map(int, sys.argv[3:]))"
        sizes = [str(size) for size in (arguments.layers, arguments.width, arguments.vocabulary)]
        subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent), str(source), *sizes], check=True)
    weights = source.stat().st_size
    rows = {"pteron": [], "executorch": []}
    for _ in range(arguments.rounds):
        seconds, peak, _ = measured([arguments.pteron, "compile", f"forward={source}", "-o", str(ours)])
        rows["pteron"].append((seconds, peak))
        _, peak, output = measured([sys.executable, __file__, "--lower", str(source), str(theirs)])
        rows["executorch"].append((float(output.split()[-1]), peak))
    result = {"file_bytes": weights}
    print("| compiler | seconds | peak memory | of the file |\n| --- | --- | --- | --- |")
    for compiler, found in rows.items():
        seconds = statistics.median(seconds for seconds, _ in found)
        peak = statistics.median(peak for _, peak in found)
        result[compiler] = {"seconds": seconds, "peak_bytes": peak}
        print(f"| {compiler} | {seconds:.2f} | {peak / 1e6:.0f} MB | {peak / weights:.2f} |")
    result["times_faster"] = result["executorch"]["seconds"] / result["pteron"]["seconds"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
