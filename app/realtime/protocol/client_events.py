"""Events that a client may send to a session, in our own words: a dialect's decoder makes these, a session obeys them.

Sounds and pictures are still as they came (bytes, data URIs): only the session knows the rates and the limits.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.realtime.protocol.items import ApprovalResponseItem, CallItem, CallOutputItem, MessageText, Speaker
from app.refusal import Refusal


class RawAudio(Struct, frozen=True):
    """Samples in the session's input format."""

    data: bytes
    transcript: str | None = None

    @property
    def size(self) -> int:
        """Bytes, as they came."""
        return len(self.data)


class RawImage(Struct, frozen=True):
    """A data URI."""

    url: str
    detail: str = "auto"

    @property
    def size(self) -> int:
        """Characters, as they came."""
        return len(self.url)


class RawVideo(Struct, frozen=True):
    """A data URI."""

    url: str

    @property
    def size(self) -> int:
        """Characters, as they came."""
        return len(self.url)


class RawMessage(Struct, frozen=True):
    """A message whose contents have not been decoded yet."""

    id: str
    role: Speaker
    content: tuple[MessageText | RawAudio | RawImage | RawVideo, ...]

    @property
    def size(self) -> int:
        """Return how many bytes there are to decode."""
        return sum(part.size for part in self.content if not isinstance(part, MessageText))


class ItemReference(Struct, frozen=True):
    """An item that is in the conversation already."""

    id: str


NewItem = RawMessage | CallItem | CallOutputItem | ApprovalResponseItem


class UpdateSession(Struct, frozen=True):
    """Change the settings that ``session`` names."""

    session: dict[str, Any]


class AppendAudio(Struct, frozen=True):
    data: bytes


class InputSamples(Struct, frozen=True):
    """int16 [samples] at MIC_RATE_HZ from a microphone that the server listens to; only transports that do have it."""

    pcm: Any


class CameraFrame(Struct, frozen=True):
    """A camera's newest frame: its pixels, uint8 [height, width, 3], and its data URI. It joins the user's turn."""

    pixels: Any
    url: str


class EncodedCameraFrame(Struct, frozen=True):
    """A frame of a client that sends pictures as messages: a data URI, not decoded yet."""

    url: str


class PlayoutDelay(Struct, frozen=True):
    """The client's word for how long sound waits there before it is heard; only transports on which the server plays
    have it."""

    seconds: float


class KeyPressed(Struct, frozen=True):
    """A key of a telephone: 0 to 9, ``*``, ``#``, A to D; only transports that are telephones have it."""

    key: str


class CommitAudio(Struct, frozen=True):
    pass


class ClearAudio(Struct, frozen=True):
    pass


class ClearOutputAudio(Struct, frozen=True):
    """Stop what the server itself is playing out; only transports that do have it."""


class CreateItem(Struct, frozen=True):
    item: NewItem
    after: str | None = None


class DeleteItem(Struct, frozen=True):
    item_id: str


class RetrieveItem(Struct, frozen=True):
    item_id: str


class TruncateItem(Struct, frozen=True):
    item_id: str
    content_index: int
    audio_end_ms: int


class CreateResponse(Struct, frozen=True):
    """Answer now. ``inputs`` replace the conversation as the prompt; what is not ``kept`` stays out of it."""

    patch: dict[str, Any] = {}
    kept: bool = True
    inputs: tuple[NewItem | ItemReference, ...] | None = None


class CancelResponse(Struct, frozen=True):
    response_id: str | None = None


class MuteInput(Struct, frozen=True):
    """The microphone counts as silent from now on, or (``muted`` is False) as it is again."""

    muted: bool


class AddContext(Struct, frozen=True):
    """Put ``item`` behind the conversation, if there is one. With ``answer`` it is answered: now, or once the answer
    that is under way is over. ``purpose`` is the client's word for it."""

    item: NewItem | None
    answer: bool
    purpose: str


class CloseSession(Struct, frozen=True):
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


class Received(Struct, frozen=True):
    """One thing that a client said: a command, or why it is none. ``event_id`` is the client's name for it."""

    event: ClientEvent | Refusal
    event_id: str | None = None
