"""Requests that have a server go on with an answer that was broken off, and the proof beforehand that it would.

What was written stands as the last message, which the server is to leave open. One that does not know this would begin
another answer, so it is first asked for the prompt that it makes of the request: that must end with the words that were
written. No model is asked anything by that. Source: ``continue_final_message`` of transformers'
``apply_chat_template``, of vLLM's ``ChatCompletionRequest``, and of llama.cpp's server (``tools/server/README.md``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from engine.chunk import Text, Usage
from engine.worker.llm.deltas import Delta

SERVERS = frozenset({"llamacpp", "vllm"})
"""Servers that may go on with an answer, by the owner that they give for their models."""
_OPEN = {"add_generation_prompt": False, "continue_final_message": True, "echo": False}
_RENDERED = ("model", "messages", "tools", "chat_template_kwargs", *_OPEN)
"""The fields of a request that its prompt is made of."""


class OwnApi(Protocol):
    """The paths that a server offers beside OpenAI's API."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """A reply's JSON; None where the server has no such path, or refuses."""
        ...


def continued(body: Mapping[str, Any], written: Sequence[Text]) -> dict[str, Any]:
    """A request's body again, to be answered behind what was written of it.

    Space at the end of that is left out, since most tokenizers have it at a word's beginning; see ``rest``.
    """
    message = {"role": "assistant", "content": _whole(written).rstrip()}
    left = max(1, body["max_tokens"] - len(written))  # a piece is a token, or some
    return {**body, "messages": [*body["messages"], message], "max_tokens": left, **_OPEN}


async def goes_on(server: OwnApi, owner: str, body: Mapping[str, Any]) -> bool:
    """Whether a server would go on with the last message of a ``continued`` body. ``owner`` is who its list of models
    says that it is."""
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
    """The deltas of a ``continued`` request as those of the whole answer: in their places, and counted with it."""
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
