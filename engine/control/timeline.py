"""When what happened to a request: marks on the monotonic clock, and the first-audio ledger they make.

Workers on the same machine share the server's monotonic clock. Knows no pool and no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.core import StageInfo


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the time to first audio went, in ms; the terms add up to ``ttfa_ms``, from commit to the first packet.

    ``queue`` is the wait for a slot. Then each stage of the pipeline has a term of its name: ears from the end of the
    user's turn to its transcript, a talker to its first codec frame, code2wav to the first samples; and one that
    answers two of them, ``thinker_prefill`` to its first token, and ``thinker_tokens`` to the moment the next stage
    had enough of them. ``packet`` is until the sound lay at the engine's door.
    """

    terms: dict[str, float]

    @property
    def ttfa_ms(self) -> float:
        return sum(self.terms.values())


Terms = Sequence[tuple[str, str]]
"""The ledger's terms, and the mark that ends each, in the order of the pipeline."""


def terms_of(stages: Sequence[StageInfo]) -> Terms:
    """The terms of a pipeline."""
    terms = [("queue", "open")]
    for place, stage in enumerate(stages):
        if stage.hears_only:
            terms.append((stage.name, stage.mark("done")))
        elif stage.answers and place + 1 < len(stages):
            terms.append((f"{stage.name}_prefill", stage.mark("out")))
            terms.append((f"{stage.name}_tokens", stages[place + 1].mark("step")))
        else:
            terms.append((stage.name, stage.mark("out")))
    return [*terms, ("packet", "audio")]


@dataclass(slots=True)
class Timeline:
    """The marks of one request. ``commit`` is set when it is opened, and again when a live turn ends."""

    commit_s: float
    terms: Terms = ()
    marks: dict[str, float] = field(default_factory=dict[str, float])

    def mark(self, name: str, at_s: float) -> None:
        """Note a first time; later ones of the same name don't count."""
        self.marks.setdefault(name, at_s)

    def ledger(self) -> Ledger | None:
        """None until audio came. What was done before the commit costs nothing; a stage that was not used neither."""
        if "audio" not in self.marks:
            return None
        terms: dict[str, float] = {}
        before_s = self.commit_s
        for term, name in self.terms:
            at_s = max(before_s, self.marks.get(name, before_s))
            terms[term] = (at_s - before_s) * 1000
            before_s = at_s
        return Ledger(terms)
