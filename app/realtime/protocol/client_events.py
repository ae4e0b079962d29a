"""Events that a client may send to a session, independent of the wire protocol.

A dialect's decoder creates them and a session handles them. Audio and images are still encoded (bytes, data URIs),
since only the session knows the sample rates and limits.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.realtime.protocol.items import ApprovalResponseItem, CallItem, CallOutputItem, MessageText, Speaker
from app.refusal import Refusal


class RawAudio(Struct, frozen=True):
    """Audio in the session's input format."""

    data: bytes
    transcript: str | None = None

    @property
    def size(self) -> int:
        """Bytes before decoding."""
        return len(self.data)


class RawImage(Struct, frozen=True):
    """A data URI."""

    url: str
    detail: str = "auto"

    @property
    def size(self) -> int:
        """Characters of the data URI."""
        return len(self.url)


class RawVideo(Struct, frozen=True):
    """A data URI."""

    url: str

    @property
    def size(self) -> int:
        """Characters of the data URI."""
        return len(self.url)


class RawMessage(Struct, frozen=True):
    """A message whose contents have not been decoded yet."""

    id: str
    role: Speaker
    content: tuple[MessageText | RawAudio | RawImage | RawVideo, ...]
    pinned: bool = False

    @property
    def size(self) -> int:
        """Bytes to decode."""
        return sum(part.size for part in self.content if not isinstance(part, MessageText))


class ItemReference(Struct, frozen=True):
    """An item that is already in the conversation."""

    id: str


NewItem = RawMessage | CallItem | CallOutputItem | ApprovalResponseItem


class UpdateSession(Struct, frozen=True):
    """Change the settings contained in ``session``."""

    session: dict[str, Any]


class AppendAudio(Struct, frozen=True):
    data: bytes


class InputSamples(Struct, frozen=True):
    """int16 [samples] at MIC_RATE_HZ from a microphone, on transports with media streams only."""

    pcm: Any


class CameraFrame(Struct, frozen=True):
    """The newest frame of a camera: pixels (uint8 [height, width, 3]) and data URI. It becomes part of the user's
    turn.
    """

    pixels: Any
    url: str


class EncodedCameraFrame(Struct, frozen=True):
    """A camera frame sent as a message: a data URI, not decoded yet."""

    url: str


class PlayoutDelay(Struct, frozen=True):
    """The client's own playout delay. Only for transports on which the server plays."""

    seconds: float


class KeyPressed(Struct, frozen=True):
    """A DTMF key: 0 to 9, ``*``, ``#``, A to D. Only for telephone transports."""

    key: str


class CommitAudio(Struct, frozen=True):
    pass


class ClearAudio(Struct, frozen=True):
    pass


class ClearOutputAudio(Struct, frozen=True):
    """Stop the server's playback. Only for transports on which the server plays."""


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
    """Start a response. ``inputs`` replace the conversation as the prompt; without ``kept`` the response is out of
    band.
    """

    patch: dict[str, Any] = {}
    kept: bool = True
    inputs: tuple[NewItem | ItemReference, ...] | None = None


class CancelResponse(Struct, frozen=True):
    response_id: str | None = None


class MuteInput(Struct, frozen=True):
    """Mute the microphone, or unmute it if ``muted`` is False."""

    muted: bool


class AddContext(Struct, frozen=True):
    """Append ``item`` to the conversation, if set. With ``answer``, answer it now or after the current response.

    ``purpose`` is the client's name for the kind of context.
    """

    item: NewItem | None
    answer: bool
    purpose: str


class CloseSession(Struct, frozen=True):
    """End the session, with a final event."""


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
    """A message from the client: an event, or the reason why it is not valid. ``event_id`` is the client's id."""

    event: ClientEvent | Refusal
    event_id: str | None = None
