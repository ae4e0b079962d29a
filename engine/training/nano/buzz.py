"""Compare the buzziness of code2wav with its teacher: harmonics-to-noise ratio and peaks by band, and log-mel distance.

    python -m engine.training.nano.buzz --work DIR [--voice slt] [--weights FOLDER] [--store]    needs the teacher
    python -m engine.training.nano.buzz [--voice slt] [--weights FOLDER]        against the stored teacher

With the teacher, its recordings of evaluation sentences are encoded, and the engine's code2wav renders them again,
which measures the loss of codec and code2wav without the talker. Without it, nano speaks the same sentences from text.
The profiles come from `periodic`. They measure the texture of a voice, not whether people like it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly

from engine.training.nano import meter, teach
from engine.training.nano.codec import Codec
from engine.training.nano.export import codec_of, read_voice
from engine.training.nano.features import MIN_LOG_MEL, log_mel
from engine.training.nano.periodic import EDGES_HZ, HIGH, Periods, harmonics_db, peaks_db, periods
from engine.training.nano.speak import Voice
from engine.training.nano.utterances import Utterance, parse
from engine.worker.models.nano.inference import run
from engine.worker.models.nano.source import HOP, ExcitationSource
from engine.worker.models.nano.voice import VOICES

TEACHER = meter.EVAL / "buzz.json"
EACH = 8  # sentences per genre
WEIGHTS = Path(__file__).parents[2] / "weights" / "nano"
BAR_DB = 2.0  # above 4 kHz
Wave = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--store", action="store_true", help="store the teacher's profiles for use without the teacher")
    args = parser.parse_args()
    if args.work:
        recorded = recordings(args.work, args.voice)
        teacher = profiles([periods(wave) for wave, _ in recorded])
        voice = Voice(args.weights, args.voice)
        codec = codec_of(read_voice(args.weights)[1], VOICES.index(args.voice))
        waves = [resynthesise(voice, codec, utterance) for _, utterance in recorded]
        print(f"log-mel distance of re-synthesis: {mel_distance(recorded, waves):.4f}")
        if args.store:
            TEACHER.write_text(json.dumps(stored() | {args.voice: teacher}) + "\n")
    else:
        teacher = stored()[args.voice]
        waves = meter.nano_waves(args.weights, texts(), args.voice)
    report(teacher, profiles([periods(wave) for wave in waves]))


def stored() -> dict[str, dict[str, list[float]]]:
    """Return the teachers' profiles by voice."""
    return json.loads(TEACHER.read_text())


def texts() -> list[str]:
    return [text for name in meter.GENRES for text in meter.sentences(name)[::5][:EACH]]


def profiles(found: list[Periods]) -> dict[str, list[float]]:
    """Return the profiles in dB by band of `EDGES_HZ`."""
    return {"harmonics": harmonics_db(found).round(2).tolist(), "peaks": peaks_db(found).round(2).tolist()}


def farthest_db(teacher: dict[str, list[float]], made: dict[str, list[float]], name: str = "harmonics") -> float:
    """Return the largest difference of two profiles in a band above 4 kHz."""
    return max(abs(a - b) for a, b in zip(teacher[name][HIGH:], made[name][HIGH:], strict=True))


def report(teacher: dict[str, list[float]], made: dict[str, list[float]]) -> None:
    print("band from kHz    " + "".join(f"{edge / 1000:7.0f}" for edge in EDGES_HZ[:-1]))
    for name in ("harmonics", "peaks"):
        print(f"{name:9} teacher" + "".join(f"{value:7.1f}" for value in teacher[name]))
        print(f"{name:9} made   " + "".join(f"{value:7.1f}" for value in made[name]))
    farthest = farthest_db(teacher, made)
    print(f"harmonics to noise above 4 kHz: within {farthest:.2f} dB of the teacher's (bar: {BAR_DB})")


def recordings(work: Path, voice: str) -> list[tuple[Wave, Utterance]]:
    """Let a voice's teacher say the sentences. Returns samples at 16 kHz and their utterances."""
    folder = work / voice / "buzz"
    folder.mkdir(exist_ok=True)
    lines = "".join(f"b{index:03}\t{meter.spoken(text)}\n" for index, text in enumerate(texts()))
    command = [*teach.program(work, voice), str(folder)]
    table = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    said = [parse(voice, folder, line) for line in table.stdout.splitlines()]
    return [(one.speech().wave.numpy().astype(np.float32) / np.float32(32768), one) for one in said]


def resynthesise(voice: Voice, codec: Codec, utterance: Utterance) -> Wave:
    """Return samples at 16 kHz with the recording's length and no shift; half a hop of the renderer is removed."""
    codes = codec.quantise(codec.latent(utterance.speech()))
    stage = voice.code2wav
    given = {"codes": codes[None].numpy(), "voice": np.array([VOICES.index(voice.name)])}
    tails = {"slow": np.zeros_like(stage._slow[:1]), "fast": np.zeros_like(stage._fast[:1])}
    controls = run(stage._net, ("controls",), given | tails)[0][0]
    sound = np.append(ExcitationSource().render(controls)[HOP // 2 :], np.zeros(HOP // 2, np.float32))
    return resample_poly(sound, 2, 3).astype(np.float32)


def mel_distance(recorded: Sequence[tuple[Wave, Utterance]], waves: Sequence[Wave]) -> float:
    """Return the mean difference of the log-mel spectra (natural log, 80 bands every 10 ms), with equal floors."""
    pairs = [(floored(true), floored(made)) for (true, _), made in zip(recorded, waves, strict=True)]
    return float(torch.cat([(a[: len(b)] - b[: len(a)]).abs().mean(1) for a, b in pairs]).mean())


def floored(wave: Wave) -> torch.Tensor:
    return log_mel(torch.from_numpy(wave)).clamp(min=MIN_LOG_MEL)


if __name__ == "__main__":
    main()
