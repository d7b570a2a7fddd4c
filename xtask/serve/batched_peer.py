"""llama.cpp's library as a server would drive it: as many sequences as there are clients in one batch, each with its prompts
one after the other. Reads one JSON object (`model`, `threads`, `new`, and for every client its prompts as lists of tokens) and
prints one: tokens a second of all together, seconds to the first token of every answer, seconds between two tokens.

A step takes a token of every sequence that answers and as much of waiting prompts as the batch has room for, as llama.cpp's own
server does; the likeliest token is chosen. Nothing of HTTP, templates or text is counted on this side.
"""

import json
import os
import sys
import time

import llama_cpp
import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from peer import Peer, load_backends  # noqa: E402

BATCH = 512


class Sequence:
    """One client: what it has still to ask, and how far its answer has come."""

    def __init__(self, number, prompts):
        self.number, self.prompts = number, list(prompts)
        self.unread, self.position, self.times = [], 0, []
        self.first, self.between = [], []

    def next(self, memory, now):
        """Asks for the next answer; whether there is one."""
        if not self.prompts:
            return False
        llama_cpp.llama_memory_seq_rm(memory, self.number, 0, -1)
        self.unread, self.position, self.times, self.asked = list(self.prompts.pop(0)), 0, [], now
        return True

    def told(self, token, now, new):
        """Takes a token; whether the answer goes on."""
        self.times.append(now - self.asked)
        self.unread = [token]
        if len(self.times) < new:
            return True
        self.first.append(self.times[0])
        self.between += [after - before for before, after in zip(self.times, self.times[1:])]
        return False


def main():
    asked = json.load(sys.stdin)
    load_backends(None)
    clients, new = asked["clients"], asked["new"]
    longest = max(len(prompt) for prompts in clients for prompt in prompts) + new + 8
    peer = Peer(asked["model"], longest, BATCH, asked["threads"], -1, len(clients))
    peer.give(peer.text(16))  # the first is nobody's
    peer.forget()
    memory = llama_cpp.llama_get_memory(peer.context)
    batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
    sequences = [Sequence(number, prompts) for number, prompts in enumerate(clients)]
    began = time.perf_counter()
    active = [sequence for sequence in sequences if sequence.next(memory, began)]
    while active:
        batch.n_tokens, wanted = 0, []
        # Those that answer first, then those that wait.
        for sequence in sorted(active, key=lambda sequence: len(sequence.unread) > 1):
            part = sequence.unread[: BATCH - batch.n_tokens]
            for token in part:
                at = batch.n_tokens
                batch.token[at], batch.pos[at] = token, sequence.position
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence.number
                sequence.position += 1
                batch.logits[at] = 0
                batch.n_tokens += 1
            sequence.unread = sequence.unread[len(part) :]
            if part and not sequence.unread:
                batch.logits[batch.n_tokens - 1] = 1
                wanted.append((batch.n_tokens - 1, sequence))
        if llama_cpp.llama_decode(peer.context, batch) != 0:
            sys.exit("peer: llama_decode failed")
        chosen = []
        for at, sequence in wanted:
            logits = llama_cpp.llama_get_logits_ith(peer.context, at)
            chosen.append((sequence, int(numpy.ctypeslib.as_array(logits, (peer.vocab,)).argmax())))
        now = time.perf_counter()
        for sequence, token in chosen:
            if not sequence.told(token, now, new) and not sequence.next(memory, now):
                active.remove(sequence)
    seconds = time.perf_counter() - began
    llama_cpp.llama_batch_free(batch)
    tokens = new * sum(len(prompts) for prompts in clients)
    first = [time for sequence in sequences for time in sequence.first]
    between = [time for sequence in sequences for time in sequence.between]
    print(json.dumps({"tok_s": tokens / seconds, "first": first, "between": between}))


if __name__ == "__main__":
    main()
