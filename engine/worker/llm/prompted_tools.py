"""Function calls as plain text between ``<tool_call>`` tags, the format of the Hermes models that most models know.

For models whose chat template does not support tools, the instructions list the functions.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from engine.chunk import Text, ToolCall, ToolCallDelta, Usage
from engine.worker.llm.calls import is_object
from engine.worker.llm.deltas import Delta
from engine.worker.llm.messages import Body

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
OFFER = """You may call functions. These are their descriptions as JSON, one on each line:
<tools>
{functions}
</tools>
To call one, answer with its name and its arguments as a JSON object within <tool_call></tool_call>:
<tool_call>
{{"name": "…", "arguments": {{…}}}}
</tool_call>"""


def writes_calls_as_text(template: str) -> bool:
    """Return whether a chat template supports tools, and its model writes calls in this format."""
    return "tools" in template and OPEN in template and '"arguments"' in template and "<function=" not in template


def prompted(body: Mapping[str, Any]) -> Body:
    """Return the request with its functions, calls and results as text, and without ``tools``."""
    asked = {name: value for name, value in body.items() if name not in ("tools", "tool_choice")}
    return {**asked, "messages": _messages(body["messages"], [tool["function"] for tool in body["tools"]])}


def required_functions(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions of which the answer must call one; empty if the answer may be text."""
    functions, choice = [tool["function"] for tool in body["tools"]], body["tool_choice"]
    if isinstance(choice, dict):
        return [function for function in functions if function["name"] == choice["function"]["name"]]
    return functions if choice == "required" else []


async def parsed(deltas: AsyncGenerator[Delta], body: Mapping[str, Any], name: str) -> AsyncGenerator[Delta]:
    """Extract the calls from the text of the answer to a ``prompted`` request. ``name`` is the prefix of their ids."""
    async with aclosing(deltas), aclosing(_parsed(deltas, body, name)) as found:
        async for delta in found:
            yield delta


async def _parsed(deltas: AsyncIterator[Delta], body: Mapping[str, Any], name: str) -> AsyncGenerator[Delta]:
    calls = CallParser(within=bool(required_functions(body)))
    made = list[ToolCall]()
    start = sent = 0
    async for delta in deltas:
        match delta:
            case Text(text):
                texts, found = calls.feed(text)
            case Usage():
                texts, found = calls.end()
            case _:
                yield delta
                continue
        for text in texts:
            yield Text(text, start)
            start += len(text)
        if body["tool_choice"] != "none":
            for function, arguments in found:
                id = f"call_{name}_{len(made)}"
                if sent:
                    yield ToolCallDelta(id, function, arguments[sent:])
                    sent = 0
                made.append(ToolCall(id, function, arguments))
                yield made[-1]
            function, arguments = calls.begun
            if len(arguments) > sent:
                yield ToolCallDelta(f"call_{name}_{len(made)}", function, arguments[sent:])
            sent = len(arguments)
        if isinstance(delta, Usage):
            yield replace(delta, finish="tool") if made and delta.finish == "stop" else delta


class CallParser:
    """Separates calls from text in a stream. ``within``: the stream begins inside a call. Does no I/O."""

    def __init__(self, within: bool = False) -> None:
        self._within = within
        self._held = ""
        self._blank = True  # no text yet, or since the last call, so leading space is dropped

    def feed(self, text: str) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the text and the calls (name, arguments) that are complete."""
        self._held += text
        words, calls = list[str](), list[tuple[str, str]]()
        while (at := self._held.find(CLOSE if self._within else OPEN)) >= 0:
            before = self._held[:at]
            self._held = self._held[at + len(CLOSE if self._within else OPEN) :]
            if self._within:
                calls += _call(before)
                self._blank = True
            elif before.strip():
                words.append(before)
            self._within = not self._within
        if not self._within:
            self._held = self._held.lstrip() if self._blank else self._held
            ready = self._held[: len(self._held) - _begun(self._held)]
            self._held = self._held[len(ready) :]
            words += [ready] if ready else []
            self._blank = self._blank and not ready
        return words, calls

    @property
    def begun(self) -> tuple[str, str]:
        """The name and the first arguments of a call that is not complete; empty if they are not known yet."""
        head = _HEAD.match(self._held) if self._within else None
        if head is None:
            return "", ""
        written = self._held[head.end() :]
        tag = written.rfind("<")
        if tag >= 0 and CLOSE.startswith(written[tag:]):
            written = written[:tag]
        return msgspec.json.decode(head[1]), written.rstrip().removesuffix("}")  # that may be the end of the call

    def end(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the rest. An incomplete call is dropped."""
        rest = self._held
        self._held = ""
        if self._within:
            return [], _call(rest)
        return [rest] if rest else [], []


def _messages(messages: Sequence[Body], functions: Sequence[Any]) -> list[Body]:
    offer = OFFER.format(functions="\n".join(msgspec.json.encode(one).decode() for one in functions))
    system = [message for message in messages if message["role"] == "system"]
    texts = [message["content"] for message in system] + [offer]
    found: list[Body] = [{"role": "system", "content": "\n\n".join(texts)}]
    for message in messages:
        if message["role"] == "system":
            continue
        one = _as_text(message)
        last = found[-1]
        if last["role"] == one["role"] and isinstance(last["content"], str) and isinstance(one["content"], str):
            found[-1] = {**last, "content": f"{last['content']}\n{one['content']}"}
        else:
            found.append(one)
    return found


def _as_text(message: Body) -> Body:
    """Convert a message with a call or a result to text."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = [call["function"] for call in message["tool_calls"]]
    texts = [
        f'{OPEN}\n{{"name": {msgspec.json.encode(one["name"]).decode()}, "arguments": {one["arguments"]}}}\n{CLOSE}'
        for one in calls
    ]
    return {"role": "assistant", "content": "\n".join([message["content"] or "", *texts]).strip()}


def _call(text: str) -> list[tuple[str, str]]:
    """Parse a call to its name and arguments, as they are written; empty if it is invalid."""
    head = _HEAD.match(text)
    written = text[head.end() :].rstrip().removesuffix("}").rstrip() if head else ""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    name, arguments = (found.get("name"), found.get("arguments", {})) if isinstance(found, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return []
    whole = msgspec.json.encode(arguments).decode()
    return [(name, written if is_object(written) else whole)]


def _begun(text: str) -> int:
    """Return the number of trailing characters that may be the start of a tag."""
    return next((n for n in range(min(len(text), len(OPEN) - 1), 0, -1) if OPEN.startswith(text[-n:])), 0)
