"""Speaks requests with and without pauses, to measure turn detection (benchmarks/turns.py).

    python -m engine.training.nano.make_turns DIR

Writes WAVs at MIC_RATE_HZ and ``index.json``: a list of ``file``, ``text``, ``voice``, ``expect``, ``kind``, ``chosen``
(whether settings may be tuned on it), ``end_s`` (end of the last word) and, for a recording with a pause, ``before``
(the words before the pause), ``pause_at_s`` and ``pause_s``. The kinds:

- ``whole``: 40 requests of the evaluation set, without a pause;
- ``inserted``: 50 other requests, synthesized in one piece, with 0.3 to 1.2 s of silence inserted between two words;
- ``apart``: 50 requests whose two parts, of at least two words each, were synthesized separately, so that the
  intonation
  of the first part falls as at the end of a sentence.

The words before a pause are never a complete request: nobody could know that "hello" goes on to "hello nano". The end
of a word is where pocketsphinx aligns it; the end of a recording is where the level finally falls 40 dB below its
maximum. Needs ``flite``, and ``festival`` with ``festvox-us-slt-hts``. None of the four voices was used to train speech
recognition.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pocketsphinx
import soundfile
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ
from engine.training.nano.dialogues import EVAL, Request, read_requests, sample_request
from engine.training.nano.eval_ears import meanings
from engine.training.nano.make_spoken import levelled

Wave = NDArray[np.float32]

VOICES = ("kal16", "awb", "slt", "hts")
BLOCK = MIC_RATE_HZ // 200  # 5 ms
QUIET = 10**-4.0  # relative to the power of the loudest block
ROOM = 1e-4  # level of the room noise, relative to full scale
HALF_S = 0.03  # search range for the quietest moment around an aligned word end


@dataclass(frozen=True, slots=True)
class Scripted:
    """One entry of the index."""

    file: str
    text: str
    voice: str
    expect: dict[str, Any]
    kind: str
    chosen: bool
    end_s: float
    before: str = ""
    pause_at_s: float = 0.0
    pause_s: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=16)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rng, index = random.Random(args.seed), []
    for number, (script, wave) in enumerate(recordings(rng)):
        room = np.random.default_rng(number).normal(0, ROOM, len(wave)).astype(np.float32)
        soundfile.write(args.folder / script.file, wave + room, MIC_RATE_HZ, subtype="PCM_16")
        index.append(asdict(script))
    (args.folder / "index.json").write_text(json.dumps(index, indent=0) + "\n")
    print(f"{len(index)} recordings -> {args.folder}")


def recordings(rng: random.Random) -> Iterator[tuple[Scripted, Wave]]:
    """Yield all entries with their audio, float32 [n] at MIC_RATE_HZ."""
    for number, request in enumerate(list(read_requests(EVAL / "spoken_in_domain.jsonl"))[::6][:40]):
        voice = VOICES[number % 4]
        yield _ended(_blank(request, voice, "whole", number), speak(request.text, voice))
    for kind, make in (("inserted", inserted), ("apart", apart)):
        made = 0
        while made < 50:
            script = _blank(sample_request(rng), VOICES[made % 4], kind, made)
            if (found := make(script, rng)) is not None:
                yield found
                made += 1


def inserted(script: Scripted, rng: random.Random) -> tuple[Scripted, Wave] | None:
    """Insert silence between two words of one synthesis; None if no place for it is found."""
    cuts = places(script.text, least=1)
    wave = speak(script.text, script.voice)
    ends = word_ends(wave, script.text) if cuts else None
    if ends is None:
        return None
    at = rng.choice(cuts)
    return _paused(script, rng, at, trimmed(wave[: ends[at - 1]]), wave[ends[at - 1] :])


def apart(script: Scripted, rng: random.Random) -> tuple[Scripted, Wave] | None:
    """Synthesize two parts separately, with a pause between; None if the text is too short."""
    cuts = places(script.text, least=2)
    if not cuts:
        return None
    at, words = rng.choice(cuts), script.text.split()
    first, second = (speak(" ".join(part), script.voice) for part in (words[:at], words[at:]))
    return _paused(script, rng, at, trimmed(first), second)


def places(text: str, least: int) -> list[int]:
    """Return after how many words a pause may come: at least ``least`` on either side, and no complete request before
    it.
    """
    words = text.split()
    return [at for at in range(least, len(words) - least + 1) if at and not meanings(" ".join(words[:at]))]


def word_ends(wave: Wave, text: str) -> list[int] | None:
    """Return the end of each word in samples, moved to the quietest moment near the alignment; None if alignment
    fails.
    """
    decoder = pocketsphinx.Decoder(lm=None, loglevel="FATAL")
    try:
        decoder.set_align_text(text)
        decoder.start_utt()
        decoder.process_raw((wave * 32767).astype(np.int16).tobytes(), full_utt=True)
        decoder.end_utt()
    except RuntimeError:
        return None
    segments = [one for one in decoder.seg() or () if one.word[0] not in "<["]
    if len(segments) != len(text.split()):
        return None
    return [_softest(wave, (one.end_frame + 1) * MIC_RATE_HZ // 100) for one in segments]


def trimmed(wave: Wave) -> Wave:
    """Cut the wave where its sound finally ends."""
    return wave[: sound_end(wave)]


def sound_end(wave: Wave) -> int:
    """Return the sample after which everything is 40 dB quieter than the maximum."""
    power = np.square(wave[: len(wave) // BLOCK * BLOCK].reshape(-1, BLOCK)).mean(1)
    return (int(np.flatnonzero(power > power.max() * QUIET)[-1]) + 1) * BLOCK


def speak(text: str, voice: str) -> Wave:
    """Return the spoken text as float32 [n] at MIC_RATE_HZ, with a peak of 0.5 and no leading silence."""
    if voice == "hts":
        return synthesized(lambda path: _festival(text, path))
    return synthesized(lambda path: subprocess.run(["flite", "-voice", voice, "-t", text, "-o", path], check=True))


def synthesized(write: Callable[[Path], object]) -> Wave:
    """Return the audio that a synthesizer writes into a file, with a peak of 0.5 and no leading silence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        write(path)
        wave = levelled(path)
    return trimmed(wave[::-1])[::-1]


def _festival(text: str, path: Path) -> None:
    script = f'(voice_cmu_us_slt_arctic_hts)\n(utt.save.wave (utt.synth (Utterance Text "{text}")) "{path}" \'riff)\n'
    subprocess.run(["festival", "--pipe"], input=script, text=True, check=True, capture_output=True)


def _blank(request: Request, voice: str, kind: str, number: int) -> Scripted:
    name = f"{kind}_{number:03}.wav"
    return Scripted(name, request.text, voice, dict(request.expect), kind, chosen=number // 4 % 2 == 0, end_s=0.0)


def _paused(script: Scripted, rng: random.Random, at: int, first: Wave, second: Wave) -> tuple[Scripted, Wave]:
    pause_s = rng.randint(300, 1200) / 1000
    silence = np.zeros(round(pause_s * MIC_RATE_HZ), np.float32)
    before = " ".join(script.text.split()[:at])
    script = replace(script, before=before, pause_at_s=len(first) / MIC_RATE_HZ, pause_s=pause_s)
    return _ended(script, np.concatenate([first, silence, second]))


def _ended(script: Scripted, wave: Wave) -> tuple[Scripted, Wave]:
    return replace(script, end_s=sound_end(wave) / MIC_RATE_HZ), trimmed(wave)


def _softest(wave: Wave, at: int) -> int:
    low = max(0, at - round(HALF_S * MIC_RATE_HZ)) // BLOCK
    high = min(len(wave), at + round(HALF_S * MIC_RATE_HZ)) // BLOCK
    power = np.square(wave[low * BLOCK : high * BLOCK].reshape(-1, BLOCK)).mean(1)
    return (low + int(power.argmin())) * BLOCK if len(power) else at


if __name__ == "__main__":
    main()
