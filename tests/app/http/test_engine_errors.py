"""What a client meets when the engine fails its request: the status over HTTP, and the code in a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from msgspec import structs

from app.http_errors import RETRY_AFTER_S, refusal_of
from engine import ContextOverflow, Engine, EngineError, Overloaded, Request, RequestError, StageUnavailable
from engine.chunk import Chunk
from engine.control.chunks import Chunks
from engine.core import StageInfo
from engine.errors import ReplicaLost, Stalled
from engine.worker.models.script import ScriptThinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.app.rig import LoudnessVad, Running, running, script_spec, talking

CHAT = ("/v1/chat/completions", {"model": "script", "messages": [{"role": "user", "content": "hello"}]})
SPEECH = ("/v1/audio/speech", {"model": "script", "input": "hello", "voice": "alloy"})


async def post(server: Running, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http, timeout=30) as http:
        return await http.post(path, json=body)


@pytest.mark.seed("A1.13", "A0.14", "A2.9")
@pytest.mark.parametrize("route", [CHAT, SPEECH], ids=["chat", "speech"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(StageUnavailable("nobody"), 503), (Overloaded("too many"), 503), (Stalled("j waits for negative"), 504),
     (ReplicaLost("it was lost"), 500)],
)  # fmt: skip
async def test_each_error_of_the_engine_has_its_status(
    error: EngineError, status: int, route: tuple[str, dict[str, Any]], server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def failing(self: Engine, request: Request, inputs: object = None) -> AsyncGenerator[Chunks]:
        chunks = Chunks(request)
        chunks.stream.fail(error)
        yield chunks

    monkeypatch.setattr(Engine, "open", failing)
    answer = await post(server, *route)
    assert answer.status_code == status
    told = answer.json()["error"]
    assert (told["code"], told["message"]) == (error.code, str(error))
    assert answer.headers.get("retry-after") == (RETRY_AFTER_S if status == 503 else None)


@pytest.mark.parametrize("kind", [StageUnavailable, Overloaded, Stalled, ReplicaLost, RequestError, ContextOverflow])
def test_an_error_over_http_names_no_address(kind: type[EngineError]) -> None:
    assert "10.0.0.5" not in str(refusal_of(kind("The server at 10.0.0.5:8000 cannot do it.")).detail)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thinker that steps in a circle."""
    monkeypatch.setattr("engine.worker.loop.run.MOST_SILENT_STEPS", 50)

    def step(self: ScriptThinker, reqs: Sequence[StageRequest]) -> Sequence[Any]:
        return [[] for _ in reqs]

    monkeypatch.setattr(ScriptThinker, "step", step)


@pytest.mark.seed("A2.9", "A0.14", "A4.21")
@pytest.mark.usefixtures("stuck")
async def test_a_standstill_is_504_over_http_and_its_code_in_a_session(server: Running) -> None:
    answer = await post(server, *CHAT)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "stalled"
    async with talking(server) as client:
        response = await client.ask("hello")
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["code"] == "stalled"
    await server.empty()


@pytest.fixture
async def hanging(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Running]:
    """A server whose thinker waits for a companion that never begins."""
    described, adapt, opened = ScriptThinker.describe, ScriptThinker.adapt, Engine.open

    def describe(config: StageConfig) -> StageInfo:
        return structs.replace(described(config), group="joined")

    async def stuck(self: ScriptThinker, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        if req.role == "negative":
            await asyncio.Event().wait()
        async for row in adapt(self, req, inputs):
            yield row

    def open_(self: Engine, request: Request, inputs: Any = None) -> AbstractAsyncContextManager[Chunks]:
        return opened(self, structs.replace(request, roles=("main", "negative")), inputs)

    monkeypatch.setattr(ScriptThinker, "describe", staticmethod(describe))
    monkeypatch.setattr(ScriptThinker, "adapt", stuck)
    monkeypatch.setattr(Engine, "open", open_)
    async with running(replace(script_spec(), stall_s=0.5), vad=LoudnessVad) as one:
        yield one


@pytest.mark.seed("A0.14")
async def test_a_companion_that_hangs_is_504_over_http_and_stalled_in_a_session(hanging: Running) -> None:
    answer = await post(hanging, *CHAT)
    assert answer.status_code == 504
    told = answer.json()["error"]
    assert told["code"] == "stalled"
    assert "thinker waits for negative" in told["message"]
    async with talking(hanging) as client:
        response = await client.ask("hello")
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["code"] == "stalled"
    await hanging.empty()
