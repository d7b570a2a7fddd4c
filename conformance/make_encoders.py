#!/usr/bin/env python3
"""Write tiny random encoders, as transformers and sentence-transformers save them, with the vectors and scores that they must give.

usage: make_encoders.py OUT [--filter GLOB] [--seed S] [--zip FILE]

Needs torch and transformers. A case is a folder: `checkpoint` with the model and the files that say how vectors of tokens become one, and
`case.json` with texts as tokens (of pairs also which tokens belong to the second text) and what each gives. What
sentence-transformers does behind the model (pooling, normalising) is spelled out here, by its documentation.
"""

import argparse
import fnmatch
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from case_files import write_json
from make_families import fill, pack

transformers.utils.logging.disable_progress_bar()

BERT = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
ROBERTA = {**BERT, "pad_token_id": 1, "type_vocab_size": 1}
MODERN = {**BERT, "num_hidden_layers": 3, "local_attention": 8, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}

# Name, model type, class, settings, pooling, whether vectors are normalised.
CASES = [
    ("bert-mean", "bert", AutoModel, BERT, "mean", True),
    ("bert-cls", "bert", AutoModel, {**BERT, "hidden_act": "relu"}, "cls", False),
    ("bert-masked", "bert", AutoModelForMaskedLM, BERT, None, False),
    ("bert-score", "bert", AutoModelForSequenceClassification, {**BERT, "num_labels": 1}, None, False),
    ("roberta-last", "roberta", AutoModel, ROBERTA, "lasttoken", True),
    ("xlm-roberta-cls", "xlm-roberta", AutoModel, ROBERTA, "cls", True),
    ("xlm-roberta-score", "xlm-roberta", AutoModelForSequenceClassification, {**ROBERTA, "num_labels": 3}, None, False),
    ("modernbert-mean", "modernbert", AutoModel, MODERN, "mean", True),
    ("modernbert-cls", "modernbert", AutoModel, {**MODERN, "global_attn_every_n_layers": 2, "attention_bias": True, "mlp_bias": True}, "cls", False),
]


def pooled(states, pooling):
    match pooling:
        case "cls":
            return states[0]
        case "lasttoken":
            return states[-1]
        case _:
            return states.mean(0)


def write_modules(folder, pooling, normalised):
    """The files of sentence-transformers."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")] + ([("Normalize", "2_Normalize")] if normalised else [])
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"} for number, (kind, path) in enumerate(kinds)
    ]
    write_json(folder / "modules.json", modules)
    keys = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    modes = {f"pooling_mode_{key}": mode == pooling for mode, key in keys.items()}
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, "pooling_mode_max_tokens": False, **modes})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})


@torch.no_grad()
def build(case, out, seed):
    name, model_type, kind, settings, pooling, normalised = case
    final, work = out / name, out / f".{name}.part"
    shutil.rmtree(work, ignore_errors=True)
    folder = work / "checkpoint"
    folder.mkdir(parents=True)
    config = AutoConfig.for_model(model_type, **settings)
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    fill(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").float().eval()
    if pooling:
        write_modules(folder, pooling, normalised)
    rng = np.random.default_rng(seed)
    texts = []
    for length in (1, 2, 7, 23):
        tokens = rng.integers(3, 48, length).tolist()
        split = length // 2 + 1 if kind is AutoModelForSequenceClassification else length
        types = [int(at >= split) for at in range(length)]
        inputs = {"input_ids": torch.tensor([tokens])}
        if model_type == "bert":
            inputs["token_type_ids"] = torch.tensor([types])
        if kind is AutoModelForSequenceClassification:
            numbers = model(**inputs).logits[0]
        else:
            body = model if kind is AutoModel else model.base_model
            numbers = pooled(body(**inputs).last_hidden_state[0], pooling)
            if normalised:
                numbers = torch.nn.functional.normalize(numbers, dim=0)
        texts.append({"tokens": tokens, "types": types, "numbers": numbers.tolist()})
    write_json(work / "case.json", {"name": name, "source": f"transformers {transformers.__version__}, seed {seed}", "atol": 1e-4, "texts": texts})
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--filter", default="*", help="only cases whose name matches this glob")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--zip", type=Path, help="pack what is in OUT")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if fnmatch.fnmatch(case[0], args.filter)]
    for case in cases:
        build(case, args.out, args.seed)
    if args.zip:
        pack(args.out, args.zip)
    print(f"{len(cases)} written")
    sys.exit(0)


if __name__ == "__main__":
    main()
