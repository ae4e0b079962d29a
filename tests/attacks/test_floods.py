"""One client sends as many frames as it can: everybody else is answered as if it did not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.attacks.raw import BINARY, MORE, PING, PONG, TEXT, frame, pushed, upgraded
from tests.attacks.target import Bystander, Target, Waits, attacked, elsewhere, target

pytestmark = pytest.mark.attacks

UNGUARDED = """
from app.limits.rate_limiter import RateLimiter, TokenBucket
from app.transports import intake
intake.PIECE_BYTES = 1 << 20
TokenBucket.wait_s = RateLimiter.ahead_s = lambda self, now_s: 0.0
"""
"""Everything in one read of the socket is parsed and obeyed at once, as often as it comes."""

MESSAGE = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}'
ITEM = b'{"type":"conversation.item.create","item":' + MESSAGE + b"}"
FLOODS = {
    "tiny texts": frame(TEXT, b"{}") * 120_000,
    "empty texts": frame(TEXT) * 120_000,
    "binary frames": frame(BINARY, b"a") * 120_000,
    "pings": frame(PING) * 120_000,
    "pings with content": frame(PING, b"p" * 125) * 20_000,
    "pongs": frame(PONG) * 120_000,
    "empty continuations": frame(TEXT, whole=False) + frame(MORE, whole=False) * 120_000,
    "settings": frame(TEXT, b'{"type":"session.update","session":{"instructions":"x"}}') * 10_000,
    "items": frame(TEXT, ITEM) * 10_000,
    "answers": frame(TEXT, b'{"type":"response.create","response":{"output_modalities":["text"]}}') * 10_000,
    "commits": frame(TEXT, b'{"type":"input_audio_buffer.commit"}') * 20_000,
}
LIVE = {
    "what is no event": frame(TEXT, b"{}") * 120_000,
    "binary frames": frame(BINARY, b"a") * 120_000,
    "another dialect's events": frame(TEXT, ITEM) * 10_000,
    "sessions": frame(TEXT, b'{"type":"session.start","session":{"model":"nano"}}') * 20_000,
    "sound": frame(TEXT, b'{"type":"session.start","session":{"model":"nano"}}')
    + frame(TEXT, b'{"type":"session.input_audio.append","audio":"AAAA"}') * 40_000,
}
FOR_S = 3.0


async def _beside(aim: Target, data: bytes, path: str = "/v1/realtime") -> Waits:
    """What the healthy client waits while another one sends this, and reads nothing."""
    async with Bystander(aim) as bystander:
        _, writer = await upgraded(aim.port, path)
        with elsewhere():
            await asyncio.gather(pushed(writer, data, FOR_S), asyncio.sleep(FOR_S))
        writer.transport.abort()
    return bystander.waits


async def _nobody_waits(folder: Path, floods: dict[str, bytes], path: str) -> None:
    async with target(folder) as aim:
        waits = {name: await _beside(aim, data, path) for name, data in floods.items()}
        assert aim.grown_mb() < 300
        assert aim.tracebacks == 0
        assert len(aim.log) < 200_000
    print({name: (seen.rounds, round(seen.median_ms, 1), round(seen.longest_ms)) for name, seen in waits.items()})
    assert {name: seen.broken for name, seen in waits.items() if seen.broken} == {}
    assert {name: round(seen.longest_ms) for name, seen in waits.items() if seen.longest_ms > 100} == {}


async def test_nobody_waits_for_one_who_floods(tmp_path: Path) -> None:
    await _nobody_waits(tmp_path, FLOODS, "/v1/realtime")


async def test_nobody_waits_for_one_who_floods_live(tmp_path: Path) -> None:
    await _nobody_waits(tmp_path, LIVE, "/v1/live/sessions")


async def test_without_the_pace_everybody_waits(tmp_path: Path) -> None:
    async with target(tmp_path, before=UNGUARDED) as aim:
        waits = await _beside(aim, FLOODS["tiny texts"])
    assert waits.longest_ms > 300


async def test_nobody_waits_for_one_who_floods_the_line(tmp_path: Path) -> None:
    """The server is full, but for the healthy client: what one says who waits costs no more than what others say."""
    async with target(tmp_path, {"limits": {"sessions": 2}}) as aim:
        _, holder = await upgraded(aim.port)
        waits = await _beside(aim, FLOODS["empty texts"], "/v1/realtime?wait=true")
        holder.close()
    assert waits.broken is None
    assert waits.longest_ms < 100


async def test_many_who_flood_leave_half_of_the_loop(tmp_path: Path) -> None:
    data = FLOODS["tiny texts"]
    async with attacked(tmp_path) as (aim, bystander, _):
        writers = [(await upgraded(aim.port))[1] for _ in range(30)]
        await asyncio.gather(asyncio.sleep(FOR_S), *(pushed(writer, data, FOR_S) for writer in writers))
        for writer in writers:
            writer.transport.abort()
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100
