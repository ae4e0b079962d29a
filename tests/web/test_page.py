"""The page in a browser, against a real server: what a newcomer presses, reads and hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.app.rig import Running, running, script_spec
from tests.web.browser import AUDIBLE, Page, recording, written
from tests.web.conftest import Browse

pytestmark = [pytest.mark.chromium, pytest.mark.node]

SPOKEN = Path(__file__).parents[1] / "data" / "spoken" / "in_000.ogg"


async def test_a_typed_question_is_answered_aloud_and_in_words(page: Page) -> None:
    await page.listen()
    await page.ask("say: hello there my friend")
    await page.sound()
    await page.shows("#captions .user", "say: hello there my friend")
    await page.shows("#captions .parley", "hello there my friend")
    await page.state("ready")
    await page.hush()
    assert await page.value("document.getElementById('welcome').hidden")
    assert await page.value("document.getElementById('question').value") == ""
    assert await page.errors() == []


async def test_an_example_is_a_question(page: Page) -> None:
    await page.listen()
    await page.do("click", ".examples button >> nth=0")
    await page.shows("#captions .user", "What can you do?")
    await page.sound()


async def test_the_first_sound_is_timed_as_the_ear_hears_it(page: Page) -> None:
    await page.listen()
    await page.ask("say: how long did that take")
    await page.sound()
    await page.shows("#bars", "Reading the prompt")
    figure = await page.value("document.getElementById('figure').textContent")
    sent_ms = (await page.wire("response.create"))[-1]["at"]
    heard_ms = next(at for at, peak in await page.heard() if at > sent_ms and peak > AUDIBLE)
    assert figure.startswith("First sound ")
    assert figure.endswith(" ms after you sent")
    shown_ms = float(figure.split()[2])
    assert 0 < shown_ms < heard_ms - sent_ms + 100  # the page counts the loudspeaker too, the ear does not
    assert shown_ms > heard_ms - sent_ms - 60  # the ear looks every 5 ms, behind the media stream's own buffer


async def test_speech_is_heard_and_answered(server: Running, browse: Browse, tmp_path: Path) -> None:
    async with browse(microphone=recording(tmp_path / "user.wav", (1.0, 0), (1.0, 0.3), (30, 0))) as page:
        await page.open(server.http)
        await page.listen()
        await page.do("click", "#talk")
        await page.state("listening")
        await page.shows("#captions .user", "seconds")
        await page.sound()
        await page.shows("#captions .parley", "I heard")
        await page.shows("#figure", "after your turn ended")
        seconds = float((await page.value("document.querySelector('#captions .user p').textContent")).split()[0])
        assert 1.0 <= seconds <= 2.2  # with the prefix before it and the silence after
        audio = (await page.value("window.asked"))[0]["audio"]
        assert audio["echoCancellation"] is True
        await page.do("click", "#talk")
        await page.state("ready")
        sent = len(await page.wire("input_audio_buffer.append"))
        await asyncio.sleep(0.3)
        assert len(await page.wire("input_audio_buffer.append")) == sent
        assert await page.errors() == []


async def test_a_spoken_turn_is_found_by_the_real_detector(browse: Browse, tmp_path: Path) -> None:
    voice, rate_hz = soundfile.read(SPOKEN, dtype="float32")
    file = written(tmp_path / "user.wav", np.concatenate([np.zeros(rate_hz), voice, np.zeros(30 * rate_hz)]), rate_hz)
    async with running(script_spec()) as server, browse(microphone=file) as page:
        await page.open(server.http)
        await page.listen()
        await page.do("click", "#talk")
        await page.sound()
        await page.shows("#captions .parley", "I heard")
        seconds = float((await page.value("document.querySelector('#captions .user p').textContent")).split()[0])
        assert seconds == pytest.approx(len(voice) / rate_hz + 0.5, abs=0.5)


async def test_a_second_thought_while_the_browser_asks_leaves_the_microphone_off(
    server: Running, browse: Browse, tmp_path: Path
) -> None:
    async with browse(microphone=recording(tmp_path / "user.wav", (60, 0.3))) as page:
        await page.open(server.http)
        await page.value("""{
          const open = navigator.mediaDevices.getUserMedia;
          navigator.mediaDevices.getUserMedia = async (constraints) => {
            await new Promise((resolve) => setTimeout(resolve, 300));
            return (window.opened = await open(constraints));
          };
        }""")
        await page.do("click", "#talk")
        await page.do("click", "#talk")
        await page.until("window.opened?.getTracks().every((track) => track.readyState === 'ended')")
        await page.state("ready")
        assert await page.wire("input_audio_buffer.append") == []


async def test_a_turn_cut_off_by_ending_the_talk_is_answered(server: Running, browse: Browse, tmp_path: Path) -> None:
    async with browse(microphone=recording(tmp_path / "user.wav", (0.5, 0), (60, 0.3))) as page:
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.until("window.wire.some((event) => event.type === 'input_audio_buffer.speech_started')")
        await asyncio.sleep(0.5)
        await page.do("click", "#talk")
        await page.shows("#captions .parley", "I heard")
        await page.state("ready")


async def test_speaking_over_the_answer_silences_it(server: Running, browse: Browse, tmp_path: Path) -> None:
    again_and_again = ((5.0, 0), (0.8, 0.5)) * 10
    async with browse(microphone=recording(tmp_path / "user.wav", *again_and_again)) as page:
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.shows("#captions .parley", "I heard")
        await page.state("listening")
        await page.listen()
        await page.ask("long 200")
        await page.sound()
        await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
        await page.until("document.querySelector('#captions .parley.interrupted')")
        await page.until("document.querySelector('#captions li:last-child').textContent.includes('I heard')")
        asked_ms = (await page.wire("response.create"))[0]["at"]
        began_ms = next(e["at"] for e in await page.wire("input_audio_buffer.speech_started") if e["at"] > asked_ms)
        heard = [(at, peak) for at, peak in await page.heard() if at > asked_ms]
        first_ms = next(at for at, peak in heard if peak > AUDIBLE)
        last_ms = max(at for at, peak in heard if peak > AUDIBLE and at < began_ms + 450)
        assert last_ms - began_ms < 100
        cut = (await page.wire("conversation.item.truncate"))[0]
        sounding_ms = sum(then - now for (now, peak), (then, _) in pairwise(heard) if peak > AUDIBLE and now <= last_ms)
        assert sounding_ms - 300 < cut["audio_end_ms"] < last_ms - first_ms + 150  # a stall is no hearing
        interrupted = next(e["response"] for e in await page.wire("response.done") if e["at"] > began_ms)
        assert interrupted["status_details"]["reason"] == "turn_detected"
        assert await page.wire("error") == []


@pytest.mark.parametrize("how", ["escape", "button"])
async def test_stop_ends_the_answer(page: Page, how: str) -> None:
    await page.listen()
    await page.ask("long 200")
    await page.sound()
    if how == "escape":
        await page.do("press", "Escape", on="page.keyboard")
    else:
        await page.do("click", "#stop")
    stopped_ms = await page.value("performance.now()")
    await page.state("ready")
    await page.hush()
    assert max(at for at, peak in await page.heard() if peak > AUDIBLE) - stopped_ms < 100
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    assert await page.value("document.getElementById('stop').disabled")
    await page.ask("say: and on we go")
    await page.shows("#captions", "and on we go")
    await page.sound()
    assert await page.wire("error") == []


async def test_an_answer_is_stopped_while_its_sound_is_late(page: Page) -> None:
    await page.listen()
    await page.ask("long 200")
    await page.sound()
    await page.value("window.starve = true")
    await page.hush()
    await page.do("press", "Escape", on="page.keyboard")
    await page.do("press", "Escape", on="page.keyboard")
    await page.until("window.wire.some((event) => event.type === 'conversation.item.truncated')")
    await page.state("ready")
    await page.ask("say: nothing of this is cut")
    await page.shows("#captions", "nothing of this is cut")
    await page.do("press", "Escape", on="page.keyboard")
    await page.state("ready")
    assert len(await page.wire("conversation.item.truncate")) == 1  # of the second answer no sound came
    assert await page.value("document.getElementById('notice').hidden")


async def test_a_new_question_replaces_the_answer(page: Page) -> None:
    await page.listen()
    await page.ask("long 200")
    await page.sound()
    await page.ask("say: the second one")
    await page.ask("say: the third one")
    await page.until("document.querySelectorAll('#captions .user').length === 3")
    await page.shows("#captions li:last-child p", "the third one")
    await page.state("ready")
    await page.shows("#bars", "Reading the prompt")
    assert await page.wire("error") == []


async def test_a_failed_answer_is_named_and_the_next_one_works(page: Page) -> None:
    await page.ask("fail")
    await page.shows("#notice", "The answer failed")
    await page.state("ready")
    await page.ask("say: better")
    await page.shows("#captions", "better")
    await page.until("document.getElementById('notice').hidden")


async def test_a_lost_server_is_named_and_found_again(server: Running, browse: Browse) -> None:
    async with browse() as page:
        async with relay(server.port) as port:
            await page.open(f"http://127.0.0.1:{port}")
        await page.state("error")
        await page.shows("#notice", "The server is not answering")
        await page.do("fill", "#question", "say: are you there")
        await page.do("press", "#question", "Enter")
        assert await page.value("document.getElementById('question').value") == "say: are you there"
        async with relay(server.port, port):
            await page.state("ready")
            await page.until("document.getElementById('notice').hidden")
            await page.shows("#captions .divider", "a new conversation")
            await page.do("press", "#question", "Enter")
            await page.shows("#captions .parley", "are you there")


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
        assert await page.value("document.getElementById('talk').getAttribute('aria-pressed')") == "false"


async def test_an_insecure_address_is_named(server: Running, browse: Browse) -> None:
    async with browse() as page:
        await page.before("Object.defineProperty(window, 'isSecureContext', {value: false})")
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.shows("#notice", "only on https or localhost")


async def test_every_request_stays_with_the_server(server: Running, browse: Browse, tmp_path: Path) -> None:
    async with browse(microphone=recording(tmp_path / "user.wav", (0.5, 0), (0.8, 0.3), (30, 0))) as page:
        await page.open(server.http)
        await page.do("click", "#talk")
        await page.shows("#captions", "I heard")
        requests = await page.requests()
        ours = (f"{server.http}/", f"ws://127.0.0.1:{server.port}/")
        assert [url for url in requests if not url.startswith(ours)] == []
        assert any(url.startswith("ws://") for url in requests)


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
