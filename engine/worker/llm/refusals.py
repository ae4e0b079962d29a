"""Errors that come with language models alone: a conversation that is too long, and a server that is none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.errors import ContextOverflow, EngineError, RequestError, StageFailed
from engine.worker.llm.options import ChatServerOptions
from engine.worker.remote import refusals
from engine.worker.remote.refusals import ServerRefusal, says

_CONTEXT = re.compile(r"context[ _](?:size|length|window)|maximum context|prompt is too long", re.I)


def overflows(refusal: ServerRefusal) -> bool:
    """Whether the conversation is longer than the model's context."""
    return refusal.status in (400, 413, 422, 500) and bool(_CONTEXT.search(f"{refusal.kind} {refusal.said}"))


def as_engine_error(
    refusal: ServerRefusal, options: ChatServerOptions, texts: Iterable[str], key: str = ""
) -> EngineError:
    """The error that stands for a refusal. Its message holds nothing of the conversation's texts and of the key."""
    if overflows(refusal):
        said = says(refusal.said, texts, key)
        return ContextOverflow(f"The conversation is longer than {options.model} can read{said}. Shorten it.")
    return refusals.as_engine_error(refusal, options, texts, key)


def error_of_model(refusal: ServerRefusal, name: str, texts: Iterable[str]) -> EngineError:
    """Return the same error for a model that runs in the worker itself."""
    said = says(refusal.said, texts)
    if overflows(refusal):
        return ContextOverflow(f"The conversation is longer than {name} can read{said}. Shorten it.")
    if refusal.status in (400, 413, 422):
        return RequestError(f"The language model {name} does not take this request{said}.")
    return StageFailed(f"The language model {name} failed{said}.")


def stranger(options: ChatServerOptions) -> EngineError:
    """Return the error for a server's answer that is no answer of this API."""
    return StageFailed(f"The server at {options.base} does not speak the chat completions API: check the url.")
