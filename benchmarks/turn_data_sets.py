"""Published data sets of turns for ``benchmarks.turns --corpus``. They must be downloaded beforehand.

    python -m benchmarks.turn_data_sets eot-bench DIR out/eot          # LiveKit's eot-bench-data: 14 languages
    python -m benchmarks.turn_data_sets turnbench DIR out/turnbench    # Sesame's TurnBench, the development split

DIR contains the Parquet files as published (huggingface.co/datasets/livekit/eot-bench-data and
mundo-ai/turn-benchmark-dev; see their terms). The program needs ``pyarrow``. It writes the recordings and the
``index.json`` that ``benchmarks.turn_recordings`` describes.

Each turn gives its end, and one of its pauses of 0.3 to 5 s, drawn with a fixed seed. These pauses are real, unlike
those of ``turn_recordings``. A seeded half of the turns is for fitting. The last 25 s of a turn are kept.

- eot-bench marks the pauses of each turn. The last one is the end.
- TurnBench marks segments of speech, by three annotators. Segments count on which two of them agree within 200 ms. A
  turn ends at the segment after which the other speaker is next; the gaps before that are its pauses.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.turn_recordings import SEED, Sentence
from engine import MIC_RATE_HZ
from engine.audio.resampler import resample
from engine.core import Pcm

PAUSE_S = (0.3, 5.0)
LONGEST_S = 25.0
AFTER_S = 0.3
"""Audio kept after the end of a turn."""
TOLERANCE_S = 0.2
FLOOR = frozenset(
    {
        "Normal Turn", "Regular Turn", "Strong Floor Hold", "Bounded Response", "Filler", "Overlap",
        "Floor-taking Competitive Interruption", "Floor-taking Cooperative Interruption",
    }
)  # fmt: skip
"""TurnBench's labels of speech that holds or takes the floor; the others are backchannels and noises."""

Span = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn in a recording: its first sample, its end, and the pauses in it."""

    name: str
    language: str
    speaker: str
    pcm: Pcm
    """The whole recording, at MIC_RATE_HZ."""
    start_s: float
    end_s: float
    pauses: Sequence[Span]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("eot-bench", "turnbench"))
    parser.add_argument("folder", type=Path, help="folder of the Parquet files")
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    rows = read(asked.folder)
    write(map(eot_turn, rows) if asked.data == "eot-bench" else (turn for row in rows for turn in talk(row)), asked.out)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all Parquet files in a folder, a few at a time."""
    parquet: Any = importlib.import_module("pyarrow.parquet")
    for path in sorted(folder.rglob("*.parquet")):
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=4):
            yield from batch.to_pylist()


def eot_turn(row: dict[str, Any]) -> Turn:
    """Return the turn of a row of eot-bench."""
    *pauses, last = [(span["start"], span["end"]) for span in row["silence_spans"]]
    return Turn(row["id"], row["language"], row["id"], samples(row["audio"]), 0.0, last[0], pauses)


def talk(row: dict[str, Any]) -> Iterator[Turn]:
    """Yield the turns of a conversation of TurnBench."""
    spoken = [(*span, speaker) for speaker in (1, 2) for span in agreed(row, speaker)]
    recordings = {speaker: samples(row[f"speaker_{speaker}_audio"]) for speaker in (1, 2)}
    for n, (speaker, segments) in enumerate(groupby(sorted(spoken), key=lambda segment: segment[2])):
        spans = [(start_s, end_s) for start_s, end_s, _ in segments]
        pauses = [(before[1], after[0]) for before, after in pairwise(spans)]
        name = f"{row['conversation_id']}-{speaker}-{n}"
        who = f"{row['conversation_id']}-{speaker}"
        yield Turn(name, "en", who, recordings[speaker], spans[0][0], spans[-1][1], pauses)


def agreed(row: dict[str, Any], speaker: int) -> list[Span]:
    """Return the segments in which a speaker has the floor, according to two annotators at least."""
    tracks = [
        [(one["start_s"], one["end_s"]) for one in row[f"speaker_{speaker}_annotation_{name}"] if one["label"] in FLOOR]
        for name in "abc"
    ]
    found: list[Span] = []
    for first, second in combinations(tracks, 2):
        for one in first:
            twin = next((two for two in second if np.allclose(one, two, rtol=0, atol=TOLERANCE_S)), None)
            if twin is not None and not any(one[0] < end_s and start_s < one[1] for start_s, end_s in found):
                found.append(((one[0] + twin[0]) / 2, (one[1] + twin[1]) / 2))
    return sorted(found)


def samples(audio: Any) -> Pcm:
    """Decode a recording, which a row contains as bytes, or as a mapping with ``bytes``."""
    sound, rate_hz = soundfile.read(io.BytesIO(audio if isinstance(audio, bytes) else audio["bytes"]), dtype="int16")
    return resample(np.asarray(sound, np.int16), rate_hz, MIC_RATE_HZ)


def write(turns: Iterator[Turn], out: Path) -> None:
    """Write the recordings and ``index.json``."""
    entries = [asdict(sentence) for turn in turns for sentence in [written(turn, out)]]
    (out / "index.json").write_text(json.dumps(entries, indent=0, ensure_ascii=False) + "\n")
    print(f"{len(entries)} turns, {sum(entry['pause_s'] > 0 for entry in entries)} of them with a pause")


def written(turn: Turn, out: Path) -> Sentence:
    """Write a turn's recording, and return its entry. Without a pause, ``pause_s`` is 0."""
    start_s = max(0.0, turn.start_s - AFTER_S, turn.end_s - LONGEST_S)
    drawn = random.Random(f"{SEED}/{turn.language}/{turn.name}")
    pauses = [
        (at_s, end_s - at_s)
        for at_s, end_s in turn.pauses
        if at_s > start_s + AFTER_S and PAUSE_S[0] <= end_s - at_s <= PAUSE_S[1]
    ]
    at_s, pause_s = drawn.choice(pauses) if pauses else (start_s, 0.0)
    file = f"{turn.language}/{turn.name}.wav"
    (out / turn.language).mkdir(parents=True, exist_ok=True)
    clip = turn.pcm[round(start_s * MIC_RATE_HZ) : round((turn.end_s + AFTER_S) * MIC_RATE_HZ)]
    soundfile.write(out / file, clip, MIC_RATE_HZ)
    end_s = round(turn.end_s - start_s, 3)
    fit = drawn.random() < 0.5
    return Sentence(file, "", turn.language, turn.speaker, fit, end_s, round(at_s - start_s, 3), round(pause_s, 3))


if __name__ == "__main__":
    main()
