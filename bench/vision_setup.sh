#!/bin/sh
# Puts the engines that vision_peer.py measures beside the environment of the conformance generators, which has PyTorch and
# ExecuTorch already.
#
#   vision_setup.sh PYTHON FOLDER
#
# FOLDER gets the packages (PYTHONPATH); running it again on a finished folder changes nothing.
set -eu

python=$1
folder=$2
[ -f "$folder/.done" ] && exit 0
"$python" -m pip install --quiet --no-deps --target "$folder" \
    onnxruntime==1.31.1 openvino==2026.4.1 openvino-telemetry==2025.2.0 \
    onnx==1.23.2 onnxscript==0.7.2 onnx_ir==1.1.0 ml_dtypes==0.6.0 protobuf==7.36.2
touch "$folder/.done"
