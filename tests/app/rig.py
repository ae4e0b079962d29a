"""What the app's tests speak with: a server on an ephemeral loopback port, and a client on a real socket."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import fastapi.dependencies.models
import numpy as np
import pytest
import uvicorn.server
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect

from app.realtime.timer_lateness import TimerLatenessEstimator
from app.server import Server, config_of
from app.service import Service
from engine import MIC_RATE_HZ, EngineSpec, Transcript
from engine.errors import StageFailed
from engine.worker.models.script import ScriptEars
from tests.app.openai_types import strictly
from tests.app.scripted import ROOT as ROOT
from tests.app.scripted import script_spec as script_spec

TIMEOUT_S = 45.0  # a session that may be taken up again lives on for 20 s; an idle machine needs little more
SERVER_EVENTS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind)
    for kind in get_args(get_args(RealtimeServerEvent)[0])
    for name in get_args(kind.model_fields["type"].annotation)
}
"""Openai's own types by the names that their events bear."""
PLACE = {"response_id", "item_id", "output_index", "content_index"}
OURS: dict[str, set[str]] = {
    "parley.output_audio.alignment": {*PLACE, "marks"},
    "parley.conversation.summarized": {"first_item_id", "summary", "source"},
    "parley.output_audio.paused": set(),
    "parley.output_audio.resumed": set(),
    "parley.input_audio_transcription.partial": {"item_id", "transcript", "final"},
    "parley.input_audio_transcription.speaker": {"item_id", "speaker"},
}
"""The fields of the events that are ours, and told to whoever asked for them."""
SESSION = {"id", "object", "expires_at", "parley"}
EXTENSIONS = {
    "RealtimeSessionCreateRequest": SESSION,
    "RealtimeTranscriptionSessionCreateRequest": SESSION,
    "RealtimeResponse": {"parley"},
    "ConversationItemTruncatedEvent": {"parley"},
    "InputAudioBufferSpeechStoppedEvent": {"parley"},
    "RealtimeConversationItemUserMessage": {"parley"},
    "Mcp": {"parley"},
    "RealtimeFunctionTool": {"parley"},
    "ServerVad": {"backchannel_ms", "speaker", "voiceprint"},
    "SemanticVad": {"end_of_turn", "backchannel_ms", "speaker", "voiceprint", "target_cuts"},
}
"""The fields that openai's types of Realtime lack. OpenAI's server sends a session's first three, and clients read
them; ``parley`` is ours. Where a client counts the events, each has ``parley`` beside what it is."""

(connect.__init__.__kwdefaults__ or {})["open_timeout"] = TIMEOUT_S  # the library's ten seconds are for idle machines


class _Hasty:
    """asyncio as uvicorn's server sees it here: it looks but ten times a second whether its last connection is gone,
    and waits for that look once in any case. The tests stop a thousand servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.002))


uvicorn.server.asyncio = _Hasty()  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]

Event = dict[str, Any]
C = TypeVar("C", bound="Client")


def keys_file(folder: Path, *lines: str, name: str = "keys") -> str:
    """A file of keys that a server takes: nobody else can read it."""
    path = folder / name
    path.touch(0o600)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def check_event(event: Event) -> None:
    """An event is one that openai's own types know, or one of ours with the fields that are documented."""
    if (fields := OURS.get(event["type"])) is not None:
        assert event.keys() - {"parley"} == {"type", "event_id", *fields}
    else:
        assert event["type"] in SERVER_EVENTS, f"{event['type']} is no event of openai's: add its fields to OURS"
        strictly(SERVER_EVENTS[event["type"]], _without_ours(event), EXTENSIONS)


def _without_ours(event: Event) -> Event:
    """The event without its number, and without contents that only we have."""
    if event.get("parley", {}).keys() == {"seq"}:
        event = {name: value for name, value in event.items() if name != "parley"}
    item = event.get("item", {})
    if item.get("type") != "message":
        return event
    return event | {"item": item | {"content": [one for one in item["content"] if one != {"type": "input_video"}]}}


async def eventually(true: Callable[[], bool]) -> None:
    """Wait for what no event announces."""
    async with asyncio.timeout(TIMEOUT_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@dataclasses.dataclass
class Running:
    """A server that answers."""

    service: Service
    server: Server
    port: int

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    def metric(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0

    async def empty(self) -> None:
        """Wait until no session is open, the engine has every slot back, and every call's sockets are closed.

        A call's later connections are freed after its session: once a module's loop rests between two tests, nothing
        frees them any more.
        """
        await eventually(lambda: not self.metric("parley_sessions") and not any(self._leased()) and not _calls())

    def _leased(self) -> list[int]:
        return [figures["leased"] for engine in self.service.hosts.engines for figures in engine.stats().values()]


def watched_lateness(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments at which a session asks how late the server came lately."""
    asked: list[float] = []

    class Watched(TimerLatenessEstimator):
        def ahead_s(self, now_s: float) -> float:
            asked.append(now_s)
            return super().ahead_s(now_s)

    monkeypatch.setattr(server.service, "lateness", Watched())
    return asked


def _calls() -> list[str]:
    """The tasks of this loop that carry a call, each until its connection is freed."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.startswith(("call:", "sip-call"))]


@asynccontextmanager
async def running(spec: EngineSpec, ready_s: float = TIMEOUT_S, **make: Any) -> AsyncGenerator[Running]:
    """A server for ``spec``, from ready to gone."""
    service = Service(spec, **make)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(config_of(service), service)
    ready = asyncio.Event()
    service.hosts.on_ready = ready.set
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="server")
    try:
        async with asyncio.timeout(ready_s):
            await ready.wait()
        await eventually(lambda: server.started)
        yield Running(service, server, listener.getsockname()[1])
    finally:
        server.leave()
        await serving
        _forget_routes()


def _forget_routes() -> None:
    """FastAPI keeps what it found out about the last thousands of routes, and with them their servers."""
    for one in vars(fastapi.dependencies.models).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


class Client:
    """A Realtime client that keeps what it got. Every event must be one that openai's own types know."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []

    async def send(self, type: str, **fields: Any) -> Self:
        await self.socket.send(json.dumps({"type": type, **fields}))
        return self

    async def next(self) -> Event:
        async with asyncio.timeout(TIMEOUT_S):
            text = await self.socket.recv()
        assert isinstance(text, str)
        event: Event = json.loads(text)
        check_event(event)
        self.events.append(event)
        return event

    async def until(self, type: str) -> Event:
        """The next event of a type; those before are kept in ``events``."""
        while (event := await self.next())["type"] != type:
            pass
        return event

    async def error(self) -> Event:
        return (await self.until("error"))["error"]

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, type: str) -> list[Event]:
        return [event for event in self.events if event["type"] == type]

    async def say(self, text: str) -> Self:
        """Add a typed message of the user's."""
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        return self

    async def ask(self, text: str, **response: Any) -> Event:
        """A typed turn to its end: the response that is done."""
        await (await self.say(text)).send("response.create", response=response)
        return (await self.until("response.done"))["response"]

    async def configure(self, **session: Any) -> Event:
        await self.send("session.update", session={"type": "realtime", **session})
        return (await self.until("session.updated"))["session"]

    async def append(self, pcm: Any) -> None:
        """int16 samples at 24 kHz."""
        audio = base64.b64encode(np.asarray(pcm, "<i2").tobytes()).decode()
        await self.send("input_audio_buffer.append", audio=audio)

    async def alive(self) -> None:
        """The session still answers."""
        assert (await self.ask("say: still here", output_modalities=["text"]))["status"] == "completed"

    def audio_s(self) -> float:
        """Seconds of audio that came."""
        deltas = self.of("response.output_audio.delta")
        return sum(len(base64.b64decode(event["delta"])) for event in deltas) / 48_000


@asynccontextmanager
async def talking(
    server: Running, query: str = "", kind: Callable[[ClientConnection], C] = Client, **options: Any
) -> AsyncGenerator[C]:
    """A client that has been greeted."""
    async with connect(server.ws + query, max_size=None, max_queue=None, **options) as socket:
        client = kind(socket)
        await client.until("session.created")
        yield client


class LoudnessVad:
    """Takes every loud chunk for speech: tests say when the user speaks by a tone, and need no recording."""

    def probability(self, chunk: Any) -> float:
        return float(np.abs(chunk).mean() > 0.02)


def tone(seconds: float, hz: float = 300.0) -> Any:
    """A user who speaks: int16 at 24 kHz."""
    at = np.arange(int(seconds * 24_000))
    return (8000 * np.sin(2 * np.pi * hz * at / 24_000)).astype(np.int16)


def silence(seconds: float) -> Any:
    """A user who does not: int16 at 24 kHz."""
    return np.zeros(int(seconds * 24_000), np.int16)


def hum(self: ScriptEars, req: Any) -> list[Transcript]:
    """Replace ``ScriptEars._hear``: hear a backchannel, without interim words."""
    if req.pending:
        req.pending.clear()
        return []
    req.done = True
    return [Transcript("Mm-hmm.", final=True)]


def fail_at_long_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the script's ears fail at a turn of 10 s or more."""
    hear: Any = ScriptEars._hear

    def fail(self: ScriptEars, req: Any) -> Any:
        heard = hear(self, req)
        return StageFailed("The ears failed.") if req.state >= 10 * MIC_RATE_HZ else heard

    monkeypatch.setattr(ScriptEars, "_hear", fail)
