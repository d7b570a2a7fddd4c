"""llama.cpp by its C interface, from prebuilt libraries as npm's packages of node-llama-cpp have them, so that nothing is compiled.

Structures are larger here than the library's own, of which only the first numbers of a context's parameters are touched:
what is behind them stays as the library gives it (flash attention where the library chooses it, all layers on a GPU where
there is one). So no header of a certain version is needed.
"""

import ctypes
import glob
import os
import sys
import time

# The library's variant with the instructions of one of Pteron's paths.
VARIANTS = {
    "amx": "sapphirerapids",
    "avx512": "icelake",
    "avx512bw": "skylakex",
    "avxvnni": "alderlake",
    "avx2": "haswell",
    "scalar": "x64",
}


class Parameters(ctypes.Structure):
    """Of a model or of a context; larger than any of them, so that a library of another version fits too."""

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


# Results and arguments of what is called; a pointer is `void *` throughout.
POINTER, INT, FLAG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
INTERFACE = {
    "llama_backend_init": (None, []),
    "llama_print_system_info": (ctypes.c_char_p, []),
    "llama_model_default_params": (Parameters, []),
    "llama_context_default_params": (Parameters, []),
    "llama_model_load_from_file": (POINTER, [ctypes.c_char_p, Parameters]),
    "llama_model_free": (None, [POINTER]),
    "llama_model_get_vocab": (POINTER, [POINTER]),
    "llama_vocab_n_tokens": (INT, [POINTER]),
    "llama_init_from_model": (POINTER, [POINTER, Parameters]),
    "llama_set_n_threads": (None, [POINTER, INT, INT]),
    "llama_free": (None, [POINTER]),
    "llama_decode": (INT, [POINTER, Batch]),
    "llama_synchronize": (None, [POINTER]),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [POINTER, INT]),
    "llama_get_memory": (POINTER, [POINTER]),
    "llama_memory_clear": (None, [POINTER, FLAG]),
    "llama_memory_seq_rm": (FLAG, [POINTER, INT, INT, INT]),
    "llama_memory_seq_cp": (None, [POINTER, INT, INT, INT, INT]),
}


def one(folder, pattern):
    found = sorted(glob.glob(os.path.join(folder, pattern)))
    if not found:
        sys.exit(f"peer: there is no {pattern} in {folder}; peer.sh brings it")
    return found[0]


def installed():
    """The folder that peer.sh fills, which lies in the environment of the Python that runs this."""
    return os.path.dirname(one(os.path.join(sys.prefix, "llama"), "package/bins/*/libggml-base*"))


class Library:
    """All of the library that is used, in `folder`; `cpu` is one of Pteron's paths, and without it the library chooses."""

    def __init__(self, folder=None, cpu=None):
        self.folder = os.path.abspath(folder or installed())
        # What each of them needs lies beside it.
        base = ctypes.CDLL(one(self.folder, "libggml-base*"), mode=ctypes.RTLD_GLOBAL)
        ggml = ctypes.CDLL(one(self.folder, "libggml.*"), mode=ctypes.RTLD_GLOBAL)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        base.ggml_log_set(self.quiet, None)
        if cpu is None:
            ggml.ggml_backend_load_all_from_path(ctypes.c_char_p(self.folder.encode()))
        elif cpu not in VARIANTS:
            sys.exit(f"peer: no variant of llama.cpp is for {cpu}; there are {', '.join(VARIANTS)}")
        else:
            variant = one(self.folder, f"libggml-cpu-{VARIANTS[cpu]}.*")
            ggml.ggml_backend_load.restype = ctypes.c_void_p
            if not ggml.ggml_backend_load(ctypes.c_char_p(variant.encode())):
                sys.exit(f"peer: this machine cannot run {os.path.basename(variant)}")
        own = ctypes.CDLL(one(self.folder, "libllama.*"))
        own.llama_log_set(self.quiet, None)
        for name, (result, arguments) in INTERFACE.items():
            function = getattr(own, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("llama_"), function)
        self.backend_init()

    def about(self):
        """Which library it is, and what it says of itself."""
        version = os.path.basename(one(self.folder, "libllama.*")).removeprefix("libllama.").rpartition(".")[0]
        return {"peer": "llama.cpp", "version": version, "system": self.print_system_info().decode()}


class Context:
    """A model with one context of so many sequences, each with room for so many positions."""

    def __init__(self, library, path, positions, batch, threads, lanes=1):
        self.library, self.batch = library, batch
        started = time.perf_counter()
        self.model = library.model_load_from_file(path.encode(), library.model_default_params())
        if not self.model:
            sys.exit(f"peer: llama.cpp cannot load {path}")
        self.load_s = time.perf_counter() - started
        parameters = library.context_default_params()
        parameters.words[0:4] = [positions * lanes, batch, batch, lanes]
        self.context = library.init_from_model(self.model, parameters)
        if not self.context:
            sys.exit("peer: llama.cpp cannot make a context")
        library.set_n_threads(self.context, threads, threads)
        self.memory = library.get_memory(self.context)
        self.vocab = library.vocab_n_tokens(library.model_get_vocab(self.model))

    def close(self):
        self.library.free(self.context)
        self.library.model_free(self.model)

    def forget(self):
        self.library.memory_clear(self.memory, False)

    def forget_after(self, position, sequence=0):
        """Drops positions from there on; whether the cache could."""
        return self.library.memory_seq_rm(self.memory, sequence, position, -1)

    def copy(self, sequence):
        """The first sequence, once more."""
        self.library.memory_seq_cp(self.memory, 0, sequence, -1, -1)

    def decode(self, tokens):
        """(token, position, sequence, whether its logits are wanted) of each."""
        count = len(tokens)
        numbers = ctypes.c_int32 * count
        each = [numbers(*column) for column in list(zip(*tokens))[:2]]
        homes = [(ctypes.c_int32 * 1)(sequence) for _, _, sequence, _ in tokens]
        pointers = (ctypes.POINTER(ctypes.c_int32) * count)(
            *[ctypes.cast(home, ctypes.POINTER(ctypes.c_int32)) for home in homes]
        )
        wanted = (ctypes.c_int8 * count)(*[int(wants) for *_, wants in tokens])
        batch = Batch(count, each[0], None, each[1], numbers(*[1] * count), pointers, wanted)
        if code := self.library.decode(self.context, batch):
            sys.exit(f"peer: llama_decode ends with {code}")

    def logits(self, at):
        return self.library.get_logits_ith(self.context, at)

    def give(self, tokens, position, sequence=0):
        """Tokens behind those that are there; the logits of the last one."""
        for begin in range(0, len(tokens), self.batch):
            part = tokens[begin : begin + self.batch]
            last = begin + len(part) == len(tokens)
            ends = [False] * (len(part) - 1) + [last]
            self.decode([(token, position + begin + at, sequence, ends[at]) for at, token in enumerate(part)])
        return self.logits(-1)

    def text(self, tokens):
        ids = min(self.vocab, 20000)
        return [(at * 7919 + 13) % ids for at in range(tokens)]
