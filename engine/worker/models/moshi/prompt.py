"""Prompts of PersonaPlex: a voice, then a text, given as the tokens or input rows of a session's first positions.

Sources: LMGen.step_system_prompts and load_voice_prompt_embeddings of NVIDIA's personaplex.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.models.moshi.sizes import MoshiSizes

PAD = 3
"""The text token of a frame without a new word; 0 ends a run of them."""
SILENCE = (948, 243, 1178, 546, 1736, 1030, 1978, 2008)
"""The model's own codes during a text prompt: silence."""
SINE = (430, 1268, 381, 1611, 1095, 1495, 56, 472)
"""The user's codes during a prompt: a tone of 440 Hz."""
SPACER = 6
"""Frames of silence after the voice and after the text: half a second."""
CODES = 2048
DELAYS = (0, 0, *[1] * 7, 0, *[1] * 7)


@dataclass(frozen=True, slots=True)
class PersonaVoice:
    """A voice of PersonaPlex, as its ``.pt`` files contain it."""

    embeddings: Tensor
    """Input rows [frames - 1, width] of the first positions."""
    recent: NDArray[np.int64]
    """Tokens [streams, positions] of the last positions; position ``p`` is at ``p`` modulo the size."""

    @classmethod
    def read(cls, file: Path, sizes: MoshiSizes) -> PersonaVoice:
        """Read a file. Raises WeightsError if it does not fit the model."""
        try:
            state: Any = torch.load(file, map_location="cpu", weights_only=True)
            embeddings = state["embeddings"].flatten(0, -2)
            recent = state["cache"][0]
        except (
            OSError,
            pickle.UnpicklingError,
            RuntimeError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
        ) as error:
            reason = str(error).splitlines()[0][:200]
            raise WeightsError(f"{file} is not a voice of PersonaPlex ({reason}). Download it again.") from None
        width, streams = sizes.temporal.hidden_size, len(sizes.delays)
        if embeddings.shape[-1] != width or recent.shape[0] != streams or recent.shape[1] < sizes.lag + 2:
            raise WeightsError(
                f"{file} is a voice of another model: its rows have {embeddings.shape[-1]} numbers and "
                f"{recent.shape[0]} streams, but the model has {width} and {streams}."
            )
        return cls(embeddings, recent.numpy().astype(np.int64))


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """The known inputs of a session's first positions: the rows of a voice, then tokens."""

    voice: Tensor | None
    tokens: NDArray[np.int64]
    """Tokens [positions, streams] after the voice's rows."""
    after: NDArray[np.int64]
    """Tokens [streams] of the first position of the conversation; -1 where the model or the user decides."""

    @property
    def voiced(self) -> int:
        """Positions of the voice's rows."""
        return 0 if self.voice is None else len(self.voice)

    @property
    def length(self) -> int:
        return self.voiced + len(self.tokens)


def check_promptable(sizes: MoshiSizes, where: str) -> None:
    """Raise WeightsError if a model cannot have prompts, because their codes belong to another codec."""
    if sizes.codes != CODES or sizes.delays != DELAYS:
        raise WeightsError(
            f"{where}: prompts need 8 codebooks of {CODES} entries for each speaker, as PersonaPlex has. "
            "Remove the voices and the instructions."
        )


def prompt_of(sizes: MoshiSizes, voice: PersonaVoice | None, text: Sequence[int]) -> SystemPrompt:
    """Return the prompt of a voice and of a text's tokens."""
    words = [PAD] * SPACER + [*text] + [PAD] * SPACER
    frames = np.array([(word, *SILENCE, *SINE) for word in words], np.int64)
    before = 0 if voice is None else len(voice.embeddings) + 1  # frames of the voice
    first, length = max(0, before - 1), before + len(frames)
    table = np.array([_tokens(sizes, voice, frames, before, at) for at in range(first, length + 1)])
    return SystemPrompt(None if voice is None else voice.embeddings, table[:-1], table[-1])


def _tokens(
    sizes: MoshiSizes, voice: PersonaVoice | None, frames: NDArray[np.int64], before: int, position: int
) -> list[int]:
    """Return the tokens of a position; -1 for a frame after the prompt."""
    found = list[int]()
    for stream, delay in enumerate(sizes.delays):
        frame = position - delay - before
        if frame >= len(frames):
            found.append(-1)
        elif frame >= 0 and (voice is not None or position > delay):
            found.append(int(frames[frame, stream]))
        elif voice is not None:
            found.append(int(voice.recent[stream, position % voice.recent.shape[1]]))
        else:
            found.append(sizes.codes if stream else sizes.text_ids)
    return found


def tagged(text: str) -> str:
    """Return a text prompt between the tags that the model was trained with."""
    text = text.strip()
    return text if text.startswith("<system>") and text.endswith("<system>") else f"<system> {text} <system>"
