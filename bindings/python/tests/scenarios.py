"""The scenarios of `bindings/scenarios.json` in Python: `scenarios.py SCENARIOS MODELS HOME`; with `LIVES` behind it, what stays of so
many models, and what a token takes."""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy

import pteron
from pteron import PteronError


def kind(action) -> str:
    """The kind of error that something gives."""
    try:
        action()
    except PteronError as error:
        return type(error).__name__.rsplit(".", 1)[-1]
    return "none"


def fail(*_) -> None:
    raise ValueError("a listener's own mistake")


def open_(given, models, home):
    talking = models / "talking.pte"
    needs = pteron.requirements(talking)
    events, converting = [], []
    pteron.Model.open(talking, progress=lambda event: events.append(event_name(event))).dispose()
    cancel = pteron.Cancel()
    cancel.cancel()
    facts = {
        "needs_more_than_weights": needs.total > needs.weights,
        "events": events,
        "refused": kind(lambda: pteron.Model.open(talking, progress=lambda _: False)),
        "thrown": kind(lambda: pteron.Model.open(talking, progress=fail)),
        "cancelled": kind(lambda: pteron.Model.open(talking, cancel=cancel)),
    }
    told = lambda event: converting.append(event_name(event))
    with pteron.Embedder.open(models / "embedding", home=home, progress=told) as embedder:
        first, second, third = embedder.embed(given["texts"])
        return facts | {
            "converted": "converting" in converting,
            "dimensions": embedder.dimensions,
            "equal": first == second,
            "different": first != third,
        }


def event_name(event) -> str:
    return type(event).__name__.rsplit(".", 1)[-1].lower()


def rewind(given, models, home):
    options = {"max_tokens": given["max_tokens"], "temperature": given["temperature"]}
    with pteron.Model.open(models / "talking.pte") as model:
        chat = model.chat(given["system"], **options)
        first, second = (chat.send(question) for question in given["questions"])
        chat.rewind(1)
        again = chat.send(given["questions"][1])
        fork = chat.fork()
        fork.rewind(0)
        file = home / "python.chat"
        chat.save(file)
        restored = model.chat(**options)
        restored.restore(file)
        restored_turns = restored.turns
        state = chat.cache_state
        return {
            "roles": [message.role for message in chat.history],
            "same_again": again.text == second.text,
            "turns": chat.turns,
            "fork_turns": fork.turns,
            "restored_turns": restored_turns,
            "undone": restored.undo(),
            "position_is_within": 0 < state.position <= state.capacity,
            "capacity": state.capacity,
            "answer": first.text,
            "tokens": first.tokens,
        }


def schema(given, models, home):
    with pteron.Model.open(models / "talking.pte") as model:
        chat = model.chat(temperature=0)
        answer = chat.send(given["question"], schema=given["schema"], temperature=0)
        return {
            "answer": answer.text,
            "is_allowed": json.loads(answer.text) in json.loads(given["schema"])["enum"],
            "finish": answer.finish_reason.name.capitalize(),
            "unknown": kind(lambda: chat.send(given["question"], schema=given["unknown"])),
            "broken": kind(lambda: chat.send(given["question"], schema=given["broken"])),
            "turns": chat.turns,
        }


def tools(given, models, home):
    with pteron.Model.open(models / "talking.pte") as model:
        chat = model.chat(tools=given["tools"], max_tokens=given["max_tokens"], temperature=0)
        answer = chat.send(given["question"], schema=given["schema"], temperature=0)
        [call] = answer.tool_calls
        chat.send_result(given["result"])
        generation = model.generation(max_tokens=given["max_tokens"], temperature=0)
        [generated] = generation.generate([{"role": "user", "content": given["question"]}], given["tools"])
        return {
            "call": call.name,
            "city": json.loads(call.arguments)["city"],
            "roles": [message.role for message in chat.history],
            "generated": generated.text,
            "generated_calls": len(generated.tool_calls),
        }


def slow(given, models) -> pteron.Model:
    """A model whose answers last long enough to be interrupted."""
    return pteron.Model.open(models / "talking.pte", backend=given["slow"], context=given["context"])


def at_once(given, models, home):
    options = {"max_tokens": given["max_tokens"], "temperature": given["temperature"]}
    with pteron.Model.open(models / "talking.pte") as model:

        async def together():
            async def told(question):
                stream = model.chat(**options).stream(question)
                return [piece async for piece in stream], stream.answer.text

            return await asyncio.gather(*(told(question) for question in given["questions"]))

        answers = asyncio.run(together())
        alone = [model.chat(**options).send(question).text for question in given["questions"]]
    with slow(given, models) as model:
        busy = model.chat(ignore_end=True)
        stream = busy.stream("Hello")
        second = kind(lambda: busy.send("Why?"))
        stream.stop()
        for _ in stream:
            pass
        return {
            "same_as_alone": [text for _, text in answers] == alone,
            "pieces_make_the_answer": all("".join(pieces) == text for pieces, text in answers),
            "second_call": second,
            "finish": stream.answer.finish_reason.name.capitalize(),
            "usable_after": busy.send("Why?", max_tokens=2).text is not None,
        }


def memory(given, models, home):
    try:
        pteron.Model.open(models / "talking.pte", memory_limit=given["memory_limit"])
    except PteronError.NotEnoughMemory as error:
        return {"error": "NotEnoughMemory", "needed_is_more": error.needed > error.limit, "limit": error.limit}


def bad_file(given, models, home):
    try:
        pteron.Model.open(models / "nothing.pte")
    except PteronError.NotFound as error:
        named = "nothing.pte" in str(error)
    return {
        "missing": kind(lambda: pteron.Model.open(models / "nothing.pte")),
        "missing_named": named,
        "text": kind(lambda: pteron.Model.open(models / "text.txt")),
        "broken": kind(lambda: pteron.Model.open(models / "broken.pte")),
        "silent": kind(lambda: pteron.Model.open(models / "silent.pte").chat()),
    }


def dispose(given, models, home):
    model = slow(given, models)
    chat = model.chat(ignore_end=True)
    stream = chat.stream(given["question"])
    first = next(iter(stream))
    chat.dispose()
    facts = {"first_piece": first != "", "after": kind(lambda: chat.send("Hello"))}
    for _ in stream:
        pass
    other = model.chat(ignore_end=True)
    facts |= {
        "stream": stream.answer.finish_reason.name.capitalize(),
        "thrown": kind(lambda: other.send(given["question"], fail)),
        "turns_after_throw": other.turns,
    }
    model.dispose()
    facts |= {"chat_of_disposed": kind(lambda: other.send("Hello")), "model": kind(model.chat)}
    model.dispose()
    other.dispose()
    return facts | {"twice": True}


def module(given, models, home):
    module = pteron.Module.load(models / "silent.pte")
    tokens = numpy.array([given["tokens"]], numpy.int64)
    [logits] = module.execute("forward", [tokens, given["position"]])
    module.reset()
    [again] = module.forward(tokens, given["position"])
    kept = logits.copy()
    about = module.method_metadata("forward")
    facts = {
        "methods": module.method_names,
        "inputs": len(about.inputs),
        "first_input": about.inputs[0].kind.dtype.name.lower(),
        "shape": list(logits.shape),
        "dtype": {"float32": "f32"}[logits.dtype.name],
        "largest": int(logits.argmax()),
        "same_again": numpy.array_equal(logits, again),
        "too_few": kind(lambda: module.forward(tokens)),
        "unknown": kind(lambda: module.execute("backward")),
    }
    module.dispose()
    assert numpy.array_equal(logits, kept), "a result outlives its module"
    return facts | {"disposed": kind(lambda: module.forward(tokens, 0))}


def transcription(given, models, home):
    samples = [given["sample"]] * (given["seconds"] * given["rate"])
    heard = []
    with pteron.Transcriber.open(models / "hearing", home=home) as transcriber:
        found = transcriber.transcribe(samples, rate=given["rate"], listener=lambda event: heard.append(event_name(event)))
        return {
            "text": found.text,
            "duration": found.duration,
            "heard": [name for name in heard if name in ("begins", "said")],
            "refused": kind(lambda: transcriber.transcribe(samples, listener=lambda _: False)),
            "words": kind(lambda: transcriber.transcribe(samples, words=True)),
            **live(transcriber, samples, given["rate"]),
        }


def live(transcriber, samples, rate):
    said = pteron.LiveSound(rate)

    def speak():
        piece = len(samples) // 4
        for at in range(0, len(samples), piece):
            said.push(samples[at : at + piece])
            time.sleep(0.005)
        said.finish()

    microphone = threading.Thread(target=speak)
    microphone.start()
    found = transcriber.transcribe(said)
    microphone.join()
    heard = threading.Event()

    def stop():
        while not heard.wait(0.02):
            transcriber.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    unwanted = kind(lambda: transcriber.transcribe(pteron.LiveSound(rate)))
    heard.set()
    stopper.join()
    return {"live": f"{found.text} of {found.duration:g} s", "unwanted": unwanted, "late": kind(lambda: said.push(samples))}


SCENARIOS = {
    "open": open_,
    "rewind": rewind,
    "schema": schema,
    "tools": tools,
    "at once": at_once,
    "memory": memory,
    "bad file": bad_file,
    "dispose": dispose,
    "module": module,
    "transcription": transcription,
}


def resident() -> int:
    """KiB of the process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def endure(models, lives):
    for life in range(lives):
        with pteron.Model.open(models / "talking.pte") as model:
            chat = model.chat(max_tokens=8, temperature=0)
            chat.send("Hello", lambda _: True)
            chat.dispose()
        if life + 1 == lives // 2:
            early = resident()
    late = resident()
    taken = []
    with pteron.Model.open(models / "talking.pte") as model:
        for _ in range(40):
            chat = model.chat(max_tokens=200, temperature=0, ignore_end=True)
            begin = time.perf_counter()
            answer = chat.send("Hello", lambda _: True)
            taken.append((time.perf_counter() - begin) / len(answer.tokens))
            chat.dispose()
    return {"lives": lives, "early_kib": early, "late_kib": late, "token_microseconds": min(taken) * 1e6}


def main() -> None:
    scenarios, models, home = map(Path, sys.argv[1:4])
    if len(sys.argv) > 4:
        print(json.dumps({"name": "endure", "facts": endure(models, int(sys.argv[4]))}))
        return
    for scenario in json.loads(scenarios.read_text())["scenarios"]:
        facts = SCENARIOS[scenario["name"]](scenario["given"], models, home)
        print(json.dumps({"name": scenario["name"], "facts": facts}), flush=True)


main()
