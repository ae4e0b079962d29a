"""What leaves no circle behind when it is over: a circle stays in memory until the collector of all garbage comes.

Knows nothing of the server.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakMethod


class CycleFreeTaskGroup(asyncio.TaskGroup):
    """A group whose end by an error holds no frame: those that it passed would hold the error, and it them."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, where)
        except BaseException as raised:
            let_go(raised)
            raise
        finally:
            error = where = None
            self._parent_task = None  # as Python's own groups do from 3.13 on


def let_go(error: BaseException) -> None:
    """Let an error go of the frames that it came through, as far as they are over; so do those in a group."""
    traceback.clear_frames(error.__traceback__)
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        let_go(one)


def weak_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method that does not hold its owner; once that is gone, nothing is called. So an object gives its own
    parts what they are to call."""
    found = WeakMethod(method)

    def called(*given: Any) -> Any:
        return bound(*given) if (bound := found()) is not None else None

    return called
