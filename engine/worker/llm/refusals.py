"""Errors specific to language models: a conversation that is too long, and a server with another API."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.errors import ContextOverflow, EngineError, RequestError, StageFailed
from engine.worker.llm.options import ChatServerOptions
from engine.worker.remote import refusals
from engine.worker.remote.refusals import ServerRefusal, says

_CONTEXT = re.compile(r"context[ _](?:size|length|window)|maximum context|prompt is too long", re.I)


def overflows(refusal: ServerRefusal) -> bool:
    """Return whether the conversation exceeds the model's context."""
    return refusal.status in (400, 413, 422, 500) and bool(_CONTEXT.search(f"{refusal.kind} {refusal.said}"))


def as_engine_error(
    refusal: ServerRefusal, options: ChatServerOptions, texts: Iterable[str], key: str = ""
) -> EngineError:
    """Return the error for a refusal. Its message contains neither conversation text nor the key."""
    if overflows(refusal):
        said = says(refusal.said, texts, key)
        return ContextOverflow(f"The conversation exceeds the context of {options.model}{said}. Shorten it.")
    return refusals.as_engine_error(refusal, options, texts, key)


def error_of_model(refusal: ServerRefusal, name: str, texts: Iterable[str]) -> EngineError:
    """Return the same error for a model that runs in the worker."""
    said = says(refusal.said, texts)
    if overflows(refusal):
        return ContextOverflow(f"The conversation exceeds the context of {name}{said}. Shorten it.")
    if refusal.status in (400, 413, 422):
        return RequestError(f"The language model {name} rejected this request{said}.")
    return StageFailed(f"The language model {name} failed{said}.")


def stranger(options: ChatServerOptions) -> EngineError:
    """Return the error for a reply that is not part of the chat completions API."""
    return StageFailed(f"The server at {options.base} does not support the chat completions API. Check options.url.")
