"""Follow one request through the stages: the main loop of the engine.

A request is one task tree: a hop for every worker that it passes, all of them running at once, joined by bounded
streams. Slots are taken strictly in stage order, so that no two requests wait for each other; neighbouring stages on
one worker are one hop, and what passes between them never leaves it. Knows no model and no process.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_type_hints

import msgspec

from engine.aio.task_group import CycleFreeTaskGroup
from engine.chunk import Chunk
from engine.control.chunks import Chunks
from engine.control.hop import Pool
from engine.control.hops import Hops
from engine.core import Request, Sampling
from engine.errors import EngineError, RequestError, StageUnavailable, Stalled, plain
from engine.pipeline import Pipeline

log = logging.getLogger(__name__)

_NUMBERS: dict[str, Any] = {"speed": float, "max_text_tokens": int, "max_audio_s": float, "lead_s": float | None}
_SAMPLING = get_type_hints(Sampling)
MOVED = 0.1  # the part of a standstill's time before its deadline is moved


class Orchestrator:
    """The way of one request through all its stages at once. ``pools`` are the pipeline's stages, in its order."""

    def __init__(self, pools: Sequence[Pool], stall_s: float, pipeline: Pipeline | None = None) -> None:
        self.pools = pools
        self._stall_s = stall_s
        self._pipeline = pipeline or Pipeline([pool.info for pool in pools])

    @asynccontextmanager
    async def open(self, request: Request, inputs: AsyncIterator[Chunk] | None) -> AsyncGenerator[Chunks]:
        """The answer to a request, while the block lasts: leaving it is the abort. Raises one plain EngineError."""
        chunks = Chunks(request, self._pipeline.terms)
        follow = asyncio.create_task(self._follow(chunks, inputs), name=f"request:{request.id}")
        try:
            yield chunks
        finally:
            follow.cancel()
            try:
                await _ended(follow)
            finally:
                chunks.stream.drop()

    async def _follow(self, chunks: Chunks, inputs: AsyncIterator[Chunk] | None) -> None:
        """The request's root: whatever happens below it ends the client's stream, once."""
        pools: list[Pool] = []
        try:
            async with asyncio.timeout(self._stall_s) as stall, CycleFreeTaskGroup() as hops:
                _check_roles(chunks.request.roles)
                _check_numbers(chunks.request)
                _check_seconds(chunks.request)
                self._check_guidance(chunks.request.sampling.guidance)
                route = self._pipeline.route(chunks.request)
                pools += [self.pools[place] for place in route.stages]
                if not pools:
                    raise StageUnavailable("no stage is up that serves this request")
                Hops(chunks, pools, hops, partial(self._progress, stall, chunks, pools), route).begin(inputs)
            chunks.end()
        except TimeoutError:
            what = "the answer was not read" if chunks.stream else "no progress"
            chunks.stream.fail(Stalled(f"{what} for {self._stall_s:g} s{_awaited(pools, chunks)}"))
        except BaseExceptionGroup as group:
            chunks.stream.fail(_as_engine_error(chunks.request.id, plain(group)))
        except asyncio.CancelledError:
            pass  # the abort, of which nobody asks this task; it would hold the request until the collector comes
        finally:
            chunks.stream.close()

    def _check_guidance(self, guidance: float) -> None:
        if guidance != 1 and not any(pool.info.group == "guided" for pool in self.pools):
            raise RequestError(f"guidance: this model cannot be guided; leave it at 1, not {guidance:g}")

    def _progress(self, stall: asyncio.Timeout, chunks: Chunks, pools: Sequence[Pool]) -> None:
        """Move the deadline, now and then and not with every chunk: it measures a standstill, not a lifetime.

        Once a role of a joined group has ended, nothing moves it: a companion that hangs is not hidden by what else the
        request gives.
        """
        deadline_s, due_s = asyncio.get_running_loop().time() + self._stall_s, stall.when()
        late = due_s is not None and due_s < deadline_s - MOVED * self._stall_s and not stall.expired()
        if late and not _awaited(pools, chunks):
            stall.reschedule(deadline_s)


def _check_roles(roles: Sequence[str]) -> None:
    if roles[:1] != ("main",) or len(set(roles)) < len(roles):
        raise RequestError(f"roles: must be main and then others, each once, not {', '.join(roles)!a:.200}")


def _check_seconds(request: Request) -> None:
    """Refuse times that are no numbers: nothing is more, or less, than those, so nobody would ever step."""
    if request.lead_s is not None and not request.lead_s >= 0:
        raise RequestError(f"lead_s: must be 0 s or more, not {request.lead_s:g}")
    if not request.max_audio_s > 0:
        raise RequestError(f"max_audio_s: must be above 0 s, not {request.max_audio_s:g}")


def _check_numbers(request: Request) -> None:
    """Refuse values that are not of their types. A step has one column for a value of all its requests: one of another
    type, as a number where others say yes or no, would change what those draw."""
    for given, kinds in ((request, _NUMBERS), (request.sampling, _SAMPLING)):
        for name, kind in kinds.items():
            try:
                value = msgspec.convert(getattr(given, name), kind)
            except msgspec.ValidationError as error:
                raise RequestError(f"{name}: {error}") from None
            if isinstance(value, float) and math.isnan(value):
                raise RequestError(f"{name}: must be a number")


def _awaited(pools: Sequence[Pool], chunks: Chunks) -> str:
    """Name the roles that a joined group still waits for, if that is why nothing comes."""
    for pool in pools if len(chunks.request.roles) > 1 else ():
        if pool.info.group == "joined":
            done = {role: pool.info.mark("done", role) in chunks.timeline.marks for role in chunks.request.roles}
            if any(done.values()) and not all(done.values()):
                return f"; {pool.info.name} waits for {', '.join(role for role in done if not done[role])}"
    return ""


def _as_engine_error(request: str, error: BaseException) -> EngineError:
    """Return the error that the caller gets; a mistake of our own is logged, too."""
    if isinstance(error, EngineError):
        return error
    log.error("request %s failed", request, exc_info=error)
    return EngineError("The engine made a mistake of its own; the server's log says which. Ask again.")


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, however often that is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled
