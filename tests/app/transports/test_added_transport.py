"""A new transport is some 80 lines: one that a test adds has all that every connection has, without code for it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pybase64
import pytest

from app.limits.principal import Principal
from app.transports.disconnect import Disconnect
from app.transports.resumable_session import ResumableSession
from benchmarks.code_size import read
from tests.app.realtime.test_session import check_order
from tests.app.rig import TIMEOUT_S, Event, Running, check_event, eventually, silence, tone
from tests.app.transports import phone_line
from tests.app.transports.phone_line import serve_lines

MOST_LINES = 80
OURS = {"output_audio_buffer.started", "output_audio_buffer.stopped", "output_audio_buffer.cleared"}


class Phone:
    """The client's end of a line. It keeps the events and the sound that it got, and why the server ended it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.events: list[Event] = []
        self.sound = b""
        self.goodbye = ""

    @classmethod
    async def dial(cls, port: int, first: str = "CALL", buffer: int = 0) -> Self:
        line = socket.create_connection(("127.0.0.1", port))
        if buffer:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        phone = cls(*await asyncio.open_connection(sock=line, limit=1 << 16 if buffer else 1 << 24))
        phone.write(first)
        return phone

    def write(self, line: str) -> None:
        self.writer.write(line.encode() + b"\n")

    def send(self, type: str, **fields: Any) -> None:
        self.write(json.dumps({"type": type, **fields}))

    def say(self, text: str, id: str = "item_1", **response: Any) -> None:
        content = [{"type": "input_text", "text": text}]
        item = {"id": id, "type": "message", "role": "user", "content": content}
        self.send("conversation.item.create", item=item)
        self.send("response.create", response=response)

    async def speak(self, pcm: Any) -> None:
        """int16 at 24 kHz; the line takes 16 kHz."""
        slow = np.interp(np.arange(0, len(pcm), 1.5), np.arange(len(pcm)), pcm).astype("<i2")
        for at in range(0, len(slow), 320):
            self.write("~" + pybase64.b64encode(slow[at : at + 320].tobytes()).decode())
            await asyncio.sleep(0)

    async def until(self, type: str) -> Event:
        """The next event of a type, or ``BYE``; the sound before it is kept."""
        async with asyncio.timeout(TIMEOUT_S):
            while line := (await self._reader.readline()).decode().strip():
                if line.startswith("~"):
                    self.sound += pybase64.b64decode(line[1:])
                elif line.startswith("BYE"):
                    self.goodbye = line
                else:
                    event = json.loads(line)
                    check_event(event)
                    self.events.append(event)
                    if event["type"] == type:
                        return event
        assert type == "BYE", f"the line ended without {type}"
        return {}

    @property
    def last(self) -> int:
        return max(event["parley"]["seq"] for event in self.events if "parley" in event)

    async def token(self) -> str:
        self.send("session.update", session={"type": "realtime", "parley": {"resume": True}})
        return (await self.until("session.updated"))["session"]["parley"]["resume_token"]


@asynccontextmanager
async def lines(server: Running, caller: Principal | None = None) -> AsyncGenerator[int]:
    """A port that takes lines beside the server's own."""
    listener = await serve_lines(server.service, caller or Principal())
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@asynccontextmanager
async def phoning(port: int, first: str = "CALL") -> AsyncGenerator[Phone]:
    phone = await Phone.dial(port, first)
    try:
        yield phone
    finally:
        phone.writer.close()


def test_it_is_no_longer_than_a_transport_may_be() -> None:
    path = Path(phone_line.__file__)
    lines = read(path.read_text(encoding="utf-8"), path.name).lines
    print(f"\nthe transport has {lines} lines of code")
    assert lines <= MOST_LINES


async def test_a_typed_turn_is_answered_with_sound(server: Running) -> None:
    async with lines(server) as port, phoning(port) as phone:
        await phone.until("session.created")
        phone.say("say: one two three")
        done = await phone.until("output_audio_buffer.stopped")
        assert done["response_id"] == next(e for e in phone.events if e["type"] == "response.done")["response"]["id"]
        assert len(phone.sound) / 48_000 > 0.2
        assert not [event for event in phone.events if event["type"] == "response.output_audio.delta"]
        phone.write("BYE")
        await server.empty()


async def test_a_spoken_turn_is_answered(server: Running) -> None:
    async with lines(server) as port, phoning(port) as phone:
        await phone.until("session.created")
        await phone.speak(np.concatenate([silence(0.2), tone(0.6), silence(1.0)]))
        await phone.until("input_audio_buffer.committed")
        assert (await phone.until("response.done"))["response"]["status"] == "completed"
        assert phone.sound
        phone.write("BYE")
        await server.empty()


async def test_who_is_cut_off_comes_back_and_what_nobody_heard_is_played_again(server: Running) -> None:
    async with lines(server) as port:
        async with phoning(port) as phone:
            token = await phone.token()
            phone.say("long 100")
            await phone.until("output_audio_buffer.started")
            phone.writer.transport.abort()
        await eventually(lambda: server.metric("parley_sessions") == 1)
        async with phoning(port, f"RESUME {token} {phone.last}") as again:
            assert (await again.until("session.updated"))["session"]["parley"]["resume_token"] != token
            again.send("response.cancel")
            assert (await again.until("response.done"))["response"]["status"] == "cancelled"
            assert again.sound
            events = [*phone.events, *again.events]
            numbers = [event["parley"]["seq"] for event in events if "parley" in event]
            assert numbers == list(range(1, len(numbers) + 1))
            check_order([event for event in events if event["type"] not in OURS])
            again.write("BYE")
        await server.empty()


async def test_without_the_wish_the_session_ends_with_the_line(server: Running) -> None:
    async with lines(server) as port:
        async with phoning(port) as phone:
            await phone.until("session.created")
        await server.empty()


async def test_a_line_that_is_left_behind_is_cut(server: Running) -> None:
    async with lines(server) as port, phoning(port) as phone:
        token = await phone.token()
        async with phoning(port, f"RESUME {token} 0") as again:
            await again.until("session.updated")
            await phone.until("BYE")
            assert not phone.goodbye
            again.say("say: still here", output_modalities=["text"])
            await again.until("response.done")
            again.write("BYE")
            await server.empty()


async def test_it_ends_with_a_goodbye_when_the_server_drains(serve_with: Any) -> None:
    async with serve_with() as server, lines(server) as port, phoning(port) as phone:
        phone.say("say: one two three")
        await phone.until("response.created")
        server.server.leave()
        await phone.until("response.done")
        await phone.until("BYE")
        assert phone.goodbye == "BYE 1001"


async def test_it_ends_when_its_time_is_over(serve_with: Any) -> None:
    async with serve_with(limits={"session_s": 0.3}) as server, lines(server) as port, phoning(port) as phone:
        assert (await phone.until("error"))["error"]["code"] == "session_expired"
        await phone.until("BYE")
        assert phone.goodbye == "BYE 1001"


async def test_it_ends_when_its_key_is_withdrawn(server: Running) -> None:
    caller = Principal("alice")
    async with lines(server, caller) as port, phoning(port) as phone:
        await phone.until("session.created")
        caller.withdrawn.set()
        assert (await phone.until("error"))["error"]["code"] == "key_withdrawn"
        await phone.until("BYE")
        assert phone.goodbye == "BYE 1008"
        await server.empty()


async def test_who_does_not_read_is_cut(serve_with: Any) -> None:
    async with serve_with(limits={"send_timeout_s": 0.3}) as server, lines(server) as port:
        phone = await Phone.dial(port, buffer=4096)
        item = {"id": "long", "type": "message", "role": "user"}
        content = [{"type": "input_text", "text": "x" * 80_000}]
        phone.send("conversation.item.create", item={**item, "content": content})
        for _ in range(100):
            phone.send("conversation.item.retrieve", item_id="long")
        await eventually(lambda: server.metric("parley_sessions") == 1)
        await server.empty()
        phone.writer.transport.abort()


async def test_what_it_says_wrong_is_refused_and_it_goes_on(server: Running) -> None:
    async with lines(server) as port, phoning(port) as phone:
        for wrong in ("{", "[]", '{"type": "no.such"}', '{"type": "input_audio_buffer.append", "audio": ""}'):
            phone.write(wrong)
            assert (await phone.until("error"))["error"]["type"] == "invalid_request_error"
        phone.say("say: still here", output_modalities=["text"])
        assert (await phone.until("response.done"))["response"]["status"] == "completed"
        phone.write("BYE")
        await server.empty()


async def test_control_where_every_line_is_the_session_s_end_nobody_comes_back(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: what keeps a session is the life of connections, and nothing of the line's own."""

    async def carry(self: ResumableSession, channel: Any) -> None:
        await channel.carry()
        raise Disconnect

    monkeypatch.setattr(ResumableSession, "carry", carry)
    async with lines(server) as port:
        async with phoning(port) as phone:
            await phone.token()
            phone.writer.transport.abort()
        await server.empty()
