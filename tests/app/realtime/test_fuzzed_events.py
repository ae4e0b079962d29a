"""Ten thousand events made from the types that they are read with: right, nearly right, and not at all.

No session ends, nothing is a mistake of the server's, and what is refused gets exactly one error. The engine is the
scripted one, and all in this process.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from app.realtime.protocol import from_wire, wire_items
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.options import ResponseOptions, SessionOptions
from app.realtime.protocol.server_events import ErrorEvent, ResponseDoneEvent, ServerEvent
from app.realtime.protocol.to_wire import encode
from app.realtime.session import Session
from app.refusal import Refusal
from tests.app.rig import LoudnessVad, Running, running, script_spec

EVENTS_EACH, SESSIONS = 200, 50

ODD: list[Any] = [
    None, True, -1, 0, 10**6, 2**62, 1.5, 1e300, "", "x", "ä\u2028\x00", "a" * 3000,
    [], [[]], [None] * 70, {}, {"type": "x"}, {"": {}}, {"id": 1},
]  # fmt: skip
"""What is hardly ever asked for."""

WORDS = ["say: hello", "auto", "inf", "root", "item_1", "item_2", "item_3", "call_1", "alloy", "fail", "a b"]
AUDIO = [*(base64.b64encode(bytes(size)).decode() for size in (0, 3, 320, 9600, 32_000)), "!", "AAA"]
PICTURES = ["data:image/png;base64,AAAA", "http://127.0.0.1/", "data:,"]
VIDEOS = ["data:video/mp4;base64,AAAA", "http://127.0.0.1/", "data:,"]
NAMED = {"audio": AUDIO, "image_url": PICTURES, "video_url": VIDEOS}
PARTS = ["input_text", "input_audio", "input_image", "input_video", "output_text", "output_audio", "text", "x"]
ITEMS = {
    "message": wire_items._Message,
    "function_call": wire_items._Call,
    "function_call_output": wire_items._CallOutput,
}


class Maker:
    """Events from their types; nine of ten values are of the type that is asked for."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def event(self) -> dict[str, Any]:
        """One of those that there are."""
        name = self._random.choice(sorted(from_wire._EVENTS))
        return {"type": name, **self.struct(from_wire._EVENTS[name])}

    def struct(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """What is required, and some of the rest."""
        fields = msgspec.structs.fields(kind)
        tag = {"type": kind.__struct_config__.tag} if kind.__struct_config__.tag else {}
        likely = 3 / max(3, len(fields))
        chosen = [one for one in fields if one.required or self._random.random() < likely]
        return {**tag, **{one.encode_name: self._value(one.encode_name, inspect.type_info(one.type)) for one in chosen}}

    def _value(self, name: str, kind: inspect.Type) -> Any:
        if self._random.random() < 0.1:
            return self._random.choice(ODD)
        match name:
            case "session":
                return self.struct(SessionOptions)
            case "response" if self._random.random() < 0.5:
                return self.struct(ResponseOptions)
            case "response":
                inputs = [
                    self._random.choice([self._item, self._reference])() for _ in range(self._random.randrange(3))
                ]
                return {"conversation": self._random.choice(["none", "auto", 1]), "input": inputs}
            case "item":
                return self._item()
            case "content":
                parts = [self.struct(wire_items._Part) for _ in range(self._random.randrange(1, 3))]
                return [{**part, "type": self._random.choice(PARTS)} for part in parts]
            case _:
                return self._of_type(name, kind)

    def _item(self) -> dict[str, Any]:
        name = self._random.choice(sorted(ITEMS))
        return {"type": name, **self.struct(ITEMS[name])}

    def _reference(self) -> dict[str, Any]:
        return {"type": "item_reference", "id": self._random.choice(WORDS)}

    def _of_type(self, name: str, kind: inspect.Type) -> Any:
        match kind:
            case inspect.StructType(cls=cls):
                return self.struct(cls)
            case inspect.UnionType(types=types):
                return self._value(name, self._random.choice(types))
            case inspect.LiteralType(values=values):
                return self._random.choice(list(values))
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return [self._value("", item) for _ in range(self._random.randrange(3))]
            case inspect.DictType(value_type=inspect.StrType()):
                return {self._random.choice(WORDS): self._random.choice(WORDS)}
            case inspect.StrType():
                return self._random.choice(NAMED.get(name, WORDS))
            case inspect.IntType() | inspect.FloatType():
                return self._random.randrange(-2, 700)
            case inspect.BoolType():
                return self._random.random() < 0.5
            case inspect.NoneType():
                return None
            case _:
                return self._random.choice(ODD)


@pytest.fixture(scope="module")
def server() -> Generator[tuple[asyncio.Runner, Running]]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield runner, runner.run(stack.enter_async_context(running(script_spec(), vad=LoudnessVad)))
        runner.run(stack.aclose())


class Fuzzed:
    """A session that is told one event after the other; what it tells is encoded, as a transport would."""

    def __init__(self, server: Running) -> None:
        self._said: asyncio.Queue[Received | None] = asyncio.Queue()
        self._troubles: list[ErrorEvent] = []
        self.session = Session(server.service.context(), self._tell)

    def _tell(self, notice: ServerEvent) -> None:
        assert encode(notice)
        match notice:
            case ErrorEvent(refusal):
                assert refusal.kind == "invalid_request_error" or refusal.code != "server_error", str(refusal)
                self._troubles.append(notice)
            case ResponseDoneEvent(answer):
                assert answer.error is None or answer.error[0] != "server_error", answer.error
            case _:
                pass

    async def run(self, said: list[dict[str, Any]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.session.run(self._told()))
            for n, event in enumerate(said):
                await self._one(event, f"event_{n}", running)
            self._said.put_nowait(None)

    async def _one(self, event: dict[str, Any], id: str, running: asyncio.Task[None]) -> None:
        told = from_wire.decode(msgspec.json.encode({**event, "event_id": id}).decode())
        assert told.event_id == id or isinstance(told.event, Refusal)
        self._troubles.clear()
        self._said.put_nowait(told)
        await self._said.join()
        assert not running.done(), event
        errors = [one for one in self._troubles if one.event_id == told.event_id]
        assert len(errors) <= 1, (event, errors)
        assert errors or not isinstance(told.event, Refusal), event

    async def _told(self) -> AsyncGenerator[Received]:
        while (one := await self._said.get()) is not None:
            yield one
            self._said.task_done()


@pytest.mark.slow
@settings(max_examples=SESSIONS, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_no_event_is_a_mistake_of_ours(server: tuple[asyncio.Runner, Running], seed: int) -> None:
    """Values are drawn by a seed: drawn one by one by hypothesis, they take longer than all that is done with them."""
    runner, one = server
    maker = Maker(seed)
    said = [maker.event() for _ in range(EVENTS_EACH)]
    runner.run(asyncio.wait_for(Fuzzed(one).run(said), 60))


def test_all_events_are_made_of_their_types() -> None:
    """Else the ten thousand would show little: most are right, and each is there in many shapes."""
    maker = Maker(0)
    told = [
        (event["type"], from_wire.decode(msgspec.json.encode(event).decode()))
        for event in (maker.event() for _ in range(4000))
    ]
    right = {name for name, one in told if not isinstance(one.event, Refusal)}
    assert right == set(from_wire._EVENTS)
    assert 0.4 < sum(not isinstance(one.event, Refusal) for _, one in told) / len(told) < 0.95
