"""The report of a soak, written anew each minute: the verdict, the minutes, the faults, and plots beside it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from app.bench.figures import Figure, percentile
from tests.soak.journal import Answer, Entry, Fault, Lag, Look, Started
from tests.soak.plot import Series, plot
from tests.soak.verdict import GROUPS, beyond, verdict

HEAD = (
    "minute", "sessions", "tasks", "files", "threads", "own MB: server", "workers", "RSS: server", "workers",
    "PSS: server", "workers", "cores: server", "workers", "users", "others",
    "answers", "sound s", "underruns", "beyond faults", "first sound p50 ms", "p95", "kills", "losses", "users' lag ms",
)  # fmt: skip


def write(folder: Path, entries: Sequence[Entry], minutes: float, settled_min: float) -> bool:
    """Write ``report.md`` and the pictures; return whether every bar was held."""
    figures = verdict(entries, minutes, settled_min)
    times = Minutes(entries)
    pictures = {
        "memory": plot("memory of its own, MB, by minute", dict(times.memory())),
        "cores": plot("cores kept busy, by minute", {name: times.cores(name) for name in GROUPS}),
        "first_sound": plot("first sound, ms, by minute", {f"p{p}": times.first_sound(p) for p in (50, 95)}),
        "held": plot("tasks, files, threads, sessions, by minute", times.held()),
    }
    kills = (
        ""
        if not (marks := times.kills())
        else "Workers were killed at minutes " + ", ".join(f"{one:.1f}" for one in marks) + "."
    )
    parts = [
        "# Soak", *_verdict(figures), "",
        *(f"![{name}]({name}.svg)" for name in pictures), "", kills, "",
        "## Minutes", "", _row(HEAD), _row(["---"] * len(HEAD)), *map(_row, times.rows()), "",
        "## Underruns beyond the faults", "", *_dry(entries, times), "",
        "## Faults", "", *_faults(entries, times), "",
    ]  # fmt: skip
    for name, picture in pictures.items():
        _replace(folder / f"{name}.svg", picture)
    _replace(folder / "report.md", "\n".join(parts))
    return all(figure.passed for figure in figures)


class Minutes:
    """The lines by the minute of load in which they were written; the lives follow each other."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._begun: dict[int, float] = {}
        self._looks, self._answers = defaultdict[int, list[Look]](list), defaultdict[int, list[Answer]](list)
        self._faults, self._lags = defaultdict[int, list[Fault]](list), defaultdict[int, list[Lag]](list)
        self._all = entries
        self._dry = defaultdict[int, int](int)
        sinks: dict[type[Entry], Any] = {
            Look: self._looks, Answer: self._answers, Fault: self._faults, Lag: self._lags,
        }  # fmt: skip
        load_s, last_s = 0.0, 0.0
        for one in entries:
            if isinstance(one, Started):
                load_s += last_s
                self._begun[one.life], last_s = one.at_s - load_s, 0.0
            elif one.life in self._begun:
                if isinstance(one, Look):
                    last_s = one.at_s - self._begun[one.life] - load_s
                if (sink := sinks.get(type(one))) is not None:
                    sink[int(self.minute(one))].append(one)
        for answer, _ in beyond(entries):
            self._dry[int(self.minute(answer))] += 1

    def minute(self, one: Entry, at_s: float | None = None) -> float:
        """The minute of load at which a line was written, or of another moment of that life."""
        return ((one.at_s if at_s is None else at_s) - self._begun.get(one.life, one.at_s)) / 60

    def rows(self) -> Iterator[list[str]]:
        for minute, looks in sorted(self._looks.items()):
            last, answers, faults = looks[-1], self._answers[minute], self._faults[minute]
            firsts = [one.first_s * 1000 for one in answers if one.first_s is not None]
            yield [
                str(minute), *(str(getattr(last, name)) for name in ("sessions", "tasks", "files", "threads")),
                *_two([one.memory_mb for one in looks]), *_two([one.rss_mb for one in looks]),
                *_two([one.pss_mb for one in looks if one.pss_mb]),
                *(f"{_mean(looks, name):.2f}" for name in GROUPS),
                str(len(answers)), f"{sum(one.sound_s for one in answers):.0f}",
                str(sum(len(one.gaps) for one in answers)), str(self._dry[minute]),
                *(f"{percentile(firsts, percent) or 0:.0f}" for percent in (50, 95)),
                *(str(sum(one.kind == kind for one in faults)) for kind in ("kill", "loss")),
                f"{1000 * max((one.longest_s for one in self._lags[minute]), default=0.0):.0f}",
            ]  # fmt: skip

    def memory(self) -> Iterator[tuple[str, Series]]:
        for name in sorted({name for looks in self._looks.values() for one in looks for name in one.memory_mb}):
            yield (
                name,
                [
                    (minute, median(values))
                    for minute, looks in sorted(self._looks.items())
                    if (values := [one.memory_mb[name] for one in looks if name in one.memory_mb])
                ],
            )

    def cores(self, name: str) -> Series:
        return [(minute, _mean(looks, name)) for minute, looks in sorted(self._looks.items())]

    def first_sound(self, percent: float) -> Series:
        return [
            (minute, value)
            for minute, answers in sorted(self._answers.items())
            if (value := percentile([1000 * one.first_s for one in answers if one.first_s is not None], percent))
        ]

    def held(self) -> dict[str, Series]:
        names = ("tasks", "files", "threads", "sessions")
        return {name: [(m, getattr(looks[-1], name)) for m, looks in sorted(self._looks.items())] for name in names}

    def kills(self) -> list[float]:
        return [self.minute(one) for one in self._all if isinstance(one, Fault) and one.kind == "kill"]


def _verdict(figures: Sequence[Figure]) -> Iterator[str]:
    yield ""
    yield (
        "Every bar is held." if all(figure.passed for figure in figures) else "**A bar is missed, or not reached yet.**"
    )
    yield ""
    yield from (_row(["figure", "value", "bar", "", "note"]), _row(["---"] * 5))
    for one in figures:
        value = "missing" if one.value is None else f"{one.value:.3g} {one.unit}"
        bar = "" if one.bar is None else f"≤ {one.bar:g} {one.unit}"
        yield _row([one.name, value, bar, "" if one.bar is None else "holds" if one.passed else "**misses**", one.note])


def _dry(entries: Sequence[Entry], times: Minutes) -> Iterator[str]:
    for answer, (begun_s, ended_s) in beyond(entries):
        dry_ms = 1000 * (ended_s - begun_s)
        yield f"- minute {times.minute(answer, begun_s):.2f}: {answer.user}, {answer.way}, {dry_ms:.0f} ms"


def _faults(entries: Sequence[Entry], times: Minutes) -> Iterator[str]:
    for one in entries:
        if isinstance(one, Fault):
            reach = f"reaches {one.user or 'everybody'} for {one.until_s - one.at_s:.1f} s"
            yield f"- minute {times.minute(one):.2f}: {one.kind}, {reach}; {one.note}"


def _two(looks: Sequence[dict[str, float]]) -> list[str]:
    """The server's figure, and that of all workers together: medians."""
    if not looks:
        return ["", ""]
    servers = [one.get("server", 0.0) for one in looks]
    return [f"{median(servers):.1f}", f"{median(sum(one.values()) for one in looks) - median(servers):.1f}"]


def _mean(looks: Sequence[Look], name: str) -> float:
    return sum(one.cores.get(name, 0.0) for one in looks) / len(looks)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _replace(path: Path, text: str) -> None:
    """Write a file so that its readers see the old one or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)
