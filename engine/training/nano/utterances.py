"""The teachers' recorded utterances, read from their tables: texts, phones with end times, recordings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.training.nano.features import Speech, load

GAINS = {"rms": 1.0, "slt": 1.28, "awb": 0.86}
"""Gains of the teachers' samples that make the voices equally loud (measured with `manner`)."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One line of the teacher's table: phones with end times in seconds of the uncut wave."""

    voice: str
    directory: Path
    name: str
    text: str
    phones: tuple[str, ...]
    ends_s: tuple[float, ...]

    def speech(self) -> Speech:
        return load(self.directory, self.name, self.onset_s, GAINS[self.voice])

    @property
    def onset_s(self) -> float:
        return self.ends_s[0] if self.phones[0] == "pau" else 0.0


def utterances(work: Path, voice: str) -> list[Utterance]:
    """Return everything a teacher has spoken so far, sorted by name."""
    home = work / voice
    lines = [
        line
        for path in sorted(home.glob("speech.*.tsv"))
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith(" \n")
    ]
    return sorted((parse(voice, home / "speech", line) for line in lines), key=lambda utterance: utterance.name)


def parse(voice: str, directory: Path, line: str) -> Utterance:
    name, text, marks = line.rstrip("\n").split("\t")
    pairs = [mark.split(":") for mark in marks.split()]
    return Utterance(voice, directory, name, text, tuple(p for p, _ in pairs), tuple(float(end) for _, end in pairs))
