"""Reading ahead: in order, no further than allowed, and nothing left of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from engine.errors import StageFailed
from engine.worker.llm.prefetch import Prefetcher
from tests.engine.fakes import turns


class Counting:
    """Gives 0, 1, 2, … and then an error, if one is named."""

    def __init__(self, most: int, error: Exception | None = None) -> None:
        self.begun, self.closed = 0, False
        self._most, self._error = most, error

    async def items(self) -> AsyncGenerator[int]:
        try:
            for n in range(self._most):
                self.begun += 1
                yield n
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


@pytest.mark.parametrize("most", [1, 2, 100])
async def test_all_comes_in_order_and_is_read_no_further_ahead_than_allowed(most: int) -> None:
    source = Counting(5)
    ahead = Prefetcher(source.items(), most, "test")
    assert not ahead.begun.is_set()
    for n in range(5):
        await turns()
        assert ahead.begun.is_set()
        assert source.begun == min(5, n + most)
        assert await anext(ahead) == n
    assert [n async for n in ahead] == [n async for n in ahead] == []
    await ahead.aclose()
    await ahead.aclose()
    assert source.closed


async def test_an_error_comes_behind_what_came_before_it_and_again() -> None:
    ahead = Prefetcher(Counting(2, ValueError("x")).items(), 10, "test")
    await turns()
    assert [await anext(ahead), await anext(ahead)] == [0, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            await anext(ahead)
    await ahead.aclose()


async def test_a_library_that_cancels_the_generator_leaves_no_reader_waiting() -> None:
    async def items() -> AsyncGenerator[int]:
        yield 0
        raise asyncio.CancelledError

    ahead = Prefetcher(items(), 10, "test")
    async with asyncio.timeout(20):
        assert await anext(ahead) == 0
        with pytest.raises(StageFailed, match="cancelled"):
            await anext(ahead)
    await ahead.aclose()


async def test_an_end_without_an_item_has_begun_as_well() -> None:
    ahead = Prefetcher(Counting(0).items(), 1, "test")
    await asyncio.wait_for(ahead.begun.wait(), 20)
    assert [n async for n in ahead] == []
    await ahead.aclose()


async def test_to_close_it_closes_the_generator_wherever_it_is() -> None:
    source = Counting(5)
    ahead = Prefetcher(source.items(), 1, "test")
    assert await anext(ahead) == 0
    await turns()
    await ahead.aclose()
    assert source.closed
