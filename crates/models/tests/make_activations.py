"""Writes what the activations of `transformers` give for some numbers, computed in float64.

    python make_activations.py > activations.json
"""

import json

import torch
from transformers.activations import ACT2FN

INPUTS = [-60.0, -11.0, -5.5, -3.0, -1.25, -0.5, -0.001, 0.0, 0.001, 0.25, 0.75, 1.0, 2.5, 4.0, 7.5, 25.0]
# These have weights of their own.
LEARNED = {"prelu", "xielu"}

numbers = torch.tensor(INPUTS, dtype=torch.float64)
rows = {name: [float(f"{y:.9g}") for y in ACT2FN[name](numbers).tolist()] for name in sorted(set(ACT2FN) - LEARNED)}
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
print(f'{{\n  "inputs": {json.dumps(INPUTS)},\n{lines}\n}}')
