"""A client's dialect that remembers the text of each message until the session takes it, and records it then."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import numpy as np

from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.client_events import CameraFrame, CreateItem, InputSamples
from app.realtime.protocol.dialect import REALTIME, Dialect, Ended
from app.recording.lines import HISTORY, MICROPHONE, REFUSED
from app.recording.writer import RecordingWriter
from app.refusal import Refusal
from engine.core import Pcm


class ClientTap:
    """The dialect of a recorded session. Messages of another dialect than Realtime are recorded as well, for their ids.

    A message may wait a while between ``decode`` and ``record``: for a time slice, or in the inbox of a call.
    """

    def __init__(self, dialect: Dialect, writer: RecordingWriter) -> None:
        self._dialect = dialect
        self._writer = writer
        self._is_same_step = False
        self._texts: dict[int, tuple[Received, str]] = {}  # by the identity of the message, which it keeps alive

    def record(self, received: Received) -> None:
        """Record a message at the moment when the session takes it."""
        _, text = self._texts.pop(id(received), (None, None))
        self._note_step()
        if text is None:
            self._writer.add("media", _line(received))
        else:
            self._writer.add("out", text)

    def _note_step(self) -> None:
        """Record whether the session takes this message before the loop has run anything after the previous one."""
        if self._is_same_step:
            self._writer.add("turn", {"type": "follows"})
        self._is_same_step = True
        asyncio.get_running_loop().call_soon(self._end_step)

    def _end_step(self) -> None:
        self._is_same_step = False

    def decode(self, text: str) -> Received:
        received = self._dialect.decode(text)
        if not self._writer.is_closed:
            self._texts[id(received)] = received, text
        return received

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        texts = self._dialect.encode(event, numbers)
        if self._dialect is not REALTIME:
            for text in texts:
                self._writer.add("wire", text)
        return texts

    def reflect_input(self, pcm: Pcm) -> str | None:
        return self._dialect.reflect_input(pcm)

    def reflect_output(self, pcm: bytes) -> str | None:
        return self._dialect.reflect_output(pcm)

    def farewell(self, ended: Ended) -> list[str]:
        return self._dialect.farewell(ended)


def _line(received: Received) -> dict[str, Any]:
    """Return the line of a message that did not arrive as text."""
    match received.event:
        case InputSamples(pcm):
            audio = base64.b64encode(np.asarray(pcm, "<i2").tobytes()).decode() if pcm.any() else ""
            return {"type": MICROPHONE, "audio": audio, "samples": len(pcm)}
        case CameraFrame(_, url):
            return {"type": "parley.camera.frame", "image_url": url}
        case Refusal() as refusal:
            return {"type": REFUSED, "code": refusal.code, "message": str(refusal), "param": refusal.param}
        case CreateItem():
            return {"type": HISTORY}
        case event:
            raise AssertionError(f"{type(event).__name__} arrives as text only")
