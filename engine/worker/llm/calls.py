"""Assembles function calls from streamed pieces, in any order and form that servers send. Does no I/O.

Servers number the pieces of a call (``index``), or name their call (``id``), or neither; some send each call whole,
some give all calls the same number. The arguments may be encoded twice, follow an empty object, or come again as a
whole. Source: openai-python ``types/chat/chat_completion_chunk.py``; Ollama's issues 7881 and 15457.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from engine.chunk import ToolCall, ToolCallDelta
from engine.errors import StageFailed
from engine.worker.llm.surrogates import SurrogateJoiner

MOST_CALLS = 64
"""Maximum calls of one answer. A model that makes more is stuck in a loop."""


_BEGUN = re.compile(r"\s*\{\s*[^\s}]")
"""The beginning of an object with a member: arguments that begin otherwise may still be replaced."""


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str
    name: str = ""
    arguments: str = ""
    num_sent: int = 0
    repeats: bool = False
    """Whether another value follows the first one, so that the arguments are known at the end only."""
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)

    def add(self, piece: str) -> None:
        self.repeats = self.repeats or (piece.lstrip().startswith("{") and is_object(self.arguments))
        self.arguments += self.joiner.feed(piece)

    def unsent(self) -> str:
        """Return the next piece of the arguments that is certain; the caller passes it on."""
        if self.repeats or not self.name or not _BEGUN.match(self.arguments):
            return ""
        piece = self.arguments[self.num_sent :]
        self.num_sent = len(self.arguments)
        return piece


class ToolCallAssembler:
    """Calls of one answer. ``name`` is the prefix of ids for calls without one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, index: int | None, id: str, name: str, arguments: str) -> list[ToolCallDelta]:
        """Add a piece of a call, and return the deltas that can be sent.

        Pieces of the first call are returned as they arrive. The other calls follow once the answer is complete, so
        that the reader receives one call after the other even if the server interleaves them.
        """
        call = self._of(index, id, name)
        call.name = call.name or name
        call.add(arguments)
        piece = call.unsent() if call is self._calls[0] else ""
        return [ToolCallDelta(call.id, call.name, piece)] if piece else []

    def whole(self, cut: bool = False) -> list[ToolCall]:
        """All calls, at the end of the answer; without the last where the answer was ``cut`` off in it: nobody may run
        it. Raises StageFailed for one without a name."""
        calls = self._calls[:-1] if cut and self and not is_object(self._calls[-1].arguments) else self._calls
        if any(not call.name for call in calls):
            raise StageFailed("The language model called a function without a name.")
        return [
            ToolCall(f"{call.id}_{i}" if i else call.id, call.name, arguments)
            for call in calls
            for i, arguments in enumerate(_objects(call.arguments))
        ]

    def _of(self, index: int | None, id: str, name: str) -> _Call:
        """The call that a piece belongs to; a new one where it belongs to none."""
        if index is not None:
            known = [call for call in self._calls if call.index == index]
        elif id:
            known = [call for call in self._calls if call.id == id]
        else:
            known = [] if name else self._calls
        if known and not (id and name and known[-1].name and id != known[-1].id):
            return known[-1]
        if len(self._calls) == MOST_CALLS:
            raise StageFailed(f"The language model calls more than {MOST_CALLS} functions in one answer.")
        if not id or any(call.id == id for call in self._calls):
            id = f"call_{self._name}_{len(self._calls)}"
        self._calls.append(_Call(index, id))
        return self._calls[-1]


def is_object(arguments: str) -> bool:
    """Return whether ``arguments`` is a JSON object, which function arguments must be."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _objects(arguments: str) -> list[str]:
    """Return the arguments of each call that a model's text of arguments stands for: mostly the text itself.

    Several objects are calls of the same function, unless one only completes or repeats the one before. Text that is
    no object is returned unchanged, since the client may know what was meant.
    """
    if is_object(arguments):
        return [arguments]
    try:
        found = list[dict[str, Any]]()
        for value in _values(arguments):
            if found and found[-1].items() <= value.items():
                found.pop()
            if not any(value.items() <= one.items() for one in found):
                found.append(value)
    except (ValueError, TypeError, RecursionError):
        return [arguments]
    return [json.dumps(one, ensure_ascii=False) for one in found] or ["{}"]


def _values(text: str) -> list[dict[str, Any]]:
    """Return the objects that follow each other in a text. Raises ValueError for anything else."""
    found = list[dict[str, Any]]()
    while text := text.lstrip():
        value, end = json.JSONDecoder().raw_decode(text)
        text = text[end:]
        match value:
            case None:
                pass
            case dict():
                found.append(cast("dict[str, Any]", value))
            case str():
                found += _values(value)
            case list():
                found += [one for item in cast("list[Any]", value) for one in _values(json.dumps(item))]
            case _:
                raise ValueError("arguments are an object")
    return found
