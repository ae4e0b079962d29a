"""Events that a client may send to a session, in our own words: a dialect's decoder makes these, a session obeys them.

Sounds and pictures are still as they came (bytes, data URIs): only the session knows the rates and the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.realtime.protocol.items import ApprovalResponseItem, CallItem, CallOutputItem, Speaker, Text
from app.refusal import Refusal


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
class RawImage:
    """A data URI."""

    url: str
    detail: str = "auto"

    @property
    def size(self) -> int:
        """Characters, as they came."""
        return len(self.url)


@dataclass(frozen=True, slots=True)
class RawVideo:
    """A data URI."""

    url: str

    @property
    def size(self) -> int:
        """Characters, as they came."""
        return len(self.url)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message whose contents have not been decoded yet."""

    id: str
    role: Speaker
    content: tuple[Text | RawAudio | RawImage | RawVideo, ...]

    @property
    def size(self) -> int:
        """Return how many bytes there are to decode."""
        return sum(part.size for part in self.content if not isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class ItemReference:
    """An item that is in the conversation already."""

    id: str


NewItem = RawMessage | CallItem | CallOutputItem | ApprovalResponseItem


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """Change the fields of the session's settings that ``patch`` names."""

    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppendAudio:
    data: bytes


@dataclass(frozen=True, slots=True)
class InputSamples:
    """int16 [samples] at MIC_RATE_HZ from a microphone that the server listens to; only transports that do have it."""

    pcm: Any


@dataclass(frozen=True, slots=True)
class CameraFrame:
    """A camera's newest frame: its pixels, uint8 [height, width, 3], and its data URI. It joins the user's turn."""

    pixels: Any
    url: str


@dataclass(frozen=True, slots=True)
class EncodedCameraFrame:
    """A frame of a client that sends pictures as messages: a data URI, not decoded yet."""

    url: str


@dataclass(frozen=True, slots=True)
class PlayoutDelay:
    """The client's word for how long sound waits there before it is heard; only transports on which the server plays
    have it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """A key of a telephone: 0 to 9, ``*``, ``#``, A to D; only transports that are telephones have it."""

    key: str


@dataclass(frozen=True, slots=True)
class CommitAudio:
    pass


@dataclass(frozen=True, slots=True)
class ClearAudio:
    pass


@dataclass(frozen=True, slots=True)
class ClearOutputAudio:
    """Stop what the server itself is playing out; only transports that do have it."""


@dataclass(frozen=True, slots=True)
class CreateItem:
    item: NewItem
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteItem:
    id: str


@dataclass(frozen=True, slots=True)
class RetrieveItem:
    id: str


@dataclass(frozen=True, slots=True)
class TruncateItem:
    id: str
    content_index: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """Answer now. ``inputs`` replace the conversation as the prompt; what is not ``kept`` stays out of it."""

    patch: dict[str, Any] = field(default_factory=dict[str, Any])
    kept: bool = True
    inputs: tuple[NewItem | ItemReference, ...] | None = None


@dataclass(frozen=True, slots=True)
class CancelResponse:
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class MuteInput:
    """The microphone counts as silent from now on, or (``muted`` is False) as it is again."""

    muted: bool


@dataclass(frozen=True, slots=True)
class AddContext:
    """Put ``item`` behind the conversation, if there is one. With ``answer`` it is answered: now, or once the answer
    that is under way is over. ``purpose`` is the client's word for it."""

    item: NewItem | None
    answer: bool
    purpose: str


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session, with one last event."""


ClientEvent = (
    UpdateSession
    | AppendAudio
    | InputSamples
    | CameraFrame
    | EncodedCameraFrame
    | PlayoutDelay
    | KeyPressed
    | CommitAudio
    | ClearAudio
    | ClearOutputAudio
    | CreateItem
    | DeleteItem
    | RetrieveItem
    | TruncateItem
    | CreateResponse
    | CancelResponse
    | MuteInput
    | AddContext
    | CloseSession
)


@dataclass(frozen=True, slots=True)
class Received:
    """One thing that a client said: a command, or why it is none. ``event_id`` is the client's name for it."""

    event: ClientEvent | Refusal
    event_id: str | None = None
