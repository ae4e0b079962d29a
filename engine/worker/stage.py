"""The interface between the step loop and a model.

A stage is created from a ``StageConfig``. Before that, ``describe`` returns its inputs and outputs. ``uses.py`` finds a
stage type by its name. A stage sees each request as a ``StageRequest``. The step loop is independent of the
model. A stage depends neither on the loop nor on other requests.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

from engine.chunk import Chunk
from engine.core import AudioPart, Message, Part, Request, StageInfo, TextPart, ToolCallPart, ToolResultPart
from engine.deployment.config import ModelSpec, StageSpec
from engine.deployment.model_catalog import located
from engine.errors import ConfigError, ContextOverflow, EngineError, StageFailed
from engine.worker.out_of_memory import begins_again, out_of_memory
from engine.worker.pace import OneFrame
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


class Stage(Protocol):
    """One stage of a model on one device.

    ``open`` prepares ``req.state`` for a new request, or raises RequestError. Its slot may contain data of an earlier
    request.

    ``adapt`` is an async generator that converts upstream chunks to the stage's own items. The loop iterates it,
    appends each item to ``req.pending``, and waits while there are ``info.max_pending`` items. It runs between steps,
    so it must not compute for long. An exception in it ends the request; so does a CancelledError that comes from
    inside it, for example from a library.

    ``step`` advances every request of the batch once: one decode step, one bounded piece of prefill, or one chunk of
    codec frames. For each request, in order, it returns the chunks that it emits, or an EngineError that ends only this
    request. Use ``guarded`` for work on a single request, so that its error affects no other. If ``step`` itself
    raises, every request of the batch is retried alone.

    If its configuration sets ``may_decline``, a stage may end a request with Declined before the first chunk, in
    ``adapt`` or ``step``. The next model of its chain then takes over.

    Optional members:

    - ``prefixes`` (a Prefixes): the stage's prefix cache, whose counts the worker reports.
    - ``warm_up``: called before the stage serves requests.
    - ``deadline_s(reqs) -> float``: for a ``blocking`` stage, the seconds that the step of these requests may take, for
      example in proportion to the audio or text on their ``pending``. After that time the worker is killed.
    """

    info: StageInfo

    def open(self, req: StageRequest) -> None: ...

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]: ...

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]: ...


@runtime_checkable
class Preparer(Protocol):
    """A stage whose info ``prepares``: it warms up the known part of a prompt while the user still speaks.

    The request is ``live`` and contains everything but the user's words. A stage with ``Facets.camera`` that comes
    after the speech recogniser gets each frame this way, as the request's only message. ``prepare`` may be cancelled at
    any time.
    """

    async def prepare(self, request: Request) -> None: ...


class StageType(Protocol):
    """The factory of a stage, usually its class.

    ``describe`` returns the info that the stage will have. It reads at most a checkpoint's configuration, no weights,
    and uses no device. ``describe`` and the call itself raise ConfigError or WeightsError.

    Optional attributes, absent unless set to True:

    - ``plannable``: the stage can be created on torch's ``meta`` device, without reading weights. Then the memory
      it needs is checked before loading.
    - ``composes``: the stage is composed of the models in ``StageConfig.models``.
    """

    def describe(self, config: StageConfig, /) -> StageInfo: ...

    def __call__(self, config: StageConfig, /) -> Stage: ...


def guarded(
    stage: Stage, req: StageRequest, work: Callable[Concatenate[StageRequest, P], T], *args: P.args, **named: P.kwargs
) -> T | EngineError:
    """Return the result of ``work`` on a request, or the error that ends it. Errors do not reach other requests."""
    try:
        return work(req, *args, **named)
    except EngineError as error:
        return error
    except Exception as error:  # noqa: BLE001 - any error that a model raises for one request ends only that request
        if out_of_memory(error):
            short = begins_again(stage)  # the loop replaces it if no memory can be freed
            short.__cause__ = error
            return short
        return failed(stage.info.name, req.request.id, error)


def failed(stage: str, request: str, error: Exception) -> StageFailed:
    """Log an unexpected error, and return the error that the request gets."""
    log.error("request %s: the stage %s failed", request, stage, exc_info=error)
    return StageFailed(f"The stage {stage} failed while it computed this answer; the server's log says why.")


def warm_up(stage: Stage, count: int, row: Any, steps: int = 1) -> None:
    """Step dummy requests, each with one item, before the stage serves real ones.

    Runtimes then allocate memory and initialise now, and not during a user's first audio.
    """
    request = Request(id="", session="", messages=())
    reqs = [StageRequest(request, slot, OneFrame()) for slot in range(count)]
    for req in reqs:
        stage.open(req)
        req.pending.append(row)
    for _ in range(steps):
        stage.step([req for req in reqs if req.ready])


def check_length(messages: Sequence[Message], most: int) -> None:
    """Reject a conversation that is too long, before any work on it delays the other requests.

    Raises:
        ContextOverflow: Its texts have more than ``most`` characters.
    """
    length = sum(_length(part) for message in messages for part in message.parts)
    if length > most:
        raise ContextOverflow(f"The conversation has {length} characters; this model can read {most}. Shorten it.")


def _length(part: Part) -> int:
    match part:
        case TextPart(text):
            return len(text)
        case AudioPart(_, transcript):
            return len(transcript or "")
        case ToolCallPart(name, arguments, _):
            return len(name) + len(arguments)
        case ToolResultPart(_, output):
            return len(output)
        case _:
            return 0


@dataclass(frozen=True, slots=True)
class StageConfig:
    """The configuration that a stage is created from."""

    weights: Path | None = None
    """The folder or file of its weights; None: its built-in weights."""
    device: str = "cpu"
    """The name of the torch device."""
    dtype: str = "float32"
    """The type of its weights, if it offers a choice."""
    threads: int = 1
    """CPU threads of a step."""
    slots: int = 16
    """Maximum concurrent requests."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stage's own settings."""
    slots_fixed: bool = True
    """Whether the configuration sets ``slots`` for this stage. Otherwise the stage may choose fewer."""
    models: tuple[tuple[str, StageConfig], ...] = ()
    """The ``use`` and the configuration of each model of a composed stage, in order."""
    may_decline: bool = False
    """Whether a next model of its chain takes over if the stage raises Declined or fails before its first chunk."""


def config_of(spec: StageSpec, config: StageConfig) -> StageConfig:
    """Return the configuration of a stage: its ``spec`` on top of the worker's ``config``.

    Raises WeightsError if a catalogue model is not on this machine.
    """
    own = _of_model(spec, config)
    last = len(spec.models) - 1
    models = ((model.use, _of_model(model, own, i < last)) for i, model in enumerate(spec.models))
    return replace(own, models=tuple(models))


def _of_model(spec: ModelSpec, config: StageConfig, may_decline: bool = False) -> StageConfig:
    return replace(
        config,
        weights=located(spec.weights) if spec.weights else None,
        dtype=spec.dtype or config.dtype,
        options=spec.options,
        may_decline=may_decline,
    )


SWITCH = {"auto": "auto", "on": True, "off": False}  # YAML parses on and off as booleans


def switched(option: str, wanted: Any, auto: bool) -> bool:
    """Return whether a switch is on; ``auto`` is the value of "auto". Raises ConfigError for an invalid value."""
    wanted = SWITCH.get(wanted, wanted) if isinstance(wanted, str) else wanted
    if not (isinstance(wanted, bool) or wanted == "auto"):
        raise ConfigError(f"options.{option}: {wanted!r:.80} is not one of {', '.join(SWITCH)}")
    return auto if wanted == "auto" else wanted
