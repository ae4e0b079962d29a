"""Silence that a real-time source leaves out is added, for a while."""

from __future__ import annotations

import asyncio

import pytest

from app.transports import silence
from app.transports.silence import SilenceFiller
from tests.app.rig import eventually


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("QUIET_S", 0.01), ("QUIET_STEP_S", 0.01), ("LONGEST_QUIET_S", 0.05)):
        monkeypatch.setattr(silence, name, seconds)


async def test_it_begins_with_the_first_audio_and_ends_after_the_longest_pause() -> None:
    added = list[float]()
    filler = SilenceFiller(added.append)
    await asyncio.sleep(0.05)
    assert not added
    filler.heard()
    await eventually(lambda: len(added) >= 5)
    await asyncio.sleep(0.05)
    assert sum(added) == filler.made_up_s == pytest.approx(0.05, abs=0.011)
    filler.heard()
    await eventually(lambda: filler.made_up_s > 0.08)
    filler.close()


async def test_a_reported_pause_is_bounded_too() -> None:
    added = list[float]()
    filler = SilenceFiller(added.append)
    for seconds in (0.001, 0.03, 60.0, 60.0):
        filler.fill(seconds)
    assert added == [0.03, pytest.approx(0.02)]
    filler.close()
    filler.close()
