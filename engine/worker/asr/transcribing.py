"""Code that all speech recognizers share: options, stage description, audio input and transcript output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.chunk import Chunk, Speech, Transcript, kinds
from engine.core import MIC_RATE_HZ, Facets, Hint, Pcm, StageInfo, Wave
from engine.deployment.config import build
from engine.errors import ConfigError
from engine.worker.asr.word_times import WordTimes
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

ROW = 5 * MIC_RATE_HZ
"""Samples that one step takes from audio that arrives all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarsOptions:
    """Stage ``options`` that all speech recognizers have."""

    languages: tuple[str, ...] = ()
    """Languages that the model should transcribe (BCP 47). Empty: the languages in the folder's name."""


def ears_options(options: Mapping[str, Any]) -> EarsOptions:
    """Parse the stage's options. Raises ConfigError."""
    return build(EarsOptions, dict(options), "options")


def language_codes(languages: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return a model's codes for ``languages``, such as "pt" for "pt-BR". Raises ConfigError for an unsupported one."""
    codes = tuple(language.partition("-")[0] for language in languages)
    for code in codes:
        if code not in known:
            raise ConfigError(
                f"options.languages: this model does not support {code!r:.20} (supported: {', '.join(known)})"
            )
    return codes


def ears_info(
    config: StageConfig,
    languages: tuple[str, ...],
    slots: int | None = None,
    hints: frozenset[Hint] = frozenset(),
) -> StageInfo:
    """Describe a speech recognition stage for at most ``slots`` concurrent users. ``hints``: see ``Facets.hints``."""
    return StageInfo(
        takes=kinds(Speech),
        emits=kinds(Transcript),
        feeds=kinds(Transcript),
        blocking=True,
        slots=min(config.slots, slots or config.slots),
        facets=Facets(heard_languages=languages, hints=hints),
    )


async def pcm_of(inputs: AsyncIterator[Chunk], longest: int = 1 << 62) -> AsyncGenerator[Pcm]:
    """Yield the user's speech as it arrives: int16 [samples] at MIC_RATE_HZ, at most ``longest`` samples at a time."""
    async for chunk in inputs:
        if isinstance(chunk, Speech):
            for at in range(0, len(chunk.pcm), longest):
                yield chunk.pcm[at : at + longest]


def floats(pcm: Pcm) -> Wave:
    """Convert int16 [samples] to float32 from -1 to 1."""
    return pcm.astype(np.float32) / np.float32(32768)


def transcript(req: StageRequest, spoken: WordTimes, over: bool) -> list[Chunk]:
    """Return the final transcript if ``over``; otherwise a partial one if its text has changed since
    ``req.state.emitted``.
    """
    if over:
        req.done = True
        understood = bool(spoken.text)
        language = spoken.language if understood else ""
        return [Transcript(spoken.text, True, understood, words=spoken.words, language=language)]
    if spoken.text == req.state.emitted:
        return []
    req.state.emitted = spoken.text
    return [Transcript(spoken.text)]
