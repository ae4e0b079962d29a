"""Compare speech recognizers on recordings of people: word errors with Parley's stage and with the library alone.

    apt-get download asterisk-core-sounds-en asterisk-core-sounds-en-wav
    for package in asterisk-core-sounds-en*.deb; do dpkg -x $package recordings; done
    python -m benchmarks.recognizers recordings [--clips 60] [--models moonshine-tiny-en,whisper-base]

The recordings are telephone prompts by one woman, with their texts (CC-BY-SA, 8 kHz). Conditions: clean; pink noise 10
dB below the speech; telephone coding (G.711 mu-law). Models must be installed with `parley pull`. Columns: word errors
in % with Parley and with the library's own settings; milliseconds per clip, p50 and p95; and the CPU time of the median
clip, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import inflect
import numpy as np
import soundfile
from rich.console import Console
from rich.table import Table

from app.ids import new_id
from app.media import g711
from benchmarks.turn_recordings import VOICES, texts
from engine import MIC_RATE_HZ, AudioPart, Engine, EngineSpec, Message, Request, StageSpec, Transcript
from engine.audio.resampler import resample
from engine.core import SPEAKER_RATE_HZ, Pcm, Wave
from engine.deployment.model_catalog import located, model_of
from engine.training.nano.conditions import with_noise
from engine.training.nano.distance import edits
from engine.worker.asr.moonshine_tokens import moonshine_tokens
from engine.worker.asr.transcribing import floats

Hear = Callable[[Pcm], str]
SOUNDS = Path("usr/share/asterisk/sounds", VOICES["en"])
CONDITIONS: dict[str, Callable[[Pcm], Pcm]] = {
    "clean": lambda pcm: pcm,
    "10 dB": lambda pcm: with_noise(pcm, 10.0),
    "telephone": lambda pcm: resample(_telephone(resample(pcm, MIC_RATE_HZ, g711.RATE_HZ)), g711.RATE_HZ, MIC_RATE_HZ),
}
_ENGLISH = inflect.engine()


@dataclass(slots=True)
class Score:
    """Results of one recognizer on all clips."""

    wrong: int = 0
    words: int = 0
    times_s: list[float] = field(default_factory=list[float])
    cpu_s: list[float] = field(default_factory=list[float])

    def add(self, said: str, heard: str, took_s: float, cpu_s: float) -> None:
        expected = words_of(said)
        self.wrong += edits(expected, words_of(heard))
        self.words += len(expected)
        self.times_s.append(took_s)
        self.cpu_s.append(cpu_s)

    def cells(self) -> tuple[str, ...]:
        p50, p95 = (f"{1000 * value:.0f}" for value in np.percentile(self.times_s, (50, 95)))
        return f"{100 * self.wrong / self.words:.2f}", p50, p95, f"{1000 * np.median(self.cpu_s):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--models", default="moonshine-tiny-en,whisper-base")
    asked = parser.parse_args()
    clips = [*recordings(asked.recordings)]
    clips = clips[:: max(1, len(clips) // asked.clips)][: asked.clips]
    table = Table("model", "condition", "by", "words wrong, %", "p50, ms", "p95, ms", "CPU, ms")
    for name in asked.models.split(","):
        for condition, change in CONDITIONS.items():
            changed = [(text, change(pcm)) for text, pcm in clips]
            table.add_row(name, condition, "Parley", *asyncio.run(by_parley(name, changed)).cells())
            table.add_row(name, condition, "library", *by_library(name, changed).cells())
    seconds = sum(len(pcm) for _, pcm in clips) / MIC_RATE_HZ
    Console(width=120).print(f"{len(clips)} clips, {seconds:.0f} s, one thread", table)


def recordings(folder: Path) -> Iterator[tuple[str, Pcm]]:
    """Yield texts of at least four words, with their audio."""
    for name, text in texts(folder, "en"):
        path = folder / SOUNDS / f"{name}.wav"
        if re.search(r"[\[(]", text) or not path.exists() or len({*words_of(text)}) < 4:
            continue
        pcm, rate_hz = soundfile.read(path, dtype="int16")
        if 1.0 <= len(pcm) / rate_hz <= 25.0:
            yield text, resample(np.asarray(pcm, np.int16), rate_hz, MIC_RATE_HZ)


def ears_alone(use: str, weights: str, language: str = "") -> EngineSpec:
    """Return a deployment that only transcribes. Without a language, the model's default applies."""
    options = {"languages": [language]} if language else {}
    ears = StageSpec(use=use, name="ears", weights=weights, options=options)
    return EngineSpec(stages=(ears, StageSpec(use="script.thinker", name="thinker")), launcher="inline")


async def transcript(engine: Engine, pcm: Pcm) -> str:
    """Return the final transcript of a recording, int16 [samples] at MIC_RATE_HZ."""
    message = Message("user", (AudioPart(pcm),))
    request = Request(id=new_id("clip"), session="", messages=(message,), wants=frozenset({"transcript"}))
    async with engine.open(request) as chunks:
        return [chunk.text async for chunk in chunks if isinstance(chunk, Transcript) and chunk.final][-1]


async def by_parley(name: str, clips: Sequence[tuple[str, Pcm]]) -> Score:
    """Transcribe recordings with the model's stage, one at a time."""
    score = Score()
    async with Engine(ears_alone(model_of(name).use, name, "en")) as engine:
        for text, pcm in clips:
            began_s, cpu_s = time.monotonic(), time.process_time()
            said = await transcript(engine, pcm)
            score.add(text, said, time.monotonic() - began_s, time.process_time() - cpu_s)
    return score


def by_library(name: str, clips: Sequence[tuple[str, Pcm]]) -> Score:
    """Transcribe recordings with the stage's library and the library's own settings."""
    score = Score()
    hear = LIBRARIES[model_of(name).use](located(name))
    hear(np.zeros(MIC_RATE_HZ, np.int16))
    for text, pcm in clips:
        began_s, cpu_s = time.monotonic(), time.process_time()
        score.add(text, hear(pcm), time.monotonic() - began_s, time.process_time() - cpu_s)
    return score


def faster_whisper(folder: Path) -> Hear:
    from faster_whisper import WhisperModel

    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def hear(pcm: Pcm) -> str:
        segments, _ = model.transcribe(floats(pcm), language="en")
        return "".join(segment.text for segment in segments)

    return hear


def moonshine(folder: Path) -> Hear:
    import sherpa_onnx

    with TemporaryDirectory() as written:
        tokens = Path(written, "tokens.txt")
        tokens.write_text(moonshine_tokens(folder / "tokenizer.bin"), encoding="utf-8")
        recognizer: Any = sherpa_onnx.OfflineRecognizer.from_moonshine_v2(
            encoder=str(folder / "encoder_model.ort"),
            decoder=str(folder / "decoder_model_merged.ort"),
            tokens=str(tokens),
            num_threads=1,
        )

    def hear(pcm: Pcm) -> str:
        stream = recognizer.create_stream()
        stream.accept_waveform(MIC_RATE_HZ, floats(pcm))
        recognizer.decode_stream(stream)
        return stream.result.text

    return hear


LIBRARIES: dict[str, Callable[[Path], Hear]] = {"asr.faster_whisper": faster_whisper, "asr.sherpa_offline": moonshine}


def words_of(text: str) -> Sequence[str]:
    """Return the words in lower case without punctuation, with numbers spelled out."""
    spelled = re.sub(r"\d+", lambda digits: f" {_ENGLISH.number_to_words(digits[0])} ", text.lower().replace(",", ""))  # type: ignore[arg-type]
    alike = spelled.replace("e-mail", "email").replace("voice mail", "voicemail").replace("log-in", "login")
    return re.sub(r"[^\w' ]", " ", alike.replace("’", "'")).replace("'", "").split()


def recorded(wave: Wave) -> Pcm:
    """Return a voice's wave (24 kHz) as a microphone would send it (16 kHz)."""
    samples = resample(wave, SPEAKER_RATE_HZ, MIC_RATE_HZ)
    return (np.clip(samples, -1, 1) * 32767).astype(np.int16)


def _telephone(pcm: Pcm) -> Pcm:
    return g711.decode_ulaw(g711.encode_ulaw(pcm))


if __name__ == "__main__":
    main()
