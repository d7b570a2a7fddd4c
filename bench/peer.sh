#!/bin/sh
# Installs the peer that `cargo xtask bench` compares with: llama.cpp, prebuilt
# for npm's packages of node-llama-cpp with all its variants for instruction
# sets. The library takes the best that the machine has, and `peer.py --cpu PATH`
# another one.
#
#   peer.sh [FOLDER]           default: ./.bench-venv
#   peer.sh FOLDER lookup      and what lookup_peer.py needs, which is compiled:
#                              some 20 minutes of one core
#
# Needs Python 3.11 or later and npm; with "lookup" clang 16 too (Debian: apt-get install
# clang-16 libomp-16-dev). clang, because what GCC 12 makes of llama.cpp's AMX
# path dies with SIGILL. PEER_JOBS bounds the compiler processes (default 1).
# Running it again on a finished folder changes nothing.
set -eu

folder=${1:-./.bench-venv}
python=$folder/bin/python
here=$(cd "$(dirname "$0")" && pwd)
# llama.cpp v0.5.0
version=3.22.1
lookup_version=0.3.36

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) package=linux-x64 ;;
    Linux-aarch64) package=linux-arm64 ;;
    Darwin-arm64) package=mac-arm64-metal ;;
    Darwin-x86_64) package=mac-x64 ;;
    *)
        echo "peer.sh: npm has no llama.cpp for $(uname -s) on $(uname -m)" >&2
        exit 1
        ;;
esac

if ! command -v npm >/dev/null 2>&1; then
    echo "peer.sh: npm is not installed; on Debian: apt-get install npm" >&2
    exit 1
fi
[ -x "$python" ] || python3 -m venv "$folder"
"$python" -c 'import gguf, numpy' 2>/dev/null || "$python" -m pip install --quiet numpy==2.4.6 gguf==0.19.0

if [ ! -e "$folder/llama/$package-$version" ]; then
    rm -rf "$folder/llama"
    mkdir -p "$folder/llama"
    (cd "$folder/llama" && npm pack --silent "@node-llama-cpp/$package@$version" >/dev/null && tar xzf ./*.tgz && rm ./*.tgz)
    : >"$folder/llama/$package-$version"
fi

installed=$("$python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))' 2>/dev/null || true)
if [ "${2:-}" = lookup ] && [ "$installed" != "$lookup_version" ]; then
    clang=${PEER_CC:-clang-16}
    clangxx=${PEER_CXX:-clang++-16}
    if ! command -v "$clang" >/dev/null 2>&1 || ! command -v "$clangxx" >/dev/null 2>&1; then
        echo "peer.sh: $clang is not installed; on Debian: apt-get install clang-16 libomp-16-dev" >&2
        exit 1
    fi
    # What the build itself needs comes by name into the same folder, so that
    # no isolated environment is set up anew for every attempt.
    "$python" -m pip install --quiet scikit-build-core==0.11.6 cmake==3.31.6 ninja==1.13.0
    PATH=$folder/bin:$PATH \
    CC=$clang CXX=$clangxx \
    CMAKE_BUILD_PARALLEL_LEVEL=${PEER_JOBS:-1} \
    CMAKE_ARGS="-DGGML_OPENMP=ON -DCMAKE_BUILD_TYPE=Release -DLLAVA_BUILD=OFF" \
        "$python" -m pip install --no-build-isolation --no-cache-dir --force-reinstall \
        --no-binary llama-cpp-python "llama-cpp-python==$lookup_version"
fi

# What really runs here: the flags that the library itself reports.
PYTHONPATH=$here "$python" -B -c 'from llama_library import Library; print("llama.cpp:", Library().about())'
echo "ready: $python"
