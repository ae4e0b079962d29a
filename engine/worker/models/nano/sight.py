"""The scenes of a conversation's pictures, each looked at once.

Knows messages and eyes; no tokens, no network, no step loop. May be used from several threads.
"""

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
"""The number of looks that are kept, of all sessions: about 10 kB each."""


class Sight:
    """The looks, by session and by what the picture holds: one of an older turn is not looked at again."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._looks: OrderedDict[tuple[str, bytes], Look] = OrderedDict()
        self._lock = Lock()

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[Scene | None, ...]:
        """Return for each message what it shows, None where it holds no picture. This takes milliseconds a new
        picture."""
        return tuple(self._scene(session, message) for message in messages)

    def _scene(self, session: str, message: Message) -> Scene | None:
        """The newest picture is described; how it moves is judged over all of the message."""
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
