"""A spoken question into the browser's microphone, a spoken answer out of its loudspeaker: the built-in model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import soundfile

from engine import load_config
from tests.app.rig import ROOT, Running, running
from tests.web.browser import AUDIBLE, UNPROCESSED, Chromium, browsing, written

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SPOKEN = ROOT / "tests" / "data" / "spoken"
QUESTION = json.loads((SPOKEN / "index.json").read_text())[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    """Its microphone says, a second after it is opened, a sentence, and then nothing for long."""
    voice, rate_hz = soundfile.read(SPOKEN / QUESTION["file"], dtype="float32")
    samples = np.concatenate([np.zeros(rate_hz), voice, np.zeros(30 * rate_hz)])
    path: Path = tmp_path_factory.mktemp("microphone") / "user.wav"
    async with browsing(written(path, samples, rate_hz)) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[Running]:
    async with running(load_config(ROOT / "configs" / "nano.yaml")) as one:
        yield one


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
async def test_a_spoken_question_is_answered_aloud(server: Running, browser: Chromium, transport: str) -> None:
    async with browser.page() as page:
        await page.open(server.http, microphone=UNPROCESSED, transport=transport)
        await page.start()
        await page.state("hearing")
        await page.listen()
        await page.shows("#captions .user", "repeat")
        await page.until(f"window.ear.some(([, peak]) => peak > {AUDIBLE})")  # a short answer may be over by now
        await page.shows("#captions .answer", "package")
        await page.shows("#after", "from ")
        await page.value("document.getElementById('end').click()")
        await server.empty()
