"""Streams keep order and bounds, end once, and lose no wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.chunk import Chunk
from engine.stream import Stream, closing, windows
from tests.engine.fakes import data_of, turns, whole, x


def numbers(n: int) -> list[Chunk]:
    return [x(i) for i in range(n)]


def data(chunks: list[Chunk]) -> list[Any]:
    return [data_of(chunk) for chunk in chunks]


async def sent(stream: Stream, n: int) -> None:
    for chunk in numbers(n):
        await stream.send(chunk)
    stream.close()


@pytest.mark.seed("A2.2", "A4.4", "A4.12")
@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(0, 12), st.lists(st.booleans(), max_size=12))
def test_a_reader_gets_what_was_sent_in_order_and_never_more_lies_there(depth: int, n: int, waits: list[bool]) -> None:
    async def check() -> None:
        stream, got = Stream(depth), list[Chunk]()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sent(stream, n))
            pauses = iter(waits)
            async for chunk in stream:
                got.append(chunk)
                assert len(stream) <= depth
                if next(pauses, False):
                    await turns(3)
        assert data(got) == list(range(n))

    asyncio.run(check())


async def test_send_waits_for_room_and_put_does_not() -> None:
    stream = Stream(1)
    stream.put(x(0))
    sending = asyncio.create_task(stream.send(x(1)))
    await turns()
    assert not sending.done()
    stream.put(x(2))
    assert stream.room == -1
    assert data([chunk for chunk in (stream.take(), stream.take()) if chunk]) == [0, 2]
    await sending
    assert stream.take() == x(1)
    assert stream.take() is None


async def test_a_cancelled_sender_gives_its_turn_to_the_next() -> None:
    stream = Stream(1)
    stream.put(x(0))
    first, second = (asyncio.create_task(stream.send(x(i))) for i in (1, 2))
    await turns()
    stream.take()  # wakes the first,
    first.cancel()  # which is cancelled before it runs
    async with asyncio.timeout(20):
        await second
    assert stream.take() == x(2)


async def test_a_cancelled_reader_loses_nothing() -> None:
    stream = Stream()
    reading = asyncio.create_task(anext(stream))
    await turns()
    stream.put(x(0))
    reading.cancel()
    await asyncio.wait([reading])
    assert await anext(stream) == x(0)


async def test_closing_frees_everyone_and_may_be_repeated() -> None:
    stream = Stream(1)
    stream.put(x(0))
    senders = [asyncio.create_task(stream.send(x(i))) for i in range(1, 4)]
    await turns()
    stream.close()
    stream.close()
    stream.fail(RuntimeError())  # it has ended: no effect
    await asyncio.gather(*senders)
    stream.put(x(9))
    assert data(await whole(stream)) == [0]
    assert stream.ended


async def test_a_failure_is_met_after_what_was_sent_before() -> None:
    stream = Stream()
    stream.put(x(0))
    stream.fail(RuntimeError("broken"))
    stream.close()
    assert await anext(stream) == x(0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            await anext(stream)


async def test_every_chunk_is_told_taken_once_read_or_dropped() -> None:
    taken: list[int] = []
    stream = Stream()
    for i in range(6):
        stream.put(x(i), lambda i=i: taken.append(i))
    stream.take()
    await anext(stream)
    assert taken == [0, 1]
    stream.drop()
    stream.drop()
    stream.put(x(6), lambda: taken.append(6))
    assert taken == list(range(7))
    assert await whole(stream) == []


async def test_a_callback_reads_what_lies_there_and_what_comes() -> None:
    read: list[Chunk | str] = []
    stream = Stream()

    def reader() -> None:
        while (chunk := stream.take()) is not None:
            read.append(chunk)
        if stream.ended:
            read.append("end")

    stream.put(x(0))
    stream.set_reader(reader)
    stream.put(x(1))
    stream.set_reader(None)
    stream.put(x(2))
    assert read == [x(0), x(1)]
    stream.set_reader(reader)
    stream.close()
    assert read[2:] == [x(2), "end"]


@pytest.mark.seed("A4.8", "A4.11")
@settings(max_examples=30)
@given(st.integers(0, 30), st.lists(st.integers(1, 5), min_size=1, max_size=30), st.sets(st.integers(1, 30)))
def test_windows_joined_are_the_stream_again(n: int, sizes: list[int], hurries: set[int]) -> None:
    async def check() -> None:
        seen = 0

        async def counted() -> AsyncGenerator[Chunk]:
            nonlocal seen
            for seen, chunk in enumerate(numbers(n), 1):  # noqa: B007 - what `hurry` looks at
                yield chunk

        grouped = windows(counted(), lambda i: sizes[i % len(sizes)], lambda: seen in hurries)
        groups = [data(group) async for group in grouped]
        assert list(chain.from_iterable(groups)) == list(range(n))
        assert all(groups)
        for i, group in enumerate(groups):
            whole_one = len(group) == sizes[i % len(sizes)]
            assert whole_one or (group[-1] + 1) in hurries or i == len(groups) - 1

    asyncio.run(check())


async def test_closing_closes_streams_and_generators_read_or_not() -> None:
    ended: list[bool] = []

    async def generator() -> AsyncGenerator[Chunk]:
        try:
            while True:
                yield x(0)
        finally:
            ended.append(True)

    async with closing(generator()) as chunks:
        await anext(chunks)
    async with closing(Stream()) as stream:
        pass
    assert ended == [True]
    assert isinstance(stream, Stream)
    assert stream.ended
