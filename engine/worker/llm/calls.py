"""Assembles function calls from streamed pieces, in any order and form that servers send. Does no I/O.

Servers number the pieces of a call (``index``), or name their call (``id``), or neither; some send each call whole,
some give all calls the same number. Source: openai-python ``types/chat/chat_completion_chunk.py``; Ollama's issues
7881 and 15457.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from engine.chunk import ToolCall, ToolCallDelta
from engine.errors import StageFailed

MOST_CALLS = 64
"""Maximum calls of one answer. A model that makes more is stuck in a loop."""


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str
    name: str = ""
    arguments: str = ""
    num_sent: int = 0


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
        call.arguments += arguments
        first = self._calls[0]
        if call is not first or not first.name:
            return []
        piece = first.arguments[first.num_sent :]
        first.num_sent = len(first.arguments)
        return [ToolCallDelta(first.id, first.name, piece)] if piece else []

    def whole(self, cut: bool = False) -> list[ToolCall]:
        """All calls, at the end of the answer; without the last where the answer was ``cut`` off in it: nobody may run
        it. Raises StageFailed for one without a name."""
        calls = self._calls[:-1] if cut and self and not is_object(self._calls[-1].arguments) else self._calls
        if any(not call.name for call in calls):
            raise StageFailed("The language model called a function without a name.")
        return [ToolCall(call.id, call.name, call.arguments or "{}") for call in calls]

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
        self._calls.append(_Call(index, id or f"call_{self._name}_{len(self._calls)}"))
        return self._calls[-1]


def is_object(arguments: str) -> bool:
    """Return whether ``arguments`` is a JSON object, which function arguments must be."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
