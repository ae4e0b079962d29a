"""An event loop in virtual time: when nothing is left to do, the clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

WAIT_S = 0.2
"""Seconds of real time after which a waiting loop checks its conditions again."""


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts its functions that run in threads."""

    executing = 0

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        self.executing += 1
        done = super().run_in_executor(executor, func, *args)
        done.add_done_callback(self._executed)
        return done

    def _executed(self, done: asyncio.Future[Any]) -> None:
        self.executing -= 1


class VirtualLoop(CountingLoop):
    """A loop whose ``time`` starts at 0 and stands still while work of threads or other loops is awaited.

    ``holds`` returns whether the clock must not
    advance to a given time yet.
    """

    def __init__(self, holds: Callable[[float], bool] = lambda until_s: False) -> None:
        self._now_s = 0.0
        self._holds = holds
        super().__init__(_JumpingSelector(self._may_jump, self._jump))

    def time(self) -> float:
        return self._now_s

    async def reach(self, when_s: float) -> None:
        """Wait until this time."""
        if when_s <= self._now_s:
            return
        reached = self.create_future()
        timer = self.call_at(when_s, _resolve, reached)
        try:
            await reached
        finally:
            timer.cancel()

    def _may_jump(self, timeout_s: float) -> bool:
        return not self.executing and not self._holds(self._now_s + timeout_s)

    def _jump(self, timeout_s: float) -> None:
        self._now_s += timeout_s


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the loop's clock instead of waiting for a timeout."""

    def __init__(self, may_jump: Callable[[float], bool], jump: Callable[[float], None]) -> None:
        super().__init__()
        self._may_jump = may_jump
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and self._may_jump(timeout):
            ready = super().select(0)  # after the check, so that earlier calls from other threads run first
            if not ready:
                self._jump(timeout)
            return ready
        return super().select(0 if timeout == 0 else WAIT_S)


def _resolve(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)
