"""Helpers that avoid reference cycles, so that objects are freed at once and not at the next garbage collection."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakMethod


class CycleFreeTaskGroup(asyncio.TaskGroup):
    """A task group that leaves no reference cycle when it ends with an error.

    An exception refers to the frames that it passed through, and their local variables may refer to the exception. This
    group clears those frames.
    """

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
            self._parent_task = None  # Python's own task groups do this from 3.13 on


def let_go(error: BaseException) -> None:
    """Clear the finished frames in the traceback of an error, and of each error in an exception group."""
    traceback.clear_frames(error.__traceback__)
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        let_go(one)


def weak_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that calls a bound method without keeping its owner alive.

    It returns None once the owner is gone. Objects use it for callbacks that they pass to their own parts.
    """
    found = WeakMethod(method)

    def called(*given: Any) -> Any:
        return bound(*given) if (bound := found()) is not None else None

    return called
