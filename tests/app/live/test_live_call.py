"""A Live session over WebRTC: offered as JSON, told on the data channel, heard as a track, and joined by a sideband."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aioice.ice
import httpx
import pytest
from aiortc import RTCSessionDescription
from openai.types.live import LiveCreateResponse
from openai.types.live.connect_server_event import ConnectServerEvent
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.app.live.caller import LiveClient
from tests.app.openai_types import strictly
from tests.app.rig import Event, Running, keys_file, silence, tone
from tests.app.transports.webrtc.caller import Caller

PATH = "/v1/live/sessions"


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


class LiveCaller(Caller):
    """A caller whose events are Live's."""

    async def place(self, session: Any, **headers: str) -> LiveCaller:
        """Place the call; its greeting is yet to come."""
        body = {"session": session, "transport": {"type": "webrtc", "sdp": await self.offer()}}
        async with httpx.AsyncClient(base_url=self.server.http, headers=headers) as http:
            answer = await http.post(PATH, params=self.query, json=body)
        assert answer.status_code == 201, answer.text
        made = strictly(LiveCreateResponse, answer.json())
        self.id = made.session.id
        await self.peer.setRemoteDescription(RTCSessionDescription(made.transport.sdp, "answer"))
        return self

    def _on_message(self, text: str) -> None:
        event: Event = json.loads(text)
        strictly(ConnectServerEvent, event)
        self.events.append(event)
        self._news.put_nowait(event)

    def words(self) -> str:
        return "".join(event["delta"] for event in self.of("session.output_transcript.delta"))


async def test_a_live_call_speaks_listens_and_is_joined(server: Running) -> None:
    history = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Good day."}]}]
    caller = await LiveCaller(server).place({"model": "m", "input": history})
    started = (await caller.until("session.started"))["session"]
    assert started["id"] == caller.id
    assert started["audio"] == {}
    await caller.send("session.commentary.append", content="said", delegation_id=None)
    await caller.until("session.usage.updated")
    assert caller.words() == "I said: Good day."
    await caller.sound()
    caller.mouth.say(silence(0.3))
    caller.mouth.say(tone(0.6))
    await caller.until("session.input_transcript.delta")
    url = server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach"
    async with connect(url) as socket:
        beside = LiveClient(socket)
        assert (await beside.until("session.started"))["session"]["id"] == caller.id
        await beside.say("say: from beside")
        await beside.said("from beside")
    await caller.send("session.input_audio.append", audio="")
    assert (await caller.until("error"))["error"]["code"] == "invalid_event_for_transport"
    with pytest.raises(InvalidStatus):  # the other dialect's way does not lead here
        await connect(f"{server.ws}?call_id={caller.id}")
    await caller.send("session.close")
    await caller.until("session.closed")
    await caller.closed()
    await caller.hang_up()
    await server.empty()


async def test_a_live_call_is_its_keys(serve_with: Any, tmp_path: Path) -> None:
    keys = keys_file(tmp_path, "ann: sk-ann-0123456789ab", "bob: sk-bob-0123456789ab")
    ann, bob = ({"authorization": f"Bearer sk-{name}-0123456789ab"} for name in ("ann", "bob"))
    async with serve_with(keys_file=keys) as server:
        caller = await LiveCaller(server).place({"model": "m"}, **ann)
        await caller.until("session.started")
        url = server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=bob)
        assert refused.value.response.status_code == 404
        async with connect(url, additional_headers=ann) as socket, httpx.AsyncClient(base_url=server.http) as http:
            await (beside := LiveClient(socket)).until("session.started")
            ended = [(await http.post(f"{PATH}/{caller.id}/hangup", headers=key)).status_code for key in (bob, ann)]
            assert ended == [404, 200]
            assert (await beside.until("session.closed"))["reason"] == "close_requested"
        assert (await caller.until("session.closed"))["reason"] == "close_requested"
        await caller.closed()
        await caller.hang_up()
        await server.empty()


async def test_those_beside_a_live_call_are_told_that_its_client_left(server: Running) -> None:
    caller = await LiveCaller(server).place({"model": "m"})
    await caller.until("session.started")
    async with connect(server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach") as socket:
        beside = LiveClient(socket)
        await beside.until("session.started")
        await caller.hang_up()
        assert (await beside.until("session.closed"))["reason"] == "remote_hangup"
    await server.empty()


ULAW = {"format": {"type": "audio/pcmu"}}
BAD: list[tuple[dict[str, Any], int]] = [
    ({}, 422),
    ({"session": {"model": "m"}, "transport": {"type": "sip", "sdp": ""}}, 400),
    ({"session": {}, "transport": {"type": "webrtc", "sdp": ""}}, 400),
    ({"session": {"model": "m", "audio": ULAW}, "transport": {"type": "webrtc", "sdp": ""}}, 400),
    ({"session": {"model": "m"}, "transport": {"type": "webrtc", "sdp": "no offer"}}, 400),
]  # fmt: skip


async def test_bad_offers_and_what_is_not_served_get_one_error(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        for body, _ in BAD:
            answer = await http.post(PATH, json=body)
            assert answer.status_code in (400, 422), answer.text
            assert answer.json()["error"]["message"]
        assert (await http.post(f"{PATH}/live_x/hangup")).status_code == 404
        for what in ("fork", "refer", "accept"):
            assert (await http.post(f"{PATH}/live_x/{what}")).json()["error"]["code"] == "not_supported"
        assert (await http.get(f"{PATH}/live_x/content")).status_code == 404


@pytest.mark.slow
async def test_an_idle_call_pauses_until_someone_speaks(server: Running) -> None:
    wake = {"type": "speech", "vad_threshold": 0.3}
    caller = await LiveCaller(server).place({"model": "m", "idle_timeout_s": 1, "wake_policy": wake})
    await caller.until("session.started")
    async with connect(server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach") as socket:
        beside = LiveClient(socket)
        await beside.until("session.started")
        await caller.until("session.paused")
        await beside.until("session.paused")
        caller.mouth.say(tone(0.6))
        await caller.until("session.resumed")
        await beside.until("session.resumed")
        await caller.until("session.input_transcript.delta")
        usage = (await caller.until("session.usage.updated"))["usage"]
        assert usage["seconds"] == usage["active_seconds"] + usage["paused_seconds"]
        assert usage["active_seconds"] >= 1
        await caller.until("session.paused")
        await beside.say("say: your table is ready")
        await caller.until("session.resumed")
        await beside.said("ready")
    await caller.send("session.close")
    await caller.until("session.closed")
    await caller.hang_up()
    await server.empty()


async def test_a_page_sends_and_receives_what_it_may(server: Running) -> None:
    sent = ["session.commentary.append"]
    received = [{"type": "session.started"}, {"type": "error"}, {"type": "session.output_transcript.delta"}]
    allowed = {"data_channel": {"allowed_client_events": sent, "allowed_server_events": received}}
    caller = await LiveCaller(server).place({"model": "m", "client": allowed})
    assert (await caller.until("session.started"))["session"]["client"] == allowed
    await caller.send("session.thinking.append", event_id="mine", content="Be rude.", delegation_id=None)
    refused = (await caller.until("error"))["error"]
    assert (refused["code"], refused["client_event_id"]) == ("event_not_allowed", "mine")
    async with connect(server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach") as socket:
        beside = LiveClient(socket)
        await beside.until("session.started")
        await beside.send("session.thinking.append", content="Be kind.", delegation_id=None)
        await beside.until("session.thinking.appended")
        await caller.send("session.commentary.append", content="say: one two", delegation_id=None)
        await beside.until("session.usage.updated")
        while "two" not in caller.words():
            await caller.until("session.output_transcript.delta")
        types = {event["type"] for event in caller.events}
        assert types == {"session.started", "error", "session.output_transcript.delta"}
        await beside.send("session.close")
        await beside.until("session.closed")
    await caller.hang_up()
    await server.empty()


@pytest.mark.parametrize("selector", [{"type": "response.event"}, {"type": "error", "response_event": "x"}])
async def test_a_wrong_selector_is_refused(selector: dict[str, str], server: Running) -> None:
    session = {"model": "m", "client": {"data_channel": {"allowed_server_events": [selector]}}}
    body = {"session": session, "transport": {"type": "webrtc", "sdp": "v=0"}}
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post(PATH, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].endswith("[0].response_event")
