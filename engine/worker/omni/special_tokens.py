"""Special token ids of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The placeholders of audio, pictures and video, and the marks around audio."""

    audio: int
    image: int
    video: int
    audio_start: int
    audio_end: int

    @property
    def media(self) -> tuple[int, int, int]:
        """The placeholders of audio, pictures and video."""
        return self.audio, self.image, self.video

    def stand(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which ids are placeholders. (For three values, ``np.isin`` takes twenty times as long.)"""
        return (ids == self.audio) | (ids == self.image) | (ids == self.video)
