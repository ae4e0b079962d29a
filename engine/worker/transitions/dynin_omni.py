"""Dynin-Omni, from text to image to audio: one of the stages decodes the tokens, and the others pass them on."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.errors import StageFailed
from engine.worker.codec import within
from engine.worker.transitions.accumulator import Ids
from engine.worker.transitions.transition import FullPayload

IMAGE_BOOK, AUDIO_BOOK = 8_192, 4_096  # unless the runtime sets another size


class DetokenizerTarget(IntEnum):
    """The stage that decodes an answer's tokens: the checkpoint's ``detok_id``."""

    TEXT = 0
    AUDIO = 1
    IMAGE = 2


class Runtime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of one answer that stages pass on, such as its task and codebook sizes. None: not set by any stage."""

    task: str | None = None
    detok_id: int | None = None
    speaker: str | None = None
    language: str | None = None
    condition: str | None = None
    t2s_condition: str | None = None
    codebook_size: int | None = None
    audio_codebook_size: int | None = None
    text_vocab_size: int | None = None
    num_new_special_tokens: int | None = None
    image_vocab_offset: int | None = None
    audio_vocab_offset: int | None = None
    t2s_vocab_start: int | None = None

    def updated(self, later: Runtime) -> Runtime:
        """Return a copy with the fields that ``later`` sets."""
        said = {name: getattr(later, name) for name in later.__struct_fields__}
        return msgspec.structs.replace(self, **{name: value for name, value in said.items() if value is not None})


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dynin_omni.output"):
    """A step of a stage. The latest value of each field counts, except that ``drawn_ids`` are concatenated.

    A diffusion step writes all of ``token_ids`` (or ``text_tokens``) again. All ids are int64 [n].
    """

    token_ids: NDArray[np.int64] | None = None
    text_tokens: NDArray[np.int64] | None = None
    drawn_ids: Ids | None = None
    detok_id: int | None = None
    prompt: Runtime | None = None
    """The settings that came with the request."""
    runtime: Runtime | None = None
    """Settings that the stage has determined. They override those in ``prompt``."""


class Handed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="dynin_omni.handed"):
    """An answer's tokens, int64 [n], for the stage that decodes them."""

    tokens: NDArray[np.int64]
    target: DetokenizerTarget
    runtime: Runtime

    def codes_for(self, stage: DetokenizerTarget) -> NDArray[np.int64] | None:
        """Return the tokens if that stage decodes them, otherwise None. Raises StageFailed for an invalid code."""
        if stage is not self.target:
            return None
        image = stage is DetokenizerTarget.IMAGE
        size = self.runtime.codebook_size if image else self.runtime.audio_codebook_size
        return within(self.tokens, size or (IMAGE_BOOK if image else AUDIO_BOOK))

    def passed_on(self) -> Output:
        """Return the same as a step of a stage that is not its target."""
        return Output(token_ids=self.tokens, detok_id=int(self.target), prompt=self.runtime)


def handed(output: Output) -> Handed:
    """Return the first tokens that are present, with their settings. Raises StageFailed for an unknown target."""
    runtime = (output.prompt or Runtime()).updated(output.runtime or Runtime())
    number = output.detok_id if output.detok_id is not None else runtime.detok_id or 0
    if number not in list(DetokenizerTarget):
        raise StageFailed(
            f"Dynin-Omni: a stage sent detok_id {number}; only 0 (text), 1 (audio) and 2 (image) can be decoded"
        )
    given = (output.token_ids, output.text_tokens, output.drawn_ids)
    tokens = next((ids for ids in given if ids is not None and ids.size), np.zeros(0, np.int64))
    return Handed(tokens, DetokenizerTarget(number), runtime)


def whole() -> FullPayload[Output, Handed]:
    return FullPayload(Output, handed)
