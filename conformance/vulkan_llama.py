#!/usr/bin/env python3
"""Makes cases of language models as ExecuTorch's own exporter delegates them to Vulkan.

    VENV/bin/python vulkan_llama.py OUT [--filter GLOB]... [--zip FILE]

A tiny Llama with random weights goes through `executorch.examples.models.llama` in several forms; all of it,
caches included, is one delegate. A case reads a prompt in two calls, then decodes greedily, token by token.
The wheel has no Vulkan runtime: outputs are those of PyTorch eager, of the model with the exporter's own
changes and quantisation.
Without custom attention, and with an embedding of 4 bits whose rows are one group, the exporter fails itself.
"""

import tempfile
from pathlib import Path

import et_env  # first: it puts stand-ins in place
import torch
import xnnpack_llama
from case_files import make_all
from vulkan_cases import calls
from xnnpack_llama import DECODED, FIRST, FOUR_BITS, PROMPT, certain

PARAMS = xnnpack_llama.PARAMS | {"dim": 64, "hidden_dim": 128}
VULKAN = ["-V", "-kv", "--use_sdpa_with_kv_cache"]
# By name: the exporter's options, and how far logits may be from those of eager.
FORMS = {
    "f32": (VULKAN, 1e-4),
    # A code of an activation at the edge of two may fall otherwise.
    "8da4w": ([*VULKAN, *FOUR_BITS, "-E", "4,32"], 2e-2),
    "4w": ([*VULKAN, "-qmode", "4w", "-G", "32"], 1e-3),
    "f16": ([*VULKAN, "--vulkan-force-fp16"], 2e-2),
}


def eager(options, weights, folder):
    """The model that the exporter exports."""
    from executorch.examples.models.llama.export_llama_lib import LlmConfig, _prepare_for_llama_export

    given = xnnpack_llama.arguments(options, weights, folder, PARAMS)
    return _prepare_for_llama_export(LlmConfig.from_args(given)).model.eval()


def make(out, name, options, tolerance):
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers the operators

    weights = xnnpack_llama.checkpoint(PARAMS)
    with tempfile.TemporaryDirectory() as folder:
        pte = xnnpack_llama.exported(options, weights, Path(folder), PARAMS)
        model = eager(options, weights, Path(folder))
    chunks = [PROMPT[:FIRST], PROMPT[FIRST:]]
    steps, read = [], []
    while len(read) < len(PROMPT) + DECODED:
        tokens = chunks.pop(0) if chunks else [int(steps[-1]["outputs"][0].argmax())]
        inputs = [torch.tensor([tokens]), torch.tensor([len(read)])]
        with torch.no_grad():
            logits = model(inputs[0], {"input_pos": inputs[1]})
        logits = (logits[0] if isinstance(logits, tuple) else logits).clone()
        read += tokens
        steps.append({"inputs": inputs, "outputs": [logits]})
    greedy = [certain(step["outputs"][0]) for step in steps]
    meta = {"kind": "model", "source": f"ExecuTorch's Llama for Vulkan, {name}",
            "atol": tolerance, "rtol": tolerance, "calls": calls(pte), "greedy": greedy}
    et_env.write_case(out, f"llama_{name}", meta, pte, None, steps)


def main():
    make_all(__doc__, [(name, lambda out, name=name, form=form: make(out, name, *form)) for name, form in FORMS.items()])


if __name__ == "__main__":
    main()
