"""What stands in the way of a conversation is named, with the next step; what can be got round is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.app.rig import Running, keys_file, running, script_spec
from tests.web.browser import Chromium, Page

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

WITHOUT_CALLS = "window.addEventListener('DOMContentLoaded', () => { delete window.RTCPeerConnection; })"


async def test_without_calls_it_is_a_socket_and_the_page_says_why(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(WITHOUT_CALLS)
        await page.open(server.http, transport="webrtc")
        await page.ask("say: by the other way")
        await page.shows("#captions .answer", "by the other way")
        await page.shows("#route", "WebSocket")
        await page.shows("#captions .divider", "This browser has no WebRTC")


async def test_a_lost_server_is_named_and_found_again(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
            await page.ask("say: one")
            await page.shows("#captions .answer", "one")
        await page.state("lost")
        await page.shows("#notice", "No server answers")
        await page.ask("say: are you there")
        assert await page.value("document.querySelector('#pending .user p').textContent") == "say: are you there"
        await page.shows("#notice", "Trying again in")
        assert not await page.value("document.getElementById('notice').hidden")
        async with relay(server.port, port):
            await page.value("document.getElementById('try-now').click()")  # it may have come back by itself
            await page.shows("#captions .answer:last-child", "are you there")
            await page.until("document.getElementById('notice').hidden")
            assert await page.value("document.getElementById('pending').childElementCount") == 0
            said = "[...document.querySelectorAll('#captions .user p')].map((p) => p.textContent)"
            assert (await page.value(said)).count("say: are you there") == 1


@pytest.mark.parametrize("size", [(1440, 900), (390, 844), (320, 568), (844, 390)], ids=str)
async def test_a_lost_server_is_told_once_above_the_dock(
    server: Running, browser: Chromium, size: tuple[int, int]
) -> None:
    box = "document.getElementById(%r).getBoundingClientRect().toJSON()"
    async with browser.page(viewport={"width": size[0], "height": size[1]}) as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
            await page.ask("say: one")
            await page.until("!document.getElementById('latency').hidden")
            await page.state("ready")
        await page.shows("#notice p", "Trying again")
        assert await page.value("document.getElementById('hint').textContent") == ""
        assert not await page.value("document.getElementById('latency').checkVisibility()")
        notice, dock = await page.value(box % "notice"), await page.value(box % "ask")
        assert (notice["left"], notice["right"]) == pytest.approx((dock["left"], dock["right"]), abs=1)
        assert dock["top"] - notice["bottom"] == pytest.approx(16, abs=1)
        actions = "['try-now', 'diagnose'].map((id) => document.getElementById(id))"
        assert len(set(await page.value(f"{actions}.map((one) => one.getBoundingClientRect().top)"))) == 1
        assert len(set(await page.value(f"{actions}.map((one) => getComputedStyle(one).paddingInline)"))) == 1
        assert await page.value(f"{actions}.every((one) => one.scrollWidth <= one.clientWidth)")


async def test_an_answer_goes_on_over_the_next_connection(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
            await page.ask("long 30")
            await page.shows("#captions .answer", "word9")
        async with relay(server.port, port):
            await page.shows("#captions .answer", "word29")
            await page.state("ready")
            said = await page.value("document.querySelector('#captions .answer p').textContent")
            assert said.split() == [f"word{i}" for i in range(30)]
            assert len(await page.wire("session.created")) == 1
            assert await page.value("document.querySelector('#captions .divider')") is None
            assert await page.value("document.getElementById('notice').hidden")


async def test_a_microphone_that_does_not_open_is_named(page: Page) -> None:
    steps = {
        "NotAllowedError": "allow it",
        "NotFoundError": "plug one in",
        "NotReadableError": "close that program",
        "AbortError": "try again, or type",
    }
    for name, next_step in steps.items():
        refuse = f"async () => {{ throw new DOMException('no', '{name}'); }}"
        await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
        await page.do("click", "#talk")
        await page.shows("#notice", next_step)
        await page.state("ready")
        assert await page.value("document.getElementById('talk').getAttribute('aria-label')") == "Start talking"


async def test_a_key_that_is_held_without_a_microphone_says_so(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(server.http, handsFree=False)
        for name, next_step in (("NotAllowedError", "allow it"), ("NotFoundError", "plug one in")):
            refuse = f"async () => {{ throw new DOMException('no', '{name}'); }}"
            await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
            await page.do("down", "Space", on="page.keyboard")
            await page.shows("#notice", next_step)
            await page.do("up", "Space", on="page.keyboard")
            await page.state("ready")
        await page.ask("say: typed it is")
        await page.shows("#captions .answer", "typed it is")


async def test_a_microphone_that_was_blocked_is_tried_again_from_the_notice(page: Page) -> None:
    refuse = "async () => { throw new DOMException('no', 'NotAllowedError'); }"
    await page.value("void (window.allowed = navigator.mediaDevices.getUserMedia)")
    await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
    await page.do("click", "#start")
    await page.shows("#notice", "allow it in the address bar")
    await page.shows("#state", "Microphone blocked")
    assert await page.value("document.getElementById('hint').textContent") == "You can type instead"
    await page.value("void (navigator.mediaDevices.getUserMedia = window.allowed)")
    await page.do("click", "#try-now")
    await page.state("listening")
    await page.until("document.getElementById('notice').hidden")


async def test_in_a_low_window_a_blocked_microphone_leaves_room_for_the_words(
    server: Running, browser: Chromium
) -> None:
    edges = "document.getElementById(%r).getBoundingClientRect()"
    async with browser.page(viewport={"width": 844, "height": 390}) as page:
        await page.open(server.http)
        await page.shows("#examples", "say:")
        refuse = "async () => { throw new DOMException('no', 'NotAllowedError'); }"
        await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
        await page.do("click", "#start")
        await page.shows("#state", "Microphone blocked")
        assert not await page.value("document.getElementById('examples').checkVisibility()")
        await page.until("document.getElementById('orb').getAnimations().length === 0")
        assert await page.value(f"{edges % 'orb'}.top - document.querySelector('header').offsetHeight") >= 0
        assert await page.value(f"{edges % 'ask'}.top - {edges % 'notice'}.bottom") >= 16


async def test_a_microphone_that_goes_away_is_named(page: Page) -> None:
    await page.start()
    await page.value("opened[0].dispatchEvent(new Event('ended'))")
    await page.shows("#notice", "The microphone went away")
    await page.state("ready")
    await page.start()


HELD = """{
  const load = AudioWorklet.prototype.addModule;
  AudioWorklet.prototype.addModule = function (url) {
    if (!url.includes("capture")) return load.call(this, url);
    return new Promise((_, refuse) => (window.refuse = refuse));
  };
}"""


async def test_a_microphone_that_goes_away_at_once_is_named(server: Running, browser: Chromium) -> None:
    """What the browser says of its sound's beginning, which nobody waits for any more, is nothing to the user."""
    async with browser.page() as page:
        await page.before(HELD)
        await page.open(server.http)
        await page.start()
        await page.value("opened[0].dispatchEvent(new Event('ended'))")
        await page.value("refuse(new Error('the context is closed'))")
        await page.shows("#notice", "The microphone went away")
        await page.state("ready")


async def test_an_insecure_address_is_named(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before("Object.defineProperty(window, 'isSecureContext', {value: false})")
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.shows("#notice", "only on https or localhost")
        await page.shows("#notice", "`parley serve --https auto`, then open https://127.0.0.1:")


async def test_the_documentation_opens_where_a_key_is_asked_for(browser: Chromium, tmp_path: Path) -> None:
    """F30: a browser has no header to send with an address that is typed. Its policy lets Swagger UI run."""
    spec = script_spec(keys_file=keys_file(tmp_path, "sesame-sesame-sesame"))
    async with running(spec) as server, browser.page() as page:
        await page.do("goto", f"{server.http}/docs")
        await page.shows(".swagger-ui", "/v1/audio/speech")
        await page.shows(".swagger-ui", "Authorize")


async def test_nobody_frames_the_page(browser: Chromium, server: Running) -> None:
    """A page that lays ours under its own could have its users press our buttons."""
    async with browser.page() as page:
        await page.do("goto", f"{server.http}/livez")
        frame = f"(() => {{ const one = document.createElement('iframe'); one.src = '{server.http}/'; return one; }})()"
        await page.value(f"document.body.append({frame})")
        await page.until("document.querySelector('iframe').contentDocument === null")


async def test_a_key_is_asked_for_and_used(browser: Chromium, tmp_path: Path) -> None:
    async with (
        running(script_spec(keys_file=keys_file(tmp_path, "sesame-sesame-sesame"))) as server,
        browser.page() as page,
    ):
        await page.open(server.http)
        await page.ask("say: open")
        await page.shows("#notice", "needs a key")
        await page.until("document.getElementById('key-dialog').open && document.activeElement.id === 'key'")
        await page.shows("#key-reason", "needs a key")
        assert not await page.value("document.getElementById('notice').checkVisibility()")  # the dialog says the same
        await page.do("fill", "#key", "wrong")
        await page.do("press", "#key", "Enter")
        await page.shows("#key-reason", "does not take this key")
        await page.until("document.getElementById('key-dialog').open && document.activeElement.id === 'key'")
        await page.do("check", "#show-key")
        assert await page.value("document.getElementById('key').type") == "text"
        await page.do("fill", "#key", "sesame-sesame-sesame")
        await page.do("click", "#use-key")
        await page.shows("#captions .answer", "open")  # what was asked without a key
        assert await page.value("document.querySelectorAll('#captions .user').length") == 1
        await page.until("document.getElementById('notice').hidden")
        await page.shows("#offered", "set_timer")  # the list of models needed the key, too


async def test_after_the_key_the_microphone_opens_that_the_user_wanted(browser: Chromium, tmp_path: Path) -> None:
    spec = script_spec(keys_file=keys_file(tmp_path, "sesame-sesame-sesame"))
    async with running(spec) as server, browser.page() as page:
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.shows("#key-dialog", "Access key")
        await page.until("document.getElementById('key-dialog').open")
        await page.do("fill", "#key", "sesame-sesame-sesame")
        await page.do("click", "#use-key")
        await page.state("listening")


async def test_a_full_server_is_waited_for_in_line(browser: Chromium) -> None:
    async with (
        running(script_spec(limits={"sessions": 1})) as server,
        browser.page() as first,
        browser.page() as second,
    ):
        await first.open(server.http)
        await first.ask("say: mine")
        await first.shows("#captions .answer", "mine")
        await second.open(server.http)
        await second.ask("say: and mine")
        await second.state("waiting")
        await second.shows("#hint", "You are next in line")
        await first.do("click", "#end")
        await second.shows("#captions .answer", "and mine")


async def test_a_server_whose_line_is_full_too_is_named(browser: Chromium) -> None:
    async with running(script_spec(limits={"sessions": 1, "waiting": 1})) as server:
        async with browser.page() as first, browser.page() as second, browser.page() as third:
            for page, state in ((first, "ready"), (second, "waiting")):
                await page.open(server.http)
                await page.ask("say: mine")
                await page.state(state)
            await third.open(server.http)
            await third.ask("say: and mine")
            await third.shows("#notice", "The server opened no conversation")
            await third.shows("#notice", "Trying again")
            for page in (third, second, first):
                await page.do("click", "#end")
        await server.empty()


async def test_the_doctor_names_the_steps_that_fail(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before(WITHOUT_CALLS)
        await page.open(server.http)
        refuse = "async () => { throw new DOMException('no', 'NotAllowedError'); }"
        await page.value(f"void (navigator.mediaDevices.getUserMedia = {refuse})")
        await page.do("click", "#open-settings")
        await page.do("click", "#tab-connection")
        await page.do("click", "#open-doctor")
        await page.until("document.querySelectorAll('#steps [data-found]').length === 6")
        steps = "[...document.querySelectorAll('#steps li')]"
        found = await page.value(
            f"{steps}.map((li) => [li.firstChild.textContent, li.dataset.found, li.lastChild.textContent])"
        )
        outcome = {name: (state, words) for name, state, words in found}
        assert outcome["Microphone"] == (
            "bad",
            "The microphone is blocked: allow it in the address bar, then try again.",
        )
        assert outcome["WebRTC"] == ("bad", "This browser has no WebRTC.")
        assert outcome["Page"] == ("good", "Allowed to use a microphone")
        assert outcome["Server"] == ("good", "Connected · script")
        assert outcome["Key"] == ("good", "Not needed")
        assert outcome["WebSocket"] == ("good", "Works")
    await server.empty()


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("Studio Microphone (046d:0825)", "Microphone works · Studio Microphone"),
        ("a0c2d7e1-5b1f-4c6e-9a53-0d6f3b1c2e4d", "Microphone works"),
        ("alsa_input.pci-0000", "Microphone works"),
    ],
)
async def test_the_doctor_names_a_microphone_as_people_do(
    server: Running, browser: Chromium, label: str, words: str
) -> None:
    async with browser.page(viewport={"width": 844, "height": 390}) as page:
        await page.before(f"Object.defineProperty(MediaStreamTrack.prototype, 'label', {{ get: () => {label!r} }})")
        await page.open(server.http)
        await page.do("click", "#open-settings")
        await page.do("click", "#tab-connection")
        await page.do("click", "#open-doctor")
        await page.until("document.querySelectorAll('#steps [data-found]').length === 6")
        edges = "document.querySelector(%r).getBoundingClientRect()"
        await page.until(f"{edges % '#steps li:last-child'}.bottom <= {edges % '#panel-connection'}.bottom")
        found = "[...document.querySelectorAll('#steps span')].map((one) => one.textContent)"
        assert words in await page.value(found)
    await server.empty()


async def test_every_request_stays_with_the_server(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(server.http, transport="auto")
        await page.start()
        await page.value("speak(0.8)")
        await page.shows("#captions", "I heard")
        ours = (f"{server.http}/", f"ws://127.0.0.1:{server.port}/")
        assert [url for url in await page.requests() if not url.startswith(ours)] == []


@asynccontextmanager
async def relay(to_port: int, port: int = 0) -> AsyncGenerator[int]:
    """A way to the server that can be cut. Yields its port; leaving cuts every connection."""
    async with asyncio.TaskGroup() as pumps:

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):  # cut, as it is meant to be
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, here = await asyncio.open_connection("127.0.0.1", to_port)
            writers.extend((writer, here))
            pumps.create_task(pump(reader, here))
            pumps.create_task(pump(there, writer))

        writers: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(join, "127.0.0.1", port)
        yield listener.sockets[0].getsockname()[1]
        listener.close()
        for writer in writers:
            writer.close()
