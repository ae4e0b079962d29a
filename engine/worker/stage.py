"""The seam between the step loop and a model: what a stage is, and what it is made of.

A stage is made of a ``StageConfig``. Before that, ``describe`` says what it takes and gives; ``uses.py`` finds it by
its name. A stage sees a request as a ``StageRequest``. The step loop knows no model; a stage knows no loop, no socket
and no other request's state.
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

    ``open`` prepares ``req.state`` for a new request (any previous content of its slot is void) or raises RequestError.

    ``adapt`` is an async generator that turns upstream chunks into what the stage consumes. The loop runs it as the
    consumer of the upstream stream, puts each item on ``req.pending`` and waits while ``info.max_pending`` lie there.
    It runs between steps, so it must not compute long. What it raises ends the request, and so does a cancel that
    comes from within it, as from a library.

    ``step`` advances every request of the batch once: one decode step, one bounded piece of prefill, or one chunk of
    codec frames. It returns, for each of them in order, the chunks that it emits, or an EngineError that ends this
    request and no other. Work for one request alone is ``guarded``, so that its error is its own; where a step raises
    all the same, every request of the batch begins again, alone.

    A stage whose configuration says ``may_decline`` may end a request with Declined before its first chunk, in
    ``adapt`` or in ``step``. The next model of its chain takes the turn then.

    A stage that keeps prompts for its sessions does so in ``prefixes`` (a Prefixes), whose counts the worker sends. A
    ``warm_up`` is called before anybody waits for the stage, so it costs nobody anything. A stage whose info is
    ``blocking`` is stepped in a thread of its own. It may have a method ``deadline_s(reqs) -> float`` that returns how
    many seconds the step of these requests may take, for instance so many for each second of sound or each character on
    their ``pending``. Behind that deadline the worker is given up.
    """

    info: StageInfo

    def open(self, req: StageRequest) -> None: ...

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]: ...

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]: ...


@runtime_checkable
class Preparer(Protocol):
    """A stage whose info ``prepares``: it warms up what is known of a prompt while its user still speaks.

    Of a ``live`` request that is all but the user's words. A stage that looks along (``Facets.camera``) and begins
    behind the ears is shown each frame so: alone, as the request's only message. ``prepare`` may be cancelled at any
    time.
    """

    async def prepare(self, request: Request) -> None: ...


class StageType(Protocol):
    """The maker of a stage: its class, most often.

    ``describe`` is what the stage will say of itself. It reads a checkpoint's configuration at most: no weights, no
    device. Both raise ConfigError or WeightsError. One that is ``plannable`` (True) can also be made on torch's device
    ``meta``, without reading a number: so a device that is too small for it is told before anything is loaded. One that
    ``composes`` (True) is made of the models in ``StageConfig.models``.
    """

    def describe(self, config: StageConfig, /) -> StageInfo: ...

    def __call__(self, config: StageConfig, /) -> Stage: ...


def guarded(
    stage: Stage, req: StageRequest, work: Callable[Concatenate[StageRequest, P], T], *args: P.args, **named: P.kwargs
) -> T | EngineError:
    """Return the result of ``work`` on a request, or the error that ends it: what it raises reaches no other
    request."""
    try:
        return work(req, *args, **named)
    except EngineError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever one request makes a model raise ends that request
        if out_of_memory(error):
            short = begins_again(stage)  # unless nothing can give way: whoever steps the stage sees to that
            short.__cause__ = error
            return short
        return failed(stage.info.name, req.request.id, error)


def failed(stage: str, request: str, error: Exception) -> StageFailed:
    """Return the error that a request gets where the fault is not its own; the log has all of it."""
    log.error("request %s: the stage %s failed", request, stage, exc_info=error)
    return StageFailed(f"The stage {stage} failed while it computed this answer; the server's log says why.")


def warm_up(stage: Stage, count: int, row: Any, steps: int = 1) -> None:
    """Step requests that nobody made, each with one item to consume, before anybody waits for an answer.

    What a runtime asks of the system by then (memory above all) need not be asked for in somebody's first sound.
    """
    request = Request(id="", session="", messages=())
    reqs = [StageRequest(request, slot, OneFrame()) for slot in range(count)]
    for req in reqs:
        stage.open(req)
        req.pending.append(row)
    for _ in range(steps):
        stage.step([req for req in reqs if req.ready])


def check_length(messages: Sequence[Message], most: int) -> None:
    """Refuse a conversation whose texts are so long that reading them would hold up everybody's next step.

    Raises ContextOverflow beyond ``most`` characters, before anything looks into them.
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
    """Where and how a stage computes."""

    weights: Path | None = None
    """The folder or file of its weights; None: its built-in weights."""
    device: str = "cpu"
    """torch's name of the device."""
    dtype: str = "float32"
    """The type of its weights, if it offers a choice."""
    threads: int = 1
    """CPU threads of a step."""
    slots: int = 16
    """Maximum requests that it holds at once."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stage's own settings."""
    slots_fixed: bool = True
    """Whether the configuration sets ``slots`` for this stage. If not, the stage may hold fewer."""
    models: tuple[tuple[str, StageConfig], ...] = ()
    """The ``use`` and the configuration of each model of a chain, in their order."""
    may_decline: bool = False
    """Whether the stage may decline a request (raise Declined): another model takes the turn then."""


def config_of(spec: StageSpec, config: StageConfig) -> StageConfig:
    """Return ``config``, the worker's part of a stage's configuration, with what ``spec`` says.

    Raises WeightsError for a catalogue model that is not on this machine.
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


SWITCH = {"auto": "auto", "on": True, "off": False}  # YAML reads the last two as truth values


def switched(option: str, wanted: Any, auto: bool) -> bool:
    """Return whether an option is on, of which ``auto`` says so where nobody else does. Raises ConfigError."""
    wanted = SWITCH.get(wanted, wanted) if isinstance(wanted, str) else wanted
    if not (isinstance(wanted, bool) or wanted == "auto"):
        raise ConfigError(f"options.{option}: {wanted!r:.80} is not one of {', '.join(SWITCH)}")
    return auto if wanted == "auto" else wanted
