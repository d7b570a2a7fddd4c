"""Measures llama.cpp as `pteron bench` measures Pteron, and prints one JSON object of the same names.

    peer.py MODEL.gguf [--prompt 512] [--new 128] [--context 0,512,2048] [--threads 2] [--repeats 3] [--lanes 1,4,16]
            [--cpu avx512]

Token ids go straight into the library's C interface, so that no Python stands between two tokens but the call. The
batch is 512 tokens, as llama.cpp's own benchmark has it; flash attention is on ("auto" leaves the choice to it). With
--lanes, as many sequences decode in one batch, each with a stream of the cache of its own. --cpu takes the library's variant
for an instruction set, where it was built with all of them; without it, the library chooses.
"""

import argparse
import ctypes
import glob
import json
import os
import resource
import statistics
import sys
import time

import llama_cpp


# The library's variant with the instructions of one of Pteron's paths.
VARIANTS = {
    "amx": "sapphirerapids",
    "avx512": "icelake",
    "avx512bw": "skylakex",
    "avxvnni": "alderlake",
    "avx2": "haswell",
    "scalar": "x64",
}


def load_backends(cpu):
    """Loads the variant for a path, or lets the library choose; a build of one variant has nothing to load."""
    folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
    if not glob.glob(os.path.join(folder, "libggml-cpu-*.so")):
        if cpu:
            sys.exit("peer: llama.cpp was built for one instruction set; peer.sh builds all")
        return
    library = ctypes.CDLL(os.path.join(folder, "libggml.so"))
    if not cpu:
        library.ggml_backend_load_all_from_path(ctypes.c_char_p(folder.encode()))
        return
    if cpu not in VARIANTS:
        sys.exit(f"peer: no variant of llama.cpp is for {cpu}; there are {', '.join(VARIANTS)}")
    variant = os.path.join(folder, f"libggml-cpu-{VARIANTS[cpu]}.so")
    library.ggml_backend_load.restype = ctypes.c_void_p
    if not library.ggml_backend_load(ctypes.c_char_p(variant.encode())):
        sys.exit(f"peer: this machine cannot run {variant}")


class Peer:
    """A model with one context."""

    def __init__(self, path, positions, batch, threads, flash, lanes=1):
        llama_cpp.llama_backend_init()
        silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.silence = silence  # kept alive as long as the library may call it
        llama_cpp.llama_log_set(silence, ctypes.c_void_p(0))
        started = time.perf_counter()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"peer: llama.cpp cannot load {path}")
        self.load_s = time.perf_counter() - started
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = positions * lanes
        parameters.n_seq_max = lanes
        parameters.n_batch = batch
        parameters.n_ubatch = batch
        parameters.n_threads = threads
        parameters.n_threads_batch = threads
        parameters.no_perf = True
        if hasattr(parameters, "flash_attn_type"):
            parameters.flash_attn_type = flash
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not self.context:
            sys.exit("peer: llama.cpp cannot make a context")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = batch

    def close(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def forget(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)

    def forget_after(self, position):
        """Drops positions from there on; whether the cache could."""
        memory = llama_cpp.llama_get_memory(self.context)
        return llama_cpp.llama_memory_seq_rm(memory, 0, position, -1)

    def give(self, tokens):
        """Tokens behind those that are there; the most likely next one."""
        for start in range(0, len(tokens), self.batch):
            part = tokens[start : start + self.batch]
            array = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(part))) != 0:
                sys.exit("peer: llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return logits

    def text(self, tokens):
        ids = min(self.vocab or 20000, 20000)
        return [(at * 7919 + 13) % ids for at in range(tokens)]

    def decode(self, count):
        token = 1
        for _ in range(count):
            logits = self.give([token])
            # Any token will do for timing; the logits are touched so that they are there.
            token = 1 + int(abs(logits[0]) * 1000) % 1000
        return token


class Lanes:
    """So many sequences of a peer that decode in one batch."""

    def __init__(self, peer, count):
        self.peer, self.count = peer, count
        self.batch = llama_cpp.llama_batch_init(count, 0, 1)
        self.memory = llama_cpp.llama_get_memory(peer.context)

    def start(self, depth):
        """All sequences hold the same text of that length."""
        self.peer.forget()
        if depth:
            self.peer.give(self.peer.text(depth))
        for lane in range(1, self.count):
            llama_cpp.llama_memory_seq_cp(self.memory, 0, lane, -1, -1)

    def back_to(self, depth):
        """Drops positions from there on, in all of them; whether the cache could."""
        return all(llama_cpp.llama_memory_seq_rm(self.memory, lane, depth, -1) for lane in range(self.count))

    def decode(self, depth, count):
        tokens = [1] * self.count
        self.batch.n_tokens = self.count
        for step in range(count):
            for lane, token in enumerate(tokens):
                self.batch.token[lane] = token
                self.batch.pos[lane] = depth + step
                self.batch.n_seq_id[lane] = 1
                self.batch.seq_id[lane][0] = lane
                self.batch.logits[lane] = 1
            if llama_cpp.llama_decode(self.peer.context, self.batch) != 0:
                sys.exit("peer: llama_decode failed")
            for lane in range(self.count):
                logits = llama_cpp.llama_get_logits_ith(self.peer.context, lane)
                tokens[lane] = 1 + int(abs(logits[0]) * 1000) % 1000

    def close(self):
        llama_cpp.llama_batch_free(self.batch)


def measure_lanes(arguments, flash, depths):
    """Tokens a second of all sequences together, for every number of them and depth."""
    rows = []
    load_s = None
    for count in [int(count) for count in arguments.lanes.split(",")]:
        # A context has as many sequences as it was made for.
        positions = max(depths) + arguments.new + 8
        peer = Peer(arguments.model, positions, max(arguments.batch, count), arguments.threads, flash, count)
        load_s = load_s or peer.load_s
        lanes = Lanes(peer, count)
        for depth in depths:
            lanes.start(depth)
            started = time.perf_counter()
            lanes.decode(depth, arguments.new)
            while time.perf_counter() - started < WARM_UP and lanes.back_to(depth):
                lanes.decode(depth, arguments.new)
            speeds = []
            for _ in range(arguments.repeats):
                if not lanes.back_to(depth):
                    lanes.start(depth)
                started = time.perf_counter()
                lanes.decode(depth, arguments.new)
                speeds.append(count * arguments.new / (time.perf_counter() - started))
            rows.append({"lanes": count, "context": depth, "tokens": arguments.new, "tok_s": figures(speeds)})
        lanes.close()
        peer.close()
    return rows, load_s


# Seconds of decoding that are not counted, as in `pteron bench`.
WARM_UP = 2.0


def figures(speeds):
    return {"median": statistics.median(speeds), "low": min(speeds), "high": max(speeds), "all": speeds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--context", default="0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--flash", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--lanes")
    parser.add_argument("--cpu")
    arguments = parser.parse_args()
    load_backends(arguments.cpu)
    depths = [int(depth) for depth in arguments.context.split(",")]
    positions = max(arguments.prompt, max(depths) + arguments.new + 8) + 8
    flash = {"auto": -1, "off": 0, "on": 1}[arguments.flash]
    if arguments.lanes:
        rows, load_s = measure_lanes(arguments, flash, depths)
        about = {"peer": "llama.cpp", "version": llama_cpp.__version__, "threads": arguments.threads, "load_s": load_s}
        about["system"] = llama_cpp.llama_print_system_info().decode()
        print(json.dumps({**about, "prefill": None, "decode": [], "lanes": rows}))
        return
    peer = Peer(arguments.model, positions, arguments.batch, arguments.threads, flash)
    report = {
        "peer": "llama.cpp",
        "version": llama_cpp.__version__,
        "system": llama_cpp.llama_print_system_info().decode(),
        "threads": arguments.threads,
        "load_s": peer.load_s,
        "prefill": None,
        "decode": [],
    }
    if arguments.prompt:
        text, speeds = peer.text(arguments.prompt), []
        for turn in range(arguments.repeats + 1):
            peer.forget()
            started = time.perf_counter()
            peer.give(text)
            if turn:  # the first is nobody's
                speeds.append(arguments.prompt / (time.perf_counter() - started))
        report["prefill"] = {"tokens": arguments.prompt, "tok_s": figures(speeds)}
    for depth in depths if arguments.new else []:
        speeds, fill_s = [], 0.0
        for turn in range(arguments.repeats + 1):
            if turn == 0 or not peer.forget_after(depth):
                peer.forget()
                started = time.perf_counter()
                if depth:
                    peer.give(peer.text(depth))
                fill_s = time.perf_counter() - started
            started = time.perf_counter()
            peer.decode(arguments.new)
            if turn == 0:  # nobody's, like all others of the first seconds
                while time.perf_counter() - started < WARM_UP and peer.forget_after(depth):
                    peer.decode(arguments.new)
            else:
                speeds.append(arguments.new / (time.perf_counter() - started))
        report["decode"].append({"context": depth, "fill_s": fill_s, "tokens": arguments.new, "tok_s": figures(speeds)})
    report["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(report))


if __name__ == "__main__":
    main()
