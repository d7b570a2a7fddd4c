#!/bin/sh
# Installs the peer that `cargo xtask bench` compares with: llama.cpp, through
# the PyPI package llama-cpp-python, compiled here with all its variants for
# x86 instruction sets: the library takes the best that the machine has, and
# `peer.py --cpu PATH` another one.
#
#   peer.sh [FOLDER]      default: ./.bench-venv
#
# Needs Python 3.11 and clang 16 (Debian: apt-get install clang-16
# libomp-16-dev). clang, because what GCC 12 makes of llama.cpp's AMX path dies
# with SIGILL. PEER_JOBS bounds the compiler processes (default 1: a build
# beside other work; it takes some 20 minutes of one core). Running it again on
# a finished folder changes nothing.
set -eu

folder=${1:-./.bench-venv}
python=$folder/bin/python
version=0.3.36
jobs=${PEER_JOBS:-1}
clang=${PEER_CC:-clang-16}
clangxx=${PEER_CXX:-clang++-16}

if ! command -v "$clang" >/dev/null 2>&1 || ! command -v "$clangxx" >/dev/null 2>&1; then
    echo "peer.sh: $clang is not installed; on Debian: apt-get install clang-16 libomp-16-dev" >&2
    exit 1
fi

[ -x "$python" ] || python3.11 -m venv "$folder"
installed=$("$python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))' 2>/dev/null || true)
# A build for one machine, as older scripts made it, has no variants.
variants=$(find "$folder" -name 'libggml-cpu-haswell.so' 2>/dev/null | head -n 1)
if [ "$installed" != "$version" ] || { [ -z "$variants" ] && [ "$(uname -m)" = x86_64 ]; }; then
    # What the build itself needs comes by name into the same folder, so that
    # no isolated environment is set up anew for every attempt.
    "$python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0 scikit-build-core==0.11.6 cmake==3.31.6 ninja==1.13.0
    PATH=$folder/bin:$PATH \
    CC=$clang CXX=$clangxx \
    CMAKE_BUILD_PARALLEL_LEVEL=$jobs \
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DGGML_OPENMP=ON -DCMAKE_BUILD_TYPE=Release -DLLAVA_BUILD=OFF" \
        "$python" -m pip install --no-build-isolation --no-cache-dir --force-reinstall \
        --no-binary llama-cpp-python "llama-cpp-python==$version"
fi

# What really runs here: the flags that the library itself reports.
"$python" - <<'PYTHON'
import ctypes
import os

import llama_cpp

folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
library = ctypes.CDLL(os.path.join(folder, "libggml.so"))
if hasattr(library, "ggml_backend_load_all_from_path"):
    library.ggml_backend_load_all_from_path(ctypes.c_char_p(folder.encode()))
llama_cpp.llama_backend_init()
print("llama.cpp:", llama_cpp.llama_print_system_info().decode())
PYTHON
echo "ready: $python"
