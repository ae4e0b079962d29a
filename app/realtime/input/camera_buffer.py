"""The newest frames of a client's camera, at a limited rate, until a turn takes them. Never reads the clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

from app.media.audio import MediaError
from app.media.images import image_of_url
from app.realtime.conversation import EARLY
from app.realtime.protocol import CameraFrame
from app.realtime.session_context import SessionContext
from engine import PICTURES

MAX_FRAME_BYTES = 3 * 4_000_000
"""Maximum bytes of one frame's pixels: more than any video has."""

FRESH_S = 5.0
"""Maximum age of a frame when a turn begins: an older one is not about it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    frame: CameraFrame
    added_s: float
    position: int


async def frame_of(url: str, context: SessionContext) -> CameraFrame:
    """Return a frame from a data URI, scaled to the model's side. Raises MediaError."""
    image = await context.read(partial(image_of_url, url), len(url))
    if image.size > MAX_FRAME_BYTES:
        raise MediaError(f"a camera frame can have at most {MAX_FRAME_BYTES // 3_000_000} million pixels")
    return CameraFrame(await context.image(image, context.engine.model.camera.side), url)


class CameraBuffer:
    """``every_s`` is the minimum number of seconds between two frames; others are dropped."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._waiting: deque[_Waiting] = deque(maxlen=PICTURES)
        self._next_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether a frame may be added now, so that decoding it is worthwhile."""
        return now_s >= self._next_s

    def add_frame(self, frame: CameraFrame, now_s: float, position: int) -> None:
        """Add a frame that arrived at ``now_s``, after ``position`` samples of the session's audio."""
        self._next_s = now_s + EARLY * self._every_s
        self._waiting.append(_Waiting(frame, now_s, position))

    def take(self, now_s: float) -> list[tuple[CameraFrame, int]]:
        """Remove and return the waiting frames, oldest first, each with its position."""
        taken = [(one.frame, one.position) for one in self._waiting if now_s - one.added_s <= FRESH_S]
        self._waiting.clear()
        return taken

    def clear(self) -> None:
        """Discard all waiting frames: they are not about the next turn."""
        self._waiting.clear()
