"""What every model family promises, through the whole engine. A family without its weights here is named as skipped."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import SPEAKER_RATE_HZ, AudioPart, Chunks, Engine, Message, Request, StageFailed, TextPart, load_config
from engine.chunk import Audio, Chunk, Output, Speech, Transcript, Usage
from engine.core import ANSWER, IN_WRITING
from engine.ipc.messages import CREDIT
from tests.engine.fakes import data_of, until
from tests.engine.held import held_per_request

CONFIGS = Path(__file__).parents[2] / "configs"
FAMILIES = ["script", "nano"]


@pytest.fixture(params=FAMILIES)
async def engine(request: pytest.FixtureRequest) -> AsyncGenerator[Engine]:
    spec = replace(load_config(CONFIGS / f"{request.param}.yaml"), launcher="inline")
    async with Engine(spec) as started:
        yield started


def asked(text: str = "", id: str = "r", **fields: Any) -> Request:
    fields = {"messages": (Message("user", (TextPart(text),)),), "session": "s"} | fields
    return Request(id=id, **fields)


def told(text: str = "one two three", id: str = "r", **fields: Any) -> Request:
    """An answer whose words are known, whatever the family can think of."""
    return asked("", id, messages=(), say=text, **fields)


async def answer(engine: Engine, request: Request, inputs: AsyncGenerator[Chunk] | None = None) -> list[Output]:
    async with engine.open(request, inputs) as chunks:
        return [chunk async for chunk in chunks]


def of(chunks: list[Output], kind: str) -> list[Any]:
    return [data_of(chunk) for chunk in chunks if chunk.kind == kind]


def sound(chunks: list[Output]) -> np.ndarray[Any, Any]:
    return np.concatenate([np.zeros(0, np.float32), *of(chunks, "audio")])


def idle(engine: Engine) -> bool:
    return all(not stage["leased"] and not stage["waiting"] for stage in engine.stats().values())


async def microphone(pieces: int) -> AsyncGenerator[Chunk]:
    for _ in range(pieces):
        yield Speech(np.zeros(320, np.int16))
        await asyncio.sleep(0)


async def test_an_answer_streams_in_order_and_ends_with_its_usage(engine: Engine) -> None:
    chunks = await answer(engine, told())
    assert "".join(of(chunks, "text")).split() == ["one", "two", "three"]
    assert len(of(chunks, "usage")) == 1
    assert next(c for c in chunks if isinstance(c, Usage)).finish == "stop"
    kinds = [c.kind for c in chunks]
    assert kinds.index("text") < kinds.index("audio")
    ends = [c.text_end for c in chunks if isinstance(c, Audio)]
    assert ends == sorted(ends)
    assert ends[-1] == len("one two three")
    assert all(a.dtype == np.float32 and np.abs(a).max() <= 1 for a in of(chunks, "audio"))


@pytest.mark.parametrize(("most_s", "finishes"), [(0.4, ["stop", "length"]), (60.0, ["stop"])])
async def test_an_answer_whose_sound_was_cut_says_so_last(engine: Engine, most_s: float, finishes: list[str]) -> None:
    chunks = await answer(engine, told("one two three four five", max_audio_s=most_s))
    assert [chunk.finish for chunk in chunks if isinstance(chunk, Usage)] == finishes
    assert len(sound(chunks)) <= most_s * SPEAKER_RATE_HZ


async def test_the_same_request_gives_the_same_answer(engine: Engine) -> None:
    one, two = [await answer(engine, told(id=id)) for id in "ab"]
    assert of(one, "text") == of(two, "text")
    np.testing.assert_allclose(sound(one), sound(two), atol=1e-4)  # chunks may be cut elsewhere


@pytest.mark.seed("A2.18", "A4.5")
async def test_sixteen_at_once_answer_as_each_alone(engine: Engine) -> None:
    texts = [f"number {i}" for i in range(16)]
    alone = [await answer(engine, told(text)) for text in texts]
    together = await asyncio.gather(*(answer(engine, told(text, f"r{i}")) for i, text in enumerate(texts)))
    for one, other in zip(alone, together, strict=True):
        assert of(one, "text") == of(other, "text")
        assert len(sound(one)) == len(sound(other))
        np.testing.assert_allclose(sound(one), sound(other), atol=1e-4)
    one, other = (sound(chunks)[:24_000] for chunks in alone[:2])
    assert np.abs(one - other).max() > 1e-2  # else it would prove nothing


@pytest.mark.seed("A2.20", "A0.18")
async def test_nothing_is_kept_of_requests_that_are_over(engine: Engine) -> None:
    """Of one that was answered, and of one that was left in the middle."""

    async def one(i: int) -> None:
        await answer(engine, asked("hello", id=f"{i}", max_text_tokens=4))
        async with engine.open(told("one", id=f"left{i}")) as chunks:
            await anext(chunks)

    assert await held_per_request(one) < 20_000
    assert idle(engine)


async def test_voices_share_a_batch_and_each_sounds_as_it_does_alone(engine: Engine) -> None:
    voices = engine.model.voice_ids
    alone = [sound(await answer(engine, told(voice=voice))) for voice in voices]
    asked_for = [told(id=f"r{i}", voice=voice) for i, voice in enumerate(voices)]
    together = await asyncio.gather(*(answer(engine, request) for request in asked_for))
    for one, other in zip(alone, together, strict=True):
        assert len(one) == len(sound(other))
        np.testing.assert_allclose(one, sound(other), atol=1e-4)
    for one in alone[1:]:
        assert len(one) != len(alone[0]) or np.abs(one - alone[0]).max() > 1e-2
    np.testing.assert_allclose(sound(await answer(engine, told())), alone[0], atol=1e-4)  # none asked for: the first


async def test_left_at_random_points_nothing_is_left(engine: Engine) -> None:
    asyncio.get_running_loop().set_debug(False)  # its stack traces would take most of the time of 100 requests
    rng = random.Random(3)
    before = len(asyncio.all_tasks())
    for i in range(100):
        spoken = bool(i % 2)
        request = asked(id=f"r{i}", live=spoken, messages=()) if spoken else told("word " * 30, f"r{i}")
        async with engine.open(request, microphone(40) if spoken else None) as chunks:
            for _ in range(rng.randrange(12)):
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                elif await anext(chunks, None) is None:
                    break
        assert idle(engine)
    await until(lambda: len(asyncio.all_tasks()) == before)
    assert of(await answer(engine, told()), "usage")


@pytest.mark.seed("A4.21")
@pytest.mark.parametrize("engine", ["script"], indirect=True)  # which alone can be made to fail
async def test_a_failing_request_leaves_the_others_alone(engine: Engine) -> None:
    good, bad = asked("long 20", "good"), asked("fail", "bad")
    results = await asyncio.gather(answer(engine, good), answer(engine, bad), return_exceptions=True)
    assert isinstance(results[1], StageFailed)
    assert isinstance(results[0], list)
    assert len("".join(of(results[0], "text")).split()) == 20
    assert idle(engine)


async def test_a_text_only_answer_leases_no_talker(engine: Engine) -> None:
    for wants, leased in ((IN_WRITING, 0), (ANSWER, 1)):
        async with engine.open(asked("What can you do?", wants=wants)) as chunks:
            await anext(chunks)
            assert engine.stats()["talker"]["leased"] == engine.stats()["code2wav"]["leased"] == leased
            rest = [chunk async for chunk in chunks]
        assert bool(of(rest, "audio")) == bool(leased)


async def test_a_long_text_without_speech_ends(engine: Engine) -> None:
    request = asked("long 200 What can you do?", wants=IN_WRITING, max_text_tokens=500)
    async with asyncio.timeout(20):
        assert of(await answer(engine, request), "usage")


@pytest.mark.seed("A4.8", "A4.15")
async def test_limits_end_an_answer_early_without_hanging(engine: Engine) -> None:
    async with asyncio.timeout(20):
        short = await answer(engine, asked("What can you do?", max_text_tokens=3))
        assert next(c for c in short if isinstance(c, Usage)).finish == "length"
        few = await answer(engine, told("word " * 60, max_audio_s=5 * engine.model.frame_s))
        assert len(sound(few)) == round(5 * engine.model.frame_s * SPEAKER_RATE_HZ)
        assert of(few, "usage")
    assert idle(engine)


async def test_a_given_text_is_spoken_as_it_stands(engine: Engine) -> None:
    chunks = await answer(engine, told("say: fail"))
    assert "".join(of(chunks, "text")) == "say: fail"
    assert len(sound(chunks))


@pytest.mark.parametrize("pieces", [0, 1, 50])
async def test_a_spoken_turn_is_heard_to_its_end(engine: Engine, pieces: int) -> None:
    chunks = await answer(engine, asked(live=True, messages=()), microphone(pieces))
    heard = [chunk for chunk in chunks if isinstance(chunk, Transcript)]
    assert [chunk.final for chunk in heard][-1:] == [True]
    assert sum(chunk.final for chunk in heard) == 1
    assert of(chunks, "usage")
    assert len(sound(chunks))


async def test_speech_in_a_message_is_heard_as_well(engine: Engine) -> None:
    message = Message("user", (AudioPart(np.zeros(16_000, np.int16)),))
    chunks = await answer(engine, asked(messages=(message,)))
    assert [c.final for c in chunks if isinstance(c, Transcript)][-1]
    assert of(chunks, "usage")


async def test_sound_is_made_only_so_far_ahead_while_text_goes_on(engine: Engine) -> None:
    text, lead_s = "word " * 40, 0.5
    async with engine.open(told(text, lead_s=lead_s)) as chunks:
        began_s = time.monotonic()
        got = await read_for(chunks, 0.5)
        while not of(got, "usage"):
            got += await read_for(chunks, 0.5)
        ahead_s = len(sound(got)) / SPEAKER_RATE_HZ - (time.monotonic() - began_s)
        assert ahead_s < lead_s + 12 * engine.model.frame_s  # one chunk may be under way
        assert (await anext(chunks)).kind == "audio"  # and it goes on as the listener plays
    began_s = time.monotonic()
    made_s = len(sound(await answer(engine, told(text)))) / SPEAKER_RATE_HZ
    if time.monotonic() - began_s < made_s / 2:  # the control: without a lead it is made as fast as can be
        assert made_s - (time.monotonic() - began_s) > lead_s + 12 * engine.model.frame_s


async def read_for(chunks: Chunks, limit_s: float) -> list[Output]:
    """What comes within some time."""
    got: list[Output] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            async for chunk in chunks:
                got.append(chunk)  # noqa: PERF401 - kept when it is cut off
    return got


def made(chunks: Chunks) -> int:
    """Pieces of sound that lie unread."""
    return sum(chunk.kind == "audio" for chunk, _ in chunks.stream._chunks)


async def test_who_does_not_read_is_not_produced_for(engine: Engine) -> None:
    async with engine.open(told("word " * 100)) as chunks:
        await until(lambda: made(chunks) >= CREDIT // 2)
        await asyncio.sleep(0.3)
        assert made(chunks) <= CREDIT
        rest = [chunk async for chunk in chunks]
    assert of(rest, "usage")
    assert idle(engine)


async def test_the_ledger_adds_up(engine: Engine) -> None:
    async with engine.open(asked("What can you do?")) as chunks:
        assert chunks.ledger is None
        async for _ in chunks:
            pass
        assert chunks.ledger is not None
        assert chunks.ledger.ttfa_ms == pytest.approx(sum(chunks.ledger.terms.values()))
        assert chunks.ledger.terms["thinker_prefill"] > 0
