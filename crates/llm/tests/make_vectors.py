#!/usr/bin/env python3
"""Write vectors.zip: templates, tokenizers and sampler settings of our own making with what the reference libraries give.

usage: make_vectors.py     (needs what conformance/make_vectors.py needs)

The templates are the .jinja files beside this script; tokenizers, inputs and sampler settings are those of the
generators in conformance/. A second run gives the same bytes.
"""

import logging
import os
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "conformance"))

import torch
import vec_templates
from case_files import write_json
from vec_sampling import write_sampling
from vec_tokenizers import write_tokenizers

# Others cover the same rules, and the archive shall stay small.
LEFT_OUT = {"hf-gpt2", "hf-smollm"}


def write_own_templates(out):
    for file in sorted((HERE / "templates").glob("*.jinja")):
        template = file.read_bytes().decode()
        cases = {name: vec_templates.render(template, given) for name, given in vec_templates.INPUTS.items()}
        write_json(out / f"{file.stem}.json", {"name": file.stem, "kind": "template", "template": template, "cases": cases})


def pack(folder, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not LEFT_OUT & set(name.parts):
                archive.writestr(zipfile.ZipInfo(str(name), (2026, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        vec_templates.write_templates(folder / "templates", None)
        write_own_templates(folder / "templates")
        write_tokenizers(folder / "tokenizers", None)
        write_sampling(folder / "sampling")
        pack(folder, HERE / "vectors.zip")
    print(f"{HERE / 'vectors.zip'}: {(HERE / 'vectors.zip').stat().st_size} bytes")


if __name__ == "__main__":
    main()
