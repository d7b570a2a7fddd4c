#!/usr/bin/env python3
"""Whisper as OpenAI publishes it (.pt), as whisper.cpp's file (ggml, f16).

    speech_ggml.py MODEL.pt HEADER.bin OUT.bin

HEADER.bin is one of the files without tensors that whisper.cpp's tests use: sizes, mel filters and vocabulary are taken from there.
Each tensor follows as: number of dimensions, length of the name, type (0 f32, 1 f16), dimensions from the innermost, name, values.
No PyTorch: the pickle is read with a reader that makes nothing but tensors.
"""
import argparse
import pickle
import struct
import sys
import zipfile

import numpy as np

# Added to activations, which whisper.cpp wants in f32.
WHOLE = {"encoder.positional_embedding", "decoder.positional_embedding"}
SIZES = ("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx", "n_text_state", "n_text_head",
         "n_text_layer", "n_mels")


class Reader(pickle.Unpickler):
    """Reads `{"dims": ..., "model_state_dict": ...}`, and refuses what is neither a tensor nor a plain value."""

    def __init__(self, archive, root):
        super().__init__(archive.open(f"{root}/data.pkl"))
        self.archive = archive
        self.root = root

    def find_class(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self.tensor
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch", "HalfStorage"):
            return np.float16
        if (module, name) == ("torch", "FloatStorage"):
            return np.float32
        raise pickle.UnpicklingError(f"{module}.{name} is not expected in a Whisper")

    def persistent_load(self, reference):
        kind, dtype, key, *_ = reference
        if kind != "storage":
            raise pickle.UnpicklingError(f"{kind} is not a storage")
        return np.frombuffer(self.archive.read(f"{self.root}/data/{key}"), dtype=dtype)

    @staticmethod
    def tensor(storage, offset, shape, strides, *_):
        steps = [step * storage.itemsize for step in strides]
        return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("header")
    parser.add_argument("out")
    options = parser.parse_args()

    with zipfile.ZipFile(options.model) as archive:
        root = next(name for name in archive.namelist() if name.endswith("/data.pkl")).rsplit("/", 1)[0]
        model = Reader(archive, root).load()
        header = open(options.header, "rb").read()
        sizes = struct.unpack_from("<10i", header, 4)
        wanted = tuple(model["dims"][name] for name in SIZES)
        if sizes != wanted:
            sys.exit(f"speech_ggml.py: {options.header} is of another model: {sizes}, not {wanted}")
        with open(options.out, "wb") as out:
            out.write(header)
            for name, values in model["model_state_dict"].items():
                half = values.ndim > 1 and name not in WHOLE
                if name.startswith("encoder.conv") and name.endswith(".bias"):
                    values = values.reshape(-1, 1)
                label = name.encode()
                out.write(struct.pack("<3i", values.ndim, len(label), half))
                out.write(struct.pack(f"<{values.ndim}i", *reversed(values.shape)))
                out.write(label)
                out.write(np.ascontiguousarray(values, dtype="<f2" if half else "<f4").tobytes())


if __name__ == "__main__":
    main()
