"""Compiles grammars in a helper process, so that a costly schema delays nobody's tokens."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from engine.errors import SchemaError
from engine.ipc.helper import Helper
from engine.worker.llm.grammar.jobs import TOO_COSTLY, Job, receive_result, send_job

_MODULE = "parley_voice.engine.worker.llm.grammar.compiler_process"
_MEMORY_BYTES = 512 << 20
LIMIT_S = 60.0
"""Maximum time of a job, with the start of the process. On a busy machine, both take many times their CPU time."""
MOST_KNOWN = 32
"""Maximum compiled grammars in memory; each has at most 400 kB."""


class GrammarCompiler:
    """The compiler process of a stage. It starts with the first job, and is replaced if it ends.

    Jobs run one at a time, in the order of their arrival. The last grammars are kept in memory.
    """

    def __init__(self, make: Callable[[], Helper] = lambda: Helper(_MODULE, _MEMORY_BYTES)) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, "grammar")
        self._helper: Helper | None = None
        self._known: dict[Job, str] = {}
        """The grammars by their jobs, the oldest first. Only the thread changes it."""

    async def compiled(self, job: Job) -> str:
        """Return the grammar of a job.

        Raises SchemaError with the compiler's reason, or if the process ends: at a limit of time or memory, or killed.
        """
        known = self._known.get(job)
        if known is not None:
            return known
        left = threading.Event()
        try:
            return await asyncio.wrap_future(self._thread.submit(self._run, job, left))
        finally:
            left.set()

    async def aclose(self) -> None:
        """Kill the process. May be called twice."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._helper is not None:
            self._helper.kill()
        await asyncio.to_thread(self._thread.shutdown)
        if self._helper is not None:
            self._helper.close()

    def _run(self, job: Job, left: threading.Event) -> str:
        """Compile a job in the thread."""
        if job not in self._known:
            grammar = self._compiled(job, left)
            if len(self._known) == MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[job] = grammar
        return self._known[job]

    def _compiled(self, job: Job, left: threading.Event) -> str:
        def talk(connection: socket.socket) -> str:
            send_job(connection, job)
            return receive_result(connection)

        if self._helper is not None and not self._helper.alive:
            self._helper.close()
            self._helper = None
        try:
            self._helper = self._helper or self._make()
            return self._helper.exchange(talk, LIMIT_S, left)
        except (EOFError, OSError):
            raise SchemaError(TOO_COSTLY) from None
