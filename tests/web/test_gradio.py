"""The Gradio demo in a browser: it speaks, shows and counts, and asks nothing of another machine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx2
import numpy as np
import pytest
import pytest_asyncio
import soundfile
from fastapi import FastAPI

from app.commands.deployment import Parts, deployment
from app.http.sound import encoded
from app.service import Service
from engine import ConfigError
from tests.app.http.test_chat import PIXEL
from tests.app.http.test_sound import WAVE
from tests.app.rig import ROOT, keys_file, script_spec
from tests.web.browser import UNPROCESSED, UNTIL, Chromium, Page, browsing
from tests.web.browser import written as recording

WORDS = "#voice-client .words"


@pytest.fixture(scope="module")
def address() -> Generator[str]:
    """Where a demo is served, by the scripted family."""
    command = [sys.executable, "-m", "web.gradio_demo", "script", "--port", "0"]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert serving.stderr is not None
    said = next(line for line in serving.stderr if line.startswith("The demo is at "))
    try:
        yield said.split()[-1]
    finally:
        serving.terminate()
        serving.stderr.read()
        assert serving.wait(30) == 0
        serving.stderr.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    """A browser into whose microphone somebody says a sentence again and again: a line may take a while to open."""
    sentence, rate_hz = soundfile.read(ROOT / "tests" / "data" / "spoken" / "in_019.ogg")
    said = np.concatenate([np.zeros(rate_hz), sentence, np.zeros(rate_hz)])
    path = tmp_path_factory.mktemp("microphone") / "sentence.wav"
    async with browsing(recording(path, np.tile(said, 5), rate_hz)) as one:
        yield one


SPY = """{
  window.said = [];
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (text) {
    window.said.push(JSON.parse(text));
    return send.call(this, text);
  };
}"""
"""Keeps what the demo's client says to the server."""


class TestInABrowser:
    pytestmark: ClassVar = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

    async def test_it_speaks_takes_files_and_says_where_the_time_went(
        self, address: str, browser: Chromium, tmp_path: Path
    ) -> None:
        async with browser.page(viewport={"width": 1100, "height": 900}) as page:
            await page.do("goto", address)
            await page.until("window.parley !== undefined")
            await self.type_in(page, "say: hello from the demo")
            await page.shows(WORDS, "hello from the demo")
            await page.until("document.querySelector('table tbody tr')?.textContent.includes('sent')")
            await self.add(page, written(tmp_path / "one.wav", encoded(WAVE, "wav")))
            await self.type_in(page, "say: a recording says")
            await page.shows(WORDS, "a recording says 1.0 seconds")
            await self.add(page, written(tmp_path / "note.txt", b"from a file"))
            await self.type_in(page, "say: words")
            await page.shows(WORDS, "words from a file")
            if folder := os.environ.get("PARLEY_SCREENSHOTS"):
                await page.do("screenshot", {"path": f"{folder}/gradio.png"})
            await self.stayed_at_home(page, address)

    async def test_it_has_the_models_examples_a_camera_and_its_own_fonts(self, address: str, browser: Chromium) -> None:
        async with browser.page() as page:
            await page.do("goto", address)
            await page.until("window.parley !== undefined")
            await page.do("click", "#voice-client .examples button")
            await page.shows(WORDS, "one two three")
            await page.do("click", "#voice-client .camera")
            await page.until("document.querySelector('#voice-client video')?.videoWidth > 0")
            await self.type_in(page, "say: seen")
            await page.until(f"document.querySelector('{WORDS} img') !== null")
            await page.shows(WORDS, "seen")
            await page.do("click", "#voice-client .camera")
            await page.until("document.querySelector('#voice-client video') === null")
            loaded = "[...document.fonts].filter((one) => one.status === 'loaded').map((one) => one.family)"
            await page.until(f"{loaded}.some((name) => name.includes('IBM Plex Mono'))")  # the table's
            await self.stayed_at_home(page, address)

    async def test_it_listens(self, address: str, browser: Chromium) -> None:
        async with browser.page() as page:
            await page.before(UNPROCESSED)
            await page.do("goto", address)
            await page.until("window.parley !== undefined")
            await page.value(SPY)
            await page.do("selectOption", "#voice-client .eagerness", "high")
            await page.do("click", "#voice-client .talk")
            await page.shows(WORDS, "I heard")
            (settings,) = await page.value("said.filter((event) => event.type === 'session.update')")
            assert settings["session"]["audio"]["input"]["turn_detection"]["eagerness"] == "high"
            await page.shows(f"{WORDS} .user", "seconds")
            await page.shows("#voice-client .talk", "End")
            await page.do("click", "#voice-client .talk")
            await page.shows("#voice-client .state", "Press Talk")

    async def test_a_picture_is_shown_and_a_bad_file_named(
        self, address: str, browser: Chromium, tmp_path: Path
    ) -> None:
        async with browser.page(colorScheme="dark") as page:
            await page.do("goto", address)
            await page.until("window.parley !== undefined")
            await self.add(page, written(tmp_path / "dot.png", picture()))
            await self.type_in(page, "say: a dot")
            await page.until(f"document.querySelector('{WORDS} img') !== null")
            await page.shows(WORDS, "a dot")
            await self.add(page, written(tmp_path / "no.wav", b"RIFFnonsense"))
            await self.type_in(page, "say: never")
            await page.shows("#voice-client .problem", "unknown audio or video format")
            if folder := os.environ.get("PARLEY_SCREENSHOTS"):
                await page.do("screenshot", {"path": f"{folder}/gradio-dark.png"})

    async def type_in(self, page: Page, text: str) -> None:
        await page.do("fill", "textarea", text)
        await page.do("press", "textarea", "Enter")

    async def add(self, page: Page, file: str) -> None:
        """Add a file as a person does: once more where a page that has just come up has let it fall."""
        for _ in range(6):
            await page.do("setInputFiles", "input[type=file]", file)
            if await page.value(UNTIL % ("document.querySelector('.thumbnail-item') !== null", 8000)):
                return
        raise AssertionError("the file was never shown")

    async def stayed_at_home(self, page: Page, address: str) -> None:
        origin = address.removesuffix("/gradio/")
        here = (origin, origin.replace("http", "ws"), "data:", "blob:")
        assert [url for url in await page.requests() if not url.startswith(here)] == []
        assert await page.errors() == []


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def picture() -> bytes:
    return base64.b64decode(PIXEL.partition(",")[2])


def test_it_is_not_for_servers_with_keys(tmp_path: Path) -> None:
    from web.gradio_demo import mount

    with pytest.raises(ConfigError, match="the demo asks for no key"):
        mount(FastAPI(), Service(script_spec(keys_file=keys_file(tmp_path, "sk-one-0123456789"))))


def test_without_gradio_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from web.gradio_demo import mount

    missing: Any = None
    monkeypatch.setitem(sys.modules, "gradio", missing)
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "")  # which it sets: so that it is put back
    with pytest.raises(ConfigError, match=r"the demo needs Gradio: .+ pip install .+\[demo\]"):
        mount(FastAPI(), Service(script_spec()))


def test_turns_are_counted_on_where_the_table_forgets_the_first() -> None:
    from web import gradio_demo

    noted = gradio_demo._noted(SimpleNamespace(EventData=SimpleNamespace), ["talker"])
    figure = SimpleNamespace(_data={"terms_ms": {"talker": 12.34}, "after": "sent", "heard_ms": 80.6})
    rows: list[list[Any]] = [["", "", "", ""]]  # an empty table, as Gradio has it
    for _ in range(gradio_demo.ROWS + 2):
        rows = noted(figure, rows)
    assert rows[0] == [gradio_demo.ROWS + 2, "sent", 81, 12.3]
    assert len(rows) == gradio_demo.ROWS
    assert [row[0] for row in rows] == list(range(gradio_demo.ROWS + 2, 2, -1))


@pytest.mark.node
@pytest.mark.parametrize("went", [True, False])
def test_what_did_not_go_out_stays_in_the_box(went: bool) -> None:
    from web.gradio_demo import SAY

    script = f"globalThis.window = {{ parley: {{ say: async () => {json.dumps(went)} }} }};"
    script += f"({SAY})({{ text: 'hello', files: [1] }}).then((box) => console.log(JSON.stringify(box)));"
    box = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(box) == ({"text": "", "files": []} if went else {"text": "hello", "files": [1]})


def test_serving_without_it_loads_nothing_of_it() -> None:
    code = "import sys, app.server, web.gradio_demo; print([m for m in sys.modules if 'gradio' in m.split('.')[0]])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert loaded.stdout == "[]\n"


async def test_its_table_and_its_words_are_those_of_the_pipeline_that_is_served() -> None:
    """With a thinker elsewhere, what is said does not stay on this server, and no term is called nano's."""
    from web.gradio_demo import mount

    spec = deployment("script", parts=Parts(thinker="openai:m@https://llm.example/v1"))
    app = FastAPI()
    mount(app, Service(spec))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
        laid_out = (await http.get("http://localhost/gradio/config")).json()["components"]
        assert (await http.get("http://localhost/gradio")).headers["location"] == "/gradio/"
    [table] = [one["props"] for one in laid_out if one["type"] == "dataframe"]
    names = ["turn", "after", "first sound", "silence that ended the turn", "waiting", "hearing", "reading"]
    assert table["headers"] == [*names, "first words", "speech codes", "codes to sound", "packing"]
    [words] = [one["props"]["value"] for one in laid_out if one["type"] == "markdown"]
    assert "llm.example gets their text" in words
    assert "stays on this server" not in words
