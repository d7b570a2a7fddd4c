"""Measures llama.cpp as `pteron bench` measures Pteron, and prints one JSON object of the same names.

    peer.py MODEL.gguf [--prompt 512] [--new 128] [--context 0,512,2048] [--threads 2] [--repeats 3] [--lanes 1,4,16]
            [--cpu avx512] [--library FOLDER]

Token ids go straight into the library's C interface, so that no Python stands between two tokens but the call. The batch is
512 tokens, as llama.cpp's own benchmark has it. With --lanes, as many sequences decode in one batch, each with a stream of
the cache of its own. --cpu takes the library's variant for an instruction set; without it, the library chooses. --library
is another build, such as the one for GPUs (`npm pack @node-llama-cpp/linux-x64-vulkan`, in it bins/linux-x64-vulkan).
"""

import argparse
import json
import resource
import statistics
import time

from llama_library import Context, Library


class Lanes:
    """So many sequences of a context that decode in one batch."""

    def __init__(self, context, count):
        self.context, self.count = context, count

    def start(self, depth):
        """All sequences hold the same text of that length."""
        self.context.forget()
        if depth:
            self.context.give(self.context.text(depth), 0)
        for lane in range(1, self.count):
            self.context.copy(lane)

    def back_to(self, depth):
        """Drops positions from there on, in all of them; whether the cache could."""
        return all(self.context.forget_after(depth, lane) for lane in range(self.count))

    def decode(self, depth, count):
        tokens = [1] * self.count
        for step in range(count):
            self.context.decode([(token, depth + step, lane, True) for lane, token in enumerate(tokens)])
            # Any token will do for timing; the logits are touched so that they are there.
            tokens = [1 + int(abs(self.context.logits(lane)[0]) * 1000) % 1000 for lane in range(self.count)]


# Seconds of decoding that are not counted, as in `pteron bench`.
WARM_UP = 2.0


def figures(speeds):
    return {"median": statistics.median(speeds), "low": min(speeds), "high": max(speeds), "all": speeds}


def measure_decode(context, count, arguments, depth):
    """Tokens a second of so many sequences together behind so many positions, and the seconds to get there."""
    lanes = Lanes(context, count)
    started = time.perf_counter()
    lanes.start(depth)
    fill_s = time.perf_counter() - started
    speeds = []
    started = time.perf_counter()
    while time.perf_counter() - started < WARM_UP:  # nobody's
        lanes.decode(depth, arguments.new)
        if not lanes.back_to(depth):
            lanes.start(depth)
    for _ in range(arguments.repeats):
        started = time.perf_counter()
        lanes.decode(depth, arguments.new)
        speeds.append(count * arguments.new / (time.perf_counter() - started))
        if not lanes.back_to(depth):
            lanes.start(depth)
    return {"context": depth, "fill_s": fill_s, "tokens": arguments.new, "tok_s": figures(speeds)}


def measure_prefill(context, arguments):
    text, speeds = context.text(arguments.prompt), []
    for turn in range(arguments.repeats + 2):
        context.forget()
        started = time.perf_counter()
        float(context.give(text, 0)[0])
        if turn > 1:  # the first are nobody's
            speeds.append(arguments.prompt / (time.perf_counter() - started))
    return {"tokens": arguments.prompt, "tok_s": figures(speeds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--context", default="0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lanes")
    parser.add_argument("--cpu")
    parser.add_argument("--library")
    arguments = parser.parse_args()
    library = Library(arguments.library, arguments.cpu)
    depths = [int(depth) for depth in arguments.context.split(",")]
    counts = [int(count) for count in arguments.lanes.split(",")] if arguments.lanes else [1]
    longest = max(depths) + arguments.new + 8
    report = {**library.about(), "threads": arguments.threads, "prefill": None, "decode": [], "lanes": []}
    for count in counts:
        # A context has as many sequences as it was made for.
        positions = longest if arguments.lanes else max(arguments.prompt + 8, longest)
        context = Context(
            library, arguments.model, (positions + 255) // 256 * 256, max(arguments.batch, count), arguments.threads, count
        )
        report.setdefault("load_s", context.load_s)
        if arguments.prompt and not arguments.lanes:
            report["prefill"] = measure_prefill(context, arguments)
        for depth in depths if arguments.new else []:
            row = measure_decode(context, count, arguments, depth)
            report["lanes" if arguments.lanes else "decode"].append(row | ({"lanes": count} if arguments.lanes else {}))
        context.close()
    report["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(report))


if __name__ == "__main__":
    main()
