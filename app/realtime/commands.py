"""What a client can ask of a session, in our own words: a dialect's decoder makes these, a session obeys them.

Sounds and pictures are still as they came (bytes, data URIs): only the session knows the rates and the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.realtime.items import CallItem, CallOutputItem, Speaker, Text
from app.realtime.trouble import Refusal


@dataclass(frozen=True, slots=True)
class RawAudio:
    """Samples in the session's input format."""

    data: bytes
    transcript: str | None = None

    @property
    def size(self) -> int:
        """Bytes, as they came."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class RawPicture:
    """A data URI."""

    url: str
    detail: str = "auto"

    @property
    def size(self) -> int:
        """Characters, as they came."""
        return len(self.url)


@dataclass(frozen=True, slots=True)
class Draft:
    """A message whose contents have not been decoded yet."""

    id: str
    role: Speaker
    content: tuple[Text | RawAudio | RawPicture, ...]

    @property
    def size(self) -> int:
        """What there is to decode."""
        return sum(part.size for part in self.content if not isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class Reference:
    """An item that is in the conversation already."""

    id: str


NewItem = Draft | CallItem | CallOutputItem


@dataclass(frozen=True, slots=True)
class Configure:
    """Change the fields of the session's settings that ``patch`` names."""

    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppendAudio:
    data: bytes


@dataclass(frozen=True, slots=True)
class Hear:
    """int16 [samples] at MIC_RATE_HZ from a microphone that the server listens to; only transports that do have it."""

    pcm: Any


@dataclass(frozen=True, slots=True)
class See:
    """A camera's newest frame: its pixels, uint8 [height, width, 3], and its data URI. It joins the user's turn."""

    pixels: Any
    url: str


@dataclass(frozen=True, slots=True)
class Look:
    """The same from a client that sends pictures as messages: a data URI, not decoded yet."""

    url: str


@dataclass(frozen=True, slots=True)
class PlayoutDelay:
    """How long sound waits at the client before it is heard; only transports on which the server plays have it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CommitAudio:
    pass


@dataclass(frozen=True, slots=True)
class ClearAudio:
    pass


@dataclass(frozen=True, slots=True)
class FlushOutput:
    """Stop what the server itself is playing out; only transports that do have it."""


@dataclass(frozen=True, slots=True)
class AddItem:
    item: NewItem
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DropItem:
    id: str


@dataclass(frozen=True, slots=True)
class ShowItem:
    id: str


@dataclass(frozen=True, slots=True)
class CutItem:
    id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer now. ``inputs`` replace the conversation as the prompt; what is not ``kept`` stays out of it."""

    patch: dict[str, Any] = field(default_factory=dict[str, Any])
    kept: bool = True
    inputs: tuple[NewItem | Reference, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    response_id: str | None = None


Command = (
    Configure
    | AppendAudio
    | Hear
    | See
    | Look
    | PlayoutDelay
    | CommitAudio
    | ClearAudio
    | FlushOutput
    | AddItem
    | DropItem
    | ShowItem
    | CutItem
    | Respond
    | Cancel
)


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that a client said: a command, or why it is none. ``event_id`` is the client's name for it."""

    word: Command | Refusal
    event_id: str | None = None
