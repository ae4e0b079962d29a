"""Every error that the engine raises on purpose.

::


    EngineError                 base class; its message is for users
    ├── ConfigError             an invalid configuration; the message names the path of the key
    ├── WeightsError            weights that are missing, damaged, or of another model
    ├── RequestError            a request that cannot be served because of its own content
    │   ├── ContextOverflow     its prompt is longer than the model's context
    │   └── SchemaError         its JSON schema is invalid, or cannot be enforced; the message has the JSON path
    ├── StageUnavailable        a stage has no replica that accepts the request
    │   └── Overloaded          every replica is busy, and the queue is full
    ├── Declined                a model of a chain passes the request on to the next model
    ├── Preempted               a preemptible request lost its slots to another request
    ├── ReplicaLost             the replica that served the request is gone
    │   └── BatchLost           a step of several requests failed; each is retried alone
    │       └── OutOfMemory     a step ran out of memory; each of its requests is retried
    ├── Stalled                 no progress within the time limit
    ├── StageFailed             a stage failed while computing this request
    └── WireError               a message between processes is malformed, or its sender is not authenticated

Clients and logs see the ``code``. Between processes, an error travels as its code and message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

_ADDRESS = r"""
    (?<![a-z0-9+.-]) [a-z][a-z0-9+.-]{0,15}:// [^\s,;"')]+         # a URL
    | \[[0-9a-f:.%]{2,64}\] (?::\d+)?                            # an IPv6 address
    | (?<![\w.]) \d{1,3}(?:\.\d{1,3}){3} (?::\d+)? \b           # an IPv4 address
    | (?<![\w.-]) (?=[\d.]*[a-z]) [\w.-]{1,253} :\d{2,5}\b (?!')  # a host and a port
    | (?<![\w./]) (?:/[\w.@+-]+){2,}                             # a path
    | \b [a-z]:\\ [^\s"']+
"""
_PLACES = re.compile(rf"(?P<what>server|API)\ at\ \S+ | {_ADDRESS}", re.VERBOSE | re.IGNORECASE)


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose. The message says what is wrong and what to do."""

    code = "server_error"

    @property
    def public(self) -> str:
        """Return the message for clients: without the addresses of other servers and the paths of files."""
        return without_places(str(self))


class ConfigError(EngineError):
    code = "invalid_config"


class WeightsError(EngineError):
    code = "invalid_weights"


class RequestError(EngineError):
    code = "invalid_request"


class ContextOverflow(RequestError):
    code = "context_overflow"


class SchemaError(RequestError):
    code = "invalid_json_schema"


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


def without_places(message: str) -> str:
    """Return a message without addresses and paths, which the server's log shows."""
    return _PLACES.sub(lambda found: found["what"] or "…", message)


def error_of(code: str, message: str) -> EngineError:
    """Return the error for a code and message from another process; an unknown code gives a plain EngineError."""
    return _tree(EngineError).get(code, EngineError)(message)


def plain(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most important error of a group: an EngineError before other errors, StageUnavailable last among
    those.
    """
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
