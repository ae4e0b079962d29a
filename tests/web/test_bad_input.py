"""What goes wrong around a conversation is one sentence where the user looks, and nothing that was said is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import httpx
import pytest

from app.transports import resumable_session
from tests.app.rig import Running, eventually, keys_file, running, script_spec
from tests.web.browser import Chromium, Page
from tests.web.test_trouble import relay

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

KEY = "sesame-sesame-sesame"
USERS = "[...document.querySelectorAll('#captions .user p')].map((p) => p.textContent)"
TURNS = 200


async def answered_once(page: Page, question: str, answer: str) -> None:
    await page.shows("#captions .answer:last-child", answer)
    assert (await page.value(USERS)).count(question) == 1
    assert await page.value("document.getElementById('pending').childElementCount") == 0


async def test_a_camera_that_does_not_open_or_goes_away_is_named(page: Page) -> None:
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video')?.videoWidth > 0")
    track = "document.querySelector('#preview video').srcObject.getVideoTracks()[0]"
    await page.value(f"{track}.dispatchEvent(new Event('ended'))")
    await page.shows("#notice", "The camera went away")
    await page.until("document.querySelector('#preview video') === null")
    sentences = {
        "NotFoundError": "No camera was found",
        "NotReadableError": "Another program holds the camera",
        "NotAllowedError": "The camera is blocked",
    }
    for name, sentence in sentences.items():
        refuse = f"async () => {{ throw new DOMException('no', '{name}'); }}"
        await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
        await page.do("click", "#camera")
        await page.shows("#notice", sentence)
    await page.ask("say: without a camera")
    await page.shows("#captions .answer", "without a camera")


async def test_a_server_that_is_away_longer_than_a_session_waits_finds_the_script_as_it_was(
    server: Running, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_session, "LINGER_S", 0.05)
    async with browser.page() as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
            await page.ask("say: one")
            await page.shows("#captions .answer", "one")
        await page.shows("#notice", "No server answers")
        await page.ask("say: two")
        await eventually(lambda: not server.metric("parley_sessions"))
        async with relay(server.port, port):
            await page.value("document.getElementById('try-now').click()")
            await answered_once(page, "say: two", "two")
            assert await page.value(USERS) == ["say: one", "say: two"]
            await page.shows("#captions .divider", "A new conversation begins")


async def test_a_reload_without_a_server_keeps_the_script_and_the_typed_line(
    server: Running, browser: Chromium
) -> None:
    async with browser.page() as page:
        async with relay(server.port) as port:
            url = f"http://127.0.0.1:{port}/"
            await page.open(url)
            await page.ask("say: before")
            await page.shows("#captions .answer", "before")
        await page.state("lost")
        await page.ask("say: after")
        with contextlib.suppress(AssertionError):  # the browser's own page: no server answers
            await page.do("reload")
        await page.do("waitForURL", "chrome-error://chromewebdata/")
        async with relay(server.port, port):
            await page.do("goto", url)
            await answered_once(page, "say: after", "after")
            assert await page.value(USERS) == ["say: before", "say: after"]
            await page.do("reload")
            await page.state("ready")
            assert await page.value(USERS) == ["say: before", "say: after"], "it is asked once"


async def test_a_key_that_expires_is_asked_for_and_the_typed_line_is_answered(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_session, "LINGER_S", 0.05)
    keys = keys_file(tmp_path, f"shop: {KEY}")
    async with running(script_spec(keys_file=keys)) as server, browser.page() as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
            await page.ask("say: one")
            await use_key(page, await asyncio.to_thread(secret, server))
            await page.shows("#captions .answer", "one")
        await page.state("lost")
        for one in list(server.service.secrets._alive.values()):
            server.service.secrets.withdraw(one.maker)
        await eventually(lambda: not server.metric("parley_sessions"))
        async with relay(server.port, port):
            await page.ask("say: two")
            await page.value("document.getElementById('try-now').click()")
            await page.shows("#key-reason", "does not take this key")
            await use_key(page, KEY)
            await answered_once(page, "say: two", "two")
            assert await page.value(USERS) == ["say: one", "say: two"]


async def use_key(page: Page, key: str) -> None:
    await page.until("document.getElementById('key-dialog').open")
    await page.do("fill", "#key", key)
    await page.do("click", "#use-key")


def secret(server: Running) -> str:
    """A short-lived key."""
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.post(f"{server.http}/v1/realtime/client_secrets", headers=headers, json={}).json()["value"]


SECONDS = 90
WORD_S = 0.08  # of the scripted voice


async def test_an_answer_of_90_seconds_is_shown_whole_and_can_be_stopped(server: Running, browser: Chromium) -> None:
    """Its last word is shown long before it is heard; ``playback.test.js`` plays as much sound to its last sample."""
    words = round(SECONDS / WORD_S)
    async with browser.page() as page:
        await page.open(server.http)
        await page.ask(f"long {words}")
        await page.shows("#captions .answer .next", f"word{words - 1}")
        assert await page.value("document.getElementById('notice').hidden")
        await page.state("speaking")
        pane = "document.getElementById('scroll')"
        spoken = f"({pane}.querySelector('.now').getBoundingClientRect())"
        await page.until(f"{pane}.querySelector('.now') !== null")
        assert await page.value(f"{spoken}.bottom <= {pane}.getBoundingClientRect().bottom"), "the word is in sight"
        await page.do("click", "#stop")
        await page.until("document.querySelector('#captions .answer.interrupted')")
        await page.ask("say: and on")
        await answered_once(page, "say: and on", "and on")
        assert await page.errors() == []


async def test_a_tool_that_throws_is_named_and_the_answer_goes_on(page: Page) -> None:
    await page.shows("#offered", "set_timer")
    await page.ask('tool set_timer {"minutes": -1}')
    await page.shows("#captions .tool[data-status=failed]", "set_timer")
    await page.shows("#captions .answer", "The tool says")
    await page.shows("#notice", "The tool set_timer failed")
    await page.state("ready")
    await page.ask("say: still here")
    await page.shows("#captions .answer:last-child", "still here")


async def test_a_script_of_200_turns_is_kept_whole_and_goes_on(server: Running, browser: Chromium) -> None:
    turns = [
        {"item": f"{who}{n}", "who": who, "text": f"{who} {n}"} for n in range(TURNS) for who in ("user", "answer")
    ]
    kept = json.dumps(json.dumps([{**turn, "name": "", "unheard": "", "pictures": []} for turn in turns]))
    async with browser.page() as page:
        await page.before(f"sessionStorage.setItem('parley.captions', {kept})")
        await page.open(server.http)
        await page.ask("say: still here")
        await answered_once(page, "say: still here", "still here")
        assert await page.value("document.querySelectorAll('#captions :is(.user, .answer)').length") == 2 * TURNS + 2
        pane = "document.getElementById('scroll')"
        assert await page.value(f"{pane}.scrollHeight - {pane}.scrollTop - {pane}.clientHeight") < 2
        assert await page.errors() == []
