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
