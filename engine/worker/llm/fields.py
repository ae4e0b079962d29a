"""Request fields that not all servers support, and which of them a server's refusal refers to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.worker.llm.refusals import overflows
from engine.worker.remote.refusals import ServerRefusal

EXTRAS = frozenset({
    "reasoning_effort", "chat_template_kwargs", "stream_options", "keep_alive", "top_k", "min_p", "repeat_penalty",
    "repetition_penalty",
})  # fmt: skip
"""Fields that are newer than the API or not part of it. Omitted if a server refuses a request without a reason."""

_PLAIN = frozenset({"temperature", "top_p", "seed", "parallel_tool_calls"})
"""Fields that some hosted models do not support. A refusal may also mean that the value is out of range."""

_RENAMED = {"max_tokens": "max_completion_tokens"}
_LENGTHS = ("max_tokens", "max_completion_tokens")
_CONTEXT = re.compile(r"(?:maximum context length (?:is|of)|must be <=) `?(\d+)")
_PROMPT = re.compile(r"(\d+) (?:in the messages|input tokens|tokens from the input|`inputs` tokens)")
_LONGEST = re.compile(r"(?:supports at most|less than or equal to) `?(\d+)")
_UNKNOWN = re.compile(r"support|unrecogni|unknown|not permitted|unexpected|extra|not allowed|deprecated", re.I)


def without(body: Mapping[str, Any], refused: frozenset[str]) -> dict[str, Any]:
    """Return the body without the refused fields, or with their alternative names."""
    kept = {name: value for name, value in body.items() if name not in refused}
    renamed = {_RENAMED[name]: body[name] for name in refused & _RENAMED.keys() if name in body}
    return kept | renamed


def refused_by(refusal: ServerRefusal, sent: Mapping[str, Any]) -> frozenset[str]:
    """Return the sent fields that may have caused the refusal: those it names, or else all extras."""
    if refusal.status not in (400, 422) or overflows(refusal):
        return frozenset()
    named = {name for name in EXTRAS if name in refusal.said}
    if _UNKNOWN.search(refusal.said):
        named |= {name for name in _PLAIN if re.search(rf"\b{name}\b", refusal.said)}
    named |= {name for name, other in _RENAMED.items() if other in refusal.said}
    return frozenset((named & sent.keys()) or (EXTRAS & sent.keys() if not named else ()))


def shorter(refusal: ServerRefusal, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field for a shorter answer, where a server refuses the length that was asked for; else nothing.

    A server that names no numbers is asked for a quarter: the prompt alone may still fit.
    """
    name = next((name for name in _LENGTHS if name in sent), None)
    if name is None or refusal.status not in (400, 413, 422, 500):
        return {}
    context = _CONTEXT.search(refusal.said)
    prompt = _PROMPT.search(refusal.said)
    if longest := _LONGEST.search(refusal.said):
        most = int(longest[1])
    elif context and prompt:
        most = int(context[1]) - int(prompt[1])
    elif overflows(refusal):
        most = sent[name] // 4
    else:
        return {}
    return {name: most} if 0 < most < sent[name] else {}
