"""What all ears of sherpa-onnx share: their options, what they say of themselves, their library, how words leave.

Knows no kind of network and no schedule: a stage decides what is decoded when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.chunk import Chunk, Speech, Transcript, kinds
from engine.config import build
from engine.core import Facets, StageInfo
from engine.errors import WeightsError
from engine.worker.sherpa_library import sherpa_library
from engine.worker.sherpa_words import Spoken
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EarsOptions:
    """The ``options`` of such a stage."""

    languages: tuple[str, ...] = ()
    """That the ears understand, as BCP 47; none: what the folder's name says."""


class EarsFolder(Protocol):
    """Ears as they lie in a folder."""

    @property
    def folder(self) -> Path: ...

    @property
    def languages(self) -> tuple[str, ...]: ...

    def recognizer(self, library: Any, threads: int) -> Any:
        """The library's recognizer of them."""
        ...


def ears_options(options: Mapping[str, Any]) -> EarsOptions:
    """Raises ConfigError for others."""
    return build(EarsOptions, dict(options), "options")


def ears_info(config: StageConfig, ears: EarsFolder) -> StageInfo:
    """What the stage says of itself."""
    return StageInfo(
        takes=kinds(Speech), emits=kinds(Transcript), feeds=kinds(Transcript), slots=config.slots, blocking=True,
        facets=Facets(heard_languages=ears.languages),
    )  # fmt: skip


def recognizer_of(ears: EarsFolder, use: str, threads: int) -> Any:
    """The library's recognizer, loaded. Raises ConfigError without the library, WeightsError for damaged ears."""
    library = sherpa_library(use)
    try:
        return ears.recognizer(library, threads)
    except (RuntimeError, IndexError, ValueError) as error:
        raise WeightsError(f"The ears in {ears.folder} cannot be loaded ({error!s:.200}): fetch them again.") from error


def transcript(req: StageRequest, spoken: Spoken, over: bool) -> list[Chunk]:
    """The words so far, where they are others than before (``req.state.emitted``); once it is over, all of them."""
    if over:
        req.done = True
        return [Transcript(spoken.text, final=True, understood=bool(spoken.text), words=spoken.words)]
    if spoken.text == req.state.emitted:
        return []
    req.state.emitted = spoken.text
    return [Transcript(spoken.text)]
