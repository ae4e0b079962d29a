"""Conversion of audio to the encoder's input: log-mel frames in independent windows.

The encoder attends only within a window, so a window is final as soon as the next one has begun. A live turn is
therefore encoded window by window. The result differs from encoding a complete recording in two ways: frames are
clipped 80 dB below the loudest frame, which for live audio is the loudest so far; and the length to which other clips
of the conversation are padded may still grow.
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
LEAD = 2  # extra frames before a window: the STFT's padding affects them, and they are dropped
FRAME_WIDTH = 400  # samples that a frame is computed from: the maximum of trailing silence that has an effect
DEPTH = 8.0  # log10: audio 80 dB below the loudest counts as silence


@dataclass(frozen=True, slots=True)
class AudioLayout:
    """How an encoder processes audio."""

    window: int
    """Mel frames per window."""
    tokens: Callable[[int], int]
    """Returns the number of rows for a number of mel frames."""
    piece: int = 0
    """Audio clips shorter than this many frames are affected by their padding; 0: no padding affects the result."""
    padded: int = 0
    """Samples to which the reference pads each clip; 0: to the longest one of its conversation."""
    shortest_s: float = 0.02
    """Seconds below which a clip has no row."""

    def check(self, samples: int) -> None:
        """Raise RequestError if an audio clip is too short or too long."""
        length_s = samples / MIC_RATE_HZ
        if not self.shortest_s <= length_s <= LONGEST_S:
            raise RequestError(f"audio: must be {self.shortest_s} to {LONGEST_S:.0f} s long, not {length_s:.2f} s")

    def silence(self, samples: int, longest: int) -> int:
        """Return the samples of trailing silence that affect a clip's last frames.

        ``longest`` is the number of samples of the conversation's longest clip.
        """
        return max(0, min((self.padded or longest) - samples, FRAME_WIDTH))


class MelFrontend:
    """Converts samples to windows of features, with the same arithmetic as transformers' WhisperFeatureExtractor."""

    def __init__(self, settings: dict[str, Any], layout: AudioLayout) -> None:
        self._size = int(settings.get("n_fft", 400))
        self.hop = int(settings.get("hop_length", 160))
        self._filters = mel_filters(int(settings.get("feature_size", 80)), self._size, MIC_RATE_HZ)
        self.layout = layout
        self.window = layout.window

    @property
    def half_frame(self) -> int:
        """Samples that a frame covers on each side of its centre."""
        return self._size // 2

    @property
    def span(self) -> int:
        """Samples per window."""
        return self.window * self.hop

    def whole(self, pcm: NDArray[np.int16], silence: int = 0) -> tuple[Block, ...]:
        """Return the windows of a complete clip, followed by ``silence`` samples of silence. Raises RequestError."""
        mel = self.features(pcm, silence)
        starts = range(0, mel.shape[1], self.window)
        blocks = [self.block(pcm, i, mel[:, at : at + self.window]) for i, at in enumerate(starts)]
        return tuple(block for block in blocks if block.sounds)  # the end of a clip may be too short for a row

    def features(self, pcm: NDArray[np.int16], silence: int = 0) -> Tensor:
        """Return the log-mel frames [mels, frames] of a complete clip. Raises RequestError."""
        self.layout.check(len(pcm))
        logs = self.logs(np.concatenate((pcm, np.zeros(silence, np.int16))))
        return floored(logs, float(logs.max()))[:, : -(-len(pcm) // self.hop)]

    def logs(self, pcm: NDArray[np.int16]) -> Tensor:
        """Return the log10 power [mels, frames] of each mel band."""
        wave = torch.from_numpy(pcm.astype(np.float32) / np.float32(32768))
        spectrum = torch.stft(
            wave[None], self._size, self.hop, window=torch.hann_window(self._size), return_complex=True
        )
        power = (spectrum[..., :-1].abs() ** 2).contiguous()
        return torch.clamp(self._filters @ power, min=1e-10).log10()[0]

    def block(self, pcm: NDArray[np.int16], number: int, mel: Tensor) -> Block:
        """Return one window of an audio clip as a block, named by a hash of all samples that affect it.

        Args:
            pcm: int16 [samples], the clip so far.
            number: The window's index.
            mel: The mel frames [mels, frames] of this window.
        """
        seen = pcm[number * self.span : (number + 1) * self.span + self.half_frame]
        return Block(named("sound", seen), self.layout.tokens(mel.shape[1]), mel)


class StreamingMel:
    """Audio of a live turn. ``windows`` returns the final windows, ``whole`` the complete turn."""

    def __init__(self, frontend: MelFrontend) -> None:
        self._frontend = frontend
        self._pieces: list[NDArray[np.int16]] = []
        self._done: list[Block] = []
        self._loudest = -torch.inf
        self.samples = 0

    def push(self, pcm: NDArray[np.int16]) -> bool:
        """Append int16 [n]. Return whether another window has become final. Audio that is too long is dropped."""
        if self.samples > LONGEST_S * MIC_RATE_HZ:
            return False
        before = self.final
        self._pieces.append(pcm)
        self.samples += len(pcm)
        return self.final > before

    @property
    def final(self) -> int:
        """Return the number of final windows. The last frame of a window covers a few samples of the next one."""
        return max(0, self.samples - self._frontend.half_frame) // self._frontend.span

    def windows(self) -> tuple[Block, ...]:
        """Return the final windows."""
        pcm = self._pcm()
        for number in range(len(self._done), self.final):
            logs = self._logs(pcm[: (number + 1) * self._frontend.span + self._frontend.hop], number)
            self._add(pcm, number, logs[:, : self._frontend.window])
        return tuple(self._done)

    def ahead(self) -> tuple[PictureGrid, ...]:
        """Return no pictures: a turn without a camera has none to encode early."""
        return ()

    def whole(self, silence: int = 0) -> tuple[Block, ...]:
        """Return the whole turn, followed by ``silence`` samples of silence. Raises RequestError."""
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
        """Return the log-mel frames of a clip from the encoder window with index ``number`` to the end.

        ``pcm`` begins with the clip's first sample.
        """
        lead = LEAD if number else 0
        return self._frontend.logs(pcm[number * self._frontend.span - lead * self._frontend.hop :])[:, lead:]

    def _add(self, pcm: NDArray[np.int16], number: int, logs: Tensor, frames: int | None = None) -> None:
        self._loudest = max(self._loudest, float(logs.max()))
        self._done.append(self._frontend.block(pcm, number, floored(logs, self._loudest)[:, :frames]))


def floored(logs: Tensor, loudest: float) -> Tensor:
    """Clip log powers DEPTH below ``loudest``, and scale them for the encoder."""
    return (torch.clamp(logs, min=loudest - DEPTH) + 4.0) / 4.0
