"""The page over WebRTC, in a browser, against a real server: heard, interrupted, changed, and got round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.web.browser import Chromium, Page

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def page(server: Running, browser: Chromium) -> AsyncGenerator[Page]:
    """A page that is loaded and will call; afterwards its call is over at the server too."""
    async with browser.page() as one:
        await one.open(server.http, transport="webrtc")
        yield one
        await one.value("document.getElementById('end').click()")
        await server.empty()


async def test_speech_is_heard_and_answered_over_a_call(page: Page) -> None:
    await page.start()
    await page.shows("#route", "WebRTC")
    await asyncio.sleep(0.3)
    await page.value("speak(1.0)")
    await page.shows("#captions .user", "seconds")
    await page.listen()
    await page.sound()
    await page.shows("#captions .answer", "I heard")
    await page.shows("#after", "from ")
    await page.shows("#bars", "Network and playback")
    seconds = float((await page.value("document.querySelector('#captions .user p').textContent")).split()[0])
    assert 0.8 <= seconds <= 2.2
    assert await page.wire("input_audio_buffer.append") == []
    assert await page.wire("response.output_audio.delta") == []
    await page.do("click", "#end")
    await page.state("idle")
    assert await page.value("opened.every((track) => track.readyState === 'ended')")
    assert await page.errors() == []


async def test_speaking_over_the_answer_silences_the_call(page: Page) -> None:
    await page.start()
    await page.ask("long 200")
    await page.state("speaking")
    await asyncio.sleep(1.0)
    await page.value("speak(0.8, 0.5)")
    await page.until("document.querySelector('#captions .answer.interrupted')")
    muted = "document.getElementById('voice').muted"
    assert await page.value(muted) or await page.wire("output_audio_buffer.started")
    await page.until("document.querySelector('#captions > :last-child').textContent.includes('I heard')")
    await page.until(f"!{muted}")
    kinds = ("input_audio_buffer.speech_started", "conversation.item.truncated")
    began, cut = [[e for e in await page.wire(kind) if not e["out"]] for kind in kinds]
    assert len(cut) == 1
    assert cut[0]["at"] > began[0]["at"]
    words = await page.value("document.querySelector('#captions .interrupted p').firstChild.textContent")
    assert len(words.split()) < 150, "of 200: a slow machine hears the user some seconds late"
    assert await page.wire("conversation.item.truncate") == []  # the server knows what was heard
    assert await page.wire("error") == []


async def test_stop_ends_the_answer_of_a_call(page: Page) -> None:
    await page.ask("long 200")
    await page.listen()
    await page.sound()
    await asyncio.sleep(0.8)
    await page.do("press", "Escape", on="page.keyboard")
    assert await page.value("document.getElementById('voice').muted")
    await page.state("ready")
    await page.until("document.querySelector('#captions .answer.interrupted')")
    await page.hush()
    await page.ask("say: and on we go")
    await page.sound()
    assert not await page.value("document.getElementById('voice').muted")
    assert await page.wire("error") == []


async def test_another_microphone_and_a_camera_join_a_call(page: Page) -> None:
    await page.start()
    await page.do("click", "#open-microphones")
    await page.do("check", "#microphones [value=second]")
    await page.until("opened.length === 2 && opened[0].readyState === 'ended'")
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("click", "#camera")
    await page.until("document.querySelector('#preview video')?.videoWidth > 0")
    await page.value("speak(0.8)")
    await page.shows("#captions .answer", "I heard")
    await page.until("document.querySelector('#captions .user canvas') !== null")
    assert len(await page.wire("session.created")) == 1
    assert await page.wire("error") == []


async def test_a_refused_call_becomes_a_socket_and_the_page_says_why(browser: Chromium) -> None:
    async with running(script_spec(), vad=LoudnessVad) as server, browser.page() as page:
        refuse = """{
          const ask = window.fetch;
          window.fetch = (where, how) => String(where).endsWith("/calls")
            ? Promise.resolve(new Response("{}", { status: 501 })) : ask(where, how);
        }"""
        await page.before(refuse)
        await page.open(server.http, transport="webrtc")
        await page.ask("say: by the other way")
        await page.shows("#captions .answer", "by the other way")
        await page.shows("#route", "WebSocket")
        await page.shows("#captions .divider", "the server takes no WebRTC calls")


async def test_a_call_without_a_path_becomes_a_socket(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.before("""{
          const set = RTCPeerConnection.prototype.setRemoteDescription;
          RTCPeerConnection.prototype.setRemoteDescription = function ({ type, sdp }) {
            return set.call(this, { type, sdp: sdp.replace(/a=candidate.*\\r\\n/g, "") });
          };
        }""")
        await page.open(server.http, transport="webrtc")
        await page.ask("say: round the firewall")
        await page.shows("#captions .answer", "round the firewall")
        await page.shows("#captions .divider", "a firewall may block UDP")
        assert await page.value("fetch(wireCall + '/hangup', { method: 'POST' }).then(({ status }) => status)") == 404
        await page.do("click", "#end")  # a session that nobody ended would be kept for its user
    await server.empty()


async def test_a_call_goes_on_after_a_reload(server: Running, page: Page) -> None:
    await page.start()
    await page.ask("long 200")
    await page.shows("#captions .answer", "word9")
    before = await page.value("wireCall")
    await page.do("reload")
    await page.until("window.wire.some((event) => event.type === 'session.updated')")
    assert await page.value("wireCall") == before
    assert server.metric("parley_sessions") == 1
    await page.shows("#route", "WebRTC")
    await page.until("opened.length === 1")  # the microphone was on
    said = "document.querySelector('#captions .answer p').textContent"
    await page.until(f"{said}.includes('word30')")
    words = (await page.value(said)).split()
    assert words == [f"word{n}" for n in range(len(words))]
    await page.state("speaking")
    await page.do("press", "Escape", on="page.keyboard")
    await page.state("listening")
    await page.ask("say: and on we go")
    await page.shows("#captions > :last-child", "and on we go")
    assert await page.value("document.querySelector('#captions .divider')") is None
    assert await page.wire("error") == []


async def test_the_page_says_how_long_sound_waits_in_the_browser(page: Page) -> None:
    await page.ask("long 60")
    await page.until("window.wire.some((event) => event.type === 'parley.playout.delay')")
    told = await page.wire("parley.playout.delay")
    assert all(5 < one["delay_ms"] < 1000 for one in told)
    assert await page.wire("error") == []


async def test_a_lost_call_is_opened_anew(page: Page) -> None:
    await page.ask("say: one")
    await page.shows("#captions .answer", "one")
    await page.value("fetch(wireCall + '/hangup', { method: 'POST' }).then(() => null)")
    await page.until("window.wire.filter((event) => event.type === 'session.created').length === 2")
    await page.state("ready")
    await page.ask("say: two")
    await page.shows("#captions > :last-child", "two")


async def test_the_doctor_calls(server: Running, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(server.http)
        await page.do("click", "#open-settings")
        await page.do("click", "#tab-connection")
        await page.do("click", "#open-doctor")
        await page.until("document.querySelectorAll('#steps [data-found=good]').length === 6")
        await page.shows("#steps", "Works · ")
    await server.empty()
