#!/usr/bin/env python3
"""Write docs/models.md: every causal language model that transformers knows, and what `pteron export` does with it.

usage: model_table.py [--check]

Needs transformers. Families are read from crates/models/src/architectures, cases from family_configs.py and ckpt_families.py.
"""

import re
import sys
from pathlib import Path

from transformers import __version__
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from family_configs import DENSE, HYBRID, SPARSE

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "crates/models/src/architectures"
PAGE = ROOT / "docs/models.md"


def built():
    """`model_type`s that a family answers to."""
    names = set()
    for file in (*sorted((SOURCES / "decoder/table").glob("*.rs")), SOURCES / "decoder/row.rs", SOURCES / "mod.rs"):
        for found in re.findall(r"names: &\[([^\]]*)\]", file.read_text()):
            names.update(re.findall(r'"([^"]+)"', found))
    return names


def page():
    dense = {model_type for _, model_type, _, _ in DENSE}
    sparse = {model_type for _, model_type, _, _ in SPARSE}
    hybrid = {model_type for _, model_type, _, _ in HYBRID}
    # Cases of make_checkpoints.py, and wrappers of crates/checkpoint/tests/families.rs.
    others = {"gemma3", "gemma3n", "gemma4", "gemma4_text"}
    names = built()
    rows, right = [], 0
    for model_type, class_name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
        if model_type in dense:
            state = "right"
        elif model_type in sparse:
            state = "right, experts"
        elif model_type in hybrid:
            state = "right, with states"
        elif model_type in others:
            state = "right, its text model"
        elif model_type in names:
            state = "built, without a case of its own"
        else:
            state = "refused by name"
        right += state.startswith("right")
        rows.append(f"| `{model_type}` | {class_name} | {state} |")
    return "\n".join(
        [
            "# Models",
            "",
            f"Every causal language model of transformers {__version__} and what `pteron export` makes of its files; written by",
            "`python conformance/model_table.py`.",
            "",
            "*right*: tiny random models of the family give the logits of transformers within 2e-4 in f32, and its greedy tokens, with",
            "inputs of every length (`conformance/make_families.py`, `conformance/make_checkpoints.py`). *refused by name*: the export",
            "says that it does not know the architecture, and writes nothing. Settings of a known family that are not built are refused by",
            "name too. *with states*: layers keep a state of all tokens so far (convolutions, state spaces, the gated delta rule), which",
            "cannot be cut back to an earlier position: chats put copies of it back, or read again.",
            "",
            f"{right} of {len(rows)} are right.",
            "",
            "| `model_type` | class | state |",
            "| --- | --- | --- |",
            *rows,
            "",
            "## Models that see",
            "",
            "`pteron export` takes the vision towers of Gemma 3 (`gemma3`), Gemma 4 (`gemma4`), Qwen2.5-VL (`qwen2_5_vl`) and Qwen3-VL (`qwen3_vl`)",
            "folders along; the text model reads texts as before. `pteron run --image FILE`, `/image FILE` in `pteron chat`, `Message::showing` and",
            "`Chat::show` of the facade, and the server show them images. Tiny models of each give the pixels of transformers' processors (with Pillow)",
            "within 1e-3, logits within 2e-4 in f32 and its greedy tokens behind one image and several (`crates/checkpoint/tests/make_gemma3.py`,",
            "`make_gemma4.py`, `make_qwen_vl.py`). No published weights have been run with images yet. Towers stay as wide as activations, whatever",
            "`--quantize` says. Transparent images lie on white.",
            "Images of more patches than a tower takes in one call are shrunk to that: Qwen2.5-VL 4,096 (0.8 million pixels in the published sizes),",
            "Qwen3-VL 16,384 (4.2 million), which is less than transformers gives them at most.",
            "Gemma 4: an image becomes as many rows as its form allows, up to `max_soft_tokens` of the folder's processor (70 to 1,120; 280 where none",
            "says). Rows of models whose `use_bidirectional_attention` is `vision` see each other on layers that slide, as those of Gemma 3 do on all;",
            "both are read by the CPU alone.",
            "Left out, and said: eyes of programs with caches in the graph (`--for executorch`), with inputs (`--chunk`) that rows which see each other",
            "do not fit into, of Qwens for flat batches (`--batched`), and of GGUF files; the audio tower of Gemma 4. Refused by name: pan and scan.",
            "Videos are not read. Of Gemma 3n (`gemma3n`) and Mistral 3 (`mistral3`) folders the text model alone is read; that towers are left out is said.",
            "",
            "## Encoders",
            "",
            "`pteron embed` takes BERT (`bert`), RoBERTa and XLM-RoBERTa (`roberta`, `xlm-roberta`, `camembert`) and ModernBERT",
            "(`modernbert`), with what sentence-transformers publishes beside them: pooling by mean, first or last token, normalising, the",
            "longest text. Classifiers of the first two (`...ForSequenceClassification`) score pairs of texts. Tiny models of each give the",
            "numbers of transformers within 1e-4 (`conformance/make_encoders.py`). Other modules behind an encoder (`Dense`) are refused by name.",
            "",
            "## GGUF files",
            "",
            "Architectures (`general.architecture`) that are read; tiny files of each give the logits of transformers",
            "(`conformance/make_gguf_families.py`, `conformance/make_checkpoints.py`). Mistral's and Mixtral's files say `llama`,",
            "OLMo 3's `olmo2`. All of ggml's block types but Q8_1 and Q8_K, which hold",
            "activations, are read, each number to the bit as the package `gguf` reads it. Types whose levels are no even steps take more memory in a",
            "program than in the file: IQ4, IQ3_XXS and IQ2 8 bits a value, IQ3_S, IQ1 and NVFP4 5 bits; MXFP4 stays as it is.",
            "",
            ", ".join(f"`{name}`" for name in gguf_architectures()) + ".",
            "",
        ]
    )


def gguf_architectures():
    """As the table of the reader has them."""
    source = (PAGE.parent.parent / "crates/checkpoint/src/gguf/families.rs").read_text()
    return sorted(name for name in re.findall(r'\bname: "([^"]+)"', source))


def main():
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != text:
            sys.exit("docs/models.md is not what conformance/model_table.py writes")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
