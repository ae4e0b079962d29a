"""Decodes the events of a streamed chat completion to chunks, including the deviations of real servers. Does no I/O.

Source: openai-python ``types/chat/chat_completion_chunk.py``, and additions of Ollama, LM Studio, llama.cpp, vLLM and
SGLang: ``reasoning_content`` or ``reasoning``, whole messages instead of deltas, and errors in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from engine.chunk import Finish, Text, Usage
from engine.errors import StageFailed
from engine.worker.llm.calls import ToolCallAssembler
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.llm.reasoning_filter import ReasoningFilter
from engine.worker.llm.surrogates import SurrogateJoiner
from engine.worker.remote.refusals import ServerRefusal, kind_of, said_by

DONE = "[DONE]"
LONGEST_ANSWER = 1_000_000
"""Maximum characters of text, reasoning and arguments together; a longer answer is a server fault."""

_REASONS: dict[str, Finish] = {"length": "length", "tool_calls": "tool", "function_call": "tool"}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | int | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None


class ChatStreamDecoder:
    """Decoder of one answer. Feed each event's data, and call ``end`` after the last one.

    ``name`` is the prefix of ids for calls without one. ``begun``: the stream is the rest of an answer, which may be
    empty. Both methods raise ServerRefusal if the server reports an error, and StageFailed for an invalid answer.
    """

    def __init__(self, name: str, begun: bool = False) -> None:
        self.done = False
        """Whether the server has said that nothing more comes."""
        self.length = 0
        """Characters of text, thoughts and arguments so far, as they came."""
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self._text = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._thoughts = ReasoningFilter()
        self._calls = ToolCallAssembler(name)
        self._written = 0
        """Characters of the text that were given."""
        self._thought = False
        self._spoke = begun

    @property
    def finished(self) -> bool:
        """Whether the answer is complete; its usage may still come."""
        return self.done or self._finish is not None

    def feed(self, data: str) -> list[Delta]:
        """Return what an event adds to the answer."""
        data = data.strip("\ufeff \t\r\n")
        if data == DONE:
            self.done = True
            return []
        event = _event_of(data)
        self._usage = event.usage or self._usage
        deltas = [delta for choice in event.choices or () if not choice.index for delta in self._chosen(choice)]
        if self.length > LONGEST_ANSWER:
            raise StageFailed(f"The language model's answer is longer than {LONGEST_ANSWER} characters.")
        return deltas

    def end(self) -> list[Delta]:
        """Return the rest: whole calls (one that was cut off has pieces only), and the usage, which is last and says
        why the text is over."""
        if not self.finished:
            raise StageFailed("The language model's server ended its answer before it was complete.")
        pieces = [*self._thoughts.feed(self._text.flush()), *self._thoughts.flush()]
        rest: list[Delta] = [self._placed(piece) for piece in pieces]
        reason = _REASONS.get(self._finish or "", "stop")
        calls = self._calls.whole(cut=reason == "length")
        if self._thought and not self._spoke and not self._calls:
            raise StageFailed(
                "The language model spent its whole answer on thinking: turn thinking off, or allow more tokens."
            )
        usage = _usage(self._usage or _Usage(), "tool" if calls and reason == "stop" else reason)
        return [*rest, *calls, usage]

    def _chosen(self, choice: _Choice) -> Iterator[Delta]:
        if choice.finish_reason == "error":
            raise ServerRefusal(500)
        self._finish = choice.finish_reason or self._finish
        piece = choice.delta or choice.message or _Message()
        thought = self._reasoning.feed(_text(piece.reasoning_content) or _text(piece.reasoning))
        text = self._text.feed(_text(piece.content) + _text(piece.refusal))
        self.length += len(thought) + len(text)
        for one in (*([ReasoningDelta(thought)] if thought else []), *self._thoughts.feed(text)):
            yield self._placed(one)
        for call in piece.tool_calls or ():
            function = call.function or _Function()
            arguments = _arguments(function.arguments)
            self.length += len(arguments)
            id = "" if call.id is None else str(call.id)
            yield from self._calls.feed(call.index, id, function.name or "", arguments)

    def _placed(self, piece: str | ReasoningDelta) -> Text | ReasoningDelta:
        """A piece of the text with its place in the answer."""
        if isinstance(piece, ReasoningDelta):
            self._thought = True
            return piece
        start = self._written
        self._written = self._written + len(piece)
        self._spoke = self._spoke or bool(piece.strip())
        return Text(piece, start)


def _event_of(data: str) -> _Event:
    try:
        try:
            event = msgspec.json.decode(data, type=_Event, strict=False)
        except (msgspec.DecodeError, UnicodeError):  # half of a surrogate pair, or a NaN
            event = msgspec.convert(json.loads(data), _Event, strict=False)
    except (ValueError, RecursionError):
        raise StageFailed("The language model's server sends something that is not a chat completion.") from None
    if event.error not in (None, "", False) or event.object == "error":
        tree = json.loads(data)
        raise ServerRefusal(_status(tree), said_by(tree), kind_of(tree))
    return event


def _status(tree: Any) -> int:
    """The HTTP status that an error object stands for."""
    inner = tree["error"] if isinstance(tree.get("error"), dict) else tree
    code = inner.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _text(content: object) -> str:
    """A piece's text: a string, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _arguments(given: str | dict[str, Any] | list[Any] | None) -> str:
    """Some servers give JSON, some the value that it stands for."""
    if isinstance(given, dict | list):
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return given or ""


def _usage(usage: _Usage, finish: Finish) -> Usage:
    details = usage.prompt_tokens_details or _Details()
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=details.cached_tokens or 0,
        finish=finish,
    )
