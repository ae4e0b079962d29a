"""The moments of a request: marks on the monotonic clock, and the first-audio ledger they make.

Workers on the same machine share the server's monotonic clock. Knows no pool and no socket.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.pipeline import Terms


@dataclass(frozen=True, slots=True)
class Ledger:
    """The time to first audio by its parts, in ms; the terms add up to ``ttfa_ms``, from commit to the first packet.

    ``queue`` is the wait for a slot. Then each stage of the pipeline has a term of its name: ears from the end of the
    user's turn to its transcript, a talker to its first codec frame, code2wav to the first samples; and one that
    answers two of them, ``thinker_prefill`` to its first token, and ``thinker_tokens`` to the moment the next stage
    had enough of them. ``packet`` is until the sound lay at the engine's door.
    """

    terms: dict[str, float]

    @property
    def ttfa_ms(self) -> float:
        return sum(self.terms.values())


@dataclass(slots=True)
class Timeline:
    """The marks of one request. ``commit`` is set when it is opened, and again when a live turn ends."""

    commit_s: float
    terms: Terms = ()
    marks: dict[str, float] = field(default_factory=dict[str, float])

    def mark(self, name: str, at_s: float) -> None:
        """Note a first time; later ones of the same name don't count."""
        self.marks.setdefault(name, at_s)

    @property
    def cut(self) -> bool:
        """Whether a stage had no room for all that was to be said."""
        return any(name.endswith(".cut") for name in self.marks)

    def ledger(self) -> Ledger | None:
        """Return the ledger; None until audio came. Work before the commit costs nothing, nor does a stage that was not
        used."""
        if "audio" not in self.marks:
            return None
        terms: dict[str, float] = {}
        before_s = self.commit_s
        for term, name in self.terms:
            at_s = max(before_s, self.marks.get(name, before_s))
            terms[term] = (at_s - before_s) * 1000
            before_s = at_s
        return Ledger(terms)
