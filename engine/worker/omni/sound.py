"""Sounds, as the encoder hears them: log-mel frames in windows that know nothing of each other.

The encoder looks around within its window and no further, so a window is final as soon as the next one has begun: a
sound that is still being spoken is encoded window by window. Two things differ from a sound that came whole. Frames
are cut off 80 dB below the loudest of all, which of a growing sound is the loudest so far; and what other sounds of the
conversation are padded to may still grow. Knows no prompt, no conversation and no encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core import MIC_RATE_HZ
from engine.errors import RequestError
from engine.worker.nn.mel import mel_filters
from engine.worker.omni.block import Block, PictureGrid, named

FRAMES_PER_S = 100  # mel frames: the extractor's hop is 160 samples in all of these checkpoints
LONGEST_S = 300.0
LEAD = 2  # frames before a window, which see the mirrored beginning of their samples
FRAME_WIDTH = 400  # samples that a frame is computed from; of the silence behind a sound its frames see no more
DEPTH = 8.0  # log10: sound 80 dB below the loudest counts as silence


@dataclass(frozen=True, slots=True)
class AudioLayout:
    """The way in which an encoder hears: in windows of so many mel frames, of which it makes ``tokens(frames)`` rows.

    It hears the padding of sounds that are shorter than ``piece`` frames (0: of none). The reference pads every sound
    to ``padded`` samples (0: to the longest of its conversation), and the last frames see that silence. What is
    shorter than ``shortest_s`` has no row.
    """

    window: int
    tokens: Callable[[int], int]
    piece: int = 0
    padded: int = 0
    shortest_s: float = 0.02

    def check(self, samples: int) -> None:
        """Raises RequestError for what is too short or too long to be heard."""
        length_s = samples / MIC_RATE_HZ
        if not self.shortest_s <= length_s <= LONGEST_S:
            raise RequestError(f"audio: {length_s:.2f} s; between {self.shortest_s} and {LONGEST_S:.0f} s can be heard")

    def silence(self, samples: int, longest: int) -> int:
        """Return how much of the silence behind a sound its last frames see; ``longest`` is the conversation's."""
        return max(0, min((self.padded or longest) - samples, FRAME_WIDTH))


class MelFrontend:
    """Samples to windows of features: the arithmetic of transformers' WhisperFeatureExtractor, frame for frame."""

    def __init__(self, settings: dict[str, Any], layout: AudioLayout) -> None:
        self._size = int(settings.get("n_fft", 400))
        self.hop = int(settings.get("hop_length", 160))
        self._filters = mel_filters(int(settings.get("feature_size", 80)), self._size, MIC_RATE_HZ)
        self.layout = layout
        self.window = layout.window

    @property
    def half_frame(self) -> int:
        """Samples that a frame sees on each side of its centre."""
        return self._size // 2

    @property
    def span(self) -> int:
        """Samples of a window."""
        return self.window * self.hop

    def whole(self, pcm: NDArray[np.int16], silence: int = 0) -> tuple[Block, ...]:
        """A sound that came whole; its last frames see so many samples of ``silence``. Raises RequestError."""
        mel = self.features(pcm, silence)
        starts = range(0, mel.shape[1], self.window)
        blocks = [self.block(pcm, i, mel[:, at : at + self.window]) for i, at in enumerate(starts)]
        return tuple(block for block in blocks if block.sounds)  # the rest of a sound may be too short for a row

    def features(self, pcm: NDArray[np.int16], silence: int = 0) -> Tensor:
        """Log-mel frames [mels, frames] of a whole sound. Raises RequestError."""
        self.layout.check(len(pcm))
        logs = self.logs(np.concatenate((pcm, np.zeros(silence, np.int16))))
        return floored(logs, float(logs.max()))[:, : -(-len(pcm) // self.hop)]

    def logs(self, pcm: NDArray[np.int16]) -> Tensor:
        """Logarithms [mels, frames] of the power in each band, around every hop."""
        wave = torch.from_numpy(pcm.astype(np.float32) / np.float32(32768))
        spectrum = torch.stft(
            wave[None], self._size, self.hop, window=torch.hann_window(self._size), return_complex=True
        )
        power = (spectrum[..., :-1].abs() ** 2).contiguous()
        return torch.clamp(self._filters @ power, min=1e-10).log10()[0]

    def block(self, pcm: NDArray[np.int16], number: int, mel: Tensor) -> Block:
        """A window of a sound, named by all samples that it sees."""
        seen = pcm[number * self.span : (number + 1) * self.span + self.half_frame]
        return Block(named("sound", seen), self.layout.tokens(mel.shape[1]), mel)


class StreamingMel:
    """A sound that is still being spoken. ``windows`` are final, ``whole`` is all of it once it is over."""

    def __init__(self, frontend: MelFrontend) -> None:
        self._frontend = frontend
        self._pieces: list[NDArray[np.int16]] = []
        self._done: list[Block] = []
        self._loudest = -torch.inf
        self.samples = 0

    def push(self, pcm: NDArray[np.int16]) -> bool:
        """Append int16 [n]; whether a window has become final. What is longer than can be heard is let go."""
        if self.samples > LONGEST_S * MIC_RATE_HZ:
            return False
        before = self.final
        self._pieces.append(pcm)
        self.samples += len(pcm)
        return self.final > before

    @property
    def final(self) -> int:
        """Count the windows that nothing more can change: their last frame sees a little of what follows."""
        return max(0, self.samples - self._frontend.half_frame) // self._frontend.span

    def windows(self) -> tuple[Block, ...]:
        """Return the windows that are final."""
        pcm = self._pcm()
        for number in range(len(self._done), self.final):
            logs = self._logs(pcm[: (number + 1) * self._frontend.span + self._frontend.hop], number)
            self._add(pcm, number, logs[:, : self._frontend.window])
        return tuple(self._done)

    def ahead(self) -> tuple[PictureGrid, ...]:
        """Nothing is seen."""
        return ()

    def whole(self, silence: int = 0) -> tuple[Block, ...]:
        """All of it, the end as it is heard before so many samples of ``silence``. Raises RequestError."""
        self._frontend.layout.check(self.samples)
        self.windows()
        pcm, number = self._pcm(), len(self._done)
        frames = -(-len(pcm) // self._frontend.hop) - number * self._frontend.window
        if not self._frontend.layout.tokens(frames):
            return tuple(self._done)
        padded = np.concatenate((pcm, np.zeros(silence, np.int16)))
        self._add(pcm, number, self._logs(padded, number), frames)
        return tuple(self._done)

    def _pcm(self) -> NDArray[np.int16]:
        self._pieces = [np.concatenate([*self._pieces, np.zeros(0, np.int16)])]
        return self._pieces[0]

    def _logs(self, pcm: NDArray[np.int16], number: int) -> Tensor:
        """Return the frames from window ``number`` on."""
        lead = LEAD if number else 0
        return self._frontend.logs(pcm[number * self._frontend.span - lead * self._frontend.hop :])[:, lead:]

    def _add(self, pcm: NDArray[np.int16], number: int, logs: Tensor, frames: int | None = None) -> None:
        self._loudest = max(self._loudest, float(logs.max()))
        self._done.append(self._frontend.block(pcm, number, floored(logs, self._loudest)[:, :frames]))


def floored(logs: Tensor, loudest: float) -> Tensor:
    """Return the encoder's input: cut off below ``loudest``, around 0."""
    return (torch.clamp(logs, min=loudest - DEPTH) + 4.0) / 4.0
