"""Converts a request of the engine to the body of a chat completion.

The prompt of one turn is a strict prefix of the next one's, so that servers compute only what is new. Its roles are in
the order that strict chat templates require: the user is first, user and assistant take turns, and an answer follows
each result of a tool. Source: openai-python ``types/chat/completion_create_params.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec
import pybase64
from msgspec.structs import replace

from engine.audio.wav import wav
from engine.core import (
    AudioPart,
    ImagePart,
    JsonFormat,
    Message,
    Part,
    Request,
    Role,
    TextPart,
    TokenCost,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
)
from engine.errors import RequestError
from engine.worker.llm.calls import is_object
from engine.worker.llm.media import image_url
from engine.worker.llm.options import ModelOptions

Body = dict[str, Any]
SILENCE: Body = {"role": "user", "content": "..."}
"""The user's message where the assistant speaks first, or again: templates refuse a prompt without one."""
TAKEN: Body = {"role": "assistant", "content": "I see."}
"""The answer to a tool's result where the user spoke before there was one."""
_SEEDS = 1 << 31  # the formats that every server takes


def body_of(request: Request, options: ModelOptions, said: TextPart | AudioPart | None = None) -> Body:
    """Build the body of a request. ``said`` is the user's live speech, in place of the last message's audio.

    Raises RequestError for input that the model does not support.
    """
    request = request if options.tools else _without_tools(request, options)
    messages = [*_with_turn(request.messages, said)]
    turns = _turns(messages)
    suffix = options.suffix(request.format)
    body: Body = {
        "model": options.model,
        "messages": [*_system(turns, suffix), *_conversation(turns, options)],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": min(request.max_text_tokens, _room(messages, request.tools, suffix, options)),
    }
    return body | _drawn(request, options) | _offered(request) | _formatted(request.format) | options.extras()


def _without_tools(request: Request, options: ModelOptions) -> Request:
    """Return the request for a model without tools: results become notes of the user, and calls are left out.

    Raises RequestError if the request requires a call.
    """
    if request.must_call:
        raise RequestError(
            f"tool_choice: {request.tool_choice!r} requires a tool call, but {options.model} cannot make one here. "
            "If it can, set tools: true in its options."
        )
    names = {
        part.call_id: part.name
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    messages = tuple(_noted(message, names) for message in request.messages)
    return replace(request, tools=(), messages=messages)


def _noted(message: Message, names: Mapping[str, str]) -> Message:
    """Return the message with a note in place of each result, and without calls. ``names`` are those of the calls."""
    if message.role != "tool":
        return replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ToolCallPart)))
    notes = (
        TextPart(f"[Result of {names[part.call_id]}: {part.output}]")
        for part in message.parts
        if isinstance(part, ToolResultPart) and part.call_id in names
    )
    return Message("user", tuple(notes))


def _room(messages: Sequence[Message], tools: Sequence[ToolDefinition], suffix: str, options: ModelOptions) -> int:
    """Estimate the tokens that a prompt leaves for its answer: many servers refuse ``max_tokens`` above that.

    An eighth of the context is always left, since the estimate is rather too high.
    """
    cost = TokenCost()
    schemas = sum(len(str(msgspec.to_builtins(tool))) for tool in tools)
    fixed = cost.message + cost.instruction * (len(suffix) + schemas)
    return max(options.context // 8, int(options.context - fixed - sum(map(cost.of, messages))))


def texts_of(body: Mapping[str, Any]) -> list[str]:
    """Return all texts of a request."""
    found: list[str] = []
    left: list[Any] = [body.get("messages", ())]
    while left:
        match left.pop():
            case str() as text:
                found.append(text)
            case dict() as tree:
                left += [value for name, value in tree.items() if name != "role"]
            case list() | tuple() as items:
                left += items
            case _:
                pass
    return found


def beginning_of(request: Request, options: ModelOptions) -> Body | None:
    """Return the known beginning of the next prompt, as a request for one token, while the user still speaks.

    Returns None if nothing is known yet. Raises RequestError as ``body_of`` does.
    """
    known = request.messages
    while known and known[-1].role == "user":
        known = known[:-1]  # the turn is not over
    if not known:
        return None
    body = body_of(replace(request, messages=known, max_text_tokens=1), options)
    if len(body["messages"]) > 2 and body["messages"][-1] == SILENCE:
        body["messages"].pop()  # an answer may be last, since nothing of this one is used
    return body


def begins(beginning: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Whether a ``beginning_of`` is the beginning of a body's prompt."""
    known = beginning["messages"]
    known = known[:-1] if known[-1] == SILENCE else known
    return beginning.get("tools") == body.get("tools") and body["messages"][: len(known)] == known


@dataclass(slots=True)
class _Turn:
    """Consecutive messages of one role, merged because many chat templates refuse two in a row."""

    role: Role
    parts: list[Part] = field(default_factory=list[Part])


def _with_turn(messages: Sequence[Message], said: TextPart | AudioPart | None) -> Iterator[Message]:
    """Return the conversation with the user's words in place of the turn's audio."""
    if said is None:
        yield from messages
        return
    last = messages[-1] if messages and messages[-1].role == "user" else Message("user", ())
    yield from messages[:-1] if messages and messages[-1] is last else messages
    seen = tuple(part for part in last.parts if not (isinstance(part, AudioPart) and part.transcript is None))
    yield Message("user", (*seen, said))


def _turns(messages: Iterable[Message]) -> list[_Turn]:
    turns: list[_Turn] = []
    for message in messages:
        if not turns or turns[-1].role != message.role:
            turns.append(_Turn(message.role))
        turns[-1].parts += message.parts
    return turns


def _system(turns: Sequence[_Turn], suffix: str) -> list[Body]:
    """Return all instructions as one message at the start, because many chat templates refuse them elsewhere."""
    instructions = [_words(part) for turn in turns if turn.role == "system" for part in turn.parts]
    text = "\n\n".join(filter(None, [*instructions, suffix]))
    return [{"role": "system", "content": text}] if text else []


def _conversation(turns: Sequence[_Turn], options: ModelOptions) -> list[Body]:
    """The messages, in the order of roles that strict templates require. Messages of one role in a row are joined."""
    found: list[Body] = []
    for one in _bodies(turns, options):
        last = found[-1] if found else None
        if last is None and one["role"] == "assistant":
            found.append(SILENCE)
        elif last is not None and last["role"] == "tool" and one["role"] == "user":
            found.append(TAKEN)
        if last is not None and last["role"] == one["role"] != "tool":
            found[-1] = {**one, "content": _joined(last["content"], one["content"] or "")}
        else:
            found.append(one)
    if not found or found[-1]["role"] == "assistant":
        found.append(SILENCE)
    return [SILENCE if one["role"] == "user" and _blank(one["content"]) else one for one in found]


def _blank(content: str | list[Body]) -> bool:
    return not (content.strip() if isinstance(content, str) else content)


def _joined(before: str | list[Body], after: str | list[Body]) -> str | list[Body]:
    if isinstance(before, str) and isinstance(after, str):
        return "\n".join(filter(None, (before, after)))
    parts = ([{"type": "text", "text": one}] if isinstance(one, str) else one for one in (before, after) if one)
    return [part for some in parts for part in some]


def _bodies(turns: Sequence[_Turn], options: ModelOptions) -> Iterator[Body]:
    results = _results(turns)
    for turn in _turns(Message(turn.role, tuple(turn.parts)) for turn in turns if turn.role != "system"):
        match turn.role:
            case "user":
                yield {"role": "user", "content": _content(turn.parts, options)}
            case "assistant":
                yield from _assistant(turn.parts, results)
            case "tool" | "system":
                pass  # results stand behind their calls
            case _:
                assert_never(turn.role)


def _content(parts: Sequence[Part], options: ModelOptions) -> str | list[Body]:
    """Return the content; text alone is a string, because not all servers accept a list of parts."""
    shown = [_shown(part, options) for part in parts]
    if all(isinstance(one, str) for one in shown):
        return "\n".join(one for one in shown if isinstance(one, str) and one)
    return [{"type": "text", "text": one} if isinstance(one, str) else one for one in shown if one]


def _shown(part: Part, options: ModelOptions) -> str | Body:
    """Convert a part of a user message. Raises RequestError."""
    match part:
        case ImagePart(pixels) if options.images:
            return {"type": "image_url", "image_url": {"url": image_url(pixels)}}
        case ImagePart():
            raise RequestError(f"{options.model} does not accept images here. If it can, {options.to_see()}.")
        case VideoPart():
            raise RequestError(f"{options.model} does not accept videos here. Send single images instead.")
        case AudioPart(pcm, _) if options.audio and pcm is not None:
            return {
                "type": "input_audio",
                "input_audio": {"data": pybase64.b64encode(wav(pcm)).decode("ascii"), "format": "wav"},
            }
        case AudioPart(_, None):
            raise RequestError(f"{options.model} does not accept audio here, and the audio has no transcript.")
        case _:
            return _words(part)


def _words(part: Part) -> str:
    match part:
        case TextPart(text):
            return text
        case AudioPart(_, transcript):
            return transcript or ""
        case ToolResultPart(_, output):
            return output
        case ImagePart() | VideoPart() | ToolCallPart():
            return ""
        case _:
            assert_never(part)


def _results(turns: Sequence[_Turn]) -> Mapping[str, deque[str]]:
    """Return the results of each call id; some servers give several calls one id."""
    found: dict[str, deque[str]] = {}
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                found.setdefault(part.call_id, deque()).append(part.output)
    return found


def _assistant(parts: Sequence[Part], results: Mapping[str, deque[str]]) -> Iterator[Body]:
    """Yield what the assistant said and called, then what its calls gave.

    Servers refuse a call that its result does not follow, so a call without a result is left out. Each call has
    a message of its own, because templates such as Llama 3.1's refuse several calls in one.
    """
    text = "\n".join(filter(str.strip, map(_words, parts)))
    made = [
        (part, results[part.call_id].popleft())
        for part in parts
        if isinstance(part, ToolCallPart) and results.get(part.call_id)
    ]
    if text and not made:
        yield {"role": "assistant", "content": text}
    for part, result in made:
        yield {"role": "assistant", "content": text or None, "tool_calls": [_call(part)]}
        yield {"role": "tool", "tool_call_id": part.call_id, "content": result}
        text = ""


def _call(part: ToolCallPart) -> Body:
    return {
        "id": part.call_id,
        "type": "function",
        "function": {"name": part.name, "arguments": _object(part.arguments)},
    }


def _object(arguments: str) -> str:
    """Return the arguments as a JSON object, because some servers fail on anything else."""
    return arguments if is_object(arguments) else msgspec.json.encode({"arguments": arguments}).decode()


def _drawn(request: Request, options: ModelOptions) -> Body:
    """Return the sampling fields; unset ones are left to the server."""
    sampling = request.sampling
    if sampling.greedy:
        return {"temperature": 0}
    temperature = options.temperature if sampling.temperature is None else sampling.temperature
    top_p = options.top_p if sampling.top_p is None else sampling.top_p
    seed = sampling.seed % _SEEDS if sampling.seed else None  # 0 is the value of a request that names none
    drawn = {"temperature": temperature, "top_p": top_p, "seed": seed}
    return {name: value for name, value in drawn.items() if value is not None}


def _offered(request: Request) -> Body:
    """Return all tools, even if none may be called, because they are part of the prompt."""
    if not request.tools:
        return {}
    choice = request.tool_choice
    named = {"type": "function", "function": {"name": choice}}
    return {
        "tools": [{"type": "function", "function": _function(tool)} for tool in request.tools],
        "tool_choice": choice if choice in ("auto", "none", "required") else named,
    }


def _function(tool: ToolDefinition) -> Body:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _formatted(format: JsonFormat | None) -> Body:
    """Return the field that requires JSON. Source: openai-python ``types/shared_params``."""
    if format is None:
        return {}
    if format.schema is None:
        return {"response_format": {"type": "json_object"}}
    schema: Body = {"name": format.name or "answer", "schema": format.schema}
    schema |= {"description": format.description} if format.description else {}
    schema |= {"strict": format.strict} if format.strict is not None else {}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
