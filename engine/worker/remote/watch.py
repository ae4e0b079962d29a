"""Whether a server is there: looked for at the start, and every half minute while it is down. Knows no server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from engine.errors import EngineError, Overloaded, StageUnavailable

log = logging.getLogger(__name__)

PROBE_EVERY_S = 30.0
"""Seconds between two looks for a server that is down."""


class Watch:
    """The watch of one server, which is called ``who``. ``probe`` looks for the server: it returns why that cannot
    answer, or nothing, or raises EngineError where the server cannot be reached."""

    def __init__(
        self, who: str, probe: Callable[[], Awaitable[str]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.unavailable = ""
        """The reason why the server cannot be asked for now, as a sentence; empty while it can."""
        self._who = who
        self._probe = probe
        self._sleep = sleep
        self._down = asyncio.Event()

    async def run(self) -> None:
        """Look, for ever; while the server is there, once it was found to be lost."""
        while True:
            self._down.clear()
            try:
                self._found(await self._probe())
            except EngineError as error:
                self._lost(error)
            if not self.unavailable:
                await self._down.wait()
            await self._sleep(PROBE_EVERY_S)

    def answered(self) -> None:
        """It has answered a request."""
        self.unavailable = ""

    @contextmanager
    def asking(self) -> Generator[None]:
        """A request to it: it is lost, where that is what its error says."""
        try:
            yield
        except EngineError as error:
            if isinstance(error, StageUnavailable) and not isinstance(error, Overloaded):
                self._lost(error)
            raise

    def _found(self, reason: str) -> None:
        if self.unavailable:
            log.warning("%s is back.", self._who)
        self.unavailable = reason
        if reason:
            log.warning(reason)

    def _lost(self, error: EngineError) -> None:
        if not self.unavailable:
            log.warning("%s It is looked for every %g s.", error, PROBE_EVERY_S)
        self.unavailable = str(error)
        self._down.set()
