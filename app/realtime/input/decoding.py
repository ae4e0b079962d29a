"""Decodes a client's sound in pieces: a long message blocks no other session and needs little memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from app.realtime.protocol import LONG_BYTES, MicrophoneDecoder
from app.realtime.session_context import SessionContext
from engine.core import Pcm


async def decoded(decoder: MicrophoneDecoder, data: bytes, context: SessionContext) -> AsyncIterator[Pcm]:
    """Yield int16 [samples] at the decoder's rate; long ``data`` piece by piece, in a thread. Raises MediaError."""
    for at in range(0, len(data), LONG_BYTES):
        decode = partial(decoder.push, data[at : at + LONG_BYTES])
        yield decode() if len(data) <= LONG_BYTES else await context.in_thread(decode)
