"""Every error that the engine raises on purpose.

::

    EngineError                 something the caller can be told: what, where, and the next step
    ├── ConfigError             a configuration that cannot mean anything; names the path
    ├── WeightsError            missing, damaged or unfitting weights
    ├── RequestError            this request can't be served as asked (its own fault)
    │   └── ContextOverflow     its prompt is longer than the model's context
    ├── StageUnavailable        no replica of a stage is there to take it
    │   └── Overloaded          all are taken, and the queue is full
    ├── Declined                a model of a chain leaves the request to the next one
    ├── Preempted               it was preemptible, and another request needed its slots
    ├── ReplicaLost             the replica that served it is gone
    │   └── BatchLost           a step of several requests broke; each goes on alone
    │       └── OutOfMemory     a step had too little memory; each goes on
    ├── Stalled                 no progress for longer than the deadline
    ├── StageFailed             a stage broke while computing this request
    └── WireError               a frame between processes is malformed, or from a stranger

``code`` is the word that clients and logs see; it is also how an error crosses a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast


class EngineError(Exception):
    """Base of the tree. The message is one sentence that a user can act on."""

    code = "server_error"


class ConfigError(EngineError):
    code = "invalid_config"


class WeightsError(EngineError):
    code = "invalid_weights"


class RequestError(EngineError):
    code = "invalid_request"


class ContextOverflow(RequestError):
    code = "context_overflow"


class StageUnavailable(EngineError):
    code = "stage_unavailable"


class Overloaded(StageUnavailable):
    code = "overloaded"


class Declined(EngineError):
    code = "declined"


class Preempted(EngineError):
    code = "preempted"


class ReplicaLost(EngineError):
    code = "replica_lost"


class BatchLost(ReplicaLost):
    code = "batch_lost"


class OutOfMemory(BatchLost):
    code = "out_of_memory"


class Stalled(EngineError):
    code = "stalled"


class StageFailed(EngineError):
    code = "stage_failed"


class WireError(EngineError):
    code = "wire_error"


def _tree(kind: type[EngineError]) -> dict[str, type[EngineError]]:
    return {kind.code: kind} | {code: sub for one in kind.__subclasses__() for code, sub in _tree(one).items()}


def error_of(code: str, message: str) -> EngineError:
    """The error that ``code`` names, as it left another process; an unknown code is a plain EngineError."""
    return _tree(EngineError).get(code, EngineError)(message)


def plain(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that a group stands for: an EngineError before any other, a cause before its consequences."""
    leaves = list(_leaves(group))
    errors = [error for error in leaves if isinstance(error, EngineError)]
    errors.sort(key=lambda error: isinstance(error, StageUnavailable))
    return (errors or leaves)[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error
