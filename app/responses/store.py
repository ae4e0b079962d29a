"""Stored responses, which later requests can continue: limited in number and bytes.

A response belongs to the key that requested it. The least recently used one is dropped first. A conversation is stored
only once: each turn holds its own messages and refers to the turn before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.limits.memory_budget import MemoryBudget
from app.settings import Limits
from engine import AudioPart, ImagePart, Message, Part, TextPart, ToolCallPart, ToolResultPart, VideoPart

MESSAGE = 512
"""Overhead of a message in bytes, in addition to its contents."""

PART = 160
"""Overhead of a part of a message in bytes."""

MOST_CHARACTER = 4
"""Maximum bytes of a character."""


@dataclass(eq=False, slots=True)
class Turn:
    """The messages of one question and its answer, and a reference to the turn before."""

    messages: tuple[Message, ...]
    previous: Turn | None = None
    size: int = field(init=False)
    """Bytes of this turn's messages."""
    chars: int = field(init=False)
    """Characters of the conversation up to here, as in the next prompt."""
    media_bytes: int = field(init=False)
    """Bytes of the conversation's images and audio up to here."""
    count: int = field(init=False)
    """Number of messages in the conversation up to here."""
    users: int = 0
    """Number of stored responses and later turns that refer to this turn."""

    def __post_init__(self) -> None:
        media = sum(_media_bytes(part) for message in self.messages for part in message.parts)
        chars = sum(len(text) for message in self.messages for part in message.parts for text in _texts(part))
        parts = sum(len(message.parts) for message in self.messages)
        self.size = media + len(self.messages) * MESSAGE + parts * PART + chars * MOST_CHARACTER
        earlier = self.previous
        self.chars = chars + (earlier.chars if earlier is not None else 0)
        self.media_bytes = media + (earlier.media_bytes if earlier is not None else 0)
        self.count = len(self.messages) + (earlier.count if earlier is not None else 0)

    def conversation(self) -> tuple[Message, ...]:
        """Return all messages up to here in order."""
        turns = list(self._back())
        return tuple(message for turn in reversed(turns) for message in turn.messages)

    def _back(self) -> Iterator[Turn]:
        turn: Turn | None = self
        while turn is not None:
            yield turn
            turn = turn.previous


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response: the object that the client received, its size in bytes, and its turn."""

    body: dict[str, Any]
    size: int
    turn: Turn
    session: str
    """The engine's session that has the conversation cached."""

    @property
    def id(self) -> str:
        return self.body["id"]


class _OfOwner:
    """The responses of one key, least recently used first, and their bytes."""

    def __init__(self) -> None:
        self.responses = OrderedDict[str, KeptResponse]()
        self.items = dict[str, dict[str, Any]]()
        self.held = 0


class ResponseStore:
    """The stored responses of all keys. ``server`` is the server's name, which is part of their ids.

    Stored responses count in ``memory``, but are dropped when other data needs it.
    """

    def __init__(self, limits: Limits, server: str | None = None, memory: MemoryBudget | None = None) -> None:
        self.server = server
        self._memory = memory or MemoryBudget()
        self._memory.reclaim = self._reclaim
        self._most = limits.kept_responses
        self._most_bytes = int(limits.kept_mb * 1e6)
        self._owners = dict[str, _OfOwner]()

    @property
    def held(self) -> int:
        """Return the bytes of all stored responses."""
        return sum(one.held for one in self._owners.values())

    def __len__(self) -> int:
        return sum(len(one.responses) for one in self._owners.values())

    def find(self, owner: str, id: str) -> KeptResponse | None:
        """Return a stored response of this key, and mark it as used."""
        known = self._owners.get(owner)
        if known is None or id not in known.responses:
            return None
        known.responses.move_to_end(id)
        return known.responses[id]

    def item(self, owner: str, id: str) -> dict[str, Any] | None:
        """Return an item of a stored response of this key."""
        known = self._owners.get(owner)
        return known.items.get(id) if known is not None else None

    def keep(self, owner: str, response: KeptResponse) -> None:
        """Store a response. The least recently used ones are dropped to stay within the limits.

        A response larger than the whole limit is not stored.
        """
        if response.size + response.turn.media_bytes > self._most_bytes:
            return
        known = self._owners.setdefault(owner, _OfOwner())
        known.responses[response.id] = response
        known.items |= {item["id"]: item for item in response.body["output"]}
        known.held += response.size
        _need(known, response.turn)
        while len(known.responses) > self._most:
            self._drop_oldest(owner)
        others = self._memory.held - self._memory.held_of("responses")
        most = min(self._most_bytes, self._memory.most - others)
        self._reclaim(self.held - most)
        self._count()

    def forget(self, owner: str, id: str) -> bool:
        """Drop a response. Returns whether it was stored."""
        known = self._owners.get(owner)
        response = known.responses.pop(id, None) if known is not None else None
        if known is None or response is None:
            return False
        for item in response.body["output"]:
            known.items.pop(item["id"], None)
        known.held -= response.size
        _leave(known, response.turn)
        if not known.responses:
            del self._owners[owner]
        self._count()
        return True

    def withdraw(self, owner: str) -> None:
        """Drop all responses of this key."""
        while owner in self._owners:
            self._drop_oldest(owner)

    def _reclaim(self, size: int) -> None:
        """Drop responses until ``size`` bytes are free, or none is left: the oldest of the key that stores the most."""
        left = self.held - size
        while self._owners and self.held > left:
            self._drop_oldest(max(self._owners, key=lambda one: self._owners[one].held))

    def _count(self) -> None:
        self._memory.count(self.held - self._memory.held_of("responses"), None, "responses")

    def _drop_oldest(self, owner: str) -> None:
        self.forget(owner, next(iter(self._owners[owner].responses)))


def _need(known: _OfOwner, turn: Turn | None) -> None:
    """Add a reference to a turn. The first reference also counts its bytes and refers to the turn before."""
    while turn is not None:
        turn.users += 1
        if turn.users > 1:
            return
        known.held += turn.size
        turn = turn.previous


def _leave(known: _OfOwner, turn: Turn | None) -> None:
    """Remove a reference to a turn. With the last one, its bytes and its reference to the turn before are removed."""
    while turn is not None:
        turn.users -= 1
        if turn.users:
            return
        known.held -= turn.size
        turn = turn.previous


def _texts(part: Part) -> tuple[str, ...]:
    match part:
        case TextPart(text):
            return (text,)
        case ToolCallPart(name, arguments, call_id):
            return name, arguments, call_id
        case ToolResultPart(call_id, output):
            return call_id, output
        case AudioPart(_, transcript):
            return (transcript or "",)
        case ImagePart() | VideoPart():
            return ()


def _media_bytes(part: Part) -> int:
    match part:
        case AudioPart(pcm):
            return pcm.nbytes
        case ImagePart(pixels):
            return pixels.nbytes
        case VideoPart(frames, _, pcm):
            return sum(frame.nbytes for frame in frames) + (0 if pcm is None else pcm.nbytes)
        case TextPart() | ToolCallPart() | ToolResultPart():
            return 0
