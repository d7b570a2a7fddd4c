#!/usr/bin/env python3
"""Makes cases of language models as ExecuTorch's own exporter delegates them to XNNPACK.

    VENV/bin/python xnnpack_llama.py OUT [--filter GLOB]... [--zip FILE]

A tiny Llama with random weights (grouped heads, two layers) goes through
`executorch.examples.models.llama` in several forms. A case reads a prompt in two calls, then
decodes greedily, token by token; its outputs are those of ExecuTorch's own runtime. Those of forms
without quantisation must agree with PyTorch eager; the others may not be further from them
than rounding to 8 and 4 bits explains.
"""

import json
import tempfile
from pathlib import Path

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all

PARAMS = {
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 64,
    "hidden_dim": 64,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "use_scaled_rope": False,
}
CONTEXT = 32
PROMPT = [1, 17, 62, 5, 40, 33, 8]
FIRST = 5  # tokens of the first call, where shapes are dynamic
DECODED = 5
TOLERANCE = 1e-3
METADATA = {"get_bos_id": 1, "get_eos_ids": [2]}

XNNPACK = ["-X", "--xnnpack-extended-ops"]
CACHED = [*XNNPACK, "-kv"]
CUSTOM = [*CACHED, "--use_sdpa_with_kv_cache"]
FOUR_BITS = ["-qmode", "8da4w", "-G", "32"]
# By name: the exporter's options, and how far logits may be from those of plain f32.
FORMS = {
    "f32": ([*CUSTOM], 1e-4),
    "f32_plain_cache": ([*CACHED], 1e-4),
    "8bit": ([*CUSTOM, "--pt2e_quantize", "xnnpack_dynamic", "-E", "8,0"], 0.3),
    "qc4": ([*CUSTOM, "--pt2e_quantize", "xnnpack_dynamic_qc4", "-E", "2,32"], 4.0),
    "8da4w": ([*CUSTOM, *FOUR_BITS, "-E", "4,32"], 4.0),
    "8da4w_one_token": ([*CUSTOM, *FOUR_BITS, "-E", "8,0", "--disable_dynamic_shape"], 1.5),
    "8da4w_8bit_cache": ([*CUSTOM, *FOUR_BITS, "-E", "8,0", "--quantize_kv_cache"], 1.5),
}


def checkpoint(params=None):
    """Random weights by the names that the exporter reads."""
    params = params or PARAMS
    torch.manual_seed(42)
    dim, inner = params["dim"], params["hidden_dim"]
    own = dim // params["n_heads"] * params["n_kv_heads"]
    shapes = {"tok_embeddings.weight": (params["vocab_size"], dim), "output.weight": (params["vocab_size"], dim)}
    for layer in range(params["n_layers"]):
        attention, feed = f"layers.{layer}.attention", f"layers.{layer}.feed_forward"
        shapes |= {f"{attention}.wq.weight": (dim, dim), f"{attention}.wk.weight": (own, dim)}
        shapes |= {f"{attention}.wv.weight": (own, dim), f"{attention}.wo.weight": (dim, dim)}
        shapes |= {f"{feed}.w1.weight": (inner, dim), f"{feed}.w2.weight": (dim, inner)}
        shapes |= {f"{feed}.w3.weight": (inner, dim)}
    weights = {name: torch.randn(shape) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    norms = [f"layers.{layer}.{name}" for layer in range(params["n_layers"]) for name in ("attention_norm", "ffn_norm")]
    weights |= {f"{name}.weight": 1 + 0.1 * torch.randn(dim) for name in (*norms, "norm")}
    return weights


def arguments(options, weights, folder, params=None):
    """What the exporter is told: a model with these weights, as a file in `folder`."""
    from executorch.examples.models.llama.export_llama_lib import build_args_parser

    (folder / "params.json").write_text(json.dumps(params or PARAMS))
    torch.save(weights, folder / "weights.pth")
    return build_args_parser().parse_args([
        "--model", "llama3_2", "-c", str(folder / "weights.pth"), "-p", str(folder / "params.json"),
        "-o", str(folder), "-n", "tiny", "-d", "fp32", "--max_seq_length", str(CONTEXT), "--max_context_length", str(CONTEXT),
        "--metadata", json.dumps(METADATA), *options])


def exported(options, weights, folder, params=None):
    """The program that the exporter writes."""
    from executorch.examples.models.llama.export_llama_lib import export_llama

    export_llama(arguments(options, weights, folder, params))
    return (folder / "tiny.pte").read_bytes()


def eager_logits(weights, tokens):
    """Logits of the last of all tokens, without a cache."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    model = construct_transformer(ModelArgs(max_seq_len=CONTEXT, max_context_len=CONTEXT, **PARAMS))
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        logits = model.eval()(torch.tensor([tokens]))
    return (logits[0] if isinstance(logits, tuple) else logits).reshape(-1)


def certain(logits):
    """The most likely token, where no rounding within the tolerance makes it another."""
    (first, second), (token, _) = (values.tolist() for values in logits.reshape(-1).topk(2))
    return token if first - second > 4 * TOLERANCE * (1 + abs(first)) else None


def make(out, name, options, allowed):
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers the operators
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
    from executorch.kernels import quantized  # noqa: F401

    weights = checkpoint()
    with tempfile.TemporaryDirectory() as folder:
        pte = exported(options, weights, Path(folder))
    module = _load_for_executorch_from_buffer(pte)
    is_dynamic = "--disable_dynamic_shape" not in options
    chunks = [PROMPT[:FIRST], PROMPT[FIRST:]] if is_dynamic else [[token] for token in PROMPT]
    steps, read = [], []
    while len(read) < len(PROMPT) + DECODED:
        tokens = chunks.pop(0) if chunks else [int(steps[-1]["outputs"][0].argmax())]
        inputs = [torch.tensor([tokens]), torch.tensor([len(read)])]
        logits = torch.as_tensor(module.forward(inputs)[0]).clone()
        read += tokens
        apart = (logits.reshape(-1) - eager_logits(weights, read)).abs().max().item()
        if not apart <= allowed:
            raise et_env.CaseError(f"eager and the runtime are {apart:g} apart")
        steps.append({"inputs": inputs, "outputs": [logits]})
    greedy = [certain(step["outputs"][0]) for step in steps]
    meta = {"kind": "model", "source": f"ExecuTorch's Llama for XNNPACK, {name}",
            "atol": TOLERANCE, "rtol": TOLERANCE, "greedy": greedy}
    et_env.write_case(out, f"llama_{name}", meta, pte, None, steps)


def main():
    make_all(__doc__, [(name, lambda out, name=name, form=form: make(out, name, *form)) for name, form in FORMS.items()])


if __name__ == "__main__":
    main()
