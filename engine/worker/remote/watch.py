"""Health checks of a remote server: at the start, and every half minute while it is down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from engine.errors import EngineError, Overloaded, StageUnavailable

log = logging.getLogger(__name__)

PROBE_EVERY_S = 30.0
"""Seconds between two checks of a server that is down."""


class Watch:
    """The health check of the server ``who``.

    ``probe`` checks the server. It returns why the server cannot answer, or "". It raises EngineError if the server
    cannot be reached.
    """

    def __init__(
        self, who: str, probe: Callable[[], Awaitable[str]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.unavailable = ""
        """A sentence that says why the server is unavailable; empty while it is available."""
        self._who = who
        self._probe = probe
        self._sleep = sleep
        self._down = asyncio.Event()

    async def run(self) -> None:
        """Check the server at the start and while it is down, until cancelled."""
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
        """Record that the server has answered a request."""
        self.unavailable = ""

    @contextmanager
    def asking(self) -> Generator[None]:
        """Wrap a request to the server. If its error means that the server is down, checking starts."""
        try:
            yield
        except EngineError as error:
            if isinstance(error, StageUnavailable) and not isinstance(error, Overloaded):
                self._lost(error)
            elif error.public != str(error):  # clients do not see it all
                log.warning("%s", error)
            raise

    def _found(self, reason: str) -> None:
        if self.unavailable:
            log.warning("%s is available again.", self._who)
        self.unavailable = reason
        if reason:
            log.warning(reason)

    def _lost(self, error: EngineError) -> None:
        if not self.unavailable:
            log.warning("%s It is checked again every %g s.", error, PROBE_EVERY_S)
        self.unavailable = str(error)
        self._down.set()
