#!/usr/bin/env python3
"""What faster-whisper hears: one JSON object with `load_s`, `heard_s`, `cpu_s` (both without loading) and, for each file, `text` and
`words` ([word, start, end])."""
import argparse
import json
import os
import time

from faster_whisper import BatchedInferencePipeline, WhisperModel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder with the CTranslate2 form")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--compute", default="float32", help="float32 or int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--beam", type=int, default=5, help="1 is greedy; faster-whisper's own default is 5")
    parser.add_argument("--batch", type=int, default=0, help="windows at once, after voice activity; 0: one after the other")
    parser.add_argument("--words", action="store_true")
    options = parser.parse_args()

    begin = time.perf_counter()
    model = WhisperModel(options.model, device="cpu", compute_type=options.compute, cpu_threads=options.threads)
    settings = {"language": "en", "beam_size": options.beam, "word_timestamps": options.words}
    if options.batch:
        model = BatchedInferencePipeline(model)
        settings["batch_size"] = options.batch
    loaded, busy = time.perf_counter(), cpu_seconds()
    files = []
    for file in options.files:
        segments = list(model.transcribe(file, **settings)[0])
        words = [[word.word, word.start, word.end] for segment in segments for word in segment.words or []]
        files.append({"text": "".join(segment.text for segment in segments), "words": words})
    print(json.dumps({
        "load_s": loaded - begin,
        "heard_s": time.perf_counter() - loaded,
        "cpu_s": cpu_seconds() - busy,
        "files": files,
    }))


def cpu_seconds():
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
