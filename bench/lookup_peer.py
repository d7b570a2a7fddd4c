"""One answer of llama.cpp, with its own prompt lookup or without: tokens of the prompt on standard input as JSON, one JSON
object with the answer's tokens and the tokens a second behind the first one on standard output."""

import argparse
import json
import sys
import time

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("gguf")
parser.add_argument("--new", type=int, required=True)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--lookup", type=int, default=0, help="tokens that are guessed; 0 for none")
arguments = parser.parse_args()
prompt = json.load(sys.stdin)

draft = LlamaPromptLookupDecoding(num_pred_tokens=arguments.lookup) if arguments.lookup else None
llama = Llama(
    arguments.gguf,
    n_ctx=len(prompt) + arguments.new + 64,
    n_threads=arguments.threads,
    n_threads_batch=arguments.threads,
    draft_model=draft,
    logits_all=draft is not None,
    verbose=False,
)
tokens, begun = [], None
for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0):
    if begun is None:
        begun = time.perf_counter()
    if token == llama.token_eos() or len(tokens) == arguments.new:
        break
    tokens.append(token)
seconds = time.perf_counter() - begun
print(json.dumps({"tokens": tokens, "tok_s": max(len(tokens) - 1, 1) / seconds}))
