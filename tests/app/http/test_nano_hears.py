"""``POST /v1/audio/transcriptions`` with the built-in model: recordings that hold no words, or much beside them.

None of them is an error, and no word is made up.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import soundfile
from openai import AsyncOpenAI

from engine import MIC_RATE_HZ, load_config
from engine.core import Pcm
from engine.training.nano.conditions import level
from engine.training.nano.eval_ears import SPOKEN, read
from engine.training.nano.eval_silence import FILLERS, Silence, Split
from tests.app.rig import ROOT, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = "say the word garlic"
SPOKEN_WORDS = next(recording for recording in read(SPOKEN) if recording.text == WORDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nano() -> AsyncGenerator[AsyncOpenAI]:
    spec = dataclasses.replace(load_config(ROOT / "configs" / "nano.yaml"), launcher="inline")
    async with (
        running(spec, ready_s=100.0) as server,  # its ears and voice are loaded
        AsyncOpenAI(api_key="sk-none", base_url=f"{server.http}/v1", max_retries=0) as client,
    ):
        yield client


async def heard(nano: AsyncOpenAI, pcm: Pcm) -> str:
    file = io.BytesIO()
    soundfile.write(file, pcm, MIC_RATE_HZ, format="WAV")
    transcript: Any = await nano.audio.transcriptions.create(model="whisper-1", file=("one.wav", file.getvalue()))
    assert transcript.usage.seconds == pytest.approx(len(pcm) / MIC_RATE_HZ, abs=0.01)
    return transcript.text


def filler(name: str, seconds: float, rms: float) -> Pcm:
    samples = FILLERS[name](round(seconds * MIC_RATE_HZ))
    return np.round(samples / max(level(samples), 1e-9) * rms).astype(np.int16)


def clicks(pcm: Pcm, *at: int) -> Pcm:
    """Each as loud as can be, for two milliseconds."""
    clicked = pcm.copy()
    for first in at:
        clicked[first : first + MIC_RATE_HZ // 500] = 32767
    return clicked


@pytest.mark.parametrize(
    "pcm",
    [
        filler("zeros", 4, 0), filler("room", 4, 30),
        pytest.param(filler("room", 4, 1500), marks=pytest.mark.xfail(reason="it is \"what\"", strict=False)),
        filler("hum", 4, 300), clicks(filler("zeros", 2, 0), 9000), clicks(filler("room", 2, 30), 9000, 20_000),
        filler("breath", 4, 300),
    ],
    ids=["zeros", "a quiet room", "a loud room", "hum", "a click", "clicks in a room", "breath"],
)  # fmt: skip
async def test_where_nobody_speaks_no_word_is_heard(pcm: Pcm, nano: AsyncOpenAI) -> None:
    assert await heard(nano, pcm) == ""


@pytest.mark.parametrize(
    "silence",
    [
        Silence("zeros"), Silence("zeros", ahead_s=3), Silence("zeros", ahead_s=8, behind_s=8),
        Silence("room", 30, ahead_s=8, behind_s=8), Silence("hum", 30, ahead_s=8, behind_s=8),
    ],
    ids=lambda silence: silence.name,
)  # fmt: skip
async def test_silence_around_the_words_changes_none_of_them(silence: Silence, nano: AsyncOpenAI) -> None:
    recording = Split(SPOKEN_WORDS, WORDS, len(SPOKEN_WORDS.pcm))
    assert await heard(nano, silence.around(recording)) == WORDS


async def test_clicks_over_the_words_add_none(nano: AsyncOpenAI) -> None:
    spoken = SPOKEN_WORDS.pcm
    assert await heard(nano, clicks(spoken, *range(len(spoken) // 5, len(spoken), len(spoken) // 5))) in ("", WORDS)
