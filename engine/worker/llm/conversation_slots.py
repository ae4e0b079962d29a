"""Slots of a local model. Each holds the computed prompt of one conversation, which its next request continues.

A request reuses only what the same client computed: cached tokens and the time of an answer would otherwise reveal what
another client has asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.worker.loop.prefix import shared

EVERYBODY = None
"""Owner of a slot that holds nothing, or only what all clients may reuse."""
_BLOCK = 32
_LONGEST = 1 << 16
"""Bytes of a conversation that are compared, in blocks of ``_BLOCK``. A text of 4096 tokens has about 20,000."""


@dataclass(slots=True, eq=False)
class Slot:
    """One slot."""

    number: int
    owner: str | None = EVERYBODY
    conversation: tuple[bytes, ...] = ()
    """The blocks of the request that was computed last."""


@dataclass(slots=True, eq=False)
class Lease:
    """A slot that one request holds. Call ``computing`` once the model computes the request."""

    slot: Slot
    owner: str | None
    conversation: tuple[bytes, ...]

    @property
    def may_reuse(self) -> bool:
        """Whether the request may reuse what the slot holds. Otherwise the whole prompt must be computed."""
        return self.slot.owner in (self.owner, EVERYBODY)

    def computing(self) -> None:
        """The slot now holds this request instead of the one before. A request that was refused changes no slot."""
        self.slot.owner = self.owner
        self.slot.conversation = self.conversation


@dataclass(slots=True)
class ConversationSlots:
    """All slots. Threads may hold at most ``count`` of them at a time."""

    count: int
    _idle: list[Slot] = field(init=False)
    """Least recently used first."""
    _busy: dict[Slot, Callable[[], bool]] = field(default_factory=dict[Slot, Callable[[], bool]], init=False)
    """The slots in use, and whether the reader of each answer has left."""
    _freed: threading.Condition = field(default_factory=threading.Condition, init=False)

    def __post_init__(self) -> None:
        self._idle = [Slot(number) for number in range(self.count)]

    @contextmanager
    def hold(
        self, body: Mapping[str, Any], owner: str | None, left: Callable[[], bool] = lambda: False
    ) -> Generator[Lease]:
        """Hold the slot that saves a chat completion the most work. ``left``: whether its reader has left.

        If that slot still computes an answer whose reader has left, this waits until the computation stops: after the
        current batch, which the next request would have to wait for in any case.
        """
        conversation = _blocks(body)
        with self._freed:
            while (slot := self._best(owner, conversation)) in self._busy:
                self._freed.wait()
            self._idle.remove(slot)
            self._busy[slot] = left
        try:
            yield Lease(slot, owner, conversation)
        finally:
            with self._freed:
                del self._busy[slot]
                self._idle.append(slot)
                self._freed.notify_all()

    def _best(self, owner: str | None, conversation: tuple[bytes, ...]) -> Slot:
        """Return the slot that shares the longest beginning, if that is half of its conversation or more; otherwise the
        slot that was idle longest.
        """
        ending = [slot for slot, left in self._busy.items() if left()]
        usable = [slot for slot in (*self._idle, *ending) if slot.owner in (owner, EVERYBODY) and slot.conversation]
        common = [(shared(slot.conversation, conversation), slot) for slot in usable]
        kept = [(length, slot) for length, slot in common if 2 * length >= len(slot.conversation)]
        return max(kept, key=lambda found: found[0])[1] if kept else self._idle[0]


def _blocks(body: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the beginning of a prompt in blocks: tools, which templates write first, and messages."""
    text = msgspec.json.encode([body.get("tools"), body["messages"]])[:_LONGEST]
    return tuple(text[start : start + _BLOCK] for start in range(0, len(text), _BLOCK))
