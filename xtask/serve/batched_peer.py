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

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from llama_library import Context, Library  # noqa: E402

BATCH = 512


class Sequence:
    """One client: what it has still to ask, and how far its answer has come."""

    def __init__(self, number, prompts):
        self.number, self.prompts = number, list(prompts)
        self.unread, self.position, self.times = [], 0, []
        self.first, self.between = [], []

    def next(self, context, now):
        """Asks for the next answer; whether there is one."""
        if not self.prompts:
            return False
        context.forget_after(0, self.number)
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
    clients, new = asked["clients"], asked["new"]
    longest = max(len(prompt) for prompts in clients for prompt in prompts) + new + 8
    context = Context(Library(), asked["model"], longest, BATCH, asked["threads"], len(clients))
    float(context.give(context.text(16), 0)[0])  # the first is nobody's
    context.forget()
    sequences = [Sequence(number, prompts) for number, prompts in enumerate(clients)]
    began = time.perf_counter()
    active = [sequence for sequence in sequences if sequence.next(context, began)]
    while active:
        batch, wanted = [], []
        # Those that answer first, then those that wait.
        for sequence in sorted(active, key=lambda sequence: len(sequence.unread) > 1):
            part = sequence.unread[: BATCH - len(batch)]
            sequence.unread = sequence.unread[len(part) :]
            for at, token in enumerate(part):
                ends = at + 1 == len(part) and not sequence.unread
                if ends:
                    wanted.append((len(batch), sequence))
                batch.append((token, sequence.position, sequence.number, ends))
                sequence.position += 1
        context.decode(batch)
        chosen = []
        for at, sequence in wanted:
            logits = numpy.ctypeslib.as_array(context.logits(at), (context.vocab,))
            chosen.append((sequence, int(logits.argmax())))
        now = time.perf_counter()
        for sequence, token in chosen:
            if not sequence.told(token, now, new) and not sequence.next(context, now):
                active.remove(sequence)
    seconds = time.perf_counter() - began
    tokens = new * sum(len(prompts) for prompts in clients)
    first = [time for sequence in sequences for time in sequence.first]
    between = [time for sequence in sequences for time in sequence.between]
    print(json.dumps({"tok_s": tokens / seconds, "first": first, "between": between}))


if __name__ == "__main__":
    main()
