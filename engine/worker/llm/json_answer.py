"""Checks that an answer is JSON where the request requires it, because not every server obeys ``response_format``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.chunk import Text, Usage
from engine.errors import StageFailed
from engine.worker.llm.deltas import Delta


async def checked_json(deltas: AsyncGenerator[Delta], model: str) -> AsyncGenerator[Delta]:
    """Yield the deltas of an answer. Raises StageFailed instead of a regular end if its text is not JSON.

    An answer that was cut off, or that calls functions, is not checked.
    """
    pieces: list[str] = []
    async with aclosing(deltas):
        async for delta in deltas:
            match delta:
                case Text(text):
                    pieces.append(text)
                case Usage(finish="stop") if not is_json("".join(pieces)):
                    raise StageFailed(
                        f"The language model {model} has not answered in JSON, which the request requires. Use a model "
                        "or server that supports response_format."
                    )
                case _:
                    pass
            yield delta


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
