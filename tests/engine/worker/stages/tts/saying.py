"""A voice's stage at a worker: what is said there, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.chunk import Audio, Checkpoint, VoiceText
from engine.ipc import messages
from engine.worker.tts.clauses import Clauses
from tests.engine.fakes import Desk, only, opened, working

TEXT = "Hello world, this is a test of the voice. Today it is very fine; we go and come again. One two three? "


def in_pieces(text: str, size: int = 5) -> list[VoiceText]:
    return [VoiceText(text[at : at + size], at) for at in range(0, len(text), size)]


async def said(desk: Desk, run: str, text: str, **fields: Any) -> list[Audio]:
    """The sound of a text."""
    desk.put(
        opened(run, *desk.worker.free, credit=10_000, **fields),
        *(messages.Feed(run, piece) for piece in in_pieces(text)),
    )
    desk.put(messages.End(run))
    await desk.ended(run)
    return only(Audio, [emit.chunk for emit in desk.of(messages.Emit, run)])


async def said_behind(desk: Desk, run: str, left: Checkpoint, given: int) -> np.ndarray:
    """What another replica says of TEXT behind a checkpoint, where so many samples were given before."""
    resume = messages.Resume({"audio": given}, {}, None, (left,))
    desk.put(messages.Open(run, opened(run).request, ("voice",), 10_000, resume=resume))
    desk.put(*(messages.Feed(run, piece) for piece in in_pieces(TEXT, 9)), messages.End(run))
    await desk.ended(run)
    return whole(only(Audio, [emit.chunk for emit in desk.of(messages.Emit, run)]))


async def check_that_another_goes_on(stage: Any, alike: Callable[[np.ndarray, np.ndarray], bool]) -> None:
    """Of a voice that speaks piece by piece, another replica goes on to the sample, behind each of its checkpoints."""
    async with working(stage) as desk:
        full = whole(await said(desk, "a", TEXT))
        emits: list[messages.Emit] = desk.of(messages.Emit, "a")
        left = [(n, one) for n, emit in enumerate(emits) for one in emit.kept if isinstance(one, Checkpoint)]
        assert len(left) == len(clauses_of(TEXT))
        for n, checkpoint in left:
            given = len(whole(only(Audio, [emit.chunk for emit in emits[: n + 3]])))
            rest = await said_behind(desk, f"again{n}", checkpoint, given)
            assert alike(rest, full[given:]), f"behind frame {n}"


def whole(found: Sequence[Audio]) -> np.ndarray:
    return np.concatenate([audio.wave for audio in found]) if found else np.empty(0, np.float32)


def clone_of(path: Path) -> dict[str, Any]:
    """A recording of somebody who agreed, as an entry of a stage's ``clones``."""
    return {"name": "anna", "reference": str(path), "consent": "A test's own voice: noise, which agreed."}


def failure(desk: Desk, run: str) -> str:
    return " ".join(message.message for message in desk.of(messages.Failed, run))


def clauses_of(text: str) -> list[str]:
    """The clauses of a text that is not in a hurry, each on one line."""
    cutter = Clauses()
    found = [*cutter.feed(text, 0), cutter.flush()]
    return [" ".join(clause.text.split()) for clause in found if clause is not None]
