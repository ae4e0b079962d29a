"""Checks of what the caller heard. Judgements by a language model are in ``language_model``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.client import CallDone
from app.simulation.listener import TurnRecord
from app.simulation.scenario import CallerTurn, Expectations, ExpectedCall


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one expectation."""

    name: str
    passed: bool
    detail: str
    """What was observed."""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


def checks_of_turn(turn: CallerTurn, record: TurnRecord) -> list[Check]:
    """Return the checks of one turn: those that always hold, and the turn's own. Failed rules come first."""
    return [*_rules(turn, record), *checks(turn.expect, [record], record.ended_s)]


def _rules(turn: CallerTurn, record: TurnRecord) -> Iterator[Check]:
    """Yield a failed check for each rule that every turn must keep, and that this one breaks."""
    if record.failure:
        yield Check("limit_s", False, record.failure)
    elif record.ended_s is not None and turn.needs_answer and not _answered(record):
        yield Check("answer", False, "there was none")
    if turn.barge_in_ms is not None and record.over is None:
        yield Check("barge_in_ms", False, "the answer before it was over already; make the answer longer")
    for error in record.errors:
        yield Check("error", False, error)


def checks(expect: Expectations, records: Sequence[TurnRecord], ended_s: float | None) -> list[Check]:
    """Return the checks of a turn, or of all turns of a call, but for the judgement. ``ended_s`` is its end."""
    return [
        *_of_text(expect, " ".join(record.text for record in records)),
        *_of_calls(expect, [call for record in records for call in record.calls]),
        *_of_times(expect, records, ended_s),
        *_of_turn_taking(expect, records),
    ]


def _of_text(expect: Expectations, text: str) -> Iterator[Check]:
    for part in expect.contains:
        yield Check(f"contains {part!r}", part.casefold() in text.casefold(), repr(text))
    for part in expect.not_contains:
        yield Check(f"not_contains {part!r}", part.casefold() not in text.casefold(), repr(text))
    if expect.matches is not None:
        found = re.search(expect.matches, text, re.IGNORECASE)
        yield Check(f"matches {expect.matches}", found is not None, repr(text))


def _of_calls(expect: Expectations, calls: Sequence[CallDone]) -> Iterator[Check]:
    made = ", ".join(f"{call.name}({call.arguments})" for call in calls) or "no tool was called"
    for wanted in expect.calls:
        arguments = f" with {orjson.dumps(wanted.arguments).decode()}" if wanted.arguments else ""
        yield Check(f"calls {wanted.name}{arguments}", any(_fits(call, wanted) for call in calls), made)
    for name in expect.not_called:
        yield Check(f"not_called {name}", all(call.name != name for call in calls), made)


def _fits(call: CallDone, wanted: ExpectedCall) -> bool:
    try:
        arguments: Any = orjson.loads(call.arguments or "{}")
    except ValueError:
        return False
    if call.name != wanted.name or not isinstance(arguments, Mapping):
        return False
    return all(name in arguments and arguments[name] == value for name, value in wanted.arguments.items())


def _of_times(expect: Expectations, records: Sequence[TurnRecord], ended_s: float | None) -> Iterator[Check]:
    if expect.first_audio_ms is not None:
        yield _at_most("first_audio_ms", [one.first_audio_ms for one in records if one.answers], expect.first_audio_ms)
    if expect.stop_ms is not None:
        yield _at_most("stop_ms", [one.stop_ms for one in records if one.over is not None], expect.stop_ms)
    if expect.ends_s is not None:
        took_s = None if ended_s is None or not records else ended_s - records[0].begun_s
        yield _at_most("ends_s", [took_s], expect.ends_s)


def _at_most(name: str, values: Sequence[float | None], bound: float) -> Check:
    """Compare the largest of the values. One that is missing, or none at all, fails."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Check(name, False, f"never, at most {bound:g}")
    return Check(name, max(known) <= bound, f"{max(known):.4g}, at most {bound:g}")


def _of_turn_taking(expect: Expectations, records: Sequence[TurnRecord]) -> Iterator[Check]:
    if expect.continues:
        stopped = [one for one in records if one.over is not None and one.quiet_s is not None]
        yield Check("continues", not stopped, "the answer stopped" if stopped else "the answer went on")
    if expect.no_answer:
        answered = [one for one in records if one.answers]
        yield Check("no_answer", not answered, repr(answered[0].text) if answered else "none came")
    if expect.not_cut:
        cut = any(one.cut for one in records)
        yield Check("not_cut", not cut, "an answer began while the caller spoke" if cut else "it was whole")


def _answered(record: TurnRecord) -> bool:
    return any(answer.text.strip() or answer.player.samples for answer in record.answers)
