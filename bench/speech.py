#!/usr/bin/env python3
"""Measures `pteron transcribe` beside faster-whisper and whisper.cpp, all with the weights of Whisper tiny.en.

    speech.py FOLDER --pteron PATH

FOLDER is what speech_setup.sh has filled. Six parts, all or those that --only names:

  words  each recording's words beside faster-whisper's in f32, difference by difference
  times  where the words begin and end, beside faster-whisper's
  wer    word error rate over telephone prompts whose words are known
  speed  ten minutes of speech, turn by turn: seconds, CPU seconds, peak memory
  hour   an hour of speech between long silences: words where nobody speaks, sentences that repeat, growth of memory (Pteron alone)
  live   recordings in real time, as a microphone gives them: how long after it was said each word is written (Pteron alone)

What the peers hear of the prompts takes long and does not change: it is kept in FOLDER/heard, and --fresh asks anew.
"""
import argparse
import collections
import difflib
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import wave

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("words", "times", "wer", "speed", "hour", "live")
# Rates and forms: 16 kHz, 16 kHz MP3, 44.1 kHz stereo FLAC, 48 kHz, 24 kHz, 8 kHz.
RECORDINGS = ("jfk.wav", "jfk.mp3", "jfk-44100-stereo.flac", "librivox-0870.wav", "librivox-0880.wav", "librivox-0890.wav",
              "librivox-0920.wav", "librivox-0930.wav", "two_cities.wav", "beckett.wav", "endgame_nagg_nell.wav",
              "prompts/demo-congrats.wav", "prompts/demo-instruct.wav")
# A prompt of fewer words is a piece without context: a telephone menu puts several after each other.
SENTENCE = 4
# Prompts that one process hears, so that a run that is stopped loses little.
BATCH = 40

RATE = 16000

Cost = collections.namedtuple("Cost", "wall cpu rss_mib")
Heard = collections.namedtuple("Heard", "text words")


def run(command, environment=None):
    """Runs a command, and gives its two outputs and what it cost."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err, env={**os.environ, **(environment or {})})
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output, errors = out.read().decode(), err.read().decode()
    if child.returncode:
        sys.exit(f"speech.py: {command[0]} ended with {child.returncode}:\n{errors[-2000:]}")
    # Linux counts in KiB, macOS in bytes.
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return output, errors, Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def how(beam):
    return "greedy" if beam == 1 else f"{beam} beams"


class Pteron:
    def __init__(self, folder, binary, scheme, vad, beam, threads):
        self.name = f"Pteron {'f32' if scheme == 'none' else scheme}, {how(beam)}{', voice activity' if vad else ''}"
        self.kept = False
        program = folder / "models" / f"pteron-{scheme}.pte"
        # Anew each time: an older binary's program would be measured otherwise.
        run([binary, "export", folder / "models/tiny.en.pt", "--quantize", scheme, "-o", program])
        self.command = [binary, "transcribe", "--model", program, "--threads", threads, "--beams", beam, *([] if vad else ["--no-vad"])]

    def hear(self, files, words=False):
        output, errors, cost = run([*self.command, "--format", "json", *(["--words"] if words else []), *files])
        decoder, at, heard = json.JSONDecoder(), 0, []
        while output[at:].strip():
            at += len(output[at:]) - len(output[at:].lstrip())
            answer, at = decoder.raw_decode(output, at)
            found = [[word["word"], word["start"], word["end"]] for part in answer["segments"] for word in part["words"]]
            heard.append(Heard(answer["text"], found))
        said = re.search(r"of sound in ([\d.]+) s", errors)
        return heard, cost, float(said.group(1)) if said else None


class FasterWhisper:
    def __init__(self, folder, compute, beam, threads, batch=0):
        self.name = f"faster-whisper {'f32' if compute == 'float32' else compute}, {how(beam)}{f', batch {batch}' if batch else ''}"
        self.kept = True
        self.command = [sys.executable, HERE / "speech_peer.py", folder / "models/ct2", "--compute", compute, "--beam", beam,
                        "--threads", threads, "--batch", batch]

    def hear(self, files, words=False):
        output, _, cost = run([*self.command, *(["--words"] if words else []), *files], {"HF_HUB_OFFLINE": "1"})
        answer = json.loads(output)
        return [Heard(file["text"], file["words"]) for file in answer["files"]], cost, answer["heard_s"]


class WhisperCpp:
    def __init__(self, folder, model, label, beam, threads):
        self.name = f"whisper.cpp {label}, {how(beam)}"
        self.kept = True
        self.command = [folder / "whisper.cpp/bin/whisper-cli", "--model", folder / "models" / model, "--language", "en",
                        "--threads", threads, "--beam-size", beam, "--output-json", "--no-prints"]

    def hear(self, files, words=False):
        with tempfile.TemporaryDirectory() as place:
            outputs = [pathlib.Path(place) / str(number) for number in range(len(files))]
            where = [part for output in outputs for part in ("--output-file", output)]
            _, _, cost = run([*self.command, *where, *files])
            heard = []
            for output in outputs:
                answer = output.with_suffix(".json")
                # It leaves out files of less than 0.1 s.
                parts = json.loads(answer.read_bytes().decode(errors="replace"))["transcription"] if answer.exists() else []
                heard.append(Heard("".join(part["text"] for part in parts), []))
        return heard, cost, None


def normaliser():
    from whisper_normalizer.english import EnglishTextNormalizer

    normalise = EnglishTextNormalizer()
    return lambda text: normalise(text).split()


def distance(reference, heard):
    """Words to replace, leave out or add (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(reference, 1):
        before, row[0] = row[0], number
        for at, other in enumerate(heard, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (word != other))
    return row[-1]


def pterons(folder, binary, beam, threads):
    """f32, 8 bits, and 8 bits as `pteron transcribe` hears unless told otherwise."""
    return [Pteron(folder, binary, scheme, vad, beam, threads) for scheme, vad in (("none", False), ("8w", False), ("8w", True))]


def measure_words(folder, binary, beam, threads):
    normalise = normaliser()
    files = [folder / "sound" / name for name in RECORDINGS]
    peer = FasterWhisper(folder, "float32", beam, threads)
    engines = pterons(folder, binary, beam, threads)
    theirs = [heard.text.strip() for heard in peer.hear(files)[0]]
    ours = {engine.name: [heard.text.strip() for heard in engine.hear(files)[0]] for engine in engines}
    rows = []
    print(f"\nWords beside those of {peer.name} (theirs -> ours)\n")
    print(f"| recording | words | {' | '.join(ours)} |\n| --- | --- |{' --- |' * len(ours)}")
    for number, (name, text) in enumerate(zip(RECORDINGS, theirs)):
        left = normalise(text)
        row = {"recording": name, "words": len(left), "theirs": text, "ours": {}}
        cells = []
        for engine, texts in ours.items():
            right = normalise(texts[number])
            changes = difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
            differences = [[" ".join(left[a:b]), " ".join(right[c:d])] for kind, a, b, c, d in changes if kind != "equal"]
            row["ours"][engine] = {"text": texts[number], "differences": differences}
            same = "same" if texts[number] == text else "same words, other punctuation"
            cells.append("; ".join(f"{a or '(nothing)'} -> {b or '(nothing)'}" for a, b in differences) or same)
        rows.append(row)
        print(f"| {name} | {len(left)} | {' | '.join(cells)} |")
    return rows


def measure_times(folder, binary, beam, threads):
    normalise = normaliser()
    files = [folder / "sound" / name for name in RECORDINGS]
    peer = FasterWhisper(folder, "float32", beam, threads)
    theirs = peer.hear(files, words=True)[0]
    rows = []
    for ours in pterons(folder, binary, beam, threads):
        starts, ends = [], []
        for mine, other in zip(ours.hear(files, words=True)[0], theirs):
            left, right = (["".join(normalise(word)) for word, _, _ in side.words] for side in (other, mine))
            for a, b, size in difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
                for step in range(size):
                    starts.append(abs(other.words[a + step][1] - mine.words[b + step][1]))
                    ends.append(abs(other.words[a + step][2] - mine.words[b + step][2]))
        row = {"engine": ours.name, "words": len(starts)}
        for edge, found in (("start", sorted(starts)), ("end", sorted(ends))):
            row[edge] = {"median": statistics.median(found), "p90": found[len(found) * 9 // 10], "largest": found[-1],
                         "within_0.1": sum(value <= 0.1 for value in found) / len(found)}
        rows.append(row)
    print(f"\nSeconds between the times of words and those of {peer.name}\n")
    print("| engine | words | edge | median | 90 % below | largest | within 0.1 s |\n| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        for edge in ("start", "end"):
            value = row[edge]
            print(f"| {row['engine']} | {row['words']} | {edge} | {value['median']:.2f} | {value['p90']:.2f} | {value['largest']:.2f} | "
                  f"{value['within_0.1']:.1%} |")
    return rows


def read_prompts(folder, normalise):
    """Files and normalised words of the prompts that speak."""
    path = folder / "texts/core-sounds-en.txt"
    if not path.exists():
        sys.exit(f"speech.py: {path} is not there: run speech_setup.sh with SPEECH_PROMPTS=core-sounds-en.txt")
    prompts = []
    for line in path.read_text().splitlines():
        name, colon, text = line.partition(":")
        sound = folder / "sound/prompts" / f"{name.strip().removesuffix('.wav')}.wav"
        if not colon or name.startswith(";") or not sound.is_file():
            continue
        # Keys are spoken by name. Tones and notes stand in brackets, which the normaliser leaves out.
        words = normalise(text.replace("*", " star ").replace("#", " pound "))
        if words and not name.startswith("silence/"):
            prompts.append((sound, words))
    return prompts


def measure_wer(folder, binary, threads, fresh, least, beams):
    normalise = normaliser()
    prompts = [(sound, words) for sound, words in read_prompts(folder, normalise) if len(words) >= least]
    files = [sound for sound, _ in prompts]
    engines = [
        engine
        for beam in beams
        for engine in (
            *pterons(folder, binary, beam, threads),
            FasterWhisper(folder, "float32", beam, threads),
            WhisperCpp(folder, "ggml-tiny.en.bin", "f16", beam, threads),
        )
    ]
    rows = []
    for engine in engines:
        print(f"hearing {len(files)} prompts with {engine.name}", file=sys.stderr)
        texts = kept_texts(folder, engine, files, fresh)
        heard = [normalise(text) for text in texts]
        errors = [distance(words, found) for (_, words), found in zip(prompts, heard)]
        row = {"engine": engine.name, "errors": errors, "texts": texts}
        for group, fewest in (("all", 1), ("sentences", SENTENCE)):
            chosen = [(len(words), wrong) for (_, words), wrong in zip(prompts, errors) if len(words) >= fewest]
            count, wrong = (sum(column) for column in zip(*chosen))
            row[group] = {"prompts": len(chosen), "words": count, "errors": wrong, "wer": wrong / count}
        rows.append(row)
    print("\nWord error rate over telephone prompts at 8 kHz\n")
    print(f"{rows[0]['all']['prompts']} prompts of together {rows[0]['all']['words']} words, {rows[0]['sentences']['prompts']} of them with "
          f"{SENTENCE} words or more ({rows[0]['sentences']['words']} words)\n")
    first = rows[0]
    print(f"| engine | errors | all | errors | {SENTENCE} words or more | prompts better / worse than {first['engine']} |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        better = sum(a < b for a, b in zip(row["errors"], first["errors"]))
        worse = sum(a > b for a, b in zip(row["errors"], first["errors"]))
        against = "" if row is first else f"{better} / {worse}"
        print(f"| {row['engine']} | {row['all']['errors']} | {row['all']['wer']:.2%} | {row['sentences']['errors']} | "
              f"{row['sentences']['wer']:.2%} | {against} |")
    for row in rows:
        row["prompts"] = [
            {"prompt": str(sound.relative_to(folder / "sound/prompts")), "known": " ".join(words), "heard": text.strip(), "errors": wrong}
            for (sound, words), text, wrong in zip(prompts, row.pop("texts"), row.pop("errors"))
        ]
    return rows


def kept_texts(folder, engine, files, fresh):
    """What an engine hears; of a peer from the last time, where that is there."""
    place = folder / "heard" / (re.sub(r"[^a-z0-9]+", "-", engine.name.lower()) + ".json")
    kept = json.loads(place.read_text()) if engine.kept and not fresh and place.exists() else {}
    names = {file: str(file.relative_to(folder)) for file in files}
    missing = [file for file in files if names[file] not in kept]
    for start in range(0, len(missing), BATCH):
        some = missing[start : start + BATCH]
        kept |= {names[file]: heard.text for file, heard in zip(some, engine.hear(some)[0])}
        if engine.kept:
            place.parent.mkdir(exist_ok=True)
            place.write_text(json.dumps(kept, indent=1))
    return [kept[names[file]] for file in files]


def samples(path):
    """A recording as 16-bit samples at 16 kHz."""
    import av
    import numpy as np

    with av.open(str(path)) as source:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        return np.concatenate([part.to_ndarray()[0] for frame in [*source.decode(audio=0), None] for part in resampler.resample(frame)])


def speech(folder):
    """Files with speech: the recordings, then the longest prompts."""
    prompts = sorted((folder / "sound/prompts").glob("*.wav"), key=lambda path: (-path.stat().st_size, path.name))
    chosen = [folder / "sound" / name for name in RECORDINGS if not name.startswith("jfk-") and not name.endswith(".mp3")]
    return chosen + [path for path in prompts if path not in chosen and path.stem != "tt-monkeys"]


def write_wav(target, sound):
    with wave.open(str(target), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(sound.astype("<i2").tobytes())


def join_speech(folder, seconds):
    """One WAV at 16 kHz: speech with half a second between two files."""
    import numpy as np

    target = folder / "sound" / f"joined-{seconds}.wav"
    if target.exists():
        return target
    parts, count = [], 0
    for path in speech(folder):
        parts += [samples(path), np.zeros(RATE // 2, np.int16)]
        count = sum(len(part) for part in parts)
        if count >= seconds * RATE:
            break
    write_wav(target, np.concatenate(parts)[: seconds * RATE])
    return target


def measure_speed(folder, binary, beams, rounds, seconds, threads_list, batched):
    normalise = normaliser()
    sound = join_speech(folder, seconds)
    found = collections.defaultdict(list)
    texts = {}
    for threads in threads_list:
        engines = [
            engine
            for beam in beams
            for engine in (
                Pteron(folder, binary, "8w", False, beam, threads),
                Pteron(folder, binary, "8w", True, beam, threads),
                FasterWhisper(folder, "int8", beam, threads),
                *([FasterWhisper(folder, "int8", beam, threads, 8)] if batched else []),
                WhisperCpp(folder, "ggml-tiny.en.bin", "f16", beam, threads),
                WhisperCpp(folder, "ggml-tiny.en-q8_0.bin", "q8_0", beam, threads),
            )
        ]
        for number in range(rounds):
            for engine in engines:
                heard, cost, own = engine.hear([sound])
                texts[engine.name] = normalise(heard[0].text)
                found[engine.name, threads].append((cost, own))
                print(f"{threads} threads, round {number + 1}, {engine.name}: {cost.wall:.2f} s, {cost.cpu:.2f} s of CPU time, "
                      f"{cost.rss_mib:.0f} MiB", file=sys.stderr)
    rows = []
    for (name, threads), turns in found.items():
        rows.append({
            "engine": name,
            "threads": threads,
            "wall_s": statistics.median(cost.wall for cost, _ in turns),
            "cpu_s": statistics.median(cost.cpu for cost, _ in turns),
            "own_s": statistics.median(own for _, own in turns) if turns[0][1] is not None else None,
            "rss_mib": max(cost.rss_mib for cost, _ in turns),
            "words": len(texts[name]),
            "turns": [cost._asdict() | {"own": own} for cost, own in turns],
        })
    print(f"\n{seconds} s of speech, medians of {rounds} rounds; whole processes, loading included\n")
    print("| engine | threads | seconds | CPU seconds | by its own clock, without loading | peak MiB | words | CPU seconds by Pteron's |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        first = next(other for other in rows if other["threads"] == row["threads"])
        own = f"{row['own_s']:.2f}" if row["own_s"] is not None else "-"
        print(f"| {row['engine']} | {row['threads']} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {own} | {row['rss_mib']:.0f} | "
              f"{row['words']} | {row['cpu_s'] / first['cpu_s']:.2f} |")
    return rows


def quiet(kind, count):
    """So many samples in which nobody speaks."""
    import numpy as np

    chance, at = np.random.default_rng(count), np.arange(count)
    if kind == "nothing":
        return np.zeros(count, np.int16)
    if kind == "hiss":
        return chance.normal(0, 30, count).astype(np.int16)
    if kind == "hum":
        return (100 * np.sin(2 * np.pi * 50 * at / RATE) + 30 * np.sin(2 * np.pi * 150 * at / RATE)).astype(np.int16)
    rumble = np.cumsum(chance.normal(0, 1, count))
    rumble -= np.convolve(rumble, np.ones(RATE // 20) / (RATE // 20), "same")
    return (120 * rumble / rumble.std()).astype(np.int16)


def measure_hour(folder, binary, seconds):
    """Speech with 20 to 90 seconds of nothing, hiss, hum or rumble behind each file."""
    import numpy as np

    kinds = ("nothing", "hiss", "hum", "rumble")
    parts, spans, count = [], [], 0
    for number, path in enumerate(speech(folder) * 100):
        sound = samples(path)
        silence = quiet(kinds[number % len(kinds)], (20 + 23 * number % 71) * RATE)
        spans.append(((count + len(sound)) / RATE, (count + len(sound) + len(silence)) / RATE))
        parts += [sound, silence]
        count += len(sound) + len(silence)
        if count >= seconds * RATE:
            break
    spoken = sum(len(part) for part in parts[::2]) / RATE
    target = folder / "sound" / "mixed.wav"
    write_wav(target, np.concatenate(parts)[: seconds * RATE])
    rows = []
    for vad in (True, False):
        engine = Pteron(folder, binary, "8w", vad, 3, 1)
        resident, begin = [], time.perf_counter()
        with tempfile.TemporaryFile() as out:
            command = [str(part) for part in (*engine.command, "--words", "--format", "json", target)]
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
            while child.poll() is None:
                status = pathlib.Path(f"/proc/{child.pid}/status")
                found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
                resident += [int(found.group(1))] if found else []
                time.sleep(0.1)
            wall = time.perf_counter() - begin
            if child.returncode:
                sys.exit(f"speech.py: {engine.name} ended with {child.returncode}")
            out.seek(0)
            answer = json.load(out)
        words = [word for part in answer["segments"] for word in part["words"]]
        # Half a second around speech is not silence: words end late, and the network keeps 0.4 s.
        lost = [word["word"] for word in words if any(a + 0.5 < (word["start"] + word["end"]) / 2 < b - 0.5 for a, b in spans)]
        texts = [part["text"].strip() for part in answer["segments"]]
        thrice = [one for one, two, three in zip(texts, texts[1:], texts[2:]) if one == two == three]
        early = max(resident[: max(1, len(resident) // 6)])
        rows.append({"engine": engine.name, "seconds": seconds, "spoken_s": spoken, "wall_s": wall, "words": len(words), "in_silence": lost,
                     "thrice": thrice, "rss_mib": max(resident) / 1024, "growth": max(resident) / early - 1})
    print(f"\n{seconds} s, {spoken:.0f} s of them speech, one thread; growth of memory behind the first sixth\n")
    print("| engine | seconds | words | words in silence | sentences thrice in a row | peak MiB | growth |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['engine']} | {row['wall_s']:.1f} | {row['words']} | {len(row['in_silence'])} {' '.join(row['in_silence'][:8])} | "
              f"{len(row['thrice'])} {'; '.join(row['thrice'][:3])} | {row['rss_mib']:.0f} | {row['growth']:.1%} |")
    return rows


def measure_live(folder, binary):
    """Seconds from the end of a word to the moment when it is written."""
    rows = []
    for name in ("jfk.wav", "two_cities.wav", "endgame_nagg_nell.wav", "prompts/demo-instruct.wav"):
        sound = samples(folder / "sound" / name)
        engine = Pteron(folder, binary, "8w", True, 3, 2)
        command = [str(part) for part in (*engine.command, "--words", "--format", "tsv", "--mic", "i16")]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # Until it listens: what it takes to load is no delay of a word.
        time.sleep(1)
        begin = time.perf_counter()

        def feed():
            step = RATE // 50
            for at in range(0, len(sound), step):
                time.sleep(max(0, begin + at / RATE - time.perf_counter()))
                child.stdin.write(sound[at : at + step].astype("<i2").tobytes())
                child.stdin.flush()
            child.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        delays = []
        for line in child.stdout:
            columns = line.decode().split("\t")
            if columns[0].isdigit():
                delays.append(time.perf_counter() - begin - int(columns[1]) / 1000)
        feeder.join()
        if child.wait() or not delays:
            sys.exit(f"speech.py: {engine.name} wrote nothing of {name}")
        delays.sort()
        rows.append({"recording": name, "seconds": len(sound) / RATE, "words": len(delays), "median": statistics.median(delays),
                     "p90": delays[len(delays) * 9 // 10], "largest": delays[-1]})
    print("\nSeconds from the end of a word until it is written, sound given in real time, 2 threads\n")
    print("| recording | seconds | words | median | 90 % below | largest |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['recording']} | {row['seconds']:.0f} | {row['words']} | {row['median']:.1f} | {row['p90']:.1f} | {row['largest']:.1f} |")
    return rows


def machine():
    """Cores and instruction sets: what figures depend on, and nothing that names a machine."""
    features = []
    if os.path.exists("/proc/cpuinfo"):
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        wanted = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16", "asimddp", "i8mm")
        features = [flag for flag in wanted if flags and flag in flags.group(1).split()]
    return {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count(), "features": features,
            "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--pteron", type=pathlib.Path, required=True, help="the binary to measure")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=pathlib.Path, help="write all figures, and every prompt as it was heard, to this file")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the speed part; the others take one")
    parser.add_argument("--rounds", type=int, default=3, help="of the speed part")
    parser.add_argument("--seconds", type=int, default=600, help="of speech for the speed part")
    parser.add_argument("--mixed", type=int, default=3600, help="seconds for the part that is an hour")
    parser.add_argument("--batched", action="store_true", help="measure faster-whisper with 8 windows at once too")
    parser.add_argument("--least", type=int, default=1, help="leave out prompts of fewer words")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="of all engines; 1 is greedy, 3 what Pteron does by default, 5 what the others do")
    parser.add_argument("--fresh", action="store_true", help="ask the peers anew")
    options = parser.parse_args()
    folder = options.folder.resolve()
    python = folder / "venv/bin/python"
    if not (folder / ".done").exists():
        sys.exit(f"speech.py: {options.folder} is not set up: run speech_setup.sh {options.folder}")
    if pathlib.Path(sys.prefix) != folder / "venv":
        os.execv(python, [str(python), *sys.argv])
    binary = options.pteron.resolve()
    if not os.access(binary, os.X_OK):
        sys.exit(f"speech.py: {options.pteron} is no program")

    version = run([binary, "--version"])[0].splitlines()[0]
    result = {"machine": machine(), "pteron": version}
    here = result["machine"]
    print(f"{version}; {here['system']} {here['architecture']}, {here['cores']} cores, {' '.join(here['features'])}; load {here['load']:.1f}")
    if "words" in options.only:
        result["words"] = [measure_words(folder, binary, beam, 1) for beam in options.beams]
    if "times" in options.only:
        result["times"] = [measure_times(folder, binary, beam, 1) for beam in options.beams]
    if "wer" in options.only:
        result["wer"] = measure_wer(folder, binary, 1, options.fresh, options.least, options.beams)
    if "speed" in options.only:
        result["speed"] = measure_speed(folder, binary, options.beams, options.rounds, options.seconds, options.threads, options.batched)
    if "hour" in options.only:
        result["hour"] = measure_hour(folder, binary, options.mixed)
    if "live" in options.only:
        result["live"] = measure_live(folder, binary)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
