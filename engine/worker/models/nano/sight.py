"""What a conversation's pictures show, each looked at once: the lines that stand behind the thinker's picture marks.

Knows messages and eyes; no tokens, no network, no step loop. May be used from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock

import msgspec
import numpy as np

from engine.core import AudioPart, ImagePart, Message, TextPart
from engine.worker.models.nano.eyes import Eyes, Look, motion
from engine.worker.models.nano.picture import Pixels, name

REMEMBERED = 512
"""Looks that are kept, of all sessions: about 10 kB each."""


class Sight:
    """Looks, by session and by what the picture holds: one of an older turn is not looked at again."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._looks: OrderedDict[tuple[str, bytes], Look] = OrderedDict()
        self._lock = Lock()

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[str | None, ...]:
        """For each message the line of what it shows, None where it holds no picture. Milliseconds a new picture."""
        return tuple(self._line(session, message) for message in messages)

    def _line(self, session: str, message: Message) -> str | None:
        """The newest picture is described; how it moves is judged over all of the message."""
        looks = [self._look(session, np.asarray(part.pixels)) for part in message.parts if isinstance(part, ImagePart)]
        return str(replace(looks[-1].scene, motion=motion(looks))) if looks else None

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


def shows(messages: Sequence[Message]) -> bool:
    """Whether there is a picture among them."""
    return any(isinstance(part, ImagePart) for message in messages for part in message.parts)


def joined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with the user's bare pictures as part of what he says next, where nobody answers between."""
    return tuple(_joined(messages))


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    held: Message | None = None
    for message in messages:
        if held is not None and message.role == "user":
            message, held = msgspec.structs.replace(message, parts=held.parts + message.parts), None
        if held is not None:
            yield held
            held = None
        if message.role == "user" and _bare(message):
            held = message
        else:
            yield message
    if held is not None:
        yield held


def _bare(message: Message) -> bool:
    spoken = any(isinstance(part, TextPart | AudioPart) for part in message.parts)
    return not spoken and any(isinstance(part, ImagePart) for part in message.parts)
