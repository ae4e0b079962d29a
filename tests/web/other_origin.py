"""A page of another origin that talks with nano: where its files stand, the server that takes it, and who speaks.

A test's module imports the fixtures that it needs, and names them in its ``__all__``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from engine import load_config
from tests.app.rig import ROOT, Running, running
from tests.examples.programs import RATE_HZ, spoken, written
from tests.web.browser import Chromium, browsing
from tests.web.elsewhere import Elsewhere, elsewhere


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Elsewhere]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="server")
async def nano_server(place: Elsewhere) -> AsyncGenerator[Running]:
    spec = load_config(ROOT / "configs" / "nano.yaml")
    async with running(dataclasses.replace(spec, server={"allowed_origins": [place.origin]})) as one:
        yield one


@asynccontextmanager
async def saying(sentence: str, server: Running, folder: Path) -> AsyncGenerator[Chromium]:
    """A browser whose microphone says the sentence a second after each opening, in a voice of the server's."""
    voice = await asyncio.to_thread(spoken, server.http, sentence)
    said = np.concatenate([np.zeros(RATE_HZ, np.int16), voice, np.zeros(30 * RATE_HZ, np.int16)])
    async with browsing(written(folder / "user.wav", said)) as one:
        yield one
