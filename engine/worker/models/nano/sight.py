"""Cache of scene descriptions, so that each picture of a conversation is analysed once. Thread-safe."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from engine.core import ImagePart, Message
from engine.worker.models.nano.eyes import Eyes, Look, motion
from engine.worker.models.nano.picture import Pixels, name
from engine.worker.models.nano.scene import Scene

REMEMBERED = 512
"""Maximum cached looks over all sessions, about 10 kB each."""


class Sight:
    """Cached looks by session and picture content."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._looks: OrderedDict[tuple[str, bytes], Look] = OrderedDict()
        self._lock = Lock()

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[Scene | None, ...]:
        """Return the scene of each message, or None for messages without pictures. A new picture takes a few
        milliseconds.
        """
        return tuple(self._scene(session, message) for message in messages)

    def _scene(self, session: str, message: Message) -> Scene | None:
        """Describe the message's newest picture, with the motion over all of its pictures."""
        looks = [self._look(session, np.asarray(part.pixels)) for part in message.parts if isinstance(part, ImagePart)]
        return replace(looks[-1].scene, motion=motion(looks)) if looks else None

    def _look(self, session: str, pixels: Pixels) -> Look:
        key = session, name(pixels)
        with self._lock:
            if key in self._looks:
                self._looks.move_to_end(key)
                return self._looks[key]
        look = self._eyes.look(pixels)
        with self._lock:
            self._looks[key] = look
            while len(self._looks) > REMEMBERED:
                self._looks.popitem(last=False)
        return look
