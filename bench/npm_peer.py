"""Measures a llama.cpp that was built for a GPU, without building it: libraries as npm has them.

    npm pack @node-llama-cpp/linux-x64-vulkan && tar xzf node-llama-cpp-linux-x64-vulkan-*.tgz
    npm_peer.py package/bins/linux-x64-vulkan MODEL.gguf [--prompt 512] [--new 128] [--context 0,2048] [--lanes 1,4,8,16]

Prints one JSON object of the names that `pteron bench --json` has. It needs Python alone. Of the library's structures only the first
numbers of a context's parameters are touched; everything else stays as the library gives it (all layers on the GPU, flash attention
where the library chooses it, a cache of its own for every sequence).
"""

import argparse
import ctypes
import glob
import json
import os
import statistics
import sys
import time

# Seconds of decoding that are not counted, as in `pteron bench`.
WARM_UP = 1.0


class Parameters(ctypes.Structure):
    """Larger than any structure of parameters: what is behind the library's own is never read."""

    _fields_ = [("words", ctypes.c_uint32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("rows", ctypes.c_void_p),
        ("positions", ctypes.POINTER(ctypes.c_int32)),
        ("sequence_counts", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def one(folder, pattern):
    found = sorted(glob.glob(os.path.join(folder, pattern)))
    if not found:
        sys.exit(f"npm_peer: there is no {pattern} in {folder}")
    return found[0]


class Library:
    def __init__(self, folder):
        # What each of them needs lies beside it.
        base = ctypes.CDLL(one(folder, "libggml-base*.so"), mode=ctypes.RTLD_GLOBAL)
        ggml = ctypes.CDLL(one(folder, "libggml.*.so"), mode=ctypes.RTLD_GLOBAL)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        base.ggml_log_set(self.quiet, None)
        ggml.ggml_backend_load_all_from_path(ctypes.c_char_p(folder.encode()))
        own = self.own = ctypes.CDLL(one(folder, "libllama.*.so"))
        own.llama_log_set(self.quiet, None)
        own.llama_model_default_params.restype = Parameters
        own.llama_context_default_params.restype = Parameters
        own.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
        own.llama_model_load_from_file.restype = ctypes.c_void_p
        own.llama_init_from_model.argtypes = [ctypes.c_void_p, Parameters]
        own.llama_init_from_model.restype = ctypes.c_void_p
        own.llama_decode.argtypes = [ctypes.c_void_p, Batch]
        own.llama_synchronize.argtypes = [ctypes.c_void_p]
        own.llama_get_memory.argtypes = [ctypes.c_void_p]
        own.llama_get_memory.restype = ctypes.c_void_p
        own.llama_memory_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        own.llama_memory_seq_rm.restype = ctypes.c_bool
        own.llama_free.argtypes = [ctypes.c_void_p]
        own.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        own.llama_model_get_vocab.restype = ctypes.c_void_p
        own.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
        own.llama_backend_init()


class Lanes:
    """So many sequences with a context of their own each."""

    def __init__(self, library, model, lanes, positions, batch):
        self.own, self.lanes, self.batch = library.own, lanes, batch
        parameters = self.own.llama_context_default_params()
        parameters.words[0:4] = [lanes * positions, batch, batch, lanes]
        self.context = self.own.llama_init_from_model(model, parameters)
        if not self.context:
            sys.exit("npm_peer: no context")
        self.memory = self.own.llama_get_memory(self.context)
        self.vocab = self.own.llama_vocab_n_tokens(self.own.llama_model_get_vocab(model))

    def give(self, tokens, wants):
        """(token, position, sequence) of each; logits of all of them, or of the last."""
        count = len(tokens)
        numbers = ctypes.c_int32 * count
        each = [(ctypes.c_int32 * 1)(sequence) for _, _, sequence in tokens]
        pointers = (ctypes.POINTER(ctypes.c_int32) * count)(*[ctypes.cast(one, ctypes.POINTER(ctypes.c_int32)) for one in each])
        logits = (ctypes.c_int8 * count)(*[1 if wants or at == count - 1 else 0 for at in range(count)])
        batch = Batch(count, numbers(*[token for token, _, _ in tokens]), None, numbers(*[at for _, at, _ in tokens]),
                      numbers(*[1] * count), pointers, logits)
        code = self.own.llama_decode(self.context, batch)
        if code:
            sys.exit(f"npm_peer: llama_decode ends with {code}")

    def text(self, count):
        return [(7919 * at + 13) % (self.vocab - 16) + 8 for at in range(count)]

    def fill(self, count):
        text = self.text(count)
        for sequence in range(self.lanes):
            for begin in range(0, count, self.batch):
                part = text[begin:begin + self.batch]
                self.give([(token, begin + at, sequence) for at, token in enumerate(part)], False)
        self.own.llama_synchronize(self.context)

    def back_to(self, position):
        for sequence in range(self.lanes):
            self.own.llama_memory_seq_rm(self.memory, sequence, position, -1)

    def decode(self, position, count):
        for step, token in enumerate(self.text(count)):
            self.give([(token, position + step, sequence) for sequence in range(self.lanes)], True)
            self.own.llama_synchronize(self.context)

    def close(self):
        self.own.llama_free(self.context)


def figures(speeds):
    return {"median": statistics.median(speeds), "low": min(speeds), "high": max(speeds), "all": speeds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--context", default="0")
    parser.add_argument("--lanes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=512)
    arguments = parser.parse_args()
    library = Library(os.path.abspath(arguments.folder))
    model = library.own.llama_model_load_from_file(arguments.model.encode(), library.own.llama_model_default_params())
    if not model:
        sys.exit(f"npm_peer: llama.cpp cannot load {arguments.model}")
    depths = [int(depth) for depth in arguments.context.split(",")]
    positions = (max(arguments.prompt, max(depths) + arguments.new + 8) + 255) // 256 * 256
    report = {"peer": "llama.cpp", "folder": os.path.basename(arguments.folder), "prefill": None, "decode": [], "lanes": []}
    if arguments.prompt:
        lanes, speeds = Lanes(library, model, 1, positions, arguments.batch), []
        for turn in range(arguments.repeats + 2):
            lanes.back_to(0)
            started = time.perf_counter()
            lanes.fill(arguments.prompt)
            if turn > 1:  # the first are nobody's
                speeds.append(arguments.prompt / (time.perf_counter() - started))
        report["prefill"] = {"tokens": arguments.prompt, "tok_s": figures(speeds)}
        lanes.close()
    counts = [int(count) for count in arguments.lanes.split(",")] if arguments.lanes else [1]
    for count in counts if arguments.new else []:
        lanes = Lanes(library, model, count, positions, arguments.batch)
        for depth in depths:
            lanes.back_to(0)
            if depth:
                lanes.fill(depth)
            started = time.perf_counter()
            while time.perf_counter() - started < WARM_UP:
                lanes.back_to(depth)
                lanes.decode(depth, min(arguments.new, 32))
            speeds = []
            for _ in range(arguments.repeats):
                lanes.back_to(depth)
                started = time.perf_counter()
                lanes.decode(depth, arguments.new)
                speeds.append(count * arguments.new / (time.perf_counter() - started))
            row = {"context": depth, "tokens": arguments.new, "tok_s": figures(speeds)}
            report["decode" if not arguments.lanes else "lanes"].append(row | ({"lanes": count} if arguments.lanes else {}))
        lanes.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
