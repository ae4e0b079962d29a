"""The rig itself: an unharmed server shows short waits, and one that is held up shows how long."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.attacks.target import attacked

pytestmark = pytest.mark.attacks

STALLS = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep(0.5))"


async def test_nobody_waits_where_nobody_attacks(tmp_path: Path) -> None:
    async with attacked(tmp_path, asks=True) as (aim, bystander, _):
        await asyncio.sleep(3)
    assert bystander.waits.broken is None
    assert bystander.waits.answers > 3
    assert bystander.waits.longest_ms < 100
    assert aim.tracebacks == 0


async def test_a_listener_hears_whole_answers(tmp_path: Path) -> None:
    async with attacked(tmp_path, listens=True) as (_, bystander, _):
        await asyncio.sleep(6)
    assert bystander.waits.broken is None
    assert len(bystander.waits.spoken) > 1
    assert all(0 < one.first_sound_s < 2 and one.underruns == 0 for one in bystander.waits.spoken)


async def test_a_listener_hears_that_a_server_stalls(tmp_path: Path) -> None:
    async with attacked(tmp_path, listens=True) as (aim, bystander, _):
        for _ in range(3):
            await asyncio.sleep(1.5)
            os.kill(aim.pid, signal.SIGSTOP)
            await asyncio.sleep(1.5)
            os.kill(aim.pid, signal.SIGCONT)
        await asyncio.sleep(2)
    spoken = bystander.waits.spoken
    assert sum(one.underruns for one in spoken) > 0 or max(one.first_sound_s for one in spoken) > 1


async def test_a_server_that_stalls_shows(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=STALLS) as (aim, bystander, _):
        os.kill(aim.pid, signal.SIGUSR1)
        await asyncio.sleep(2)
    assert 400 < bystander.waits.longest_ms < 2000
