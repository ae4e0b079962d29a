"""The jobs of a compiler process and their results, as messages on a socket."""

from __future__ import annotations

import socket

import msgspec

from engine.errors import SchemaError
from engine.ipc import frames
from engine.worker.llm.grammar.schema import call_grammar, json_grammar

TOO_COSTLY = (
    "JSON schema: takes too much time or memory to compile. Use fewer properties, alternatives, patterns and limits."
)
_MOST_RESULT_BYTES = 4 << 20


class AnswerJob(msgspec.Struct, frozen=True, tag="answer"):
    """Compile the grammar of a schema's values. ``schema`` is JSON."""

    schema: bytes

    def run(self) -> str:
        return json_grammar(msgspec.json.decode(self.schema))


class CallJob(msgspec.Struct, frozen=True, tag="call"):
    """Compile the grammar of a call, or with ``tags``, of text with calls between tags.

    ``functions`` is a JSON array of names with the schemas of their arguments.
    """

    functions: bytes
    tags: tuple[str, str] | None = None

    def run(self) -> str:
        return call_grammar(msgspec.json.decode(self.functions), self.tags)


Job = AnswerJob | CallJob


class _Result(msgspec.Struct, frozen=True):
    grammar: str = ""
    error: str = ""
    """The reason why there is no grammar."""


def send_job(connection: socket.socket, job: Job) -> None:
    """Send a job."""
    frames.send(connection, msgspec.msgpack.encode(job))


def receive_job(connection: socket.socket) -> Job | None:
    """Return the next job; None if the connection was closed."""
    found = frames.header(connection)
    return None if found is None else msgspec.msgpack.decode(found[0], type=Job)


def send_result(connection: socket.socket, result: str | SchemaError) -> None:
    """Send a grammar, or the reason why there is none."""
    found = _Result(error=str(result)) if isinstance(result, SchemaError) else _Result(result)
    frames.send(connection, msgspec.msgpack.encode(found))


def receive_result(connection: socket.socket) -> str:
    """Receive a grammar.

    Raises SchemaError with the process's reason, EOFError if the connection was closed or the message is no result.
    """
    header, _ = frames.required(frames.header(connection, _MOST_RESULT_BYTES))
    try:
        result = msgspec.msgpack.decode(header, type=_Result)
    except msgspec.DecodeError:
        raise EOFError from None
    if result.error:
        raise SchemaError(result.error)
    return result.grammar
