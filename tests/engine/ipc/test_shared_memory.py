"""Arrays by reference: the same values, one owner, and nothing left whoever goes first."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import psutil
import pytest

from engine.errors import WireError
from engine.ipc import links, messages
from engine.ipc.shared_memory import LEAST_BYTES, MOST_SHARED, POSSIBLE, SharedMemory, read_shared
from tests.engine.fakes import data_of, until, x

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="memory without a name is Linux's")


def large(dtype: str = "<f4") -> np.ndarray:
    return np.arange(LEAST_BYTES, dtype=np.float64).astype(dtype)


def where(shared: SharedMemory, array: np.ndarray) -> tuple[int, int]:
    found = shared.share(array)
    assert found is not None
    return found


@pytest.mark.parametrize("array", [large(), large("|u1").reshape(64, -1), large().reshape(-1, 4)[:, ::2]])
def test_what_is_borrowed_is_what_was_lent_and_outlives_the_loan(array: np.ndarray) -> None:
    shared = SharedMemory()
    there = read_shared(*where(shared, array), array.dtype.str, array.shape)
    shared.close()
    assert len(shared) == 0
    assert np.array_equal(there, array)


def test_small_arrays_and_more_than_may_be_under_way_go_as_bytes() -> None:
    shared = SharedMemory()
    assert shared.share(np.zeros(10, np.float32)) is None
    assert [shared.share(large("|u1")) is None for _ in range(MOST_SHARED + 1)] == [False] * MOST_SHARED + [True]
    shared.close()
    shared.release(0)  # never shared: standard input stays open
    os.fstat(0)


def test_nothing_but_memory_that_was_lent_can_be_borrowed(tmp_path: Any) -> None:
    shared, array = SharedMemory(), large()
    process, file = where(shared, array)
    with open(tmp_path / "x", "wb+") as other:
        for bad in [(process, other.fileno()), (process, 9999), (2**31, 3), (-1, -1)]:
            with pytest.raises(WireError):
                read_shared(*bad, "<f4", array.shape)
    for shape in [(1,), (len(array) + 1,), (2**40,), (-4, -LEAST_BYTES // 4), ()]:
        with pytest.raises(WireError):
            read_shared(process, file, "<f4", shape)
    shared.close()


def test_a_link_to_elsewhere_takes_no_reference() -> None:
    body = messages.MessageCodec(shared := SharedMemory()).encode(messages.Feed("r", x(large())))[4:]
    assert len(body) < 200
    with pytest.raises(WireError, match="unknown extension"):
        messages.decode(body)
    shared.close()


@asynccontextmanager
async def linked() -> AsyncGenerator[tuple[links.SocketLink, links.SocketLink, list[messages.Message]]]:
    """Two near ends, and what the second one has received."""
    got: list[messages.Message] = []
    one = links.SocketLink(lambda message: None, lambda: None, near=True)
    two = links.SocketLink(got.append, lambda: None, near=True)
    for sock, link in zip(socket.socketpair(), (one, two), strict=True):
        sock.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda link=link: link, sock=sock)
    try:
        yield one, two, got
    finally:
        one.close()
        two.close()
        await asyncio.sleep(0.01)


@pytest.mark.seed("A2.21")
async def test_over_a_link_the_owner_lets_go_when_the_other_has_it() -> None:
    before = psutil.Process().num_fds()
    async with linked() as (one, two, got):
        for i in range(300):  # more than may be under way at once: those go as bytes
            one.send(messages.Feed("r", x(large() + i)))
        await until(lambda: len(got) == 300 and not one._shared)
        assert all(np.array_equal(data_of(feed.chunk), large() + i) for i, feed in enumerate(got))  # pyright: ignore
        assert not two._codec.mapped
    await until(lambda: psutil.Process().num_fds() <= before)


@pytest.mark.seed("A4.13")
async def test_what_nobody_took_is_freed_with_the_link() -> None:
    before = psutil.Process().num_fds()
    async with linked() as (one, two, _):
        two._transport.pause_reading()  # pyright: ignore
        for _ in range(10):
            one.send(messages.Feed("r", x(large())))
        assert len(one._shared or ()) == 10
    await until(lambda: psutil.Process().num_fds() <= before)


def test_a_killed_owner_leaves_nothing_and_what_was_read_stays() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        array = large()
        process, file = where(SharedMemory(), array)
        os.write(write, f"{process} {file} ".encode())
        signal.pause()
    process, file = map(int, os.read(read, 100).split())
    there = read_shared(process, file, "<f4", (LEAST_BYTES,))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert np.array_equal(there, large())
    with pytest.raises(WireError, match="cannot open"):
        read_shared(process, file, "<f4", (LEAST_BYTES,))
    os.close(read)
    os.close(write)
