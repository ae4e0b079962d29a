"""Recordings that are small to send: everybody else is answered meanwhile, and no memory holds what they unpack to."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from tests.attacks.target import DECODES_HERE, Target, attacked

pytestmark = pytest.mark.attacks

UNBOUNDED = """
from app.media import audio
audio._SAMPLES_S = 1 << 40
mixed = audio._mixed
def kept(frame, channels, all=[]):
    all.append(frame.to_ndarray())
    return mixed(frame, channels)
audio._mixed = kept
"""
"""However many samples it has, all of them at once, as before they were read in blocks."""


def flac(seconds: int, rate_hz: int, channels: int) -> bytes:
    """Silence: 300 s of eight channels at 192 kHz are 476 kB, and 0.9 GB of samples."""
    out, second = io.BytesIO(), np.zeros((rate_hz, channels), np.int16)
    with soundfile.SoundFile(out, "w", rate_hz, channels, format="FLAC", subtype="PCM_16") as file:
        for _ in range(seconds):
            file.write(second)
    return out.getvalue()


def lying(data: bytes) -> bytes:
    """The same file, whose header says that it has as many samples as a header can say."""
    changed, at = bytearray(data), 8 + 13  # of STREAMINFO: 36 bits
    changed[at] |= 0x0F
    changed[at + 1 : at + 5] = b"\xff" * 4
    return bytes(changed)


async def heard(aim: Target, *files: bytes) -> list[str]:
    """The code of the error that each recording ends in, or "" for a transcript, sent all at once."""

    async def one(data: bytes) -> str:
        upload = {"file": ("a.flac", data, "audio/flac")}
        answer = await http.post("/v1/audio/transcriptions", files=upload, data={"model": "nano"})
        assert answer.status_code in (200, 400), answer.text
        return answer.json().get("error", {}).get("code", "")

    async with httpx.AsyncClient(base_url=aim.http, timeout=120) as http:
        return list(await asyncio.gather(*map(one, files)))


async def test_sounds_that_unpack(tmp_path: Path) -> None:
    """Four at once had taken 2.4 GB."""
    bomb = flac(300, 192_000, 8)
    async with attacked(tmp_path, asks=True) as (aim, bystander, peak):
        ends = await heard(aim, *[bomb] * 4)
        assert await heard(aim, lying(flac(1, 192_000, 8))) == ["invalid_value"]  # it is cut off, by its header
        tracebacks = aim.tracebacks
    print(len(bomb), ends, bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert all(ends)
    assert tracebacks == 0
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100
    assert bystander.waits.answers > 3
    assert peak.grown_mb <= 300


async def test_sounds_that_unpack_fill_the_memory_where_they_are_not_read_in_blocks(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=DECODES_HERE + UNBOUNDED) as (aim, _, peak):
        await heard(aim, flac(120, 192_000, 8))
    assert peak.grown_mb > 300
