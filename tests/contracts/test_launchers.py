"""What every launcher promises: a worker that is ready or refused, that serves, that ends, that is missed at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest

from engine import (
    ConfigError,
    Engine,
    EngineError,
    EngineSpec,
    ImagePart,
    Message,
    ReplicaLost,
    Request,
    StageFailed,
    StageUnavailable,
    TextPart,
    WorkerSpec,
)
from engine.chunk import Audio, Chunk, Speech, Text
from engine.control.launchers import local
from engine.deployment.config import HeartbeatSpec
from tests.engine.fakes import data_of, turns, until

LAUNCHERS = ["inline", "local"]
STAGES = ("ears", "thinker", "talker", "code2wav")
every_launcher = pytest.mark.parametrize("launcher", LAUNCHERS)


def spec(launcher: str, *workers: tuple[str, ...], **fields: object) -> EngineSpec:
    hosted = tuple(WorkerSpec(stages=stages) for stages in workers or (STAGES,))
    return replace(EngineSpec(model="script", workers=hosted, launcher=launcher), **fields)


def asked(text: str, id: str = "r") -> Request:
    return Request(id=id, session="s", messages=(Message("user", (TextPart(text),)),))


async def answer(engine: Engine, text: str, id: str = "r") -> str:
    async with engine.open(asked(text, id)) as chunks:
        return "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])


def idle(engine: Engine) -> bool:
    return all(not stage["leased"] and not stage["waiting"] for stage in engine.stats().values())


@asynccontextmanager
async def no_descriptor_left() -> AsyncGenerator[None]:
    """Fail if a file descriptor more is open at the end."""
    before = psutil.Process().num_fds()
    yield
    await until(lambda: psutil.Process().num_fds() <= before)


@every_launcher
async def test_it_starts_serves_and_ends(launcher: str) -> None:
    async with no_descriptor_left(), Engine(spec(launcher)) as engine:
        assert engine.ready
        assert engine.model.name == "script"
        assert await answer(engine, "say: hello there") == "hello there"
        assert idle(engine)
    assert not engine.ready


@every_launcher
async def test_stages_apart_answer_like_stages_together(launcher: str) -> None:
    async with Engine(spec(launcher, *((stage,) for stage in STAGES))) as engine:
        assert await answer(engine, "long 120") == " ".join(f"word{i}" for i in range(120))
        with pytest.raises(StageFailed):
            await answer(engine, "fail")
        assert idle(engine)


@every_launcher
async def test_replicas_share_the_requests(launcher: str) -> None:
    workers = (WorkerSpec(stages=STAGES, replicas=2, max_batch=2),)
    async with Engine(EngineSpec(model="script", workers=workers, launcher=launcher)) as engine:
        assert engine.stats()["talker"]["replicas"] == 2
        answers = await asyncio.gather(*(answer(engine, f"say: {i} is mine", f"r{i}") for i in range(8)))
        assert answers == [f"{i} is mine" for i in range(8)]
        assert idle(engine)


@every_launcher
@pytest.mark.parametrize("refused", [{"model": "scrip"}, {"workers": (WorkerSpec(stages=("thinkr",)),)}])
async def test_a_worker_that_cannot_start_is_one_config_error(launcher: str, refused: dict[str, object]) -> None:
    async with no_descriptor_left():
        with pytest.raises(ConfigError):
            await Engine(spec(launcher, **refused)).__aenter__()


@every_launcher
async def test_one_refusal_ends_the_workers_that_would_start(launcher: str) -> None:
    async with no_descriptor_left():
        with pytest.raises(ConfigError):
            await Engine(spec(launcher, STAGES, ("thinkr",))).__aenter__()


@every_launcher
async def test_a_worker_that_breaks_while_loading_is_an_engine_error_at_once(launcher: str) -> None:
    async with no_descriptor_left(), asyncio.timeout(20):
        with pytest.raises(EngineError):
            await Engine(spec(launcher, options={"frames_per_word": "six"})).__aenter__()


@every_launcher
@pytest.mark.parametrize("after", [0, 1, 4])
async def test_a_start_that_is_cancelled_leaves_nothing(launcher: str, after: int) -> None:
    async with no_descriptor_left():
        start = asyncio.create_task(Engine(spec(launcher)).__aenter__())
        await turns(after)
        start.cancel()
        await asyncio.wait([start])
        assert start.cancelled()


@every_launcher
async def test_a_start_that_takes_too_long_is_given_up(launcher: str) -> None:
    async with no_descriptor_left():
        with pytest.raises(StageUnavailable, match="not ready"):
            await Engine(spec(launcher, start_s=0.001)).__aenter__()


@every_launcher
async def test_closing_ends_what_is_open_with_one_error(launcher: str) -> None:
    async with Engine(spec(launcher)) as engine:
        opened = engine.open(asked("long 100000"))
        chunks = await opened.__aenter__()
        await anext(chunks)
    with pytest.raises(ReplicaLost):
        async for _ in chunks:
            pass
    await opened.__aexit__(None, None, None)
    with pytest.raises(StageUnavailable):
        await answer(engine, "hello")


async def test_before_its_start_an_engine_refuses() -> None:
    with pytest.raises(StageUnavailable):
        await answer(Engine(spec("inline")), "hello")


def the_worker() -> psutil.Process:
    found = [child for child in psutil.Process().children() if "parley_voice.engine.worker" in child.cmdline()]
    assert len(found) == 1
    return found[0]


async def test_a_killed_process_is_missed_at_once_and_another_takes_its_place() -> None:
    silent = HeartbeatSpec(timeout_s=3600)  # it is missed by its end, for no silence is that long
    async with (
        Engine(spec("local", empty_s=20.0, heartbeat=silent)) as engine,
        engine.open(asked("long 400")) as chunks,
    ):
        first = await anext(chunks)
        the_worker().kill()
        await until(lambda: engine.missing == STAGES)
        text = data_of(first) + "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])
        assert text == " ".join(f"word{i}" for i in range(400))
        assert await answer(engine, "say: here again") == "here again"
        assert engine.ready
        assert {replica.incarnation for replica in engine.replicas()} == {2}


async def test_a_stopped_process_is_killed_at_the_end() -> None:
    engine = await Engine(spec("local")).__aenter__()
    os.kill(the_worker().pid, signal.SIGSTOP)
    await engine.__aexit__(None, None, None)
    assert not psutil.Process().children()


async def test_a_second_ctrl_c_kills_what_would_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "GRACE_S", 3600)  # a first one would wait for so long
    engine = await Engine(spec("local")).__aenter__()
    os.kill(the_worker().pid, signal.SIGSTOP)
    closing = asyncio.create_task(engine.__aexit__(None, None, None))
    await asyncio.sleep(0.05)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not psutil.Process().children()


@pytest.mark.fault("S3.1")
async def test_garbage_on_its_socket_ends_a_worker() -> None:
    async with Engine(spec("local")) as engine:
        remote = next(iter(engine._fleet.placements.values())).worker  # pyright: ignore[reportPrivateUsage]
        transport = remote.link._transport  # pyright: ignore
        transport.write(b"\xff" * 64)
        await until(lambda: not engine.ready)


@every_launcher
async def test_speech_goes_in_and_out(launcher: str) -> None:
    async def spoken() -> AsyncGenerator[Chunk]:
        for _ in range(50):
            yield Speech(np.zeros(320, np.int16))

    request = Request(id="r", session="s", messages=(), live=True)
    async with Engine(spec(launcher)) as engine, engine.open(request, spoken()) as chunks:
        got = [chunk async for chunk in chunks]
        assert "".join(chunk.text for chunk in got if isinstance(chunk, Text)) == "I heard 1.0 seconds."
        assert sum(len(chunk.wave) for chunk in got if isinstance(chunk, Audio)) == 4 * 6 * 960
        ledger = chunks.ledger
        assert ledger is not None
        assert ledger.ttfa_ms > 0


@every_launcher
async def test_a_picture_goes_in_whole(launcher: str) -> None:
    """It is large enough to go by reference where the two processes share a machine."""
    pixels = np.arange(480 * 640 * 3, dtype=np.uint32).astype(np.uint8).reshape(480, 640, 3)
    parts = (ImagePart(pixels), TextPart("say: seen"))
    request = Request(id="r", session="s", messages=(Message("user", parts),))
    async with Engine(spec(launcher)) as engine, engine.open(request) as chunks:
        assert "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)]) == "seen"
