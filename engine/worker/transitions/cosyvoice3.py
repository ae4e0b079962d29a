"""CosyVoice3, from the language model to the flow: speech tokens, and the voice to speak them with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk
from engine.errors import ConfigError, StageFailed
from engine.worker.transitions.accumulator import Accumulator, Ids
from engine.worker.transitions.transition import FullPayload, step_of
from engine.worker.transitions.windows import ALL, PayloadWindow, Windows

BOOK = 6_561  # ids from this one on end the speech
MEL_FRAMES, MELS = 2, 80  # per token


class CosyVoiceVoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.voice"):
    """A voice."""

    speech_token: NDArray[np.int64]
    """[1, T] tokens of its sample."""
    speech_feat: NDArray[np.float32]
    """[1, 2T, 80] mel frames of the sample."""
    embedding: NDArray[np.float32]
    """[1, 192] embedding of the speaker."""

    def __post_init__(self) -> None:
        tokens, mel = self.speech_token.shape, self.speech_feat.shape
        if mel != (*tokens[:1], MEL_FRAMES * tokens[-1], MELS):
            raise StageFailed(f"a voice's tokens {list(tokens)} and mel frames {list(mel)} do not match")


class CosyVoiceTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.tokens"):
    """A step of the language model."""

    ids: Ids | None = None
    """int64 [n] ids that were drawn."""
    voice: CosyVoiceVoice | None = None
    """The voice, in the first step. The latest value counts."""
    prompt_ids: NDArray[np.int64] | None = None
    """The prompt's ids, in the first step: some answers repeat them. The latest value counts."""


class CosyVoiceSpeech(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cosyvoice3.speech"):
    """Tokens to speak."""

    tokens: NDArray[np.int64]
    """int64 [n], each below BOOK."""
    offset: int
    """The number of first tokens whose audio must be cut off."""
    voice: CosyVoiceVoice | None
    """The voice, in the first payload."""
    finished: bool = True


def speech_of(steps: CosyVoiceTokens) -> CosyVoiceSpeech:
    """Return an answer as one payload. Raises StageFailed without a voice.

    If the answer begins with exactly the prompt's ids, and then the voice's, these are removed. The audio of the
    voice's sample is only cut off if the speech has ended: otherwise the sample was not spoken.
    """
    voice = _required(steps.voice)
    ids = _none() if steps.ids is None else steps.ids
    spoken = ids
    for prefix in (_none() if steps.prompt_ids is None else steps.prompt_ids, voice.speech_token.reshape(-1)):
        if len(prefix) and np.array_equal(spoken[: len(prefix)], prefix):
            spoken = spoken[len(prefix) :]
    return CosyVoiceSpeech(_sounding(spoken), voice.speech_token.size if (ids >= BOOK).any() else 0, voice)


def whole() -> FullPayload[CosyVoiceTokens, CosyVoiceSpeech]:
    return FullPayload(CosyVoiceTokens, speech_of)


class CosyVoiceStream:
    """The same in windows, while the speech is generated. Every payload contains all tokens so far.

    The first window has ``chunk`` tokens, plus those that the voice's sample lacks to a multiple of it. Each later
    window is ``growth`` times as long as the one before, up to ``most``. The flow looks ``ahead`` tokens further.
    """

    def __init__(self, chunk: int = 25, most: int = 100, growth: int = 2, ahead: int = 3) -> None:
        if min(chunk, most, growth) < 1 or ahead < 0:
            raise ConfigError(
                f"CosyVoice3: invalid windows of {chunk} to {most} tokens, growth {growth}, {ahead} ahead"
            )
        self._chunk = chunk
        self._most = max(chunk, most)
        self._growth = growth
        self._steps = Accumulator(CosyVoiceTokens)
        self._windows = Windows(_none(), self._size, ALL, ahead)
        self._given = False

    def add(self, chunk: Chunk) -> Iterable[CosyVoiceSpeech]:
        step = step_of(chunk, CosyVoiceTokens)
        self._steps.add(CosyVoiceTokens(voice=step.voice))
        windows = [] if step.ids is None else self._windows.add(_sounding(step.ids))
        return [self._speech(window) for window in windows]

    def end(self) -> CosyVoiceSpeech:
        return self._speech(self._windows.end())

    def _size(self, count: int) -> int:
        # The exponent is bounded: larger powers exceed ``most``, and could have thousands of digits.
        size = min(self._most, self._chunk * self._growth ** min(count, self._most.bit_length()))
        return size if count else size + -self._voice.speech_token.shape[1] % self._chunk

    def _speech(self, window: PayloadWindow) -> CosyVoiceSpeech:
        voice = None if self._given else self._voice
        self._given = True
        return CosyVoiceSpeech(window.frames, window.context, voice, window.finished)

    @property
    def _voice(self) -> CosyVoiceVoice:
        return _required(self._steps.whole.voice)


def _required(voice: CosyVoiceVoice | None) -> CosyVoiceVoice:
    if voice is None:
        raise StageFailed("CosyVoice3: the language model sent no voice; its first step must contain one")
    return voice


def _sounding(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return ids[(ids >= 0) & (ids < BOOK)]


def _none() -> NDArray[Any]:
    return np.zeros(0, np.int64)
