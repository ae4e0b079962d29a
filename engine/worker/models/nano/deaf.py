"""What stands in for nano's ears where their decoder cannot be installed: whoever speaks is told, and may type.

pocketsphinx has no wheel for every Python and processor. Everything else of nano works without it.
"""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from importlib.util import find_spec
from typing import Any

from engine.chunk import Chunk, Transcript, kinds
from engine.core import StageInfo
from engine.errors import EngineError, RequestError
from engine.worker.stage import Place, Seat

log = logging.getLogger(__name__)


def hears() -> bool:
    """Whether the ears' decoder is installed."""
    return find_spec("pocketsphinx") is not None


def why() -> str:
    """One sentence for those who would speak."""
    version = "{}.{}".format(*sys.version_info[:2])
    return (
        f"nano cannot hear here, since pocketsphinx has no package for Python {version} on {platform.machine()}: "
        "type to it, or use Python 3.11 or 3.13."
    )


class Deaf:
    """The stage: every request that would be heard is refused; those that are typed never come here."""

    def __init__(self, place: Place) -> None:
        self.info = StageInfo(
            name="ears", order=0, emits=kinds(Transcript), feeds=kinds(Transcript), when="hears",
            slots=place.slots,
        )  # fmt: skip
        log.warning(why())

    def open(self, seat: Seat) -> None:
        raise RequestError(why())

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            yield chunk

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [RequestError(why()) for _ in seats]
