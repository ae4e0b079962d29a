"""Code that all ears share: their options, what they tell of themselves, how sound comes in and how words leave.

Knows no library, no kind of network and no schedule: a stage decides what is decoded when.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.chunk import Chunk, Speech, Transcript, kinds
from engine.config import build
from engine.core import MIC_RATE_HZ, Facets, Pcm, StageInfo, Wave
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.timed_words import Spoken

ROW = 5 * MIC_RATE_HZ
"""Samples of a recording that comes at once, which a step takes whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarsOptions:
    """The ``options`` of such a stage."""

    languages: tuple[str, ...] = ()
    """Languages that the ears understand, as BCP 47; none: those that the folder's name says."""


def ears_options(options: Mapping[str, Any]) -> EarsOptions:
    """Raises ConfigError for others."""
    return build(EarsOptions, dict(options), "options")


def ears_info(config: StageConfig, languages: tuple[str, ...], slots: int | None = None) -> StageInfo:
    """Describe such a stage; it takes ``slots`` users at most."""
    return StageInfo(
        takes=kinds(Speech),
        emits=kinds(Transcript),
        feeds=kinds(Transcript),
        blocking=True,
        slots=min(config.slots, slots or config.slots),
        facets=Facets(heard_languages=languages),
    )


async def pcm_of(inputs: AsyncIterator[Chunk], longest: int = 1 << 62) -> AsyncGenerator[Pcm]:
    """Yield the user's speech as it comes, int16 [samples] at MIC_RATE_HZ; chunks of more samples than ``longest`` in
    pieces."""
    async for chunk in inputs:
        if isinstance(chunk, Speech):
            for at in range(0, len(chunk.pcm), longest):
                yield chunk.pcm[at : at + longest]


def floats(pcm: Pcm) -> Wave:
    """int16 [samples] as libraries take them: -1 to 1."""
    return pcm.astype(np.float32) / np.float32(32768)


def transcript(req: StageRequest, spoken: Spoken, over: bool) -> list[Chunk]:
    """The words so far, where they are others than before (``req.state.emitted``); once it is over, all of them."""
    if over:
        req.done = True
        return [Transcript(spoken.text, final=True, understood=bool(spoken.text), words=spoken.words)]
    if spoken.text == req.state.emitted:
        return []
    req.state.emitted = spoken.text
    return [Transcript(spoken.text)]
