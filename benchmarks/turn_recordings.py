"""Recordings of people for ``benchmarks.turns --corpus``: ends of sentences, and hesitation pauses within them.

    python -m benchmarks.turn_recordings out/people              # downloads 98 MB of Debian packages
    python -m benchmarks.turn_recordings out/people --unpacked DIR        # packages unpacked by `dpkg -x FILE DIR`

The recordings are the prompts of Debian's asterisk-core-sounds packages: one speaker for each of five languages,
recorded at 8 kHz (CC-BY-SA). The program keeps prompts of one complete sentence, 2 to 9 s long. A prompt is complete
if the English text of the same name ends in ``.``, ``!`` or ``?``.

Each sentence gets one pause, at a quiet place of 40 to 200 ms within it, drawn with a fixed seed. The pause lasts
0.3 to 1.2 s, drawn uniformly. The speaker did not hesitate there, so the voice alone shows less than in conversations.
A seeded half of each speaker's sentences is for fitting (``fit``); the other half is held out.

``index.json`` in the folder lists the sentences. To evaluate other recordings, write such a list for them:

    [{"file": "en/agent-pass.wav", "text": "Please enter …", "language": "en", "speaker": "Allison", "fit": true,
      "end_s": 2.31, "pause_at_s": 1.02, "pause_s": 0.71}]

Files are 16 kHz mono. ``end_s`` is where the last word ends. The pause is not in the file: at ``pause_at_s`` the
evaluation cuts it, and ``pause_s`` is how long the speaker would be silent there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile
from numpy.typing import NDArray

from engine import MIC_RATE_HZ
from engine.audio.resampler import resample
from engine.core import Pcm

VOICES = {
    "en": "en_US_f_Allison",
    "es": "es_MX_f_Allison",
    "fr": "fr_CA_f_June",
    "it": "it_IT_m_Carlo",
    "ru": "ru_RU_f_IvrvoiceRU",
}
SEED = 46
PAUSE_S = (0.3, 1.2)
SENTENCE_S = (2.0, 9.0)
DIP_MS = (40, 200)
AFTER_START_S = 0.7
"""Speech before a pause, at least."""
BEFORE_END_S = 0.5
"""Speech after a pause, at least."""
_FRAME = MIC_RATE_HZ // 100
_SPEECH_DB = -40.0  # below the loudest frame: the sentence, with the decay of its last word
_DIP_DB = -30.0  # below the loudest frame: where a word ends, within a sentence as at its end


@dataclass(frozen=True, slots=True)
class Sentence:
    """One entry of ``index.json``."""

    file: str
    text: str
    language: str
    speaker: str
    fit: bool
    end_s: float
    pause_at_s: float
    pause_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--unpacked", type=Path, metavar="DIR", help="folder of the unpacked packages")
    asked = parser.parse_args()
    if asked.unpacked is not None:
        build(asked.unpacked, asked.out)
        return
    with TemporaryDirectory() as folder:
        download(Path(folder))
        build(Path(folder), asked.out)


def download(folder: Path) -> None:
    """Download the packages with apt, and unpack them."""
    names = [f"asterisk-core-sounds-{language}{kind}" for language in VOICES for kind in ("", "-wav")]
    subprocess.run(["apt-get", "download", *names], cwd=folder, check=True)
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, folder], check=True)


def build(unpacked: Path, out: Path) -> None:
    """Write the chosen sentences of all languages, and ``index.json``."""
    found: list[Sentence] = []
    complete = {name for name, text in texts(unpacked, "en") if re.search(r"(?<!\.)[.!?]$", text)}
    for language in VOICES:
        sentences = [*cut(unpacked, language, complete, out)]
        print(f"{language}: {len(sentences)} sentences, {sum(one.fit for one in sentences)} of them for fitting")
        found += sentences
    entries = [asdict(one) for one in found]
    (out / "index.json").write_text(json.dumps(entries, indent=0, ensure_ascii=False) + "\n")


def texts(unpacked: Path, language: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a language's prompts."""
    path = unpacked / f"usr/share/doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz"
    for line in gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines():
        named = re.match(r"([\w/-]+):\s*(.+?)\s*$", line)
        if named:
            yield named[1], re.sub(r"\s+", " ", named[2])


def cut(unpacked: Path, language: str, complete: set[str], out: Path) -> Iterator[Sentence]:
    """Choose a language's sentences, write their sound, and draw a pause for each."""
    voice = VOICES[language]
    for name, text in texts(unpacked, language):
        path = unpacked / "usr/share/asterisk/sounds" / voice / f"{name}.wav"
        if name not in complete or not is_one_sentence(text) or not path.exists():
            continue
        sound, rate_hz = soundfile.read(path, dtype="int16")
        pcm = resample(np.asarray(sound, np.int16), rate_hz, MIC_RATE_HZ)
        drawn = random.Random(f"{SEED}/{language}/{name}")
        start, end = span(pcm, _SPEECH_DB)
        places = dips(pcm, start, end)
        if not places or not SENTENCE_S[0] <= (end - start) / MIC_RATE_HZ <= SENTENCE_S[1]:
            continue
        end = span(pcm, _DIP_DB)[1]
        at, pause_s, fit = drawn.choice(places), drawn.uniform(*PAUSE_S), drawn.random() < 0.5
        file = f"{language}/{name.replace('/', '_')}.wav"
        (out / language).mkdir(parents=True, exist_ok=True)
        soundfile.write(out / file, pcm, MIC_RATE_HZ)
        speaker = voice.rpartition("_")[2]
        at_s, end_s = (round(samples / MIC_RATE_HZ, 3) for samples in (at, end))
        yield Sentence(file, text, language, speaker, fit, end_s, at_s, round(pause_s, 3))


def is_one_sentence(text: str) -> bool:
    """Whether a prompt is one sentence of at least four words, and no sound effect, note or second half."""
    return len(text.split()) >= 4 and not re.search(r"^\.|[\[(]|[.!?…]\s+\S", text)


def span(pcm: Pcm, level_db: float) -> tuple[int, int]:
    """Return the samples where sound above a level starts, and where it ends."""
    loud = np.flatnonzero(levels_db(pcm) > level_db)
    return int(loud[0]) * _FRAME, (int(loud[-1]) + 1) * _FRAME


def dips(pcm: Pcm, start: int, end: int) -> list[int]:
    """Return the samples at which a quiet place within the sentence begins."""
    quiet = levels_db(pcm) < _DIP_DB
    edges = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(int)))
    places: list[int] = []
    for first, last in edges.reshape(-1, 2):
        at = int(first) * _FRAME
        inside = at >= start + AFTER_START_S * MIC_RATE_HZ and int(last) * _FRAME <= end - BEFORE_END_S * MIC_RATE_HZ
        if inside and DIP_MS[0] <= (last - first) * 10 <= DIP_MS[1]:
            places.append(at)
    return places


def levels_db(pcm: Pcm) -> NDArray[np.float64]:
    """Return the level of each 10 ms, in dB below the loudest."""
    frames = pcm[: len(pcm) // _FRAME * _FRAME].reshape(-1, _FRAME).astype(np.float64)
    power = np.square(frames).mean(1)
    return 10 * np.log10((power + 1e-3) / (power.max() + 1e-3))


if __name__ == "__main__":
    main()
