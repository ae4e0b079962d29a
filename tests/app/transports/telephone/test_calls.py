"""Telephone calls over each exchange's own protocol: all hold for all of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.realtime.output.playout import RESERVE_S
from app.realtime.timer_lateness import MOST_S
from app.transports.telephone.phone import HANDSET_S
from app.transports.telephone.twilio import LEAD_S
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm
from tests.app.live.caller import LiveClient
from tests.app.rig import Client, LoudnessVad, Running, eventually, keys_file, running, script_spec, watched_lateness
from tests.app.transports.telephone.exchanges import (
    TOKEN,
    URL,
    Reached,
    SipPhone,
    StreamPhone,
    Telephone,
    asterisk,
    heard,
    reached,
    sip,
    twilio,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Dial = Callable[[Reached], AbstractAsyncContextManager[Telephone]]
KEY = "the-key-of-a-backend"
LEFT_S = RESERVE_S + HANDSET_S + MOST_S + 0.24
"""Seconds of sound that may have left before a caller interrupts: a late server is that far ahead of the ear, and the
way there is estimated by a connection that has known it late, too."""


def settings(folder: Path, **telephone: Any) -> dict[str, Any]:
    """The ``server:`` section of a server that takes calls from both exchanges."""
    exchange = {"twilio_url": URL, "twilio_token_file": keys_file(folder, TOKEN, name="token")}
    turns = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}
    return {
        "telephone": {**exchange, "audiosocket": "127.0.0.1:0", "sip": "127.0.0.1:0", "session": turns, **telephone}
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("telephone")
    section = settings(folder, destinations={"sales": "+4930123456"}, key="desk")
    keys = keys_file(folder, f"desk: {KEY}", "other: the-key-of-somebody-else")
    async with running(script_spec(keys_file=keys, **section), vad=LoudnessVad) as one:
        yield one


@pytest.fixture(params=[twilio, asterisk, sip], ids=["twilio", "asterisk", "sip"])
def dial(request: pytest.FixtureRequest) -> Dial:
    return request.param


@asynccontextmanager
async def beside(server: Running, key: str = KEY) -> AsyncGenerator[Client]:
    """A backend's socket on the one call there is."""
    await eventually(lambda: len(call_ids(server)) == 1)
    (id,) = call_ids(server)
    headers = {"authorization": f"Bearer {key}"}
    async with connect(f"{server.ws}?call_id={id}", additional_headers=headers) as socket:
        client = Client(socket)
        await client.until("session.created")
        yield client


def call_ids(server: Running) -> list[str]:
    app: Any = server.server.config.app
    return app.state.open_calls.ids


def tone(seconds: float) -> Pcm:
    return (8000 * np.sin(2 * np.pi * 300 * np.arange(int(seconds * 8000)) / 8000)).astype(np.int16)


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * 8000), np.int16)


async def test_a_spoken_turn_is_answered_with_sound(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await phone.speak(np.concatenate([silence(0.2), tone(0.6), silence(1.0)]))
        await backend.until("output_audio_buffer.started")
        await backend.until("output_audio_buffer.stopped")
        await eventually(lambda: len(heard(phone)) > 2400)
        sound = heard(phone).astype(float)
        assert np.sqrt(np.mean(sound**2)) > 500
        await phone.hang_up()
        await server.empty()


async def test_a_turn_ends_although_the_exchange_suppresses_silence(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await phone.speak(np.concatenate([silence(0.2), tone(0.6)]))
        await backend.until("input_audio_buffer.speech_stopped")
        await backend.until("output_audio_buffer.started")
        await phone.hang_up()
        await server.empty()


async def test_it_shares_with_all_calls_how_late_the_server_came(
    server: Running, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = watched_lateness(server, monkeypatch)
    async with dial(reached(server)) as phone, beside(server) as backend:
        await ask(backend, "say: one two three")
        await backend.until("output_audio_buffer.stopped")
        await phone.hang_up()
    await server.empty()
    assert asked


async def test_a_caller_who_interrupts_hears_silence_at_once(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await ask(backend, "long 100")
        await eventually(lambda: len(heard(phone)) > 8000)
        await phone.speak(tone(1.2))
        heard_s = (await backend.until("conversation.item.truncated"))["audio_end_ms"] / 1000
        await phone.press("0")
        await backend.until("input_audio_buffer.dtmf_event_received")
        assert len(heard(phone)) / 8000 <= heard_s + LEFT_S, "sound that has left can't be recalled"
        await phone.hang_up()
        await server.empty()


async def test_twilio_is_sent_more_ahead_and_throws_it_away_when_its_caller_interrupts(server: Running) -> None:
    """To the ear it is as the other exchanges: what was ahead is not heard."""
    async with twilio(reached(server)) as phone, beside(server) as backend:
        await ask(backend, "long 100")
        await eventually(lambda: len(heard(phone)) > 8000)
        ahead_s = phone.waiting_s
        await phone.speak(tone(1.2))
        heard_s = (await backend.until("conversation.item.truncated"))["audio_end_ms"] / 1000
        await eventually(lambda: phone.cleared == 1)
        assert ahead_s > LEAD_S / 2
        assert len(heard(phone)) / 8000 <= heard_s + HANDSET_S + RESERVE_S + 0.18
        await backend.until("output_audio_buffer.stopped")  # of the answer to what the caller said
        assert phone.cleared == 1, "what was heard to its end is not thrown away"
        await phone.hang_up()
        await server.empty()


async def test_the_model_hangs_up(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await ask(backend, "tool hang_up {}")
        await phone.ended.wait()
        assert await next_step(server, phone.name) == "hang_up"
        await server.empty()


async def test_the_model_hangs_up_through_the_proxy_after_a_session_timer(server: Running) -> None:
    async with sip(reached(server)) as phone, beside(server) as backend:
        phone.invite(number=2)
        await phone.answer()
        await ask(backend, "tool hang_up {}")
        await phone.ended.wait()
        (bye, *_) = [one for one in phone.seen if one.startswith("BYE")]
        assert "route: <sip:127.0.0.1;lr>" in bye
        await server.empty()


async def test_a_telephone_that_vanished_without_a_word_is_let_go(
    server: Running, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.transports.telephone.phone.SILENT_S", 0.5)
    async with dial(reached(server)) as phone:
        await eventually(lambda: bool(call_ids(server)))
        await phone.ended.wait()
        await server.empty()


async def test_the_model_hands_the_call_on(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await ask(backend, 'tool transfer {"destination": "nobody"}')
        refused = await backend.until("conversation.item.added")
        while refused["item"]["type"] != "function_call_output":
            refused = await backend.until("conversation.item.added")
        assert "no such destination" in refused["item"]["output"]
        answer = (await backend.until("response.output_audio_transcript.done"))["transcript"]
        assert answer == "The tool says: There is no such destination."
        await backend.until("response.done")
        await ask(backend, 'tool transfer {"destination": "sales"}')
        await phone.ended.wait()
        assert await next_step(server, phone.name) == "+4930123456"
        if isinstance(phone, SipPhone):
            assert phone.referred_to == "tel:+4930123456"
        await server.empty()


async def test_keys_are_events(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        for key in "4#":
            await phone.press(key)
            event = await backend.until("input_audio_buffer.dtmf_event_received")
            assert event["event"] == key
        await phone.hang_up()
        await server.empty()


async def test_its_tools_are_offered_and_the_rest_of_the_settings_hold(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        session = backend.of("session.created")[0]["session"]
        assert [tool["name"] for tool in session["tools"]] == ["hang_up", "transfer"]
        assert session["tools"][1]["parameters"]["properties"]["destination"]["enum"] == ["sales"]
        assert session["audio"]["input"]["turn_detection"]["type"] == "server_vad"
        await phone.hang_up()
        await server.empty()


async def test_a_call_is_its_key_s(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone:
        with pytest.raises(Exception, match="404"):
            async with beside(server, "the-key-of-somebody-else"):
                pass
        async with httpx.AsyncClient(base_url=server.http) as http:
            (id,) = call_ids(server)
            path, mine = f"/v1/realtime/calls/{id}/hangup", {"authorization": f"Bearer {KEY}"}
            assert (await http.post(path, headers=mine)).status_code == 200
        await phone.ended.wait()
        await server.empty()


@pytest.mark.parametrize("dial", [twilio, asterisk])
async def test_what_the_exchange_must_not_say_ends_the_call(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone:
        await eventually(lambda: bool(call_ids(server)))
        await phone.send_nonsense()
        await phone.ended.wait()
        await server.empty()


@pytest.mark.parametrize("kind", range(0x11, 0x19))
async def test_sound_of_asterisk_at_another_rate_ends_the_call_and_says_why(
    server: Running, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        async with asterisk(reached(server)) as phone:
            await eventually(lambda: bool(call_ids(server)))
            phone.put(kind, bytes(640))
            await phone.ended.wait()
            await server.empty()
    (closed,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("call.closed")]
    assert "code=1007" in closed
    assert "must be at 8000 Hz" in closed


async def test_a_caller_who_only_ever_is_silent_is_let_go_when_the_session_s_time_is_over(
    server: Running, tmp_path: Path, dial: Dial
) -> None:
    first, section = reached(server), settings(tmp_path)
    async with running(script_spec(limits={"session_s": 3.0}, **section), vad=LoudnessVad) as brief:
        async with dial(reached(brief, first)) as phone:
            await eventually(lambda: len(call_ids(brief)) == 1)
            async with connect(f"{brief.ws}?call_id={call_ids(brief)[0]}") as socket:
                backend = Client(socket)
                while not phone.ended.is_set():
                    with suppress(ConnectionError, ConnectionClosed):
                        await phone.speak(silence(0.02))
                    await asyncio.sleep(0.02)
                assert (await backend.error())["code"] == "session_expired"
            assert "input_audio_buffer.speech_started" not in backend.types()
            if isinstance(phone, StreamPhone):
                assert phone.closed == (1001, "the session has expired")
        await brief.empty()


async def they_speak(phone: Telephone, backend: Client) -> None:
    await phone.speak(tone(1.2))  # longer than a backchannel
    await backend.until("input_audio_buffer.speech_started")


async def they_have_spoken(phone: Telephone, backend: Client) -> None:
    await phone.speak(np.concatenate([tone(0.6), silence(1.0)]))
    await backend.until("input_audio_buffer.committed")


async def it_thinks(phone: Telephone, backend: Client) -> None:
    await ask(backend, "long 100")
    await backend.until("response.created")


async def it_answers(phone: Telephone, backend: Client) -> None:
    await ask(backend, "long 100")
    await backend.until("output_audio_buffer.started")


async def they_interrupt(phone: Telephone, backend: Client) -> None:
    await it_answers(phone, backend)
    await they_speak(phone, backend)


async def it_has_answered(phone: Telephone, backend: Client) -> None:
    await ask(backend, "say: yes")
    await backend.until("output_audio_buffer.stopped")


async def it_hands_the_call_on(phone: Telephone, backend: Client) -> None:
    await ask(backend, 'tool transfer {"destination": "sales"}')
    await backend.until("response.done")


STATES = (they_speak, they_have_spoken, it_thinks, it_answers, they_interrupt, it_has_answered, it_hands_the_call_on)


@pytest.mark.parametrize("state", STATES)
async def test_who_hangs_up_leaves_nothing(
    server: Running, dial: Dial, state: Callable[[Telephone, Client], Awaitable[None]]
) -> None:
    async with dial(reached(server)) as phone, beside(server) as backend:
        await state(phone, backend)
        await phone.hang_up()
        await server.empty()


async def test_who_hangs_up_as_the_call_begins_leaves_nothing(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone:
        await phone.hang_up()
        await server.empty()


@pytest.mark.parametrize("dial", [twilio, asterisk])
async def test_keys_and_sound_without_end_are_bounded(server: Running, dial: Dial) -> None:
    async with dial(reached(server)) as phone:
        await eventually(lambda: bool(call_ids(server)))
        with suppress(ConnectionError, ConnectionClosed):
            for _ in range(60):
                await phone.speak(silence(1.0))
                await asyncio.sleep(0)
        await phone.ended.wait()
        await server.empty()


@pytest.mark.slow
async def test_ten_thousand_keys_are_no_load(server: Running, dial: Dial) -> None:
    """Keys that telephones do not have are none; the others are events, or the call ends as one that says too much."""
    async with dial(reached(server)) as phone:
        await eventually(lambda: bool(call_ids(server)))
        with suppress(ConnectionError, ConnectionClosed):
            for number in range(10_000):
                await phone.press("1234"[number % 4])
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await phone.hang_up()
        await server.empty()


async def ask(backend: Client, text: str) -> None:
    await (await backend.say(text)).send("response.create")


async def next_step(server: Running, name: str) -> str:
    await eventually(lambda: not call_ids(server))
    async with httpx.AsyncClient(base_url=server.http, headers={"authorization": f"Bearer {KEY}"}) as http:
        return (await http.get(f"/v1/telephone/next/{name}")).text


async def test_a_backend_that_speaks_live_sees_and_hears_a_call(server: Running, tmp_path: Path, dial: Dial) -> None:
    """Its events, keys and sound both ways, the caller's before muting; the model ends the call as in Realtime."""
    section, first = settings(tmp_path, protocol="live", session={"instructions": "Be brief."}), reached(server)
    async with running(script_spec(**section), vad=LoudnessVad) as live, dial(reached(live, first)) as phone:
        await eventually(lambda: len(call_ids(live)) == 1)
        (id,) = call_ids(live)
        assert id.startswith("live_")
        with pytest.raises(InvalidStatus):
            await connect(f"{live.ws}?call_id={id}")
        async with connect(f"ws://127.0.0.1:{live.port}/v1/live/sessions/{id}/attach", max_queue=None) as socket:
            backend = LiveClient(socket)
            assert (await backend.until("session.started"))["session"]["instructions"] == "Be brief."
            await phone.press("7")
            assert (await backend.until("transport.dtmf.received"))["event"] == "7"
            await backend.send("session.input_audio.mute")
            await backend.until("session.input_audio.muted")
            await phone.speak(np.concatenate([tone(1.0), silence(0.5)]))
            await backend.say("say: one two three four five six")
            await backend.said("five six")
            await eventually(lambda: len(heard(phone)) > 2000)
            while len(caller := told_all(backend)) <= 1.4 * SPEAKER_RATE_HZ:
                await backend.until("session.input_audio.append")
            assert np.count_nonzero(np.abs(caller.astype(int)) > 4000) > SPEAKER_RATE_HZ // 2, "before muting"
            assert loudness(backend.samples) > 500
            spans = [(event["start_ms"], event["end_ms"]) for event in backend.sounds]
            assert sum(end - start for start, end in spans) == pytest.approx(len(backend.samples) / 24, abs=len(spans))
            assert all(before[1] <= after[0] for before, after in pairwise(spans))
            await backend.say("tool hang_up {}")
            await phone.ended.wait()
            assert (await backend.until("session.closed"))["reason"] == "close_requested"
        await live.empty()


def told_all(backend: LiveClient) -> Pcm:
    """The caller's sound, as far as it has been told."""
    told = [told_pcm(event, "audio") for event in backend.of("session.input_audio.append")]
    return np.concatenate([np.empty(0, np.int16), *told])


def told_pcm(event: dict[str, Any], name: str) -> Pcm:
    return np.frombuffer(base64.b64decode(event[name]), "<i2").astype(np.int16)


def loudness(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(pcm.astype(float) ** 2)))
