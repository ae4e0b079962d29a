"""Recordings for the tests: sessions with a script server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from app.recording.comparison import conversation_differences, differences, events_of
from app.recording.file import read
from app.recording.replay import Replayed, replay
from engine import EngineSpec
from tests.app.rig import Client, LoudnessVad, Running, running, script_spec, talking

KEY = "sk-of-somebody-0123456789"


@asynccontextmanager
async def recorder(folder: Path, **options: Any) -> AsyncGenerator[Running]:
    """A server with the script model that records to ``folder`` if its clients ask for it."""
    async with running(script_spec(recordings=str(folder), **options), vad=LoudnessVad) as one:
        yield one


@asynccontextmanager
async def recording(folder: Path, query: str = "?record=true", **options: Any) -> AsyncGenerator[Client]:
    """A client whose session with the script model is recorded to ``folder``."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with recorder(folder, **options) as one, talking(one, query, additional_headers=headers) as client:
        yield client


def only(folder: Path) -> Path:
    """The one recording in a folder."""
    (path,) = folder.glob("*.jsonl")
    return path


async def replayed(path: Path, spec: EngineSpec | None = None) -> Replayed:
    """A replay, in a thread since it has a loop of its own."""
    return await asyncio.to_thread(replay, read(path), spec, LoudnessVad)


async def differences_of(path: Path, spec: EngineSpec | None = None) -> list[str]:
    done = await replayed(path, spec)
    return differences(events_of(read(path).server), done.events)


async def conversation_differences_of(path: Path) -> list[str]:
    """The differences without those of two events that happened at the same moment on a busy machine."""
    done = await replayed(path)
    return conversation_differences(events_of(read(path).server), done.events)
