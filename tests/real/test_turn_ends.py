"""Ends of spoken turns with a real speech recognizer, which writes the punctuation that the end-of-turn model reads."""

from __future__ import annotations

import asyncio
import time

import httpx2
import numpy as np
import pytest

from engine import EngineSpec, StageSpec, WorkerSpec
from tests.app.rig import Client, LoudnessVad, running, silence, talking
from tests.real.conftest import WeightsOf

pytestmark = pytest.mark.real

PIECE = 480  # 20 ms at 24 kHz
QUIET_S = 6.0
BUSY_MS = 1_800
"""More than a busy machine takes to transcribe; before punctuation counted, these sentences waited 2,500 ms or more."""


def spec(ears: str) -> EngineSpec:
    stages = (
        StageSpec(use="asr.sherpa_offline", name="ears", weights=ears),
        *(StageSpec(use=f"nano.{name}", name=name) for name in ("thinker", "talker", "code2wav")),
    )
    workers = tuple(WorkerSpec(stages=names, max_batch=2) for names in (("ears",), ("thinker", "talker", "code2wav")))
    return EngineSpec(stages=stages, workers=workers, launcher="inline")


@pytest.mark.parametrize("text", ["Yes, please.", "What is this?"])
async def test_a_whole_sentence_whose_last_word_often_goes_on_is_answered_soon(
    text: str, weights_of: WeightsOf
) -> None:
    async with (
        running(spec(str(weights_of("moonshine-tiny-en"))), vad=LoudnessVad) as server,
        talking(server) as client,
        httpx2.AsyncClient() as http,
    ):
        spoken = {"model": "nano", "input": text, "response_format": "pcm"}
        sound = (await http.post(f"{server.http}/v1/audio/speech", json=spoken)).raise_for_status().content
        await client.configure(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "medium"}}})
        pcm = np.concatenate([silence(0.5), np.frombuffer(sound, "<i2"), silence(QUIET_S)])
        speaking = asyncio.create_task(speak(client, pcm), name="speak")
        response = (await client.until("response.done"))["response"]
        speaking.cancel()
        await asyncio.wait([speaking])
    assert response["parley"]["ledger"]["turn_ms"] < BUSY_MS


async def speak(client: Client, pcm: np.ndarray) -> None:
    """Send int16 samples at 24 kHz at the pace of a microphone."""
    began_s = time.monotonic()
    for at in range(0, len(pcm), PIECE):
        await asyncio.sleep(max(0.0, began_s + at / 24_000 - time.monotonic()))
        await client.append(pcm[at : at + PIECE])
