"""The main loop of the engine: follow one request through the stages.

A request is one task tree. It has one hop for each worker that it passes. All hops run concurrently, connected by
bounded streams. Slots are leased strictly in stage order, so that two requests never wait for each other. Neighbouring
stages on one worker form one hop, and the chunks between them stay in that worker.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import replace

from engine.aio.task_group import CycleFreeTaskGroup
from engine.chunk import Chunk
from engine.control.chunks import Chunks
from engine.control.hop import Pool
from engine.control.hops import Hops
from engine.control.stall_deadline import StallDeadline
from engine.core import Request, Sampling
from engine.errors import EngineError, RequestError, StageUnavailable, Stalled, plain
from engine.ipc import messages
from engine.pipeline import Pipeline

log = logging.getLogger(__name__)

_NUMBERS: dict[str, Any] = {"speed": float, "max_text_tokens": int, "max_audio_s": float, "lead_s": float | None}
_SAMPLING = get_type_hints(Sampling)


class Orchestrator:
    """Runs requests. ``pools`` are the pipeline's stages, in order."""

    def __init__(self, pools: Sequence[Pool], stall_s: float, pipeline: Pipeline | None = None) -> None:
        self.pools = pools
        self._stall_s = stall_s
        self._pipeline = pipeline or Pipeline([pool.info for pool in pools])

    @asynccontextmanager
    async def open(self, request: Request, inputs: AsyncIterator[Chunk] | None) -> AsyncGenerator[Chunks]:
        """Open a request for the duration of the block; leaving it aborts the request.

        Iterating the chunks raises one EngineError if the request fails.
        """
        chunks = Chunks(request, self._pipeline.terms, self._pipeline.stages)
        follow = asyncio.create_task(self._follow(chunks, inputs), name=f"request:{request.id}")
        try:
            yield chunks
        finally:
            follow.cancel()
            try:
                await _ended(follow)
            finally:
                chunks.stream.drop()

    def prepare(self, request: Request) -> None:
        """Let the stages prepare for a coming request, for example by a prefill of its prompt."""
        for pool in self.pools:
            if pool.info.prepares and (replica := pool.likely(request.session)) is not None:
                replica.host.prepare(messages.Prepare("", pool.info.name, request))

    async def _follow(self, chunks: Chunks, inputs: AsyncIterator[Chunk] | None) -> None:
        """Run a request from its checks to its end, as its root task.

        However the request ends, the client's stream ends once.
        """
        pools: list[Pool] = []
        try:
            async with asyncio.timeout(self._stall_s) as timeout, CycleFreeTaskGroup() as hops:
                _check_roles(chunks.request.roles)
                _check_numbers(chunks.request)
                _check_seconds(chunks.request)
                self._check_guidance(chunks.request.sampling.guidance)
                chunks.request = self._with_voice(chunks.request)
                route = self._pipeline.route(chunks.request)
                pools += [self.pools[place] for place in route.stages]
                if not pools:
                    raise StageUnavailable(
                        "no stage for this request is running at the moment; try again in a few seconds"
                    )
                deadline = StallDeadline(timeout, self._stall_s, lambda: bool(_awaited(pools, chunks)))
                Hops(chunks, pools, hops, deadline, route).begin(inputs)
            chunks.end()
        except TimeoutError:
            what = "the answer was not read" if chunks.stream else "no progress"
            chunks.stream.fail(Stalled(f"{what} for {self._stall_s:g} s{_awaited(pools, chunks)}"))
        except BaseExceptionGroup as group:
            chunks.stream.fail(_as_engine_error(chunks.request.id, plain(group)))
        except asyncio.CancelledError:
            pass  # aborted. Nobody reads this task's result, and a stored exception would keep the request alive
        finally:
            chunks.stream.close()

    def _with_voice(self, request: Request) -> Request:
        """Return the request with the default voice by its id, so that all stages use the same one."""
        voices = self._pipeline.model.voice_ids
        return request if request.voice is not None or not voices else replace(request, voice=voices[0])

    def _check_guidance(self, guidance: float) -> None:
        if guidance != 1 and not any(pool.info.group == "guided" for pool in self.pools):
            raise RequestError(f"guidance: this model supports no guidance; set it to 1, not {guidance:g}")


def _check_roles(roles: Sequence[str]) -> None:
    if roles[:1] != ("main",) or len(set(roles)) < len(roles):
        raise RequestError(f"roles: must start with main and contain each role once, not {', '.join(roles)!a:.200}")


def _check_seconds(request: Request) -> None:
    """Reject invalid numbers of seconds. NaN compares false with everything, so the request would never step."""
    if request.lead_s is not None and not request.lead_s >= 0:
        raise RequestError(f"lead_s: must be 0 s or more, not {request.lead_s:g}")
    if not request.max_audio_s > 0:
        raise RequestError(f"max_audio_s: must be above 0 s (got {request.max_audio_s:g})")


def _check_numbers(request: Request) -> None:
    """Reject values of the wrong type.

    A step has one column for each value of all its requests: one value of another type would change the column's type,
    and with it the other requests' sampling.
    """
    for given, kinds in ((request, _NUMBERS), (request.sampling, _SAMPLING)):
        for name, kind in kinds.items():
            try:
                value = msgspec.convert(getattr(given, name), kind)
            except msgspec.ValidationError as error:
                raise RequestError(f"{name}: {error}") from None
            if isinstance(value, float) and math.isnan(value):
                raise RequestError(f"{name}: must be a number, not NaN")


def _awaited(pools: Sequence[Pool], chunks: Chunks) -> str:
    """Name the roles that a joined group still waits for, if that is why nothing arrives."""
    for pool in pools if len(chunks.request.roles) > 1 else ():
        if pool.info.group == "joined":
            done = {role: pool.info.mark("done", role) in chunks.timeline.marks for role in chunks.request.roles}
            if any(done.values()) and not all(done.values()):
                return f"; {pool.info.name} waits for {', '.join(role for role in done if not done[role])}"
    return ""


def _as_engine_error(request: str, error: BaseException) -> EngineError:
    """Return the error for the caller. An unexpected error is logged and replaced."""
    if isinstance(error, EngineError):
        return error
    log.error("request %s failed", request, exc_info=error)
    return EngineError("Internal error. Try again, and see the server's log.")


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, even if this call is cancelled meanwhile."""
    cancelled = False  # not the error itself: its traceback has this frame, and would keep the request alive
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
