"""Calls over real sockets: the greeting, turns typed and spoken, barge-in, and that nothing is left of them."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.rig import LoudnessVad, Running, eventually, running, silence, tone, watched_lateness
from tests.app.second_model import model_of, script_model
from tests.app.transports.webrtc.caller import Caller, calling


def loud_s(call: Caller) -> float:
    return sum(frame.peak > 500 for frame in call.heard) * 0.02


async def test_a_typed_turn_is_answered_with_sound(server: Running) -> None:
    async with calling(server) as call:
        assert call.types() == ["session.created"]
        await call.say("say: one two three")
        await call.until("output_audio_buffer.stopped")
        assert call.of("response.done")[0]["response"]["status"] == "completed"
        assert "response.output_audio.delta" not in call.types()
        await eventually(lambda: loud_s(call) >= 0.2)  # the caller's own buffer holds 80 ms, and decodes in a thread
        assert loud_s(call) <= 0.45
    await server.empty()


async def test_a_call_has_the_model_that_it_names() -> None:
    async with running(script_model(), vad=LoudnessVad, others=[model_of("second")]) as several:
        async with calling(several, session={"type": "realtime", "model": "second"}) as call:
            assert call.events[0]["session"]["parley"]["model"] == "second"
        async with calling(several, session={"type": "realtime", "model": "gpt-realtime"}) as call:
            assert call.events[0]["session"]["parley"]["model"] == "script"
        await several.empty()


async def test_a_spoken_turn_is_answered(server: Running) -> None:
    async with calling(server) as call:
        call.mouth.say(np.concatenate([silence(0.2), tone(0.6), silence(1.0)]))
        await call.until("input_audio_buffer.committed")
        done = await call.until("response.done")
        assert done["response"]["status"] == "completed"
        await call.sound()
    await server.empty()


async def test_a_barge_in_ends_the_answer_and_cuts_the_conversation(server: Running) -> None:
    async with calling(server) as call:
        await call.say("long 100")
        await eventually(lambda: loud_s(call) >= 0.3)
        call.mouth.say(tone(0.6))
        started = await call.until("input_audio_buffer.speech_started")
        cleared = await call.until("output_audio_buffer.cleared")
        cut = await call.until("conversation.item.truncated")
        done = await call.until("response.done")
        assert started["item_id"] != cut["item_id"]
        assert cleared["response_id"] == done["response"]["id"]
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        assert 200 <= cut["audio_end_ms"] <= 4000, "of 8000 that its words take"
    await server.empty()


async def test_the_calls_of_a_server_share_how_late_it_came(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = watched_lateness(server, monkeypatch)
    async with calling(server) as call:
        await call.say("say: one two three")
        await call.until("output_audio_buffer.stopped")
    await server.empty()
    assert asked


async def test_hanging_up_ends_the_call(server: Running) -> None:
    async with calling(server) as call, httpx.AsyncClient(base_url=server.http) as http:
        path = f"/v1/realtime/calls/{call.id}/hangup"
        assert (await http.post(path)).status_code == 200
        await server.empty()
        again = await http.post(path)
        assert (again.status_code, again.json()["error"]["code"]) == (404, "call_not_found")
        await call.closed()


@pytest.mark.slow
async def test_a_call_ends_when_its_time_is_over(serve_with: Any) -> None:
    async with serve_with(limits={"session_s": 4.0}) as server, calling(server) as call:
        assert (await call.until("error"))["error"]["code"] == "session_expired"
        await call.closed()
        await server.empty()
