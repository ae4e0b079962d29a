"""Responses that a server keeps, so that the next question can go on from them: bounded in number and in bytes.

They belong to the key that asked for them. The one that was used longest ago goes first. A conversation is kept once,
however many of its responses are: each turn holds its own messages, and the turn that it goes on from. Knows no HTTP
and no engine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.settings import Limits
from engine import AudioPart, ImagePart, Message, Part, TextPart, ToolCallPart, ToolResultPart, VideoPart

MESSAGE = 512
"""Bytes of a message beside what it says: itself, its parts and its place."""

MOST_CHARACTER = 4
"""Bytes that a character may take."""


@dataclass(eq=False, slots=True)
class Turn:
    """The messages that came with one question, and its answer's; and the turn that they go on from."""

    messages: tuple[Message, ...]
    previous: Turn | None = None
    size: int = field(init=False)
    """The bytes of this turn's messages."""
    chars: int = field(init=False)
    """The characters that the conversation says up to here, as the next prompt has them."""
    media_bytes: int = field(init=False)
    """The bytes of the conversation's pictures and sounds up to here."""
    count: int = field(init=False)
    """The messages of the conversation up to here."""
    users: int = 0
    """The number of kept responses and later turns that need it."""

    def __post_init__(self) -> None:
        media = sum(_media_bytes(part) for message in self.messages for part in message.parts)
        chars = sum(len(text) for message in self.messages for part in message.parts for text in _texts(part))
        self.size = media + len(self.messages) * MESSAGE + chars * MOST_CHARACTER
        earlier = self.previous
        self.chars = chars + (earlier.chars if earlier is not None else 0)
        self.media_bytes = media + (earlier.media_bytes if earlier is not None else 0)
        self.count = len(self.messages) + (earlier.count if earlier is not None else 0)

    def conversation(self) -> tuple[Message, ...]:
        """All messages up to here, in their order."""
        turns = list(self._back())
        return tuple(message for turn in reversed(turns) for message in turn.messages)

    def _back(self) -> Iterator[Turn]:
        turn: Turn | None = self
        while turn is not None:
            yield turn
            turn = turn.previous


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response: its object as its client was told it, of so many bytes, and its turn."""

    body: dict[str, Any]
    size: int
    turn: Turn
    session: str
    """The session in which the engine has the conversation's prompt."""

    @property
    def id(self) -> str:
        return self.body["id"]


class _OfOwner:
    """The responses of one key, the one that was used longest ago first, and the bytes that they hold."""

    def __init__(self) -> None:
        self.responses = OrderedDict[str, KeptResponse]()
        self.items = dict[str, dict[str, Any]]()
        self.held = 0


class ResponseStore:
    """The responses that one server keeps, of all keys; ``server`` is its name, which stands in their ids."""

    def __init__(self, limits: Limits, server: str | None = None) -> None:
        self.server = server
        self._most = limits.kept_responses
        self._most_bytes = int(limits.kept_mb * 1e6)
        self._owners = dict[str, _OfOwner]()

    @property
    def held(self) -> int:
        """The bytes of all that is kept."""
        return sum(one.held for one in self._owners.values())

    def __len__(self) -> int:
        return sum(len(one.responses) for one in self._owners.values())

    def find(self, owner: str, id: str) -> KeptResponse | None:
        """The response of that id, if it is this key's and still kept; it counts as used."""
        known = self._owners.get(owner)
        if known is None or id not in known.responses:
            return None
        known.responses.move_to_end(id)
        return known.responses[id]

    def item(self, owner: str, id: str) -> dict[str, Any] | None:
        """The item of that id in an answer of this key's, if it is still kept."""
        known = self._owners.get(owner)
        return known.items.get(id) if known is not None else None

    def keep(self, owner: str, response: KeptResponse) -> None:
        """Keep one more; others go where it is one too many, or too much. What is larger than all may be is not
        kept."""
        if response.size + response.turn.media_bytes > self._most_bytes:
            return
        known = self._owners.setdefault(owner, _OfOwner())
        known.responses[response.id] = response
        known.items |= {item["id"]: item for item in response.body["output"]}
        known.held += response.size
        _need(known, response.turn)
        while len(known.responses) > self._most:
            self._drop_oldest(owner)
        while self.held > self._most_bytes:
            self._drop_oldest(max(self._owners, key=lambda one: self._owners[one].held))

    def forget(self, owner: str, id: str) -> bool:
        """Keep one no longer; whether it was kept."""
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
        return True

    def withdraw(self, owner: str) -> None:
        """Keep nothing of this key any more."""
        while owner in self._owners:
            self._drop_oldest(owner)

    def _drop_oldest(self, owner: str) -> None:
        self.forget(owner, next(iter(self._owners[owner].responses)))


def _need(known: _OfOwner, turn: Turn | None) -> None:
    """One more needs this turn; the first one brings it, and what it goes on from."""
    while turn is not None:
        turn.users += 1
        if turn.users > 1:
            return
        known.held += turn.size
        turn = turn.previous


def _leave(known: _OfOwner, turn: Turn | None) -> None:
    """One fewer needs this turn; with the last one it goes, and what nobody else goes on from."""
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
