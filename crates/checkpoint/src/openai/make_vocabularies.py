"""Writes the two vocabularies of Whisper's text tokens, which OpenAI publishes with its code, not with its weights.

    pip download --no-deps openai-whisper==20250625; tar xf openai_whisper-20250625.tar.gz
    python make_vocabularies.py openai_whisper-20250625/whisper/assets

A file has the 256 single bytes in the order of their ids, then for each further token the ids of the two tokens that it is
joined from, two bytes each: byte-pair encoding by rank says which.
"""

import base64
import struct
import sys
from pathlib import Path

HERE = Path(__file__).parent


def halves(token, ranks):
    """The last two parts that a token is joined from by the tokens before it."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, len(ranks)), at) for at, (a, b) in enumerate(zip(parts, parts[1:])) if a + b != token]
        rank, at = min(pairs)
        assert rank < ranks[token], token
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ranks[part] for part in parts]


for name, made in [("gpt2", "english"), ("multilingual", "multilingual")]:
    lines = (Path(sys.argv[1]) / f"{name}.tiktoken").read_bytes().split(b"\n")
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    tokens = sorted(ranks, key=ranks.get)
    assert [ranks[token] for token in tokens] == list(range(len(tokens)))
    data = b"".join(tokens[:256])
    empty = [at for at, token in enumerate(tokens) if not token]
    for token in tokens[256:]:
        data += struct.pack("<2H", *halves(token, ranks)) if token else struct.pack("<2H", 0xFFFF, 0xFFFF)
    (HERE / f"{made}.pairs").write_bytes(data)
    print(name, len(tokens), len(data), empty)
