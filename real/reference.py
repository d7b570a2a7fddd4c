#!/usr/bin/env python3
"""What `transformers` makes of a GGUF file in f32: logits, greedy continuations, perplexity.

Called by `cargo xtask real-models --refresh` for each language model; prompts and text are those of language.json. Writes
reference/NAME.json and reference/NAME.safetensors, which the repository carries: the figures, and some of the logits of
every token of every prompt. All logits go to --full, a file outside the repository.
"""

import argparse
import hashlib
import json
import math
from pathlib import Path

import gguf
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

# Logits of each token that the repository carries, evenly spread over the vocabulary.
SAMPLED = 64


def ids_of(prompt, tokenizer, has_bos):
    """The tokens of a prompt; None where the model cannot be asked so."""
    if prompt.get("bos"):
        return [tokenizer.bos_token_id]
    if "messages" in prompt:
        if not tokenizer.chat_template:
            return None
        text = tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
        return tokenizer.encode(text, add_special_tokens=False)
    bos = [tokenizer.bos_token_id] if has_bos else []
    ids = bos + tokenizer.encode(prompt["text"], add_special_tokens=False)
    return ids[: prompt.get("tokens", len(ids))]


def continued(model, ids, count):
    """All logits of a prompt, then greedily chosen tokens, each with the runner-up and both logits."""
    out = model(torch.tensor([ids]), use_cache=True)
    logits, steps = out.logits[0].float(), []
    for _ in range(count):
        best = out.logits[0, -1].topk(2)
        token, second = best.indices.tolist()
        steps.append({"token": token, "second": second, "logits": [round(value, 5) for value in best.values.tolist()]})
        out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
    return logits, steps


def surprise(model, ids, window, bos):
    """Sum of the negative log likelihoods over windows, each from an empty cache, and how many tokens were scored."""
    total, scored = 0.0, 0
    for start in range(0, len(ids), window):
        part = bos + ids[start : start + window]
        logits = model(torch.tensor([part]), use_cache=False).logits[0, :-1].double()
        wanted = torch.tensor(part[1:]).unsqueeze(1)
        total -= torch.log_softmax(logits, -1).gather(1, wanted).sum().item()
        scored += len(part) - 1
    return total, scored


def pretty(figures, prompts):
    """JSON with a line for each figure and each prompt."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in figures.items()]
    lines.append('"prompts": [\n  ' + ",\n  ".join(json.dumps(prompt) for prompt in prompts) + "\n ]")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the model's name in the registry")
    parser.add_argument("gguf", type=Path, help="its file")
    parser.add_argument("--full", type=Path, required=True, help="where all logits go")
    arguments = parser.parse_args()
    here = Path(__file__).parent
    plan = json.loads((here / "language.json").read_text(encoding="utf-8"))

    torch.set_grad_enabled(False)
    folder, file = str(arguments.gguf.parent), arguments.gguf.name
    print(f"{arguments.name}: transformers {transformers.__version__} reads {file}", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    # transformers does not take this from the file.
    adds_bos = gguf.GGUFReader(arguments.gguf).get_field("tokenizer.ggml.add_bos_token")
    has_bos = bool(adds_bos and adds_bos.contents())

    prompts, full, sampled = [], {}, {}
    for prompt in plan["prompts"]:
        ids = ids_of(prompt, tokenizer, has_bos)
        if ids is None:
            continue
        logits, steps = continued(model, ids, plan["continuation"])
        columns = torch.arange(SAMPLED) * (logits.shape[1] // SAMPLED)
        full[prompt["name"]] = logits.contiguous()
        sampled[prompt["name"]] = logits[:, columns].contiguous()
        sampled["columns"] = columns.int()
        prompts.append({"name": prompt["name"], "ids": ids, "continuation": steps})
        print(f"  {prompt['name']}: {len(ids)} tokens", flush=True)

    text = (here / plan["text"]).read_text(encoding="utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False)[: plan["text_tokens"]]
    total, scored = surprise(model, ids, plan["window"], [tokenizer.bos_token_id] if has_bos else [])
    print(f"  perplexity {math.exp(total / scored):.4f} over {scored} tokens", flush=True)

    figures = {
        "model": arguments.name,
        "gguf_sha256": hashlib.sha256(arguments.gguf.read_bytes()).hexdigest(),
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "perplexity": math.exp(total / scored),
        "scored_tokens": scored,
    }
    save_file(full, arguments.full)
    save_file(sampled, here / "reference" / f"{arguments.name}.safetensors")
    (here / "reference" / f"{arguments.name}.json").write_text(pretty(figures, prompts), encoding="utf-8")


if __name__ == "__main__":
    main()
