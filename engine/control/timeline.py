"""Marks of a request on the monotonic clock, and the ledger of its time to first audio.

Workers on the same machine share the server's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.pipeline import Terms


@dataclass(frozen=True, slots=True)
class Ledger:
    """The time to first audio by its parts."""

    terms: dict[str, float]
    """Milliseconds by name; they add up to ``ttfa_ms``, from the commit to the first packet.

    ``queue`` is the wait for a slot. Then each stage has a term of its name: the ears until the transcript, a talker
    until its first codec frame, code2wav until the first samples. A stage that answers has two: ``thinker_prefill``
    until its first token, and ``thinker_tokens`` until the next stage has enough tokens. ``packet`` is the time until
    the audio leaves the engine.
    """

    @property
    def ttfa_ms(self) -> float:
        return sum(self.terms.values())


@dataclass(slots=True)
class Timeline:
    """The marks of one request. ``commit_s`` is when it was opened, or when its live turn ended."""

    commit_s: float
    terms: Terms = ()
    marks: dict[str, float] = field(default_factory=dict[str, float])

    def mark(self, name: str, at_s: float) -> None:
        """Note the first time of an event; later times of the same name are ignored."""
        self.marks.setdefault(name, at_s)

    @property
    def cut(self) -> bool:
        """Whether a stage ended early because it had no room for all of the answer."""
        return any(name.endswith(".cut") for name in self.marks)

    def ledger(self) -> Ledger | None:
        """Return the ledger; None before the first audio. Work before the commit, and unused stages, count as 0."""
        if "audio" not in self.marks:
            return None
        terms: dict[str, float] = {}
        before_s = self.commit_s
        for term, name in self.terms:
            at_s = max(before_s, self.marks.get(name, before_s))
            terms[term] = (at_s - before_s) * 1000
            before_s = at_s
        return Ledger(terms)
