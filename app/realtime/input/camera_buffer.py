"""The newest pictures of a client's camera, at a budgeted rate, until a turn takes them. Knows no clock."""

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
"""Bytes of one picture's pixels: more than any video has."""

FRESH_S = 5.0
"""A picture that is older says nothing of the turn that begins."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    frame: CameraFrame
    added_s: float
    position: int


async def frame_of(url: str, context: SessionContext) -> CameraFrame:
    """Return a picture from a data URI, scaled to the model's side. Raises MediaError."""
    image = await context.scheduler.read(partial(image_of_url, url), len(url))
    if image.size > MAX_FRAME_BYTES:
        raise MediaError(f"a camera's picture has at most {MAX_FRAME_BYTES // 3_000_000} million pixels")
    return CameraFrame(await context.image(image, context.engine.model.camera.side), url)


class CameraBuffer:
    """``every_s``: pictures that come sooner after one another are left out."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._waiting: deque[_Waiting] = deque(maxlen=PICTURES)
        self._next_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether a picture may be taken now, which costs its decoding."""
        return now_s >= self._next_s

    def add_frame(self, frame: CameraFrame, now_s: float, position: int) -> None:
        """Take a picture, which came behind so many samples of the session."""
        self._next_s = now_s + EARLY * self._every_s
        self._waiting.append(_Waiting(frame, now_s, position))

    def take(self, now_s: float) -> list[tuple[CameraFrame, int]]:
        """Return those that no turn has, each with its position, oldest first. They are the caller's now."""
        taken = [(one.frame, one.position) for one in self._waiting if now_s - one.added_s <= FRESH_S]
        self._waiting.clear()
        return taken

    def clear(self) -> None:
        """Forget all: they say nothing of what comes."""
        self._waiting.clear()
