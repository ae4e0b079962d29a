"""Timing of a request: marks on the monotonic clock, the parts of its time to first audio, and the times of its stages.

Workers on the same machine share the server's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.core import StageInfo
from engine.pipeline import Terms


@dataclass(frozen=True, slots=True)
class Ledger:
    """The time to first audio, split into its parts."""

    terms: dict[str, float]
    """Milliseconds by name. Their sum is ``ttfa_ms``, the time from the commit to the first packet.

    ``queue`` is the wait for a slot. Each stage then has a term of its name: the speech recogniser until the
    transcript, a talker until its first codec frame, code2wav until the first samples. A stage that answers has two
    terms: ``thinker_prefill`` until its first token, and ``thinker_tokens`` until the next stage has enough tokens.
    ``packet`` is the time until the audio leaves the engine.
    """

    @property
    def ttfa_ms(self) -> float:
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class StageTime:
    """When one stage worked on a request, in monotonic seconds."""

    name: str
    work: Literal["asr", "llm", "tts"]
    begun_s: float
    """When its input began to arrive, or its first step if that was earlier."""
    first_s: float | None
    """When it produced its first output; None before."""
    ended_s: float | None
    """None if the request ended first."""


@dataclass(slots=True)
class Timeline:
    """The marks of one request. ``commit_s`` is the time at which it was opened, or at which its live turn ended."""

    commit_s: float
    terms: Terms = ()
    stages: Sequence[StageInfo] = ()
    marks: dict[str, float] = field(default_factory=dict[str, float])

    def mark(self, name: str, at_s: float) -> None:
        """Record the first time of an event. Later times of the same event are ignored."""
        self.marks.setdefault(name, at_s)

    @property
    def cut(self) -> bool:
        """Whether a stage ended early because it had no room for the whole answer."""
        return any(name.endswith(".cut") for name in self.marks)

    def ledger(self) -> Ledger | None:
        """Return the ledger; None before the first audio. Work before the commit and unused stages count as 0."""
        if "audio" not in self.marks:
            return None
        terms: dict[str, float] = {}
        before_s = self.commit_s
        for term, name in self.terms:
            at_s = max(before_s, self.marks.get(name, before_s))
            terms[term] = (at_s - before_s) * 1000
            before_s = at_s
        return Ledger(terms)

    def stage_times(self) -> tuple[StageTime, ...]:
        """Return when each stage worked, in the order of the pipeline. Stages without output are left out."""
        times: list[StageTime] = []
        input_s = self.marks.get("open", self.commit_s)
        for stage in self.stages:
            first_s = self.marks.get(stage.mark("out"))
            ended_s = self.marks.get(stage.mark("done"))
            output_s = ended_s if stage.hears_only else first_s
            if first_s is None and ended_s is None:
                continue
            begun_s = min(input_s, self.marks.get(stage.mark("step"), input_s))
            times.append(StageTime(stage.name, _work(stage), begun_s, first_s, ended_s))
            input_s = input_s if output_s is None else output_s
        return tuple(times)


def _work(stage: StageInfo) -> Literal["asr", "llm", "tts"]:
    if stage.hears_only:
        return "asr"
    return "llm" if stage.answers else "tts"
