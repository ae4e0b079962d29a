"""The cost of one user's requests to others' answers: a schema that raises, all slots taken, a deadly one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.app.rig import keys_file
from tests.attacks.target import Target, attacked, target

pytestmark = pytest.mark.attacks

PATIENT = {"timeout_s": 10.0}
"""A worker that a busy machine keeps from its processor is not taken for a lost one, which would be one too many."""
ALONE = [{"stages": ["ears"]}, {"stages": ["thinker"], "replicas": 2}, {"stages": ["talker", "code2wav"]}]
DEADLY = """
import runpy, sys
from engine.worker.models.nano.thinker import Thinker
{guard}
import os, time
begin = Thinker._begin
def deadly(self, request, sensed):
    if "crash" in str(sensed.messages):
        os.abort()
    if "hang" in str(sensed.messages):
        time.sleep(60)
    if "raise" in str(sensed.messages):
        raise ZeroDivisionError
    return begin(self, request, sensed)
Thinker._begin = deadly
sys.argv[0] = "engine.worker"
runpy.run_module("engine.worker", run_name="__main__")
"""
UNGUARDED = """
from engine.worker.models.nano import thinker
thinker.guarded = lambda stage, request, work, *args: work(request, *args)
from engine.errors import StageFailed
from engine.worker.loop import step
step.BatchLost = StageFailed
"""


def workers(guard: str = "") -> str:
    """Has the server start workers that one word kills, hangs, or makes raise."""
    code = DEADLY.format(guard=guard)
    return f"import engine.ipc.spawn as spawn\nspawn.worker = lambda python=None: (*spawn.PYTHON, '-c', {code!r})\n"


BLAMELESS = """
from engine.control.recovery import RequestRecovery
async def nobody(self, host):
    return "nobody"
RequestRecovery._blame = nobody
"""


def asking(text: str, *modalities: str) -> str:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    response = {"conversation": "none", "input": [item], "output_modalities": list(modalities)}
    return msgspec.json.encode({"type": "response.create", "response": response}).decode()


async def until(socket: ClientConnection, *types: str) -> dict[str, Any]:
    while (event := msgspec.json.decode(await socket.recv()))["type"] not in types:
        pass
    return event


async def answered(aim: Target, text: str) -> dict[str, Any]:
    """The response that a message gets, in a session of its own."""
    async with connect(aim.ws, max_size=None) as socket:
        await socket.send(asking(text, "text"))
        return (await until(socket, "response.done"))["response"]


def _pids(aim: Target) -> set[int]:
    return {process.pid for process in aim.processes()}


@pytest.mark.parametrize("word", ["crash", "hang"])
async def test_a_deadly_request_costs_one_worker_at_most(word: str, tmp_path: Path) -> None:
    async with attacked(tmp_path, before=workers(), asks=True, workers=ALONE, heartbeat=PATIENT) as (aim, bystander, _):
        before = _pids(aim)
        async with asyncio.timeout(120):
            response = await answered(aim, f"{word} now")
        assert len(before - _pids(aim)) <= 1
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["code"] == "replica_lost"
        assert (await answered(aim, "what is two plus three"))["status"] == "completed"
    assert bystander.waits.broken is None


async def test_where_nobody_asks_whose_fault_it_was_it_costs_both(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=BLAMELESS + workers(), workers=ALONE, heartbeat=PATIENT) as (aim, _, _):
        before = _pids(aim)
        async with asyncio.timeout(120):
            await answered(aim, "crash now")
        assert len(before - _pids(aim)) == 2


async def _raised(aim: Target, times: int) -> None:
    async with connect(aim.ws, max_size=None) as socket:
        for _ in range(times):
            await socket.send(asking("raise now", "text"))
            response = (await until(socket, "response.done"))["response"]
            assert response["status"] == "failed"
            assert "ZeroDivisionError" not in str(response["status_details"])


async def test_one_that_raises_fails_nobody_elses_answer(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=workers(), asks=True) as (aim, bystander, _):
        await asyncio.gather(*(_raised(aim, 30) for _ in range(4)))
    assert bystander.waits.broken is None
    assert bystander.waits.answers > 3


async def test_without_the_guard_others_answers_fail_with_it(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=workers(UNGUARDED), asks=True) as (aim, bystander, _):
        await asyncio.gather(*(_raised(aim, 60) for _ in range(8)), return_exceptions=True)
    assert "failed" in (bystander.waits.broken or "")


async def spoken_beside(aim: Target, texts: int, within_s: float) -> bool:
    """Whether a user who asks beside so many long texts, which nobody reads, hears something in time."""
    body = {"model": "nano", "voice": "alloy", "input": "nine hundred " * 300, "response_format": "pcm"}
    async with AsyncExitStack() as held:
        http = await held.enter_async_context(httpx.AsyncClient(base_url=aim.http, timeout=None))
        sent = [http.build_request("POST", "/v1/audio/speech", json=body) for _ in range(texts)]
        asked = [asyncio.create_task(http.send(one, stream=True)) for one in sent]
        socket = await held.enter_async_context(connect(aim.ws, max_size=None))
        try:
            await asyncio.sleep(2)  # as many as may have begun
            await socket.send(asking("Repeat after me: good morning.", "audio"))
            async with asyncio.timeout(within_s):
                event = await until(socket, "response.output_audio.delta", "response.done", "error")
                assert event["type"] == "response.output_audio.delta", event
        except TimeoutError:
            return False
        finally:
            for task in asked:
                task.cancel()
            await asyncio.wait(asked)
    return True


async def test_texts_over_http_leave_a_voice_to_who_talks(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (aim, bystander, _):
        assert await spoken_beside(aim, 16, within_s=25)
    assert bystander.waits.broken is None


async def test_where_http_may_take_every_slot_who_talks_hears_nothing(tmp_path: Path) -> None:
    async with attacked(tmp_path, {"limits": {"answers_share": 1.0}}) as (aim, _, _):
        assert not await spoken_beside(aim, 16, within_s=5)


KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-0123456789ab"}
OWNED_BY_NOBODY = """
from app.telemetry import RequestContext
RequestContext.owner = property(lambda self: "")
"""


MANY_WORDS = asking("Repeat after me: please tell the others that we are late.", "audio")


async def heard_beside(folder: Path, before: str = "") -> list[dict[str, Any]]:
    """What becomes of three short answers beside 28 sessions of another key, each with always four under way."""

    def session(name: str) -> connect:
        return connect(aim.ws, max_size=None, additional_headers={"Authorization": f"Bearer {KEYS[name]}"})

    async def ask(socket: ClientConnection) -> None:
        for _ in range(4):
            await socket.send(MANY_WORDS)
        while True:
            await until(socket, "response.done")
            await asyncio.sleep(0.05)
            await socket.send(MANY_WORDS)

    keys = keys_file(folder, *(f"{name}: {key}" for name, key in KEYS.items()))
    async with target(folder, {"keys_file": keys}, before=before) as aim, AsyncExitStack() as held:
        askers = list[asyncio.Task[None]]()
        for _ in range(28):
            socket = await held.enter_async_context(session("alice"))
            askers.append(asyncio.create_task(ask(socket)))
        bob = await held.enter_async_context(session("bob"))
        await asyncio.sleep(2)  # every slot is taken, and the line is full
        ends = list[dict[str, Any]]()
        for _ in range(3):
            await bob.send(asking("Repeat after me: good morning.", "audio"))
            async with asyncio.timeout(60):
                ends.append((await until(bob, "response.done"))["response"])
        for asker in askers:
            asker.cancel()
    return ends


async def test_one_key_that_fills_the_line_leaves_another_its_turn(tmp_path: Path) -> None:
    assert [end["status"] for end in await heard_beside(tmp_path)] == ["completed"] * 3


async def test_in_one_line_for_all_who_talks_is_refused(tmp_path: Path) -> None:
    ends = await heard_beside(tmp_path, OWNED_BY_NOBODY)
    assert "overloaded" in [end["status_details"].get("error", {}).get("code") for end in ends]
