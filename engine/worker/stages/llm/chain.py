"""A chain of models that are tried in turn: the first one that answers a request gives the answer.

A model passes a request on by declining it, or by failing, before its first chunk. After that the answer is that
model's, and its errors end the answer. Each model gets the same conversation and the same input. After a failure, a
model comes last for some seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from engine.chunk import Checkpoint, Chunk, Text, VoiceText
from engine.core import Request, StageInfo
from engine.deployment.config import build
from engine.errors import ConfigError, Declined, EngineError, Preempted, ReplicaLost, SchemaError
from engine.worker.llm.chained import RecordedInputs, chained_info, visible
from engine.worker.llm.failure_memory import FailureMemory
from engine.worker.loop.prefix import Prefixes
from engine.worker.out_of_memory import out_of_memory
from engine.worker.stage import Preparer, Stage, StageConfig, failed
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Broken, Streamed
from engine.worker.uses import stage_type

log = logging.getLogger(__name__)

MODEL = "model"
"""The key of a checkpoint's state for the index of the model that gave the answer."""
STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """Stage `options` of `llm.chain`."""

    skip_s: float = 30.0
    """Seconds for which a model comes after all others once it has failed. Then one request tries it again. 0: every
    request tries it."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One model's attempt to answer a request."""

    place: int
    """The model's index in the chain."""
    req: StageRequest
    """The request, as the model sees it."""
    last: bool
    """Whether the model's error ends the request, because no other model may answer it."""
    failure: EngineError | None = None
    """The error of an earlier model, which the client gets if this one declines."""
    answered: bool = False
    """Whether the model has produced a chunk, so that the answer is its own."""
    error: EngineError | None = None
    """Why the model passes the request on."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the model has answered or passed the request on."""


_END = object()
"""Marks the end of a model's items."""


class Chain(Streamed):
    """The stage. Its items are pairs of an Attempt and an item of its model; ``req.state`` is the current Attempt."""

    composes = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        _check(config)
        return chained_info([stage_type(use).describe(model) for use, model in config.models])

    def __init__(self, config: StageConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._failures = FailureMemory(_check(config).skip_s, now)
        self._models: list[Stage] = []
        for use, model in config.models:
            stage: Any = stage_type(use)(model)
            stage.info = msgspec.structs.replace(stage.info, name=use)
            self._models.append(stage)
        self.info = chained_info([model.info for model in self._models])
        self.patient = all(model.patient for model in self._streamed())

    @property
    def prefixes(self) -> Prefixes[Any] | None:
        """The prefix cache of the first model that has one."""
        found = (getattr(model, "prefixes", None) for model in self._models)
        return next((prefixes for prefixes in found if isinstance(prefixes, Prefixes)), None)

    @property
    def unavailable(self) -> str:
        """The last model's reason, if all models are unavailable."""
        reasons = [getattr(model, "unavailable", "") for model in self._models]
        return reasons[-1] if all(reasons) else ""

    def warm_up(self) -> None:
        for model in self._models:
            if warm_up := getattr(model, "warm_up", None):
                warm_up()

    async def watch(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for model in self._streamed():
                    tasks.create_task(model.watch(), name=f"watch:{model.info.name}")
        except* Broken as broken:
            raise Broken(str(broken.exceptions[0])) from broken

    async def aclose(self) -> None:
        for model in self._streamed():
            await model.aclose()

    async def prepare(self, request: Request) -> None:
        """Let every available model prepare, because any of them may answer."""
        async with asyncio.TaskGroup() as tasks:
            for model in self._models:
                if isinstance(model, Preparer) and model.info.prepares and not getattr(model, "unavailable", ""):
                    tasks.create_task(model.prepare(self._as_seen(model, request)), name=f"prepare:{model.info.name}")

    def _streamed(self) -> list[Streamed]:
        return [model for model in self._models if isinstance(model, Streamed)]

    def _as_seen(self, model: Stage, request: Request) -> Request:
        return visible(request, model.info.facets.sees, self.info.facets.sees)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Offer the request to one model after another, until one answers. Raises the last model's error."""
        recorded = RecordedInputs(inputs)
        state = req.checkpoint or {}
        failure: EngineError | None = None
        places = self._places(state, req.request)
        for place, successor in zip(places, [*places[1:], None], strict=True):
            attempt = req.state = Attempt(place, self._request(req, place, state), successor is None, failure)
            try:
                async with aclosing(self._items(attempt, recorded)) as items:
                    async for item in items:
                        yield attempt, item
                yield attempt, _END
                await attempt.over.wait()
            except (asyncio.CancelledError, ReplicaLost, Preempted):
                raise
            except Exception as error:  # noqa: BLE001 - the next model answers, or the request ends with this error
                attempt.error = self._failed(attempt, error)
                if attempt.answered or successor is None:
                    raise attempt.error from None
            if attempt.error is None:
                return
            if successor is not None:
                self._note(attempt, successor)
            failure = failure if isinstance(attempt.error, Declined) else attempt.error

    def _places(self, state: Mapping[str, Any], request: Request) -> list[int]:
        """Return the models in the order in which to ask them. An answer that has begun is continued by its model.

        Models that cannot answer in JSON are not asked for it.
        """
        if MODEL in state:
            return [state[MODEL]]
        able = [n for n, model in enumerate(self._models) if not request.format or model.info.facets.writes_json]
        return self._failures.order(able, lambda place: getattr(self._models[place], "unavailable", ""))

    async def _items(self, attempt: Attempt, recorded: RecordedInputs) -> AsyncGenerator[Any]:
        """Yield a model's items, until it passes the request on."""
        model = self._models[attempt.place]
        model.open(attempt.req)
        async with aclosing(model.adapt(attempt.req, recorded.again())) as items:
            async for item in items:
                yield item
                if attempt.error is not None:
                    return

    def _request(self, req: StageRequest, place: int, state: Mapping[str, Any]) -> StageRequest:
        """Return the request as a model sees it. A lost replica's chunks belong to the model that produced them."""
        kept = [chunk for chunk in req.kept if not isinstance(chunk, Checkpoint)]
        kept += [Checkpoint(state[STATE])] if state.get(STATE) else []
        model = self._models[place]
        return StageRequest(
            self._as_seen(model, req.request),
            req.slot,
            req.pace,
            req.role,
            kept=kept if place == state.get(MODEL) else (),
            whole=req.whole,
            info=model.info,
            listener=req.listener,
            alone=req.alone,
        )

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """Step each request at its current model; requests of the same model in one batch."""
        attempts = {req.slot: _feed(req) for req in reqs}
        results: dict[int, Sequence[Chunk] | EngineError] = {req.slot: [] for req in reqs}
        ready = [req for req in reqs if (attempt := attempts[req.slot]) is not None and attempt.req.ready]
        by_model = sorted(ready, key=lambda req: req.state.place)
        for place, group in groupby(by_model, key=lambda req: req.state.place):
            batch = list(group)
            stepped = self._step(self._models[place], [req.state.req for req in batch])
            results |= {req.slot: self._given(req, one) for req, one in zip(batch, stepped, strict=True)}
        for req in reqs:
            _mirror(req)
        return [results[req.slot] for req in reqs]

    def _step(self, model: Stage, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """Step a model. An error with a single request becomes that request's error."""
        try:
            return model.step(reqs)
        except Exception as error:
            if len(reqs) > 1 or out_of_memory(error):
                raise
            return [failed(model.info.name, reqs[0].request.id, error)]

    def _given(self, req: StageRequest, given: Sequence[Chunk] | EngineError) -> Sequence[Chunk] | EngineError:
        """Return a model's output; nothing if the model passes the request on."""
        attempt: Attempt = req.state
        if isinstance(given, EngineError):
            if isinstance(given, ReplicaLost | Preempted):
                return given
            error = self._failed(attempt, given)
            if attempt.answered or attempt.last:
                return error
            attempt.error = error
            attempt.over.set()
            return []
        chunks = [_checkpoint(attempt, chunk) if isinstance(chunk, Checkpoint) else chunk for chunk in given]
        if chunks and not attempt.answered:
            attempt.answered = True
            self._failures.answered(attempt.place)
            req.stored = attempt.req.stored
            chunks.insert(0, _checkpoint(attempt))
        if attempt.answered or attempt.req.done:
            attempt.over.set()
        return self._aloud(attempt, chunks)

    def _aloud(self, attempt: Attempt, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Add VoiceText for a model that only feeds Text, if other models of the chain distinguish them."""
        if self._models[attempt.place].info.feeds == self.info.feeds:
            return list(chunks)
        spoken = [
            [chunk, VoiceText(chunk.text, chunk.start)] if isinstance(chunk, Text) else [chunk] for chunk in chunks
        ]
        return [chunk for some in spoken for chunk in some]

    def _failed(self, attempt: Attempt, error: Exception) -> EngineError:
        """Remember that a model gave no whole answer. Returns the error for the client, if it ends the request."""
        name = self._models[attempt.place].info.name
        known = error if isinstance(error, EngineError) else failed(name, attempt.req.request.id, error)
        self._failures.failed(attempt.place, known)
        return (attempt.failure or known) if attempt.last and isinstance(known, Declined) else known

    def _note(self, attempt: Attempt, successor: int) -> None:
        """Log why a model passes a request on: a failure as a warning, declining as debug information."""
        level = logging.DEBUG if isinstance(attempt.error, Declined | SchemaError) else logging.WARNING
        name, next_name = (self._models[place].info.name for place in (attempt.place, successor))
        log.log(level, "request %s: %s passes it on to %s: %s", attempt.req.request.id, name, next_name, attempt.error)


STAGE = Chain


def _check(config: StageConfig) -> ChainOptions:
    """Return the chain's own options. Raises ConfigError."""
    if len(config.models) < 2:
        raise ConfigError(
            "models: a chain needs at least two models, like `models: [{use: nano.thinker}, {use: llm.openai, …}]`"
        )
    if config.weights is not None:
        raise ConfigError("weights belong to the models of a chain; move them there")
    options: ChainOptions = build(ChainOptions, dict(config.options), "options")
    if not 0 <= options.skip_s < math.inf:
        raise ConfigError(f"options.skip_s: must be a finite number of at least 0 (got {options.skip_s:g})")
    return options


def _feed(req: StageRequest) -> Attempt | None:
    """Pass items on to the current model, as far as it has room. Items of earlier attempts are dropped."""
    attempt: Attempt | None = req.state
    if attempt is None or attempt.error is not None:
        req.pending.clear()
        return None
    inner = attempt.req
    while req.pending and len(inner.pending) < inner.info.max_pending:
        owner, item = req.pending.popleft()
        if owner is not attempt:
            continue
        inner.waits = False
        if item is _END:
            inner.ended = True
        else:
            inner.pending.append(item)
    return attempt


def _mirror(req: StageRequest) -> None:
    """Copy the model's needs to the chain's request, for the step loop."""
    attempt: Attempt | None = req.state
    if attempt is None or attempt.error is not None:
        req.needs_input = True
        return
    inner = attempt.req
    req.done = inner.done
    req.cut = inner.cut
    req.waits = inner.waits
    req.needs_input = not inner.ready


def _checkpoint(attempt: Attempt, own: Checkpoint | None = None) -> Checkpoint:
    """Return a checkpoint that contains the answering model's index, and its own state if it has one."""
    return Checkpoint({MODEL: attempt.place, STATE: own.state if own else {}})
