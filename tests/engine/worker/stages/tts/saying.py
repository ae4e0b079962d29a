"""A voice's stage at a worker: what is said there, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import wire
from engine.chunk import Audio, VoiceText
from engine.worker.clauses import Clauses
from tests.engine.fakes import Desk, only, opened

TEXT = "Hello world, this is a test of the voice. Today it is very fine; we go and come again. One two three? "


def in_pieces(text: str, size: int = 5) -> list[VoiceText]:
    return [VoiceText(text[at : at + size], at) for at in range(0, len(text), size)]


async def said(desk: Desk, run: str, text: str, **fields: Any) -> list[Audio]:
    """The sound of a text."""
    desk.put(opened(run, "voice", credit=10_000, **fields), *(wire.Feed(run, piece) for piece in in_pieces(text)))
    desk.put(wire.End(run))
    await desk.ended(run)
    return only(Audio, [emit.chunk for emit in desk.of(wire.Emit, run)])


def whole(found: Sequence[Audio]) -> np.ndarray:
    return np.concatenate([audio.wave for audio in found]) if found else np.empty(0, np.float32)


def failure(desk: Desk, run: str) -> str:
    return " ".join(message.message for message in desk.of(wire.Failed, run))


def clauses_of(text: str) -> list[str]:
    """The clauses of a text that is not in a hurry, each on one line."""
    cutter = Clauses()
    found = [*cutter.feed(text, 0), cutter.flush()]
    return [" ".join(clause.text.split()) for clause in found if clause is not None]
