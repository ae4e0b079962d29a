"""Requests that continue an interrupted answer, and the check whether a server supports them.

The text written so far becomes the last message, which the server must leave open. A server without this feature would
start a new answer. So it is first asked for the rendered prompt, which must end with that text; this does not run the
model. Source: ``continue_final_message`` of transformers' ``apply_chat_template``, of vLLM's ``ChatCompletionRequest``,
and of llama.cpp's server (``tools/server/README.md``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from engine.chunk import Text, Usage
from engine.worker.llm.deltas import Delta

SERVERS = frozenset({"llamacpp", "vllm"})
"""Servers that may continue an answer, by the ``owned_by`` field of their models."""
_OPEN = {"add_generation_prompt": False, "continue_final_message": True, "echo": False}
_RENDERED = ("model", "messages", "tools", "chat_template_kwargs", *_OPEN)
"""Request fields that determine the prompt."""


class OwnApi(Protocol):
    """A server's own API, in addition to OpenAI's."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return a reply's JSON, or None if the server lacks the path or refuses."""
        ...


def continued(body: Mapping[str, Any], written: Sequence[Text]) -> dict[str, Any]:
    """Return the body that continues after the text ``written`` so far.

    Trailing space is removed, because most tokenizers put it at the beginning of a word; see ``rest``.
    """
    message = {"role": "assistant", "content": _whole(written).rstrip()}
    left = max(1, body["max_tokens"] - len(written))  # a piece is at least one token
    return {**body, "messages": [*body["messages"], message], "max_tokens": left, **_OPEN}


async def goes_on(server: OwnApi, owner: str, body: Mapping[str, Any]) -> bool:
    """Return whether a server would continue the last message of a ``continued`` body.

    ``owner`` is the ``owned_by`` field of its models.
    """
    match owner:
        case "llamacpp":
            prompt = _text(await server.post("apply-template", body), "prompt")
        case "vllm":
            asked = {name: body[name] for name in _RENDERED if name in body}
            tokens = await server.post("tokenize", asked)
            ids = tokens.get("tokens") if isinstance(tokens, dict) else None
            prompt = _text(await server.post("detokenize", {"model": body["model"], "tokens": ids}), "prompt")
        case _:
            return False
    written: str = body["messages"][-1]["content"]
    return bool(written) and prompt.endswith(written)


async def rest(deltas: AsyncIterator[Delta], written: Sequence[Text]) -> AsyncGenerator[Delta]:
    """Convert the deltas of a ``continued`` request to positions and token counts within the whole answer."""
    text = _whole(written)
    start, spaced = len(text), text[-1:].isspace()
    async for delta in deltas:
        match delta:
            case Text(piece):
                piece = piece.lstrip() if spaced else piece
                if piece:
                    yield Text(piece, start)
                    start, spaced = start + len(piece), False
            case Usage(input_tokens, output_tokens):
                count = len(written)
                yield replace(delta, input_tokens=max(0, input_tokens - count), output_tokens=output_tokens + count)
            case _:
                yield delta


def _whole(written: Sequence[Text]) -> str:
    return "".join(piece.text for piece in written)


def _text(reply: Any, field: str) -> str:
    found = reply.get(field) if isinstance(reply, dict) else None
    return found if isinstance(found, str) else ""
